"""Membership on a real broker: partitions come, go and are lost; proofs of membership count or do not."""

import time
import uuid
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient

from flowql.runtime.app.hung_topic import HungMicroBatch, HungReader, release, write_hung
from flowql.runtime.errors import StaleMember
from flowql.runtime.log.base import GroupChange, Position, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.member import KafkaMember
from tests.runtime.log.records import batch, produce

pytestmark = pytest.mark.turns("long")

PATIENCE_S = 60.0
QUEUED_S, ANSWERED_S = 4.0, 10.0  # heartbeats come once a second
RUN = HungMicroBatch("Q", "Q", "definition", "Q/0_0", "first", 1, "udf.py:1 f")


class Member:
    """A consumer in a group and what it was told. Acknowledges a revoke when `lets_go`."""

    def __init__(self, log, name, group, topics):
        self.log, self.consumer, self.lets_go = log, log.consumer(name), True
        self.owned, self.seen, self.read = set(), [], []
        self.consumer.subscribe(group, topics, self.serve)

    def serve(self):
        for event in self.consumer.group_events():
            self.seen.append(event)
            tps = set(event.partitions)
            if event.change is GroupChange.ASSIGN:
                self.owned |= tps
            elif event.change is GroupChange.REVOKE and self.lets_go:
                self.owned -= tps
                self.consumer.acknowledge_revoke()
            elif event.change is GroupChange.LOST:
                self.owned -= tps
        time.sleep(0.005)

    def step(self):
        self.read += [
            (b.tp, v) for b in self.consumer.poll(100, 1 << 20) for v in b.records.column("value").to_pylist()
        ]
        self.serve()

    @property
    def metadata(self):
        return self.seen[-1].metadata


def until(done, *members):
    limit = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < limit, [(m.owned, [e.change for e in m.seen]) for m in members]
        for member in members:
            member.step()


@pytest.fixture
def log(kafka):
    name = uuid.uuid4().hex[:8]
    log = KafkaLog(Connection(kafka), name)
    log.name = name
    log.topics_read = [f"{name}-A", f"{name}-B"]
    for topic in log.topics_read:
        log.create_topic(topic, 2)
    yield log
    log.close()


def commit(log, writer, tp, offset, metadata):
    producer = log.producer(writer)
    producer.begin()
    producer.send_positions(log.name, {tp: Position(offset, "seq=1")}, metadata)
    try:
        return producer.commit()
    finally:
        producer.close()


def test_a_second_member_gets_whole_partition_groups_and_gives_them_back(log):
    everything = {TopicPartition(t, p) for t in log.topics_read for p in (0, 1)}
    first = Member(log, "first", log.name, log.topics_read)
    until(lambda: first.owned == everything, first)
    a0 = TopicPartition(log.topics_read[0], 0)
    produce(log, f"{log.name}-w", (a0, [b"1", b"2", b"3"]))
    first.consumer.assign({a0: 1})
    until(lambda: len(first.read) == 2, first)
    assert first.read == [(a0, b"2"), (a0, b"3")]
    first.consumer.seek(a0, 0)
    until(lambda: len(first.read) == 5, first)

    second = Member(log, "second", log.name, log.topics_read)
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == everything
    assert all(len({tp.partition for tp in m.owned}) == 1 for m in (first, second))  # co-partitioned

    keeps, goes = first.metadata, second.metadata
    kept = min(first.owned)
    commit(log, f"{log.name}-1", kept, 2, keeps)
    assert log.stable_positions(log.name, [kept]) == {kept: Position(2, "seq=1")}
    second.consumer.close()
    until(lambda: first.owned == everything, first)
    with pytest.raises(StaleMember):
        commit(log, f"{log.name}-1", kept, 3, goes)
    assert log.stable_positions(log.name, [kept])[kept].offset == 2
    commit(log, f"{log.name}-1", kept, 3, first.metadata)
    assert log.stable_positions(log.name, [kept])[kept].offset == 3
    first.consumer.close()


def test_a_revoke_waits_until_it_is_acknowledged(log):
    first = Member(log, "first", log.name, log.topics_read)
    until(lambda: len(first.owned) == 4, first)
    second = Member(log, "second", log.name, log.topics_read)
    served = first.serve
    waits = []

    def serve():
        """What the owner's thread may do while its poll waits: commit, look, and only then let go."""
        first.lets_go = False
        served()
        if any(e.change is GroupChange.REVOKE for e in first.seen):
            waits.append(time.monotonic())
            if len(waits) == 1:
                leaving = next(e for e in first.seen if e.change is GroupChange.REVOKE).partitions
                commit(log, f"{log.name}-1", leaving[0], 5, first.metadata)
            second.step()
            assert not second.owned
            if waits[-1] - waits[0] > 2.0:
                first.consumer.acknowledge_revoke()

    first.consumer.subscribe(log.name, log.topics_read, serve)
    until(lambda: len(second.owned) == 2, first, second)
    gone = next(e for e in first.seen if e.change is GroupChange.REVOKE).partitions
    assert second.owned == set(gone)
    assert log.stable_positions(log.name, gone)[gone[0]].offset == 5
    for member in (first, second):
        member.consumer.close()


