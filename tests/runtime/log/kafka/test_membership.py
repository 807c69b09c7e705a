"""What a member is told by its group, and what it answers, with a client library that calls back as it is told."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from flowql.runtime.errors import LogDenied, LogUnavailable
from flowql.runtime.log.base import GroupChange, TopicPartition
from flowql.runtime.log.kafka.member import SETTINGS, KafkaMember

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


class Client:
    """Keeps an assignment, and its calls; `refused`: the calls that fail."""

    def __init__(self) -> None:
        self.assigned: set[TopicPartition] = set()
        self.calls: list[Any] = []
        self.refused: set[str] = set()
        self.name, self.epoch = "m", b"1"
        self.callbacks: dict[str, Any] = {}

    def told(self, name: str) -> list[Any]:
        return [what for call, what in self.calls if call == name]

    def _do(self, name: str, what: Any) -> None:
        self.calls.append((name, what))
        if name in self.refused:
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._do("subscribe", topics)
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self._do("unsubscribe", None)

    def assignment(self) -> list[KafkaPartition]:
        return [KafkaPartition(*tp) for tp in sorted(self.assigned)]

    def incremental_assign(self, places: list[KafkaPartition]) -> None:
        self._do("assign", [(p.topic, p.partition, p.offset) for p in places])
        self.assigned |= {TopicPartition(p.topic, p.partition) for p in places}

    def incremental_unassign(self, places: list[KafkaPartition]) -> None:
        self._do("unassign", [(p.topic, p.partition) for p in places])
        self.assigned -= {TopicPartition(p.topic, p.partition) for p in places}

    def pause(self, places: list[KafkaPartition]) -> None:
        self._do("pause", [(p.topic, p.partition) for p in places])

    def memberid(self) -> str:
        return self.name

    def consumer_group_metadata(self) -> bytes:
        return self.epoch


class Group:
    """A member and what its group says to it."""

    def __init__(self) -> None:
        self.client, self.served = Client(), 0
        self.begins: dict[TopicPartition, int] | Exception = {A0: 3}
        self.member = KafkaMember(self.client, "g", self._begins)  # type: ignore[arg-type]
        self.member.subscribe(["A", "B"], self._serve)

    def _begins(self, _tps: Any) -> dict[TopicPartition, int]:
        if isinstance(self.begins, Exception):
            raise self.begins
        return self.begins

    def _serve(self) -> None:
        self.served += 1
        if self.served == 3:
            self.member.acknowledge()

    def says(self, what: str, *tps: TopicPartition) -> None:
        self.client.callbacks[f"on_{what}"](self.client, [KafkaPartition(*tp) for tp in tps])

    def events(self) -> list[tuple[GroupChange, tuple[TopicPartition, ...], bytes]]:
        found = self.member.events()
        assert {(e.metadata.group, e.metadata.member) for e in found} <= {("g", "m")}
        return [(e.change, e.partitions, e.metadata.token) for e in found]


@pytest.fixture
def group() -> Group:
    return Group()


def test_what_is_assigned_is_owned_from_where_it_begins_and_paused_until_it_is_read(group: Group) -> None:
    assert SETTINGS == {"group.protocol": "consumer", "group.remote.assignor": "range"}
    assert group.client.told("subscribe") == [["A", "B"]]
    group.says("assign", B0, A0)
    assert group.member.owned == group.client.assigned == {A0, B0}
    assert group.client.told("assign") == [[("A", 0, 3), ("B", 0, 0)]]
    assert group.client.told("pause") == [[("B", 0), ("A", 0)]]
    assert group.events() == [(GroupChange.ASSIGN, (A0, B0), b"1")]
    assert group.events() == []
    group.begins = LogUnavailable("away")
    group.says("assign", A1)
    assert group.client.told("assign")[1:] == [[("A", 1, 0)]], "where it begins is found out when it is read"
    assert group.member.owned == {A0, A1, B0}


def test_metadata_that_has_changed_is_told_once(group: Group) -> None:
    group.says("assign", A0)
    group.events()
    group.client.epoch = b"2"
    assert group.events() == [(GroupChange.EPOCH, (), b"2")]
    assert group.events() == []
    group.client.epoch, group.client.name = b"3", ""
    assert group.events() == [], "it is no member just now"


def test_what_is_revoked_stays_owned_until_that_is_acknowledged(group: Group) -> None:
    group.says("assign", A0, A1)
    group.events()
    seen: list[Any] = []
    serve = group.member._serve

    def watched() -> None:
        seen.append((set(group.member.owned), set(group.member.leaving), len(group.client.told("unassign"))))
        serve()

    group.member._serve = watched
    group.says("revoke", A1)
    assert seen == [({A0, A1}, {A1}, 0)] * 3
    assert (group.member.owned, group.member.leaving, group.client.assigned) == ({A0}, set(), {A0})
    assert group.client.told("unassign") == [[("A", 1)]]
    assert group.events() == [(GroupChange.REVOKE, (A1,), b"1")]


def test_what_is_lost_is_all_gone_at_once(group: Group) -> None:
    group.says("assign", A0, A1)
    group.events()
    group.client.assigned.discard(A1)  # the client has given it up before
    group.says("lost", A0)
    assert (group.member.owned, group.client.assigned, group.served) == (set(), set(), 0)
    assert group.client.told("unassign") == [[("A", 0)]]
    assert group.events() == [(GroupChange.LOST, (A0, A1), b"1")]


def test_a_member_that_leaves_gives_all_back_and_waits_for_nobody(group: Group) -> None:
    group.says("assign", A1, A0)
    group.events()
    group.member.leave()
    assert (group.member.owned, group.client.told("unsubscribe")) == (set(), [None])
    group.says("revoke", A0, A1)
    group.says("lost")
    assert (group.served, group.client.assigned) == (0, set())
    assert group.events() == [(GroupChange.LOST, (A0, A1), b"1")], "told once"
    group.member.join_again()
    assert group.client.told("subscribe") == [["A", "B"]] * 2
    group.says("assign", A0)
    group.says("lost")
    assert [change for change, _, _ in group.events()] == [GroupChange.ASSIGN, GroupChange.LOST]


def test_a_callback_that_an_assignment_of_its_own_may_have_answered_begins_the_membership_anew(group: Group) -> None:
    group.says("assign", A0)
    group.events()
    assert group.member.served_all()
    group.member.assign_anew(KafkaPartition("A", 0, 9))
    assert (group.client.told("unassign"), group.client.told("assign")[1:]) == ([[("A", 0)]], [[("A", 0, 9)]])
    group.client.epoch = b"2"
    assert group.events() == [], "no newer metadata while a callback may wait"
    group.says("assign", A1)
    group.says("revoke", A0)
    assert (group.events(), group.served) == ([], 0)
    assert not group.member.served_all()
    group.member.leave()
    assert group.events() == [(GroupChange.LOST, (A0, A1), b"2")]
    assert group.member.served_all()
    group.member.join_again()
    group.member.assign_anew(KafkaPartition("A", 0, 9))
    assert group.member.served_all()
    group.says("assign", B0)
    assert [change for change, _, _ in group.events()] == [GroupChange.ASSIGN]


def test_a_partition_that_is_not_assigned_is_assigned_anew_all_the_same(group: Group) -> None:
    group.client.refused = {"unassign"}
    group.member.assign_anew(KafkaPartition("A", 0, 9))
    assert group.client.assigned == {A0}
    group.client.refused = {"assign"}
    with pytest.raises(KafkaException):
        group.member.assign_anew(KafkaPartition("A", 0, 9))


def test_a_group_that_may_not_be_joined_or_left_is_named(group: Group) -> None:
    group.client.refused = {"subscribe", "unsubscribe"}
    with pytest.raises(LogDenied, match="group g cannot be joined"):
        group.member.subscribe(["A"], lambda: None)
    with pytest.raises(LogDenied, match="group g cannot be left"):
        group.member.leave()


def test_an_answer_that_the_client_refuses_ends_nothing(group: Group) -> None:
    group.says("assign", A0)
    group.client.refused = {"unassign"}
    group.says("lost")
    assert group.member.owned == set()


def test_a_closing_member_waits_for_nobody_and_raises_nothing(group: Group) -> None:
    group.says("assign", A0, A1)
    group.member.leaving = {A0}
    group.member.close()
    assert group.member.leaving == set()
    group.says("revoke", A0)
    assert (group.served, group.member.owned) == (0, {A1})
    group.client.assignment = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    group.says("lost")
    group.member.subscribe(["A"], lambda: None)
    with pytest.raises(ZeroDivisionError):
        group.says("lost")
