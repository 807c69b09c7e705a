"""Shared decoding in pieces while somebody urgent comes and goes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from runtime.task.input_buffer import STAGED_ROWS, LogInput, Staged

TP = TopicPartition("t", 0)


def fetched(first: int, rows: int) -> RawBatch:
    offsets = pa.array(range(first, first + rows), pa.int64())
    nulls = [pa.nulls(rows, f.type) for f in list(RECORD_SCHEMA)[2:]]
    records = pa.RecordBatch.from_arrays([offsets, offsets, *nulls], schema=RECORD_SCHEMA)
    return RawBatch(TP, records, first + rows, rows * 10)


def log_input(rows: int, *, in_pieces: bool) -> LogInput:
    source = LogInput("op", TP, 0, in_pieces=in_pieces, end_offset=rows)
    source.add(fetched(0, rows))
    return source


def decoded(raw: RawBatch) -> Staged:
    n = raw.records.num_rows
    return Staged(None, np.arange(n), n, [], raw)  # type: ignore[arg-type]


def test_a_fetch_is_staged_in_pieces_and_nothing_is_lost():
    source, seen = log_input(2 * STAGED_ROWS + 5, in_pieces=True), []
    while source.queue:
        more = source.more_to_come
        staged = source.stage(decoded)
        seen.append(staged.raw_rows)
        assert more == (len(source.queue) > 1), "whoever merges by time must know that rows of this input follow"
        size = source.size_bytes
        source._settle(staged.raw, 0, staged.raw_rows)
        assert source.size_bytes == size - staged.raw.size_bytes
    assert seen == [STAGED_ROWS, STAGED_ROWS, 5]
    assert (source.position, source.rows, source.size_bytes) == (2 * STAGED_ROWS + 5, 0, 0)


def test_without_an_urgent_query_a_fetch_stays_whole():
    source = log_input(2 * STAGED_ROWS, in_pieces=False)
    assert not source.more_to_come
    assert source.stage(decoded).raw_rows == 2 * STAGED_ROWS
