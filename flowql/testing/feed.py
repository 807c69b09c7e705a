"""From the rows of a test to records on topics, and the timings under which they arrive."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import orjson
import pyarrow as pa

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.tables import ROW_NUMBER
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.errors import BadRecord
from flowql.runtime.log.base import PRODUCE_SCHEMA, RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.output.partitioner import split
from flowql.testing.case import Case, Given, Row, as_declared
from flowql.topics.codecs import KeyWriter, ValueWriter


@dataclass(frozen=True, slots=True)
class Arriving:
    """A record on its way. time_ms: of its row, as the source reads it; source: which of `Case.given` it belongs to."""

    source: int
    time_ms: int
    tp: TopicPartition
    record: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Timing:
    """One way in which the rows of a test arrive. chunks: what is written before the engine runs again."""

    name: str
    chunks: Sequence[Sequence[Arriving]] = field(repr=False)


def records_of(case: Case, plan: Plan, partitions: Mapping[str, int]) -> list[list[Arriving]]:
    """The records of each source of a test, in their order. CompileError: rows that cannot be written as declared."""
    mistakes: list[Diagnostic] = []
    found = []
    for n, given in enumerate(case.given):
        source = find_source(plan, given.source)
        if source is None:
            hint = did_you_mean(given.source, [s.name for s in plan.sources])
            mistakes.append(
                Diagnostic("FQ5071", f"there is no stream or table `{given.source}`", given.span, help=hint)
            )
            continue
        found.append(_Writing(source, plan, partitions[source.topic], n, mistakes).all(given))
    if mistakes:
        raise CompileError(*mistakes)
    return found


def find_source(plan: Plan, name: str) -> SourceDef | None:
    """By its name as written, else as an unquoted name."""
    return plan.source(name) or plan.source(name.upper()) or plan.source(name.lower())


class _Writing:
    """Encodes the rows of one source."""

    def __init__(self, source: SourceDef, plan: Plan, partitions: int, number: int, mistakes: list[Diagnostic]) -> None:
        self._source, self._partitions, self._number, self._mistakes = source, partitions, number, mistakes
        self._key, self._value = KeyWriter(source), ValueWriter(source)
        self._columns = {f.name: f for f in (*source.schema.key, *source.schema.value) if f.name in source.visible}
        self._by_number, self._rows = source.schema.get(ROW_NUMBER) is not None and source.is_own_table, 0
        scans = [(o.spec, o.schema) for q in plan.queries for s in q.subtopologies for o in s.operators
                 if isinstance(o.spec, Scan) and o.spec.topic == source.topic]  # fmt: skip
        self._decoder = Decoder(*scans[0]) if scans and source.timestamp is not None else None

    def all(self, given: Given) -> list[Arriving]:
        time_ms, out = 0, []
        for row in given.rows:
            time_ms = time_ms if row.rowtime_ms is None else row.rowtime_ms
            arriving = self._one(row, time_ms)
            if arriving is not None:
                out.append(arriving)
        return out

    def _one(self, row: Row, time_ms: int) -> Arriving | None:
        values = {}
        for name, value in row.values.items():
            column = next((c for c in (name, name.upper(), name.lower()) if c in self._columns), None)
            if column is None:
                hint = did_you_mean(name, self._columns) or f"it has {', '.join(self._columns)}"
                self._wrong(row, f"{self._source.name} has no column `{name}`", hint)
                return None
            values[column] = value
        try:
            values = {c: as_declared(v, self._columns[c].type) for c, v in values.items()}
            key = self._key.encode(orjson.dumps({**values, **self._numbered()}, default=str))
            value = row.raw if row.raw is not None else None if row.tombstone else self._encoded(values)
        except (BadRecord, TypeError, ValueError) as e:
            self._wrong(row, f"this is not a row of {self._source.name}: {e}", "")
            return None
        columns = {"timestamp": time_ms, "key": key, "value": value, "headers": None}
        record = pa.RecordBatch.from_pylist([columns], PRODUCE_SCHEMA)
        ((partition, record),) = split(record, self._partitions, 0)
        return Arriving(
            self._number, self._time(record, time_ms), TopicPartition(self._source.topic, partition), record
        )

    def _numbered(self) -> dict[str, int]:
        """The number of a row that has no key of its own: below those that statements give."""
        self._rows += 1
        return {ROW_NUMBER: -self._rows} if self._by_number else {}

    def _encoded(self, values: Mapping[str, object]) -> bytes | None:
        names = [f.name for f in self._source.schema.value]
        if not names:
            return None
        return self._value.encode(orjson.dumps({n: values[n] for n in names if n in values}, default=str))

    def _time(self, record: pa.RecordBatch, time_ms: int) -> int:
        """By the source's timestamp column, if it has one and the record can be read."""
        if self._decoder is None:
            return time_ms
        columns = [pa.array([0], pa.int64()), *record.columns]
        raw = RawBatch(TopicPartition("", 0), pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA), 1, 1)
        batch = self._decoder.decode(raw, MicroBatchContext(NO_STATE))
        return int(batch.rowtime[0]) if len(batch) else time_ms

    def _wrong(self, row: Row, title: str, hint: str) -> None:
        self._mistakes.append(Diagnostic("FQ5071", title, row.span, help=hint))


def timings(case: Case, sources: Sequence[Sequence[Arriving]], splits: int, seed: int) -> Iterator[Timing]:
    """Ways in which the rows may arrive that must all give the same: sources keep their order, and so does time.

    Each differs from those before it: few rows can be split in few ways.
    """
    seen = set()
    for timing in _timings(case, sources, splits, seed):
        way = tuple(tuple(map(id, chunk)) for chunk in timing.chunks)
        if way not in seen:
            seen.add(way)
            yield timing


def _timings(case: Case, sources: Sequence[Sequence[Arriving]], splits: int, seed: int) -> Iterator[Timing]:
    by_time = _merged(sources, random.Random(0))
    yield Timing("each row alone, by time", [[a] for a in by_time])
    if len(by_time) < 2:
        return
    yield Timing("all rows at once", [by_time])
    if case.arrival == "any":  # the furthest apart: every source read to its end before the next one
        yield Timing("sources one after the other", [rows for rows in sources if rows])
        yield Timing("sources one after the other, the last one first", [rows for rows in reversed(sources) if rows])
    for n in range(splits):
        order = random.Random(f"{seed} {n}")
        rows = _shuffled(sources, order) if case.arrival == "any" else _merged(sources, order)
        name = "sources in another order" if case.arrival == "any" else "in random batches"
        yield Timing(f"{name} (--seed {seed}, split {n + 1})", _chunks(rows, order))


def _merged(sources: Sequence[Sequence[Arriving]], order: random.Random) -> list[Arriving]:
    """By time; sources in random order where times are equal."""
    keyed = []
    for rows in sources:
        reached, tie = -1, order.random()
        for n, a in enumerate(rows):
            reached = max(reached, a.time_ms)
            keyed.append((reached, tie, n, a))
    return [a for *_, a in sorted(keyed, key=lambda k: k[:3])]


def _shuffled(sources: Sequence[Sequence[Arriving]], order: random.Random) -> list[Arriving]:
    """Any order in which every source keeps its own."""
    left = [list(rows) for rows in sources if rows]
    out = []
    while left:
        rows = order.choice(left)
        out.append(rows.pop(0))
        left = [rows for rows in left if rows]
    return out


def _chunks(rows: Sequence[Arriving], order: random.Random) -> list[list[Arriving]]:
    out: list[list[Arriving]] = [[]]
    for row in rows:
        if out[-1] and order.random() < 0.4:
            out.append([])
        out[-1].append(row)
    return out
