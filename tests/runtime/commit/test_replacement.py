"""Records that take the place of others do so only where nobody has written meanwhile."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest

from flowql.runtime.commit.replacement import MovedRecords, PartitionChange, Replacement, replace_records, reshape_topic
from flowql.runtime.errors import EndMoved
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.engine import produce

TP = TopicPartition("t", 0)


def records(*values: int) -> pa.RecordBatch:
    rows = [{"timestamp": 0, "key": b"k", "value": json.dumps({"V": v}).encode(), "headers": None} for v in values]
    return pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)


def values(log: MemoryLog, tp: TopicPartition = TP) -> list[int]:
    batch = log.reader(tp, EARLIEST).read(100, 1 << 20)
    return [] if batch is None else [json.loads(v)["V"] for v in batch.records.column("value").to_pylist()]


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.admin().create_topic("t", 1)
    produce(log, "t", 1, 2)
    return log


@pytest.mark.parametrize(("drops", "expected"), [(True, [7, 8]), (False, [1, 2, 7, 8])])
def test_they_follow_or_take_the_place(log: MemoryLog, drops: bool, expected: list[int]) -> None:
    replacement = Replacement(TP, 2, drops, (records(7), records(8)))
    assert replacement.new_end == 4
    producer = log.producer("swap")
    producer.begin()
    replace_records(producer, replacement)
    producer.commit()
    assert values(log) == expected
    assert log.admin().end_offset(TP) == 4


def test_a_record_of_another_program_is_not_replaced_unseen(log: MemoryLog) -> None:
    replacement = Replacement(TP, log.admin().end_offset(TP), True, (records(7),))
    produce(log, "t", 3)
    producer = log.producer("swap")
    producer.begin()
    replace_records(producer, replacement)
    with pytest.raises(EndMoved):
        producer.commit()
    assert values(log) == [1, 2, 3]


def test_a_partition_that_begins_with_the_commit_has_no_end_to_compare(log: MemoryLog) -> None:
    producer = log.producer("swap")
    producer.begin()
    reshape_topic(producer, PartitionChange("t", 2, 10, False, ((TP, 2),)))
    for partition in (0, 1):
        replace_records(
            producer, Replacement(TopicPartition("t", partition), 10, False, (records(partition),), is_new=True)
        )
    producer.commit()
    assert [values(log, TopicPartition("t", partition)) for partition in (0, 1)] == [[0], [1]]


def test_records_of_another_partition_take_the_place_unless_it_has_moved(log: MemoryLog) -> None:
    log.admin().create_topic("staging", 1)
    produce(log, "staging", 5, 6, 7)
    staged = TopicPartition("staging", 0)
    log.drop_before(staged, 1)
    replacement = Replacement(TP, 2, drops=True, source=MovedRecords(staged, 1, 3))
    for end_moved in (True, False):
        producer = log.producer("swap")
        producer.begin()
        moved = replace(replacement, source=MovedRecords(staged, 1, 2)) if end_moved else replacement
        replace_records(producer, moved)
        if end_moved:
            with pytest.raises(EndMoved):
                producer.commit()
            assert values(log) == [1, 2]
        else:
            producer.commit()
    assert values(log) == [6, 7]
    assert log.admin().end_offset(TP) == replacement.new_end == 4
