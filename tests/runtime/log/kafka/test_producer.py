"""What a producer sends, counts and forgets, with a client that does as it is told."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable, TopicMissing
from flowql.runtime.log.base import NewTopic, Position, TopicPartition
from flowql.runtime.log.kafka import producer as producers
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.producer import KafkaProducer, count, term_of
from flowql.runtime.log.kafka.records import send_all, to_key_values
from tests.runtime.log.kafka import test_branches
from tests.runtime.log.kafka.test_branches import A0, COUNTER, Groups, error
from tests.runtime.log.records import batch

B1 = TopicPartition("B", 1)


class Client(test_branches.Client):
    """Notes the arguments of its calls, too."""

    def __init__(self, config: dict[str, Any], logger: object = None) -> None:
        super().__init__(config, logger)
        self.given: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        def noted(*args: Any, **named: Any) -> Any:
            self.given.append((name, args, named))
            return call(*args, **named)

        return noted

    def told(self, name: str) -> list[tuple[Any, ...]]:
        return [args for called, args, _ in self.given if called == name]

    def positions(self) -> list[tuple[Any, dict[tuple[str, int], tuple[int, str]]]]:
        """Of each group its metadata, and what is moved."""
        return [
            (metadata, {(p.topic, p.partition): (p.offset, p.metadata) for p in offsets})
            for offsets, metadata in (args[:2] for args in self.told("send_offsets_to_transaction"))
        ]


class Admin(test_branches.Admin):
    def __init__(self) -> None:
        self.made: list[Any] = []
        self.forgotten: list[str] = []
        self.checked: list[TopicPartition] = []
        self.ends: list[dict[TopicPartition, int]] = []
        self.written: dict[TopicPartition, int] | LogError = {}

    def create_topics(self, topics: dict[str, NewTopic]) -> None:
        self.made += [(name, new.partitions, new.config) for name, new in topics.items()]

    def check_partition(self, tp: TopicPartition) -> None:
        self.checked.append(tp)

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)

    def written_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        if isinstance(self.written, LogError):
            raise self.written
        return {tp: self.written[tp] for tp in tps if tp in self.written}

    def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.ends.pop(0)
        return {tp: found[tp] for tp in tps if tp in found}


class World:
    def __init__(self) -> None:
        self.admin, self.clock, self.check = Admin(), VirtualClock(1_000_000), test_branches.Check()
        self.producer = KafkaProducer(Connection("nowhere:1"), self.admin, "app", COUNTER, Groups(), self.check)  # type: ignore[arg-type]
        self.producer._clock = self.clock  # type: ignore[assignment]
        client = test_branches.Client.made[-1]
        assert isinstance(client, Client)
        self.client = client


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(producers, "ProducerClient", Client)

    def ending(call: Any, seconds: float, what: str) -> None:
        call(seconds)

    monkeypatch.setattr(producers, "ending", ending)
    return World()


def test_a_commit_moves_the_positions_of_each_group_and_counts_itself(world: World) -> None:
    """The second one moves nothing of the first."""
    assert world.admin.made == [(COUNTER.topic, 1, {"cleanup.policy": "compact"})]
    name = world.producer._name
    world.producer.begin()
    world.producer.send(A0, batch([b"1"]))
    world.producer.send_positions("g", {A0: Position(3, "x")})
    world.producer.send_positions("g", {B1: Position(4)})
    assert world.producer.commit() == 5
    assert world.client.positions() == [
        ("g", {("A", 0): (3, "x"), ("B", 1): (4, "")}),
        ("app", {tuple(COUNTER): (0, f"seq=5 by=4,{name}:5")}),
    ]
    assert world.admin.checked == [A0, A0, B1]
    world.producer.begin()
    assert world.producer.commit() == 6
    assert world.client.positions()[2:] == [("app", {tuple(COUNTER): (0, f"seq=6 by=4,{name}:6")})]
    world.producer.begin()
    world.producer.send_positions("g", {A0: Position(9)})
    assert world.producer.commit() == 7
    assert world.client.positions()[3][0] == "g"


def test_a_new_term_is_counted_without_another_commit(world: World) -> None:
    name = world.producer._name
    assert world.producer.take_over() == 1
    assert world.client.positions() == [("app", {tuple(COUNTER): (0, f"seq=4 term=1 by=4,{name}:4")})]
    world.producer.begin()
    assert world.producer.commit() == 5
    assert world.client.positions()[1:] == [("app", {tuple(COUNTER): (0, f"seq=5 term=1 by=4,{name}:5")})]
    assert [term_of(count(5, term)) for term in (0, 1, 12)] == [0, 1, 12]


def test_records_are_given_to_the_client_as_they_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "_SERVE_ROWS", 2)
    world.producer.begin()
    world.producer.send(B1, batch([(n + 1, b"k", b"%d" % n) for n in range(5)]))
    assert world.client.told("produce") == [("B", b"%d" % n, b"k", 1, None, None, n + 1) for n in range(5)]
    assert world.client.told("poll") == [(0,)] * 3, "reports are heard between"
    world.producer.send(B1, batch([]))
    assert len(world.client.told("produce")) == 5


def test_nothing_is_produced_of_no_records_and_a_full_queue_is_waited_for() -> None:
    given, waited = list[Any](), list[int]()
    full = [BufferError("full"), BufferError("full")]

    def produce(*args: Any) -> None:
        if full:
            raise full.pop()
        given.append(args)

    send_all(batch([]), A0, produce, lambda: waited.append(1))
    assert (given, waited) == ([], [])
    send_all(batch([(0, b"k", b"v", [{"key": "h", "value": b"1"}])]), A0, produce, lambda: waited.append(1))
    headers = [("h", b"1"), ("flowql.time", b"0")]
    assert (given, waited) == ([("A", b"v", b"k", 0, None, None, 1, headers)], [1, 1])
    assert to_key_values([]) == ([], [], 0)


def test_a_commit_waits_until_readers_see_it(world: World) -> None:
    world.producer.begin()
    world.producer.send(A0, batch([b"1"]))
    world.producer.send(B1, batch([b"1"]))
    world.admin.written = {A0: 5, B1: 7}
    world.admin.ends = [{A0: 4, B1: 7}, {A0: 4}, {A0: 5}, {A0: 99}]
    world.producer.commit()
    assert world.admin.ends == [{A0: 99}]
    assert world.client.told("poll")[-2:] == [(0.002,)] * 2
    assert world.client.told("flush") == [(producers.CALL_S,)]
    world.producer.begin()
    world.producer.commit()
    assert world.admin.ends == [{A0: 99}], "of what the one before has sent nothing is asked"


def test_a_commit_does_not_wait_for_ever_until_readers_see_it(world: World) -> None:
    """Another's open transaction may hide what is behind it, and a partition may be gone."""
    world.producer.begin()
    world.producer.send(A0, batch([b"1"]))
    world.admin.written = {A0: 5}
    world.client.poll = lambda *_: world.clock.advance(300)
    world.admin.ends = [{A0: 4}] * 9
    assert world.producer.commit() == 5
    assert len(world.admin.ends) == 9 - 4
    world.producer.begin()
    world.producer.send(A0, batch([b"1"]))
    world.admin.ends = [{}]
    assert world.producer.commit() == 6
    world.producer.begin()
    world.producer.send(A0, batch([b"1"]))
    world.admin.written = LogUnavailable("away")
    assert world.producer.commit() == 7, "whether it is seen is not what it is for"


