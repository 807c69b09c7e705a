"""Which clients a Kafka log makes, keeps, hands out and closes."""

from __future__ import annotations

import pickle
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.runtime.errors import Fenced
from flowql.runtime.log.base import Clients, Position, TopicPartition
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka import log as logs
from flowql.runtime.log.kafka.admin import TIMEOUT_S
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import STABLE_S, KafkaLog
from flowql.runtime.log.kafka.producer import sequence_partition

A0, COUNTER = TopicPartition("A", 0), sequence_partition("app")


class Fetches:
    """A consumer; notes what it is asked."""

    made: list[Fetches]

    def __init__(self, _c: object, _a: object, client_id: str, group: str, wait_ms: int) -> None:
        self.client_id, self.group, self.wait_ms, self.closed = client_id, group, wait_ms, False
        self.asked: list[Any] = []
        self.cursors: dict[TopicPartition, Any] = {}
        self.member = None
        Fetches.made.append(self)

    def committed(self, tps: Any, timeout_s: float) -> dict[TopicPartition, Position]:
        self.asked.append((list(tps), timeout_s))
        return {tp: Position(n) for n, tp in enumerate(tps)}

    def commit(self, positions: Any) -> None:
        self.asked.append(positions)

    def group_metadata(self) -> object:
        self.asked.append("metadata")
        return f"metadata of {self.group}"

    def stop(self, tps: Any) -> None:
        self.asked.append(("stop", list(tps)))

    def close(self) -> None:
        self.closed = True


class Library:
    """The library's client of an admin. Two topics with a partition each."""

    made: list[Library]

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        self.client_id, self.looks = settings["client.id"], 0
        Library.made.append(self)

    def list_topics(self, timeout: float) -> SimpleNamespace:
        self.looks += 1
        one = SimpleNamespace(partitions={0: SimpleNamespace(replicas=[1])}, error=None)
        return SimpleNamespace(topics={"A": one, COUNTER.topic: one})

    def delete_topics(self, names: list[str], operation_timeout: float) -> dict[str, Future[None]]:
        done: Future[None] = Future()
        done.set_result(None)
        return dict.fromkeys(names, done)

    def describe_topics(self, topics: object, request_timeout: float) -> dict[str, Future[Any]]:
        return {}


class Producer:
    made: list[Producer]
    terms: list[int]

    def __init__(self, _c: object, _a: object, transactional_id: str, counter: object, _g: object, *more: Any) -> None:
        self.transactional_id, self.term, self.closed = transactional_id, more[-1], False
        Producer.made.append(self)

    def take_over(self) -> int:
        if (term := Producer.terms.pop(0)) < 0:
            raise Fenced("the one before goes on")
        return term

    def close(self) -> None:
        self.closed = True


class AtLeastOnce(Producer):
    pass


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    Fetches.made, Library.made, Producer.made, Producer.terms = [], [], [], []
    monkeypatch.setattr(logs, "FetchClient", Fetches)
    monkeypatch.setattr(admins, "AdminClient", Library)
    monkeypatch.setattr(logs, "KafkaProducer", Producer)
    monkeypatch.setattr(logs, "AtLeastOnceProducer", AtLeastOnce)


def new_log(**options: Any) -> KafkaLog:
    return KafkaLog(Connection("nowhere:1"), "app", **options)


def test_nothing_is_connected_to_before_it_is_needed() -> None:
    log = new_log()
    assert log.clients() == Clients(0, 0, 0)
    assert (Fetches.made, Library.made) == ([], [])
    log.topics()
    log.topics()
    assert [(a.client_id, a.looks) for a in Library.made] == [("app-admin", 3)], "one look greets the brokers"
    assert log.clients() == Clients(0, 0, 1)
    log.close()


def test_one_consumer_speaks_for_the_applications_own_group() -> None:
    log = new_log()
    assert log.committed("app") == {A0: Position(0)}, "without the count of commits"
    assert log.committed_positions("app", [A0]) == {A0: Position(0)}
    log.commit_positions("app", {A0: Position(7)})
    assert log.stable_positions("app", [A0]) == {A0: Position(0)}
    assert (log.group_metadata("app"), log.group_metadata("app")) == ("metadata of app",) * 2
    (client,) = Fetches.made
    assert (client.client_id, client.group, client.wait_ms) == ("app-restore", "app", 20)
    assert client.asked == [
        *(([A0, COUNTER], TIMEOUT_S), ([A0], TIMEOUT_S), {A0: Position(7)}, ([A0], STABLE_S), "metadata"),
    ]
    log.delete_topic("A")
    assert client.asked[-1] == ("stop", [])
    assert log.clients() == Clients(1, 0, 1)
    log.close()
    log.close()
    assert client.closed
    assert log.clients() == Clients(0, 0, 1)


def test_another_group_has_a_client_for_a_moment_or_for_those_who_ask_again() -> None:
    log = new_log()
    log.committed_positions("g", [A0])
    log.committed_positions("g", [A0])
    assert [(c.client_id, c.group, c.closed) for c in Fetches.made] == [("app-asks", "g", True)] * 2
    log.stable_positions("g", [A0])
    log.stable_positions("g", [A0])
    log.committed_positions("g", [A0])
    assert [c.closed for c in Fetches.made] == [True, True, False]
    assert [timeout for _, timeout in Fetches.made[2].asked] == [TIMEOUT_S] * 3
    log.stable_positions("h", [A0])
    assert [c.group for c in Fetches.made[3:]] == ["h"]
    log.close()
    assert all(c.closed for c in Fetches.made)
    Fetches.made = []
    log.committed_positions("g", [A0])
    assert len(Fetches.made) == 1, "one is made anew"


def test_who_holds_the_application_has_its_producer_in_its_term(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    Producer.terms = [-1, -1, 5]
    log.hold("app")
    assert [(p.term, p.closed) for p in Producer.made] == [(0, True), (0, True), (0, False)]
    assert log.producer("app") is Producer.made[2]
    assert log.producer("app") is not Producer.made[2], "it is handed out once"
    log.producer("other")
    assert [(p.transactional_id, p.term) for p in Producer.made[3:]] == [("app", 5), ("other", 0)]
    log.hold("member")
    held = Producer.made[-1]
    assert (held.transactional_id, held.term) == ("member", 0)
    log.close()
    assert held.closed
    assert log.producer("member") is not held
    monkeypatch.setattr(logs, "TAKE_OVER_S", -1)
    Producer.terms = [-1]
    with pytest.raises(Fenced):
        log.hold("app")
    assert Producer.made[-1].closed


def test_without_transactions_only_the_applications_producer_is_another() -> None:
    log = new_log(at_least_once="app-tasks")
    log.hold("app")
    assert [type(p) for p in Producer.made] == [AtLeastOnce]
    assert log.producer("app") is Producer.made[0]
    assert type(log.producer("app")) is AtLeastOnce
    assert type(log.producer("other")) is Producer
    assert Producer.made[0].term == "app-tasks", "the topic that is written last"


def test_another_process_opens_the_same_log() -> None:
    log = KafkaLog(Connection("host:1", {"a": "b"}, 3, True), "app")
    opened = pickle.loads(pickle.dumps(log.opener()))()
    assert (opened._connection, opened._application_id) == (Connection("host:1", {"a": "b"}, 3, True), "app")
