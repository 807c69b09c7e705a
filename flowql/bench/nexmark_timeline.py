"""The timeline of the Nexmark auction site, and how its columns are drawn.

One timeline of events: of every 50 the first is a new person, the next three are new auctions, the other 46 are bids.
Every block of `BLOCK` records of one kind draws from its own random stream, so the first n records are the same however
many are asked for and however they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]

SEED = 20_260_101
BLOCK = 100_000  # records drawn from one random stream
START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z: a fixed start, or two runs would not see the same events
EVENTS_PER_SECOND = 10_000  # of event time, over all kinds of event
PERSONS, AUCTIONS, BIDS = 1, 3, 46  # of each kind, in turn
ROUND = PERSONS + AUCTIONS + BIDS

FIRST_ID = 1000  # of persons and of auctions
HOT_FOR = 100  # an auction or person is hot until as many newer ones exist
ALPHABET = np.frombuffer(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", np.uint8)


def moments(event: Ints) -> Ints:
    """The times of events by their place on the timeline, in ms."""
    return START_MS + event * 1000 // EVENTS_PER_SECOND


def cut(rows: int, chunk: int, schema: pa.Schema, block: Callable[[int], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first `rows` of the blocks 0, 1, ... in batches of `chunk` (the last may be smaller)."""
    assert chunk > 0
    held: list[pa.RecordBatch] = []
    count = 0
    for number in range(-(-rows // BLOCK)):
        made = block(number).slice(0, rows - number * BLOCK)
        assert made.schema == schema
        held.append(made)
        count += made.num_rows
        while count >= chunk:
            table = pa.Table.from_batches(held)
            yield _one_batch(table.slice(0, chunk))
            held = table.slice(chunk).to_batches()
            count -= chunk
    if count:
        yield _one_batch(pa.Table.from_batches(held))


def schema_of(**columns: pa.DataType) -> pa.Schema:
    """Columns of which none is ever null."""
    return pa.schema([pa.field(name, t, nullable=False) for name, t in columns.items()])


def choose(random: np.random.Generator, newest: Ints, window: int, cold: float) -> Ints:
    """Per row an id up to `newest`: the hot one, or (a share of `cold`) any of the `window` newest."""
    spread = np.minimum(newest + 1, window)
    any_recent = newest - (random.random(len(newest)) * spread).astype(np.int64)
    return np.where(random.random(len(newest)) < cold, any_recent, newest // HOT_FOR * HOT_FOR)


def prices(random: np.random.Generator, rows: int) -> Ints:
    """Cents; six decades, evenly."""
    return np.rint(100.0 * np.power(10.0, 6.0 * random.random(rows))).astype(np.int64)


def texts(random: np.random.Generator, rows: int, width: int) -> pa.Array:
    """`rows` random texts of `width` letters, as one buffer."""
    data = ALPHABET[random.integers(0, len(ALPHABET), rows * width, dtype=np.uint8)]
    offsets = np.arange(0, rows * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(data))


def some_of(random: np.random.Generator, rows: int, words: tuple[str, ...]) -> pa.Array:
    return pa.array(words).take(pa.array(random.integers(0, len(words), rows)))


def digits(values: Ints | pa.Array) -> pa.Array:
    return pc.cast(values if isinstance(values, pa.Array) else pa.array(values), pa.string())


def joined(*parts: str | pa.Array) -> pa.Array:
    """The parts of each row one after the other."""
    return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in parts), "")


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0]