@pytest.mark.parametrize(
    ("seconds", "name", "calls"), [("COMMIT_S", "commit_transaction", 4), ("ABORT_S", "abort_transaction", 4)]
)
def test_a_call_is_made_again_until_its_time_is_over(
    seconds: str, name: str, calls: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, seconds, 1.0)
    world.client.poll = lambda *_: world.clock.advance(400)
    world.client.fail = {name: [error(KafkaError._TIMED_OUT)] * 100}
    world.producer.begin()
    with pytest.raises(LogUnavailable):
        world.producer.commit() if name == "commit_transaction" else world.producer.abort()
    assert world.client.told(name) == [(producers.CALL_S,)] * calls
    with pytest.raises(LogUnavailable):
        world.producer.begin()


def test_of_records_that_are_not_taken_the_first_says_why(world: World) -> None:
    """What is thrown away as a transaction is aborted was not refused."""
    world.producer.begin()
    world.client.undelivered(KafkaError._PURGE_QUEUE)
    world.client.undelivered(KafkaError.UNKNOWN_TOPIC_OR_PART)
    world.client.undelivered(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    world.client.fail = {"commit_transaction": [error(KafkaError._INCONSISTENT, abort=True)]}
    with pytest.raises(TopicMissing, match="producer app, A-0") as raised:
        world.producer.commit()
    assert (raised.value.partition, world.admin.forgotten) == (A0, ["A"])


def test_a_client_that_refuses_a_record_says_of_which_partition(world: World) -> None:
    world.producer.begin()
    world.client.fail = {"produce": [error(KafkaError.TOPIC_AUTHORIZATION_FAILED)]}
    with pytest.raises(LogDenied, match="producer app, B-1") as raised:
        world.producer.send(B1, batch([b"1"]))
    assert raised.value.partition == B1
    assert world.client.calls.count("abort_transaction") == 1


def test_reports_are_awaited_only_while_some_are_open(world: World) -> None:
    world.producer.begin()
    world.client.unheard = 1
    world.client.poll = lambda *_: world.clock.advance(300)
    world.client.fail = {"commit_transaction": [error(KafkaError._INCONSISTENT, abort=True)]}
    before = world.clock.timer_ms()
    with pytest.raises(LogError):
        world.producer.commit()
    assert world.clock.timer_ms() - before == 1_200, "for a second"


def test_what_a_producer_does_not_do_it_says_and_only_in_a_transaction(world: World) -> None:
    producer = world.producer
    calls = {
        "cannot drop records of A-0 below 3": lambda: producer.drop_before(A0, 3),
        "depend on A-0 ending at 3": lambda: producer.expect_end(A0, 3),
        "cannot copy the records of B-1 to A-0": lambda: producer.append_from(A0, B1),
        "the partitions of A cannot be changed": lambda: producer.repartition("A", 1, 2, keeps=True),
        "Kafka keeps no redo": lambda: producer.attach_redo(b"r"),
    }
    for what, call in calls.items():
        with pytest.raises(LogError, match="no transaction is open"):
            call()
        producer.begin()
        with pytest.raises(LogError, match=what):
            call()
        producer.abort()
    producer.expect_partitions("A", 3)
    with pytest.raises(LogError, match="no transaction is open"):
        producer.send_positions("g", {})


def test_a_closed_producer_throws_away_what_waits_and_is_of_no_more_use(world: World) -> None:
    world.producer.begin()
    world.producer.close()
    world.producer.close()
    assert world.client.calls.count("abort_transaction") == 1
    purges = [named for called, _, named in world.client.given if called == "purge"]
    assert purges == [{"in_queue": True, "in_flight": True}] * 2
    assert world.producer.closed
    with pytest.raises(LogError, match="producer app is of no more use: closed"):
        world.producer.begin()
    other = World()
    other.producer.close()
    assert "abort_transaction" not in other.client.calls, "nothing was open"


def test_a_producer_that_cannot_start_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on asking for an epoch, and fence the next one."""
    del world
    purged: list[int] = []

    class Refused(Client):
        def init_transactions(self, _seconds: float) -> None:
            raise error(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

        def purge(self, **_: bool) -> None:
            purged.append(1)

    monkeypatch.setattr(producers, "ProducerClient", Refused)
    with pytest.raises(LogDenied, match="producer app cannot start"):
        World()
    assert purged == [1]
