"""Topics that get another number of partitions in a transaction: what logs promise that can do it. Brokers do it by another call."""

import pyarrow as pa
import pytest

from flowql.runtime.errors import LogError, OffsetOutOfRange, PartitionsDiffer
from flowql.runtime.log.base import LATEST, PRODUCE_SCHEMA, Position, TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.log.policy import import_groups
from tests.runtime.log.logs import A0, A1, B0
from tests.runtime.log.records import batch, produce, read_all, reshape, values
from tests.runtime.log.test_conformance import log

__all__ = ["log"]  # the fixture


def keyed(count, partitions, step=1):
    """Records k0, k1, ... by partition of their key, in rising times."""
    found = {}
    for n in range(count):
        key = f"k{n % 13}".encode()
        found.setdefault(partition_for(key, partitions), []).append((1000 + n * step, key, str(n).encode()))
    return found


def produce_keyed(log, topic, by_partition, producer_id="p"):
    producer = log.producer(producer_id)
    producer.begin()
    for p, rows in by_partition.items():
        columns = list(zip(*rows, strict=True))
        headers = pa.nulls(len(rows), PRODUCE_SCHEMA.field("headers").type)
        arrays = [
            pa.array(columns[0], pa.int64()),
            pa.array(columns[1], pa.binary()),
            pa.array(columns[2], pa.binary()),
            headers,
        ]
        producer.send(TopicPartition(topic, p), pa.record_batch(arrays, schema=PRODUCE_SCHEMA))
    producer.commit()


def rows_of(log, topic):
    """(key, value) by partition."""
    found = {}
    for p in range(log.admin().topics()[topic].partitions):
        found[p] = [(key, value) for _, _, key, value in read_all(log, TopicPartition(topic, p))]
    return found


@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 2), (2, 1), (1, 3)])
def test_records_are_moved_to_the_partitions_of_their_keys(log, before, after):
    log.admin().create_topic("C", before)
    produce_keyed(log, "C", keyed(200, before))
    reshape(log, "C", after, 1_000, keeps=True)
    assert log.admin().topics()["C"].partitions == after
    rows = rows_of(log, "C")
    for p, found in rows.items():
        assert all(partition_for(key, after) == p for key, _ in found)
        numbers = [int(value) for _, value in found]
        assert numbers == sorted(numbers), "merged in the order of their times"
        assert log.admin().begin_offset(TopicPartition("C", p)) == 1_000
    assert sorted(int(v) for found in rows.values() for _, v in found) == list(range(200))
    assert log.admin().writers(TopicPartition("C", 0)) >= {"p"}


def test_what_takes_the_place_of_the_records_comes_with_the_new_partitions(log):
    produce(log, "p", (A0, [b"0", b"1"]), (A1, [b"2"]))
    producer = log.producer("g")
    producer.begin()
    producer.send_positions("g", {A0: Position(1), B0: Position(0)})
    producer.commit()
    reader = log.reader(A0, LATEST)
    reshape(log, "A", 3, 7, keeps=False, records={0: [b"x"], 2: [b"y", b"z"]})
    assert [values(log, TopicPartition("A", p)) for p in range(3)] == [[b"x"], [], [b"y", b"z"]]
    assert log.admin().committed("g") == {B0: Position(0)}, "positions in partitions that are gone mean nothing"
    with pytest.raises(OffsetOutOfRange):
        reader.read(10, 1 << 20)
    produce(log, "p", (TopicPartition("A", 2), [b"more"]))
    assert values(log, TopicPartition("A", 2)) == [b"y", b"z", b"more"]


@pytest.mark.parametrize("keeps", [True, False])
def test_how_far_a_file_was_imported_stays_with_its_records(log, keeps):
    """The position is of the file, not of a partition. It was deleted, and another import wrote every record once more."""
    group = f"{import_groups('A')}1"
    produce(log, group, (A0, [b"0", b"1"]), positions={group: {A0: Position(2, "lines")}, "reader": {A0: Position(1)}})
    reshape(log, "A", 3, 7, keeps=keeps)
    assert log.admin().committed(group) == ({A0: Position(2, "lines")} if keeps else {})
    assert log.admin().committed("reader") == {}


def test_new_partitions_begin_above_the_old_ones(log):
    produce(log, "p", (A0, [b"0", b"1"]))
    with pytest.raises(LogError, match="cannot begin at 2, because an old one ends at 2"):
        reshape(log, "A", 3, 2, keeps=True)
    assert log.admin().topics()["A"].partitions == 2
    assert values(log, A0) == [b"0", b"1"]


def test_who_partitions_by_the_old_number_is_refused(log):
    """Its records would lie where their keys do not belong. A new producer, which asks for the number, goes on."""
    slow, told = log.producer("slow"), log.producer("told")
    slow.begin()
    slow.send(A1, batch([b"late"]))
    told.expect_partitions("A", 2)
    reshape(log, "A", 3, 5, keeps=True)
    with pytest.raises(PartitionsDiffer, match="A has 3 partitions by now, not 2"):
        slow.commit()
    with pytest.raises(LogError, match="no more use"):
        slow.begin()
    told.begin()
    told.send(A0, batch([b"late"]))
    with pytest.raises(PartitionsDiffer):
        told.commit()
    assert [values(log, TopicPartition("A", p)) for p in range(3)] == [[], [], []]
    produce(log, "slow", (TopicPartition("A", 2), [b"anew"]))
    assert values(log, TopicPartition("A", 2)) == [b"anew"]


def test_records_without_a_key_stay_together(log):
    produce(log, "p", (A0, [b"0", b"1"]), (A1, [b"2", b"3"]))
    nameless = [(1, None, b"0"), (2, None, b"1")]
    produce(log, "p", (A0, nameless), (A1, [(1, None, b"2")]), drop={A0: 2, A1: 2})
    reshape(log, "A", 3, 5, keeps=True)
    assert [values(log, TopicPartition("A", p)) for p in range(3)] == [[b"0", b"1"], [b"2"], []]
