"""The rows that a run takes of each input: as batches of operators, and where they came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from flowql.runtime.batch import Batch, Ints, Origins, concat, concat_origins
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import DeadLetter, MicroBatchContext, OriginsOf, SourceRecord
from flowql.runtime.task.dead_letters import LocatedDeadLetter
from flowql.runtime.task.input_buffer import DecodedRows
from flowql.runtime.task.peeked import EMPTY, PeekedRows
from flowql.runtime.task.position_names import OF_SOURCE


class InputSlice(NamedTuple):
    """The next rows of one input as part of a micro-batch; `seq`: their positions in it. cursor: index of the first row in the decoded batch.

    decoded: the decoded batch of a log input that holds them.
    """

    input: str
    operator: str
    cursor: int
    seq: Ints
    peeked: PeekedRows = EMPTY
    decoded: DecodedRows | None = None

    @property
    def end(self) -> int:
        return self.cursor + len(self.seq)

    @property
    def records(self) -> RawBatch | None:
        """The source records of the rows; None for rows that came through a repartition."""
        return None if self.decoded is None or OF_SOURCE in self.input else self.decoded.raw

    def origins(self) -> Origins:
        """The origins of its rows, in their order."""
        raw = self.records
        if raw is None or self.decoded is None:
            batches = self.peeked.taken(len(self.seq))
            return concat_origins([b.origins or Origins.unknown(len(b)) for b in batches])
        rows = self.decoded.origin[self.cursor : self.end]
        return Origins((raw.tp,), np.zeros(len(rows), np.int16), raw.records.column(0).to_numpy()[rows])


@dataclass(slots=True)
class Taken:
    """The rows that a task takes for a micro-batch, by input and by source operator.

    metadata: of the task before it. context: makes the context of an attempt to process them.
    """

    slices: list[InputSlice]
    batches: dict[str, Batch]
    metadata: Mapping[str, Any]
    context: Callable[[], MicroBatchContext]

    @property
    def rows(self) -> int:
        return sum(len(t.seq) for t in self.slices)

    @property
    def ends(self) -> dict[str, int]:
        """By input, the index after its last row in the decoded batch."""
        return {t.input: t.end for t in self.slices}


def origins_of(taken: Sequence[InputSlice]) -> OriginsOf | None:
    """The source records of rows of a micro-batch, by `seq`; computed on first use."""
    if not taken:
        return None

    @cache
    def of_all() -> Origins:
        every = concat_origins([t.origins() for t in taken])
        return every if len(taken) == 1 else every.take(np.argsort(np.concatenate([t.seq for t in taken])))

    return lambda seq: of_all().take(seq)


def by_operator(taken: list[InputSlice]) -> dict[str, Batch]:
    """The batch of each source operator; channels of one repartition are merged in the order of the run."""
    channels: dict[str, list[InputSlice]] = {}
    for t in taken:
        if len(t.seq):
            channels.setdefault(t.operator, []).append(t)
    return {operator: _merged(parts) for operator, parts in channels.items()}


def _merged(channels: Sequence[InputSlice]) -> Batch:
    batches = [b for channel in channels for b in channel.peeked.taken(len(channel.seq))]
    rows = concat(batches[0].schema, batches)
    if len(channels) == 1:
        return rows.numbered(channels[0].seq)
    seq = np.concatenate([channel.seq for channel in channels])
    order = np.full(int(seq.max()) + 1, -1)
    order[seq] = np.arange(len(seq))
    order = order[order >= 0]  # other operators have rows in between
    return rows.take(order).numbered(seq[order])


def records_of(taken: Sequence[InputSlice], origins: OriginsOf | None) -> Callable[[Ints], list[SourceRecord | None]]:
    """Gives the records behind rows of a run, by `seq`, with their bytes where they were read from a topic of the user."""

    def records(seq: Ints) -> list[SourceRecord | None]:
        found: list[SourceRecord | None] = [None] * len(seq)
        for t in taken:
            if not len(t.seq):
                continue
            places = np.minimum(np.searchsorted(t.seq, seq), len(t.seq) - 1)
            here = np.flatnonzero(t.seq[places] == seq)
            for n, record in zip(here.tolist(), _records(t, places[here], origins), strict=True):
                found[n] = record
        return found

    return records


def _records(t: InputSlice, places: Ints, origins: OriginsOf | None) -> list[SourceRecord | None]:
    """The source records of the rows at these indices of an input."""
    raw = t.records
    if raw is None or t.decoded is None:
        if origins is None:
            return [None] * len(places)
        of = origins(t.seq[places])
        found = [of.of(n) for n in range(len(places))]
        return [None if origin is None else SourceRecord(*origin) for origin in found]
    index = pa.array(t.decoded.origin[t.cursor + places])
    columns = [raw.records.column(n).take(index).to_pylist() for n in range(4)]
    return [SourceRecord(*raw.tp, *values) for values in zip(*columns, strict=True)]


def locate_retired(letter: DeadLetter, retired: Sequence[SourceRecord | None]) -> LocatedDeadLetter:
    """The record behind a row that had waited. retired: those of the run, by `seq`."""
    record = retired[letter.seq] if letter.seq < len(retired) else None
    if record is None or record.offset is None:
        return LocatedDeadLetter(letter, None)
    if record.timestamp is None:
        return LocatedDeadLetter(letter, None, origin=(record.topic, record.partition, record.offset))
    columns = [[record.offset], [record.timestamp], [record.key], [record.value], [None]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, RECORD_SCHEMA, strict=True)]
    records = pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA)
    tp = TopicPartition(record.topic, record.partition)
    return LocatedDeadLetter(letter, RawBatch(tp, records, record.offset + 1, 0))


def locate(letter: DeadLetter, taken: Sequence[InputSlice], origins: OriginsOf | None) -> LocatedDeadLetter:
    """The raw record behind a failed row. origins: those of `taken`."""
    for t in taken:
        i = int(np.searchsorted(t.seq, letter.seq))
        if i < len(t.seq) and t.seq[i] == letter.seq:
            if t.records is None or t.decoded is None:
                origin = origins(t.seq[i : i + 1]).of(0) if origins is not None else None
                return LocatedDeadLetter(letter, None, origin=origin)
            return LocatedDeadLetter(letter, t.records, int(t.decoded.origin[t.cursor + i]))
    msg = f"row {letter.seq} belongs to no input of the run"
    raise AssertionError(msg)


def records_between(raw: RawBatch, start: int, rows: int) -> RawBatch:
    """So many records of a fetch from this one on."""
    records = raw.records.slice(start, rows)
    end = start + rows
    last = raw.next_offset if end == raw.records.num_rows else int(raw.records.column(0)[end].as_py())
    return RawBatch(raw.tp, records, last, raw.size_bytes * rows // max(1, raw.records.num_rows))
