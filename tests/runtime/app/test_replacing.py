"""What a swap writes: a table's fold, the difference of two, and what puts a generation in the place of another."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowql.runtime.app import replacing
from flowql.runtime.app.replacing import begun_anew, difference, fold, records_of, replacement
from flowql.runtime.commit.replacement import MovedRecords, Replacement
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.memory import MemoryLog

OLD, NEW = TopicPartition("old", 0), TopicPartition("new", 0)
Record = tuple[str | None, str | None, int]  # key, value, time


def put(log: MemoryLog, tp: TopicPartition, *records: Record) -> None:
    """Each batch is a transaction."""
    rows = [
        {"timestamp": ms, "key": k and k.encode(), "value": v and v.encode(), "headers": None} for k, v, ms in records
    ]
    producer = log.producer("test")
    producer.begin()
    producer.send(tp, pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
    producer.commit()


def rows(*tables: pa.Table | pa.RecordBatch) -> list[Record]:
    found = [r for table in tables for r in table.to_pylist()]
    return [(r["key"] and r["key"].decode(), r["value"] and r["value"].decode(), r["timestamp"]) for r in found]


@pytest.fixture
def log() -> MemoryLog:
    log = MemoryLog()
    log.create_topic("old", 1)
    log.create_topic("new", 1)
    return log


@pytest.fixture(params=[1, 2, 50_000])
def read_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much of a partition is read at once."""
    monkeypatch.setattr(replacing, "READ_ROWS", request.param)


@pytest.mark.usefixtures("read_rows")
def test_a_fold_has_the_last_record_of_each_key_in_the_order_of_the_log(log: MemoryLog) -> None:
    assert fold(log, OLD, None).num_rows == 0
    assert fold(log, OLD, None).schema == PRODUCE_SCHEMA
    put(log, OLD, ("a", "1", 1), ("b", "1", 2), (None, "no key", 3), ("c", "1", 4))
    put(log, OLD, ("a", "2", 5), ("c", None, 6), ("d", None, 7), ("d", "1", 8))
    assert rows(fold(log, OLD, None)) == [("b", "1", 2), ("a", "2", 5), ("d", "1", 8)]
    assert rows(fold(log, OLD, 8)) == rows(fold(log, OLD, None))
    assert rows(fold(log, OLD, 7)) == [("b", "1", 2), ("a", "2", 5)]
    assert rows(fold(log, OLD, 5)) == [("b", "1", 2), ("c", "1", 4), ("a", "2", 5)]
    assert rows(fold(log, OLD, 4)) == [("a", "1", 1), ("b", "1", 2), ("c", "1", 4)]
    assert rows(fold(log, OLD, 1)) == [("a", "1", 1)]
    assert rows(fold(log, OLD, 0)) == []


@pytest.mark.usefixtures("read_rows")
def test_a_difference_is_of_what_is_gone_then_of_what_is_new_or_another(log: MemoryLog) -> None:
    put(log, OLD, ("z", "1", 1), ("b", "1", 2), ("same", "1", 3), ("value", "1", 4), ("time", "1", 5), ("a", "1", 6))
    put(log, NEW, ("y", "1", 10), ("time", "1", 11), ("same", "1", 3), ("value", "2", 4), ("x", "1", 12))
    expected = [
        ("z", None, 1),
        ("b", None, 2),
        ("a", None, 6),
        ("y", "1", 10),
        ("time", "1", 11),
        ("value", "2", 4),
        ("x", "1", 12),
    ]
    assert rows(*difference(log, NEW, 5, OLD, 6)) == expected
    assert rows(*difference(log, NEW, 1, OLD, 1)) == [("z", None, 1), ("y", "1", 10)]
    assert difference(log, OLD, 6, OLD, 6) == []
    assert rows(*difference(log, NEW, 0, OLD, 2)) == [("z", None, 1), ("b", None, 2)]
    put(log, OLD, *expected)
    assert sorted(rows(fold(log, OLD, None))) == sorted(rows(fold(log, NEW, None))), "whoever folds the topic has it"


def test_a_stream_gets_all_of_its_new_generation_in_place_of_the_old(log: MemoryLog) -> None:
    put(log, OLD, ("a", "1", 1), ("b", "1", 2))
    put(log, NEW, ("a", "2", 3), ("b", "2", 4), ("c", "2", 5))
    log.drop_before(NEW, 1)
    assert replacement(log, NEW, OLD, difference=False) == Replacement(OLD, 2, True, source=MovedRecords(NEW, 1, 3))
    assert begun_anew(log, NEW, OLD, 70) == Replacement(OLD, 70, False, source=MovedRecords(NEW, 1, 3), is_new=True)


def test_a_table_gets_the_difference_behind_what_it_has(log: MemoryLog) -> None:
    put(log, OLD, ("a", "1", 1), ("b", "1", 2))
    put(log, NEW, ("b", "2", 3))
    found = replacement(log, NEW, OLD, difference=True)
    assert (found.tp, found.end, found.drops, found.source) == (OLD, 2, False, None)
    assert rows(*found.batches) == [("a", None, 1), ("b", "2", 3)]
    put(log, OLD, ("a", None, 4), ("b", "2", 3))
    assert replacement(log, NEW, OLD, difference=True).batches == ()


@pytest.mark.usefixtures("read_rows")
def test_records_of_a_topic_are_given_as_a_commit_takes_them(log: MemoryLog) -> None:
    assert records_of(log, "old") == []
    put(log, OLD, ("a", "1", 1), (None, "2", 2))
    put(log, OLD, ("a", None, 3))
    found = records_of(log, "old")
    assert rows(*found) == [("a", "1", 1), (None, "2", 2), ("a", None, 3)]
    assert {b.schema for b in found} == {PRODUCE_SCHEMA}
