"""Positions: what is read, what is refused, and how a batch is bounded."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.errors import LogError, OffsetOutOfRange, PartitionsChanged, TopicMissing
from flowql.runtime.log.base import EARLIEST, LATEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.spark.log_address import shared_log
from flowql.runtime.spark.log_offsets import (
    LogRange,
    Offsets,
    aligned,
    begins,
    check_positions,
    ends,
    limited,
    ranges,
    read_range,
    resolve,
    topic_list,
)
from tests.runtime.spark.logs import append, fill, open_log

positions = st.dictionaries(st.sampled_from("abc"), st.integers(0, 1000), min_size=1)


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = open_log(tmp_path, "t", "u")
    fill(log, "t", 0, 10)
    return log


def test_begins_and_ends(log: EmbeddedLog, tmp_path: Path) -> None:
    log.drop_before(TopicPartition("t", 1), 4)
    assert begins(tmp_path / "log", ["t", "u"]) == {"t": {"0": 0, "1": 4}, "u": {"0": 0, "1": 0}}
    assert ends(tmp_path / "log", ["t"]) == {"t": {"0": 10, "1": 10}}
    append(log, "t", 0, [b"more"])
    assert ends(tmp_path / "log", ["t"]) == {"t": {"0": 11, "1": 10}}


def test_what_is_not_given_is_the_default(log: EmbeddedLog) -> None:
    assert resolve(log, ["t"], {"t": {"1": 3}}, EARLIEST) == {"t": {"0": 0, "1": 3}}
    assert resolve(log, ["t"], {"t": {"1": EARLIEST}}, LATEST) == {"t": {"0": 10, "1": 0}}


def test_what_cannot_be_read_is_refused(log: EmbeddedLog) -> None:
    log.drop_before(TopicPartition("t", 1), 4)
    with pytest.raises(TopicMissing, match="there is no topic nix"):
        resolve(log, ["nix"], {}, EARLIEST)
    with pytest.raises(LogError, match="topic u, which is not read"):
        resolve(log, ["t"], {"u": {"0": 0}}, EARLIEST)
    with pytest.raises(LogError, match="2 partitions, none with number 7"):
        resolve(log, ["t"], {"t": {"7": 0}}, EARLIEST)
    with pytest.raises(OffsetOutOfRange, match="records 2 to 3 are gone"):
        resolve(log, ["t"], {"t": {"1": 2}}, EARLIEST)
    with pytest.raises(OffsetOutOfRange, match="above the log's end 10"):
        resolve(log, ["t"], {"t": {"1": 11}}, EARLIEST)


def test_a_checkpoint_that_does_not_fit_is_refused(log: EmbeddedLog) -> None:
    assert check_positions(log, ["t"], {"t": {"0": 3, "1": 10}}) == {"t": {"0": 10, "1": 10}}
    with pytest.raises(PartitionsChanged, match="t has 2 partitions, and had 1 when the query began"):
        check_positions(log, ["t"], {"t": {"0": 3}})
    with pytest.raises(LogError, match="positions of topics t, but t, u are read"):
        check_positions(log, ["t", "u"], {"t": {"0": 3, "1": 3}})
    with pytest.raises(OffsetOutOfRange, match="the topic was created again"):
        check_positions(log, ["t"], {"t": {"0": 3, "1": 99}})


@given(positions, st.integers(1, 500))
def test_a_batch_is_bounded_and_every_partition_moves(lag: dict[str, int], rows: int) -> None:
    start = {"t": {p: 5 for p in lag}}
    end = {"t": {p: 5 + n for p, n in lag.items()}}
    cut = limited(start, end, rows)["t"]
    moved = {p: cut[p] - 5 for p in lag}
    assert all((0 < moved[p] <= n) if n else moved[p] == 0 for p, n in lag.items())
    assert sum(moved.values()) <= max(rows + rows // 8, len(lag)) + len(lag)
    if sum(lag.values()) <= rows + rows // 8:
        assert moved == lag


@given(positions)
def test_tasks_cover_a_range_once(lag: dict[str, int]) -> None:
    at = {str(i): n for i, n in enumerate(lag.values())}
    found = ranges({"t": dict.fromkeys(at, 0)}, {"t": at})
    covered = [(r.partition, o) for r in found for o in range(r.start, r.end)]
    assert covered == [(int(p), o) for p, n in at.items() for o in range(n)]


def test_a_range_is_read_exactly(log: EmbeddedLog) -> None:
    batches = list(read_range(log, LogRange("t", 1, 3, 9), chunk_rows=4))
    assert [b.records.column("offset").to_pylist() for b in batches] == [[3, 4, 5, 6], [7, 8]]
    assert [(b.first_offset, b.next_offset) for b in batches] == [(3, 7), (7, 9)]
    with pytest.raises(OffsetOutOfRange, match="records 10 to 11 are not in the log"):
        list(read_range(log, LogRange("t", 1, 8, 12), chunk_rows=4))


def test_a_range_that_another_process_has_just_committed_is_seen(log: EmbeddedLog, tmp_path: Path) -> None:
    reading = shared_log(tmp_path / "log")
    assert len(list(read_range(reading, LogRange("t", 0, 0, 10), 100))) == 1
    append(log, "t", 0, [b"x"])
    (batch,) = read_range(reading, LogRange("t", 0, 10, 11), 100)
    assert batch.records.column("value").to_pylist() == [b"x"]


def test_topics_are_a_list() -> None:
    assert topic_list(" a, b,a ") == ["a", "b"]
    with pytest.raises(LogError, match="names no topic"):
        topic_list(" ,")


@given(st.lists(st.lists(st.integers(0, 30), max_size=25), min_size=1, max_size=4), st.integers(1, 12))
def test_parts_up_to_one_time_are_merged_as_the_whole_is(times: list[list[int]], rows: int) -> None:
    """Whatever the order of times in a partition."""
    log, end = MemoryLog(), {"t": {str(p): len(at) for p, at in enumerate(times)}}
    log.create_topic("t", len(times))
    put_times(log, times)
    at: Offsets = {"t": dict.fromkeys(end["t"], 0)}
    merged: list[tuple[int, int]] = []
    while at != end:
        after = aligned(log, at, end, rows)
        parts = [(p, at["t"][str(p)], after["t"][str(p)]) for p in range(len(times))]
        assert sum(last - first for _, first, last in parts) > 0
        found = [(max(times[p][: n + 1]), p) for p, first, last in parts for n in range(first, last)]
        assert min(found)[0] > max(merged, default=(-1, 0))[0], "those of one time come together: a table's go first"
        merged, at = merged + sorted(found, key=lambda x: x[0]), after
    assert [time for time, _ in merged] == sorted(max(at[: n + 1]) for at in times for n in range(len(at)))


def test_of_partitions_that_are_filled_side_by_side_a_part_has_about_so_many_records() -> None:
    log = MemoryLog()
    log.create_topic("t", 2)
    put_times(log, [[*range(1000)], [*range(0, 1000, 10)]])
    start, end = {"t": {"0": 0, "1": 0}}, {"t": {"0": 1000, "1": 100}}
    assert aligned(log, start, end, 400) == {"t": {"0": 199, "1": 20}}
    assert aligned(log, start, end, 1000) == end


def put_times(log: MemoryLog, times: list[list[int]]) -> None:
    producer = log.producer("test")
    producer.begin()
    for p, at in enumerate(times):
        rows = [{"timestamp": t, "key": b"k", "value": b"", "headers": None} for t in at]
        if rows:
            producer.send(TopicPartition("t", p), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
    producer.commit()
    producer.close()