def test_an_open_transaction_on_positions_is_waited_for(log):
    a0 = TopicPartition(log.topics_read[0], 0)
    producer = log.producer(f"{log.name}-1")
    producer.begin()
    producer.send(a0, batch([b"1"]))
    producer.send_positions(log.name, {a0: Position(1)})
    producer.commit()
    assert log.written_offset(a0) == log.end_offset(a0)
    producer.begin()
    producer.send(a0, batch([b"2"]))
    producer._client.flush(5)
    assert log.written_offset(a0) > log.end_offset(a0)
    producer.abort()
    producer.close()


def test_a_member_that_leaves_is_replaced_at_once_and_comes_back(log):
    """What the watchdog does when a step hangs: nobody acknowledges anything. What it says of that counts before it has left."""
    everything = {TopicPartition(t, p) for t in log.topics_read for p in (0, 1)}
    first, second = (Member(log, name, log.name, log.topics_read) for name in ("first", "second"))
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    before, had = first.metadata, set(first.owned)
    first.consumer.assign(dict.fromkeys(had, 0))
    first.lets_go = False
    write_hung(log, log.name, [RUN], before, 1)
    first.consumer.leave_group()
    first.step()
    (lost,) = [e for e in first.seen if e.change is GroupChange.LOST]
    assert set(lost.partitions) == had
    begun = time.monotonic()
    until(lambda: second.owned == everything, first, second)
    assert time.monotonic() - begun < 20, "a session of 45 s did not have to end"
    with pytest.raises(StaleMember):
        commit(log, f"{log.name}-1", min(had), 1, before)
    with pytest.raises(StaleMember):
        write_hung(log, log.name, [replace(RUN, query="LATE")], before, 1)
    hung = HungReader(log, log.name)
    hung.read_to_end()
    assert hung.hung == [RUN]
    assert release(log, log.name, "a user", ["Q"], 2) == ["Q"]
    hung.read_to_end()
    assert hung.hung == []
    first.lets_go = True
    first.consumer.subscribe(log.name, log.topics_read, first.serve)
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    first.consumer.assign(dict.fromkeys(first.owned, 0))
    tp = min(first.owned)
    produce(log, f"{log.name}-w", (tp, [b"1", b"2"]))
    until(lambda: len(first.read) == 2, first, second)
    commit(log, f"{log.name}-1", tp, 2, first.metadata)
    for member in (first, second):
        member.consumer.close()


def targets(log):
    """How many partitions the brokers mean to give to each member of the group, sorted."""
    client = AdminClient(log._connection.admin("targets"))  # kept until the answer is there
    group = client.describe_consumer_groups([log.name])[log.name].result(PATIENCE_S)
    return sorted(len(m.target_assignment.topic_partitions) for m in group.members)


def answered_behind_its_back(log, everything):
    """Two members, and how much the first was told, after a callback waited for it that an assignment of its own has answered."""
    first = Member(log, "first", log.name, log.topics_read)
    until(lambda: first.owned == everything, first)
    first.consumer.assign(dict.fromkeys(everything, 0))
    first.lets_go, told = False, len(first.seen)
    second = Member(log, "second", log.name, log.topics_read)
    until(lambda: targets(log) == [2, 2], second)
    limit = time.monotonic() + QUEUED_S
    while time.monotonic() < limit:  # the first one is told to give up, and nobody looks into its queue
        second.step()
    assert not second.owned
    client = first.consumer._client
    client._assign_anew(client.cursors[min(everything)].place)
    limit = time.monotonic() + ANSWERED_S
    while len(second.owned) < 2 and time.monotonic() < limit:  # the brokers take it for an answer
        second.step()
    if len(second.owned) == 2:
        return first, second, told
    for member in (second, first):  # on a machine under load the callback came later
        member.consumer.close()
    return None


@pytest.mark.turns("kafka")
def test_an_assignment_of_its_own_answers_no_callback_that_waits(log):
    """The client takes it for the answer: the brokers give away what nobody has let go, and its proof would count for that."""
    everything = {TopicPartition(t, p) for t in log.topics_read for p in (0, 1)}
    tries = (answered_behind_its_back(log, everything) for _ in range(5))
    first, second, told = next(found for found in tries if found is not None)
    first.serve()
    assert first.seen[told:] == [], "no proof with which it could commit what the second one has"
    first.step()
    assert [e.change for e in first.seen[told:]] == [GroupChange.LOST]
    assert set(first.seen[told].partitions) == everything
    first.lets_go = True
    until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == everything
    tp = min(first.owned)
    commit(log, f"{log.name}-1", tp, 2, first.metadata)
    first.consumer.assign(dict.fromkeys(first.owned, 0))
    produce(log, f"{log.name}-w", (tp, [b"1", b"2"]))
    until(lambda: len(first.read) == 2, first, second)
    for member in (first, second):
        member.consumer.close()


class _MovingOn:
    """A client whose membership has got further each time one looks."""

    def __init__(self):
        self.looks = 0

    def memberid(self):
        return "m"

    def consumer_group_metadata(self):
        self.looks += 1
        return b"%d" % self.looks


def test_a_membership_that_moves_on_while_it_is_noted_is_noted_as_it_was_seen():
    """It ended the polling thread of the member with an AssertionError."""
    client = _MovingOn()
    member = KafkaMember(client, "g", dict)
    (event,) = member.events()
    assert (event.change, event.metadata.token) == (GroupChange.EPOCH, b"1")
    (event,) = member.events()
    assert event.metadata.token == b"2", "the newer one is noted the next time"
