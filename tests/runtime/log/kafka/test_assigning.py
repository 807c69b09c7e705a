"""What a member owns is read wherever it is told to begin, whatever was purged, refused or given up before."""

import time
import uuid

import pytest

from flowql.runtime.errors import LogError, LogUnavailable, OffsetOutOfRange
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from tests.runtime.log.kafka.test_member import PATIENCE_S, Member, until
from tests.runtime.log.records import produce

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
PURGED = 161
RECORDS = 200


@pytest.fixture
def log(kafka):
    name = uuid.uuid4().hex[:8]
    log = KafkaLog(Connection(kafka), name)
    log.name = name
    yield log
    log.close()


def purged_topic(log, partitions):
    """A repartition topic after some work: it begins at PURGED."""
    topic = f"{log.name}-repartition"
    log.create_topic(topic, partitions)
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    produce(log, f"{log.name}-w", *[(tp, [b"%d" % i for i in range(RECORDS)]) for tp in tps])
    for tp in tps:
        log.drop_before(tp, PURGED)
    return tps


def member_of(log, tps, name="m"):
    """One that owns all of these."""
    member = Member(log, name, log.name, sorted({tp.topic for tp in tps}))
    until(lambda: member.owned == set(tps), member)
    return member


def read_of(member, tp):
    return [value for where, value in member.read if where == tp]


@pytest.mark.parametrize("partitions", [4, 40])
def test_a_member_reads_purged_partitions_from_its_positions(log, partitions):
    """With many, a client that resumed before it moved had fetched from below the start of some, and never read those."""
    tps = purged_topic(log, partitions)
    member = member_of(log, tps)
    member.consumer.assign(dict.fromkeys(tps, PURGED + 9))
    until(lambda: len(member.read) == partitions * (RECORDS - PURGED - 9), member)
    expected = [b"%d" % i for i in range(PURGED + 9, RECORDS)]
    assert all(read_of(member, tp) == expected for tp in tps)
    member.consumer.close()


class Patient:
    """Goes on where a partition cannot be read yet, as the engine does: the client is told again by itself."""

    def __init__(self, member):
        self.member, self.owned, self.seen = member, member.owned, member.seen

    def step(self):
        try:
            self.member.step()
        except LogError as error:
            if "cannot be read yet" not in str(error):
                raise


def test_a_partition_that_the_client_has_given_up_is_assigned_anew(log):
    """It fetched from below the start and refuses to move the partition. The group does not notice, and the others are read on."""
    tps = purged_topic(log, 2)
    member = member_of(log, tps)
    member.consumer.assign({tps[0]: 3, tps[1]: PURGED})
    with pytest.raises(OffsetOutOfRange, match="below the log's start 161") as raised:
        until(lambda: False, member)
    assert raised.value.partition == tps[0]
    member.consumer.assign({tps[0]: PURGED, tps[1]: RECORDS})
    produce(log, f"{log.name}-w", (tps[1], [b"more"]))
    until(
        lambda: len(read_of(member, tps[0])) == RECORDS - PURGED and b"more" in read_of(member, tps[1]),
        Patient(member),
    )
    assert member.owned == set(tps)

    second = Member(log, "second", log.name, [tps[0].topic])  # and the partitions still come and go
    until(lambda: len(member.owned) == len(second.owned) == 1, member, second)
    second.consumer.assign(dict.fromkeys(second.owned, PURGED))
    until(lambda: len(second.read) >= RECORDS - PURGED, second, member)
    second.consumer.close()
    until(lambda: member.owned == set(tps), member)
    member.consumer.close()


def test_a_position_above_the_end_is_read_when_records_come(log):
    tps = purged_topic(log, 2)
    member = member_of(log, tps)
    reader = log.consumer("alone")
    reader.assign({tps[1]: RECORDS + 20})
    member.consumer.assign({tps[0]: RECORDS + 20})
    found = []
    limit = time.monotonic() + 1.0
    while time.monotonic() < limit:  # the clients give the partitions up meanwhile
        found += trying(lambda: reader.poll(10, 1 << 20)) or []
        trying(member.step)
    produce(log, f"{log.name}-w", *[(tp, [b"%d" % i for i in range(RECORDS, RECORDS + 30)]) for tp in tps])
    limit = time.monotonic() + PATIENCE_S
    while not (found and member.read):
        assert time.monotonic() < limit, (found, member.read)
        found += trying(lambda: reader.poll(10, 1 << 20)) or []
        trying(member.step)
        time.sleep(0.005)
    assert member.read[0][0] == tps[0]
    for consumer in (member.consumer, reader):
        consumer.close()


def test_a_partition_that_is_not_read_is_told_with_its_name(log):
    """Again and again, until it is read; the others are read meanwhile."""
    tps = purged_topic(log, 2)
    member = member_of(log, tps)
    member.consumer.assign({tps[0]: RECORDS + 20, tps[1]: PURGED})
    told = []
    limit = time.monotonic() + PATIENCE_S
    while len(told) < 2 or not member.read:
        assert time.monotonic() < limit, told
        try:
            member.step()
        except LogError as error:
            told.append(error)
        time.sleep(0.005)
    assert {(type(e), e.partition) for e in told} == {(LogUnavailable, tps[0])}
    assert {tp for tp, _ in member.read} == {tps[1]}
    member.consumer.close()


def trying(action):
    """Its result, or None for trouble that is told."""
    try:
        return action()
    except LogUnavailable:
        return None
