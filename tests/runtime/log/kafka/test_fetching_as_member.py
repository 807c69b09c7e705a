"""How a member of a group has its partitions read: moved and resumed where it owns them, paused where it stops, and anew where that fails."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogError, LogUnavailable
from flowql.runtime.log.base import GroupChange, TopicPartition
from flowql.runtime.log.kafka import fetching
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.fetching import FetchClient
from flowql.runtime.log.kafka.member import KafkaMember
from tests.runtime.log.kafka import test_fetching
from tests.runtime.log.kafka.test_fetching import A0, A1, B0, Brokers, failed, message, offsets


class Library(test_fetching.Library):
    """In a group, whose callbacks come within `consume`."""

    made: list[Library]

    def __init__(self, settings: dict[str, Any], logger: object) -> None:
        super().__init__(settings, logger)
        self.callbacks: dict[str, Any] = {}
        self.comes: list[tuple[str, list[TopicPartition]]] = []
        Library.made.append(self)

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.calls.append(("subscribe", topics))
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.calls.append(("unsubscribe", None))

    def consume(self, most: int, wait: float) -> list[Any]:
        while self.comes:
            what, tps = self.comes.pop(0)
            self.callbacks[f"on_{what}"](self, [KafkaPartition(*tp) for tp in tps])
        return super().consume(most, wait)

    def assignment(self) -> list[KafkaPartition]:
        return [KafkaPartition(*tp) for tp in (A0, A1, B0)]

    def memberid(self) -> str:
        return "m"


class Joined:
    """A member that owns A0 and A1."""

    def __init__(self) -> None:
        self.fetches = FetchClient(Connection("nowhere:1"), Brokers(), "c", "g", 20, joins=True)  # type: ignore[arg-type]
        self.clock = VirtualClock(1_000_000)
        self.fetches._clock = self.clock  # type: ignore[assignment]
        self.library = Library.made[-1]
        member = self.fetches.member
        assert member is not None
        self.member: KafkaMember = member
        member.subscribe(["A", "B"], lambda: None)
        self.library.comes = [("assign", [A0, A1])]
        self.fetches.pump()
        member.events()
        self.library.calls.clear()

    def told(self, name: str) -> list[Any]:
        return self.library.told(name)


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> Joined:
    Library.made = []
    monkeypatch.setattr(fetching, "KafkaClient", Library)
    return Joined()


def test_a_member_says_so_to_its_client(joined: Joined) -> None:
    assert joined.library.settings["group.protocol"] == "consumer"
    assert joined.fetches.group_metadata() == b"group"


def test_partitions_are_moved_and_then_resumed_and_paused_when_they_are_not_read_any_more(joined: Joined) -> None:
    joined.fetches.start_all({A0: 5, A1: 6})
    assert [c for c in joined.library.calls if c[0] != "consume"] == [
        *(("seek", ("A", 0, 5)), ("seek", ("A", 1, 6))),
        ("resume", [("A", 0, 5), ("A", 1, 6)]),
    ]
    assert joined.told("list_topics") == joined.told("incremental_assign") == []
    joined.fetches.start(A0, 9)
    assert joined.told("pause") == [[("A", 0, -1001)]]
    assert joined.told("seek")[2:] == [("A", 0, 9)]
    joined.member.owned.discard(A1)
    joined.fetches.stop([A0, A1])
    assert joined.told("pause")[1:] == [[("A", 0, -1001)]], "what is not owned any more is the group's"
    assert joined.fetches.cursors == {}


def test_a_partition_that_cannot_be_moved_yet_is_moved_later_and_then_assigned_anew(joined: Joined) -> None:
    joined.library.fail["seek"] = [failed(KafkaError._STATE)] * 100
    joined.fetches.start_all({A0: 5})
    cursor = joined.fetches.cursors[A0]
    assert joined.told("resume") == []
    waits = -(-fetching.PATIENT_MS // fetching.RETRY_MS)
    for n in range(waits):
        assert (cursor.lost, cursor.retry_ms) == (False, joined.clock.timer_ms() + fetching.RETRY_MS), n
        joined.clock.advance(fetching.RETRY_MS)
        joined.fetches.pump()
    assert cursor.lost
    assert len(joined.told("seek")) == 1 + waits
    joined.clock.advance(fetching.RETRY_MS)
    joined.fetches.pump()
    assert len(joined.told("seek")) == 1 + waits
    assert (joined.told("incremental_unassign"), joined.told("incremental_assign")) == (
        [[("A", 0, 5)]],
        [[("A", 0, 5)]],
    )
    assert joined.told("resume") == [[("A", 0, 5)]]
    assert (cursor.lost, cursor.retry_ms, cursor.take_trouble()) == (False, None, None)


def test_one_that_is_refused_for_long_is_told_and_holds_up_no_other(joined: Joined) -> None:
    joined.fetches.start_all({A0: 5, A1: 6})
    for tp in (A0, A1):
        joined.fetches.cursors[tp].lost, joined.fetches.cursors[tp].retry_ms = True, 1_000_000
    joined.clock.advance(fetching.TOLD_MS)
    joined.library.fail["incremental_assign"] = [failed(KafkaError._STATE)]
    joined.fetches.pump()
    assert joined.told("resume")[1:] == [[("A", 1, 6)]]
    trouble = joined.fetches.cursors[A0].take_trouble()
    assert isinstance(trouble, LogError)
    assert (trouble.partition, "A-0 cannot be read yet" in str(trouble)) == (A0, True)
    joined.library.fail["resume"] = [failed(KafkaError._TRANSPORT)]
    with pytest.raises(LogUnavailable, match="partitions cannot be resumed"):
        joined.fetches.start(A1, 7)


def test_records_of_partitions_that_are_being_given_up_are_dropped(joined: Joined) -> None:
    joined.fetches.start_all({A0: 0, A1: 0})
    joined.library.arriving = [message(A0, 0), message(A1, 0)]
    joined.fetches.pump()
    joined.member.leaving = {A1}
    joined.fetches.forget_given_up()
    assert list(joined.fetches.cursors) == [A0]
    joined.member.owned = {A1}
    joined.library.arriving = [message(A0, 1)]
    joined.fetches.pump()
    assert joined.fetches.cursors == {}


def test_an_assignment_of_its_own_that_a_callback_met_begins_the_membership_anew(joined: Joined) -> None:
    joined.fetches.start_all({A0: 0, A1: 0})
    joined.member.assign_anew(KafkaPartition("A", 0, 0))
    joined.library.comes = [("assign", [B0])]
    joined.library.arriving = [message(A0, n) for n in range(fetching.CONSUME_MAX)]
    joined.fetches.pump()
    assert [offsets(b)[-1] for b in joined.fetches.cursors[A0].batches] == [fetching.CONSUME_MAX - 1]
    assert joined.told("unsubscribe") == [], "the queue may not be empty"
    joined.fetches.pump()
    assert (joined.told("unsubscribe"), joined.told("subscribe")) == ([None], [["A", "B"]])
    assert joined.fetches.cursors == {}
    assert [(e.change, e.partitions) for e in joined.member.events()] == [(GroupChange.LOST, (A0, A1, B0))]
    joined.fetches.pump()
    assert len(joined.told("subscribe")) == 1


def test_a_member_that_is_closed_is_closing_before_its_client_is(joined: Joined) -> None:
    joined.fetches.start(A0, 0)
    joined.member.leaving = {A0}
    joined.fetches.close()
    assert (joined.member.leaving, joined.member._closing, joined.fetches.closed) == (set(), True, True)
    assert joined.told("close") == [None]
