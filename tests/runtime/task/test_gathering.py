"""Records that came one by one while their reader was behind are processed many at a time."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from flowql.compiler.plan.schema import Schema
from flowql.runtime.batch import from_rows
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.task.input_buffer import GATHERED_BATCHES, GATHERED_ROWS, DecodedRows, LogInput, Probes

TP = TopicPartition("t", 0)


def fetched(first: int, rows: int, *, after: int = 0) -> RawBatch:
    """Records from offset `first` on, and `after` offsets that are no records."""
    offsets = range(first, first + rows)
    rest = {name: pa.nulls(rows, RECORD_SCHEMA.field(name).type) for name in RECORD_SCHEMA.names}
    columns = {**rest, "offset": pa.array(offsets, pa.int64()), "key": pa.array([b"k"] * rows, pa.binary())}
    records = pa.RecordBatch.from_arrays([columns[n] for n in RECORD_SCHEMA.names], names=RECORD_SCHEMA.names)
    return RawBatch(TP, records, first + rows + after, 10 * rows)


def taken(source: LogInput) -> RawBatch:
    """The next batch, all of it."""
    head = source.head()
    assert head is not None
    source.consume_raw(head.records.num_rows)
    return head


def test_small_batches_are_one_run() -> None:
    """A member that was stopped for ten seconds needed two minutes for 13,000 records, each of which was a run."""
    source = LogInput("op", TP, 0)
    for n in range(300):
        source.add(fetched(2 * n, 1, after=1))
    head = taken(source)
    assert head.records.column("offset").to_pylist() == list(range(0, 2 * GATHERED_BATCHES, 2))
    assert (source.position, source.rows) == (2 * GATHERED_BATCHES, 300 - GATHERED_BATCHES)
    while source.has_rows:
        taken(source)
    assert (source.position, source.rows, source.size_bytes) == (600, 0, 0)


def test_two_small_batches_are_enough() -> None:
    source = LogInput("op", TP, 0)
    for n in range(2):
        source.add(fetched(n, 1))
    assert taken(source).records.num_rows == 2


@pytest.mark.parametrize("sizes", [(700, 300, 100, 2_000, 1), (1, GATHERED_ROWS, 1), (5_000,), (1, 1, 5_000)])
def test_only_as_many_as_are_small_together(sizes: tuple[int, ...]) -> None:
    source = LogInput("op", TP, 0)
    for n, rows in enumerate(sizes):
        source.add(fetched(sum(sizes[:n]), rows))
    runs = []
    while source.has_rows:
        runs.append(taken(source).records.num_rows)
        assert source.rows == sum(sizes) - sum(runs)
    assert sum(runs) == sum(sizes)
    assert all(run in sizes or run <= GATHERED_ROWS for run in runs)
    assert all(a + b > GATHERED_ROWS for a, b in pairwise(runs) if a not in sizes and b in sizes)


def test_a_batch_of_which_a_part_is_processed_stays_as_it_is() -> None:
    source = LogInput("op", TP, 0)
    for n in range(3):
        source.add(fetched(10 * n, 10))
    source.head()
    source.consume_raw(12)
    source.add(fetched(30, 10))
    head = source.head()
    assert head is not None
    assert (head.records.num_rows, source.position) == (30, 12)
    source.consume_raw(18)
    assert taken(source).first_offset == 30


def test_what_is_gathered_waits_for_all_that_its_batches_waited_for() -> None:
    source = LogInput("op", TP, 0, channel=b"k", probes=Probes())
    source.siblings = [source]
    assert source.probes is not None
    for n in range(3):
        source.probes.started = n
        source.add(fetched(n, 1))
    assert source.needed_probe == 1
    source.head()
    assert source.needed_probe == 3
    source.complete = 2
    assert source.waited_for
    source.consume_raw(3)
    assert source.needed_probe == 0


def test_after_a_reset_nothing_is_waited_for_on_behalf_of_what_is_forgotten() -> None:
    """An old mark before a new batch would let it overtake what is still to come to other channels."""
    source = LogInput("op", TP, 0, channel=b"k", probes=Probes())
    source.siblings = [source]
    assert source.probes is not None
    source.add(fetched(0, 1))
    source.reset(0)
    assert (source.needed_probe, source.rows, source.size_bytes, source.position) == (0, 0, 0, 0)
    source.probes.started = 5
    source.add(fetched(0, 1))
    assert source.needed_probe == 6


def test_small_batches_are_decoded_together_and_with_what_they_were_gathered_from() -> None:
    """The parts may be decoded already, for others that read the topic."""
    source, seen = LogInput("op", TP, 0, attached=True), []

    def decode(raw: RawBatch, parts: Sequence[RawBatch]) -> DecodedRows:
        seen.append((raw.records.num_rows, [part.first_offset for part in parts]))
        rows = from_rows(Schema(()), [()] * 3, [0] * 3, [0] * 3, [0, 1, 2])
        return DecodedRows(rows, np.arange(3), raw.records.num_rows, [], raw)

    for n in range(3):
        source.add(fetched(n, 1))
    decoded = source.decode_next(decode)
    assert decoded is source.decode_next(decode), "once"
    assert seen == [(3, [0, 1, 2])]
    source.consume(3)
    assert (source.position, source.rows) == (3, 0)
