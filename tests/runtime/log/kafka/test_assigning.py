"""Partitions are read wherever a consumer is told to begin, whatever was purged, refused or given up before."""

import time
import uuid

import pytest

from flowql.runtime.errors import LogError, LogUnavailable, OffsetOutOfRange
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from tests.runtime.log.records import produce

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
PATIENCE_S = 60.0
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


class Reading:
    """A consumer and what it has read."""

    def __init__(self, log):
        self.consumer, self.read = log.consumer("c"), []

    def step(self):
        self.read += [
            (b.tp, v) for b in self.consumer.poll(100, 1 << 20) for v in b.records.column("value").to_pylist()
        ]


def until(done, reading):
    limit = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < limit, reading.read
        reading.step()
        time.sleep(0.005)


def read_of(reading, tp):
    return [value for where, value in reading.read if where == tp]


@pytest.mark.parametrize("partitions", [4, 40])
def test_purged_partitions_are_read_from_their_positions(log, partitions):
    """With many, a client that resumed before it moved had fetched from below the start of some, and never read those."""
    tps = purged_topic(log, partitions)
    reading = Reading(log)
    reading.consumer.assign(dict.fromkeys(tps, PURGED + 9))
    until(lambda: len(reading.read) == partitions * (RECORDS - PURGED - 9), reading)
    expected = [b"%d" % i for i in range(PURGED + 9, RECORDS)]
    assert all(read_of(reading, tp) == expected for tp in tps)
    reading.consumer.close()


class Patient:
    """Goes on where a partition cannot be read yet, as the engine does: the client is told again by itself."""

    def __init__(self, reading):
        self.reading, self.read = reading, reading.read

    def step(self):
        try:
            self.reading.step()
        except LogError as error:
            if "cannot be read yet" not in str(error):
                raise


def test_a_partition_that_the_client_has_given_up_is_assigned_anew(log):
    """It fetched from below the start and refuses to move the partition. The others are read on."""
    tps = purged_topic(log, 2)
    reading = Reading(log)
    reading.consumer.assign({tps[0]: 3, tps[1]: PURGED})
    with pytest.raises(OffsetOutOfRange, match="below the log's start 161") as raised:
        until(lambda: False, reading)
    assert raised.value.partition == tps[0]
    reading.consumer.assign({tps[0]: PURGED, tps[1]: RECORDS})
    produce(log, f"{log.name}-w", (tps[1], [b"more"]))
    until(
        lambda: len(read_of(reading, tps[0])) == RECORDS - PURGED and b"more" in read_of(reading, tps[1]),
        Patient(reading),
    )
    reading.consumer.close()


def test_a_position_above_the_end_is_read_when_records_come(log):
    tps = purged_topic(log, 2)
    reading = Reading(log)
    reader = log.consumer("alone")
    reader.assign({tps[1]: RECORDS + 20})
    reading.consumer.assign({tps[0]: RECORDS + 20})
    found = []
    limit = time.monotonic() + 1.0
    while time.monotonic() < limit:  # the clients give the partitions up meanwhile
        found += trying(lambda: reader.poll(10, 1 << 20)) or []
        trying(reading.step)
    produce(log, f"{log.name}-w", *[(tp, [b"%d" % i for i in range(RECORDS, RECORDS + 30)]) for tp in tps])
    limit = time.monotonic() + PATIENCE_S
    while not (found and reading.read):
        assert time.monotonic() < limit, (found, reading.read)
        found += trying(lambda: reader.poll(10, 1 << 20)) or []
        trying(reading.step)
        time.sleep(0.005)
    assert reading.read[0][0] == tps[0]
    for consumer in (reading.consumer, reader):
        consumer.close()


def test_a_partition_that_is_not_read_is_told_with_its_name(log):
    """Again and again, until it is read; the others are read meanwhile."""
    tps = purged_topic(log, 2)
    reading = Reading(log)
    reading.consumer.assign({tps[0]: RECORDS + 20, tps[1]: PURGED})
    told = []
    limit = time.monotonic() + PATIENCE_S
    while len(told) < 2 or not reading.read:
        assert time.monotonic() < limit, told
        try:
            reading.step()
        except LogError as error:
            told.append(error)
        time.sleep(0.005)
    assert {(type(e), e.partition) for e in told} == {(LogUnavailable, tps[0])}
    assert {tp for tp, _ in reading.read} == {tps[1]}
    reading.consumer.close()


def trying(action):
    """Its result, or None for trouble that is told."""
    try:
        return action()
    except LogUnavailable:
        return None
