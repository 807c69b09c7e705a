"""Relations an interactive query can read, each as one Arrow table of what it needs: stores, and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.json_values import equality_text
from flowql.compiler.functions.sql_intervals import interval_of
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef, StoreSpec, scan_of
from flowql.compiler.plan.types import BIGINT, JSONB, SPAN, STRING, UUID, Kind, SqlType, arrow_type
from flowql.query.lookup import Points, access
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.query.views import ROWTIME, Shown, StoreView, ViewMaker
from flowql.runtime.batch import DELETE, Batch, to_arrow
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import Log, RawBatch, TopicPartition
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.state.rows import Key, Rows
from flowql.runtime.state.store import Snapshot
from flowql.runtime.state.values import encode_value

READ_RECORDS, READ_BYTES = 50_000, 16 << 20
_KEY_BYTES = 250  # of a key and its place in a dictionary
_OFFSET = Field("ROWOFFSET", BIGINT, "pseudo")


class Relation(Protocol):
    """Something an interactive query can read."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> Schema: ...

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """At least the rows that meet the conditions, piece by piece. Columns outside `columns` (folded names; None: all) may be null.

        What has to be in memory until the last piece is taken from `room`.
        """
        ...


@runtime_checkable
class Replaced(Protocol):
    """A relation whose records can be replaced while they are read (OffsetOutOfRange)."""

    def again(self) -> Relation:
        """The relation with its current records."""
        ...


@dataclass(frozen=True, slots=True)
class StoreRelation:
    """A store at a commit. present: the commit has it (a new one may not have been committed yet). make: what has made the view."""

    name: str
    view: StoreView
    snapshot: Snapshot
    present: bool = True
    make: ViewMaker | None = None

    @property
    def schema(self) -> Schema:
        return self.view.schema

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """The first piece has few rows, later ones more."""
        del room
        if ambiguous(self.schema):
            conditions, columns = (), None
        for rows in self._chunks(conditions):
            shown = self.view.show(*rows)
            if shown.rows:
                yield _batch(self.schema, shown, columns)

    def points(self, keys: Sequence[Key]) -> Shown | None:
        """The rows with these keys; None if there are none."""
        shown = self.view.show(*self._at(keys)) if self.present else None
        return shown if shown is not None and shown.rows else None

    def _at(self, keys: Sequence[Key]) -> Rows:
        rows = [(key, v) for key in keys if (v := self.snapshot.get(self.view.spec.name, key)) is not None]
        return [k for k, _ in rows], [v for _, v in rows]

    def _chunks(self, conditions: Sequence[Condition]) -> Iterator[Rows]:
        if not self.present:
            return
        found = access(self.view.key, conditions)
        if isinstance(found, Points):
            yield self._at(found.keys)
        else:
            yield from self.snapshot.chunks(self.view.spec.name, low=found.low, high=found.high)


@dataclass(frozen=True, slots=True)
class TopicRelation:
    """A stream or table read from its topic, within `spans`: all records of a stream, the last per key of a table.

    Records that cannot be read are left out; they are in DEAD_LETTERS once a query has met them. Where a batch has replaced
    them meanwhile, what took their place is read. columns: those of the source, if nothing else is said. A relation of standard
    SQL shows its visible columns as declared, and nothing else. bounds: offsets that the spans end at, because of a tick.
    last: the offsets, in order, of the last record of each key that is no removal (`flowql.query.last_records`); None: not known yet.
    """

    name: str
    source: SourceDef
    log: Log
    spans: Mapping[TopicPartition, tuple[int, int]]
    columns: Schema | None = None
    bounds: Mapping[TopicPartition, int] = field(default_factory=dict)
    last: Mapping[TopicPartition, np.ndarray] | None = None

    @classmethod
    def newest(
        cls, source: SourceDef, log: Log, ends: Mapping[TopicPartition, int] = MappingProxyType({})
    ) -> TopicRelation:
        """The records before `ends`, in partitions that have one; else all."""
        spans = spans_of(log, source.topic)
        bounds = {tp: ends[tp] for tp in spans if tp in ends}
        return cls(source.name, source, log, {tp: within(s, bounds.get(tp)) for tp, s in spans.items()}, None, bounds)

    @property
    def is_bounded(self) -> bool:
        return self.spans.keys() == self.bounds.keys()

    def is_out_of_date(self) -> bool:
        """See `is_passed`."""
        return any(is_passed(self.log, tp, self.spans[tp][0], end) for tp, end in self.bounds.items())

    @property
    def schema(self) -> Schema:
        shown = self.source.shown if self.columns is None else self.columns
        if self.source.relation and self.columns is None:
            return shown
        return Schema((*shown.fields, *self._rowtime()))

    @property
    def _all(self) -> Schema:
        return self.source.schema if self.columns is None else self.columns

    def _rowtime(self) -> tuple[Field, ...]:
        return () if self.source.schema.get(ROWTIME) is not None else (Field(ROWTIME, BIGINT),)

    def again(self) -> TopicRelation:
        """Raises OffsetOutOfRange if there are none before the bounds any more."""
        return replace(self, spans=self.spans_again(), last=None)

    def spans_again(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """Raises OffsetOutOfRange."""
        spans = spans_of(self.log, self.source.topic)
        for tp, end in self.bounds.items():
            if tp not in spans or spans[tp][0] > end:
                raise OffsetOutOfRange(f"{tp} has no records before offset {end} any more")
        return {tp: within(span, self.bounds.get(tp)) for tp, span in spans.items()}

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """Raises OffsetOutOfRange where a rebuild has replaced its records meanwhile."""
        del conditions
        if self.last is not None:
            yield from self._last_rows(self.last, columns)
            return
        decoder = Decoder(scan_of(self.source), self._wanted(columns))
        for tp, (begin, end) in sorted(self.spans.items()):
            found = (b for raw in records(self.log, tp, begin, end) if len(b := decode(decoder, raw)))
            yield from map(self.shown, _latest(found, room) if self.source.kind == "table" else found)

    def _last_rows(
        self, last: Mapping[TopicPartition, np.ndarray], columns: frozenset[str] | None
    ) -> Iterator[pa.RecordBatch]:
        missing = sum(map(len, last.values()))
        for tp, batch in self.numbered(columns):
            offsets, wanted = offsets_of(batch), last[tp]
            places = np.minimum(np.searchsorted(wanted, offsets), len(wanted) - 1)
            kept = np.flatnonzero(wanted[places] == offsets) if len(wanted) else places[:0]
            if len(kept):
                missing -= len(kept)
                yield self.shown(batch.take(kept))
        if missing:  # compaction has removed records because of ones beyond the spans
            raise OffsetOutOfRange(f"{self.name} has lost {missing} records while it was read")

    def numbered(self, columns: frozenset[str] | None) -> Iterator[tuple[TopicPartition, Batch]]:
        """All records that can be read, with their offsets (`offsets_of`)."""
        wanted = self._wanted(columns)
        decoder = Decoder(scan_of(self.source), Schema((*wanted.fields, _OFFSET), wanted.window))
        for tp, (begin, end) in sorted(self.spans.items()):
            for raw in records(self.log, tp, begin, end):
                if len(batch := decode(decoder, raw)):
                    yield tp, batch

    def _wanted(self, columns: frozenset[str] | None) -> Schema:
        """Columns to decode: those asked for, and those of the key that tell rows of a table apart."""
        schema = self._all
        if columns is None or ambiguous(schema):
            return schema
        kept = tuple(f for f in schema if f.role in ("key", "window") or f.name.casefold() in columns)
        return Schema(kept, schema.window)

    def shown(self, batch: Batch) -> pa.RecordBatch:
        """Decoded records as rows of the relation."""
        decoded = batch.arrow()
        arrays = []
        for f in self.schema:
            if f.name == ROWTIME and batch.schema.get(ROWTIME) is None:
                arrays.append(pa.array(batch.rowtime))
            elif f.name in batch.schema.names:
                arrays.append(decoded.column(batch.schema.names.index(f.name)))
            else:
                arrays.append(pa.nulls(len(batch), arrow_type(f.type)))
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self.schema))


STORES = "FLOWQL_STORES"
_LAST_ZERO = r"\.[0-9]*0([^0-9]|$)"
_STORE_COLUMNS = Schema(
    tuple(
        Field(n, t)
        for n, t in (("STORE", STRING), ("QUERY", STRING), ("KIND", STRING), ("ROWS", BIGINT), ("BYTES", BIGINT))
    )
)


@dataclass(frozen=True, slots=True)
class StoresRelation:
    """The stores themselves: whose they are, how many rows they hold, and how many bytes. owners: (query, store)."""

    owners: Sequence[tuple[str, StoreSpec]]
    snapshot: Snapshot
    name: str = STORES
    schema: Schema = _STORE_COLUMNS

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        del conditions, room
        present = {s.name for s in self.snapshot.stores()}
        measured = columns is None or bool(columns & {"rows", "bytes"})
        rows = []
        for query, spec in self.owners:
            count, size = self.snapshot.size(spec.name) if measured and spec.name in present else (0, 0)
            rows.append((spec.name, query, spec.kind, count, size))
        names = self.schema.names
        yield pa.RecordBatch.from_pylist([dict(zip(names, r, strict=True)) for r in rows], arrow_schema(self.schema))


def zoned_schema(schema: Schema) -> pa.Schema:
    """As `arrow_schema`; moments (TIMESTAMP WITH TIME ZONE) are in UTC, as DuckDB is to read and write them, JSONB is its JSON, and so on."""
    return pa.schema([pa.field(f.name, pa.uuid() if f.type == UUID else _zoned(f.type)) for f in schema])


def as_shown(given: Sequence[pa.Array], shown: pa.Schema) -> pa.RecordBatch:
    """Columns in the types of `zoned_schema` or `answered_schema`."""
    columns = [c if c.type == t else _shown(c, t) for c, t in zip(given, shown.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=shown)


def _shown(column: pa.Array, t: pa.DataType) -> pa.Array:
    if t == pa.uuid():
        return _uuids(column)
    if t == pa.month_day_nano_interval():
        spans = [None if v is None else interval_of(v) for v in column.to_pylist()]
        return pa.array([None if s is None else pa.MonthDayNano([s[0], s[1], s[2] * 1000]) for s in spans], t)
    return (_equal_texts(column) if t == pa.json_(pa.string()) else column).cast(t)


def _equal_texts(column: pa.Array) -> pa.Array:
    """JSONB without zeros at the end of fractions, as DuckDB compares texts."""
    if not pc.any(pc.match_substring_regex(column, _LAST_ZERO)).as_py():
        return column
    return pa.array([None if v is None else equality_text(v) for v in column.to_pylist()], pa.string())


def _uuids(column: pa.Array) -> pa.Array:
    values = [None if v is None else bytes.fromhex(v.replace("-", "")) for v in column.to_pylist()]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))


def _zoned(t: SqlType) -> pa.DataType:
    if t.zoned:
        return pa.timestamp("us" if t.kind is Kind.MICROS else "ms", "UTC")
    return pa.json_(pa.string()) if t == JSONB else _with_parts(t, _zoned)


def _with_parts(t: SqlType, type_of: Callable[[SqlType], pa.DataType]) -> pa.DataType:
    """An interval, or a type with what `type_of` gives for its parts; else the type of the engine's columns."""
    if t == SPAN:
        return pa.month_day_nano_interval()
    if t.kind is Kind.ARRAY:
        return pa.list_(type_of(t.element))
    if t.kind is Kind.MAP:
        return pa.map_(type_of(t.args[0]), type_of(t.args[1]))
    return pa.struct([pa.field(n, type_of(f)) for n, f in t.fields]) if t.kind is Kind.STRUCT else arrow_type(t)


def answered_schema(schema: Schema) -> pa.Schema:
    """Columns as the answer of an interactive query has them, which DuckDB gives."""
    return pa.schema([pa.field(f.name, _answered(f.type)) for f in schema])


def _answered(t: SqlType) -> pa.DataType:
    if t.zoned:
        return pa.timestamp("us", "UTC")
    return pa.time64("us") if t.kind is Kind.TIME else _with_parts(t, _answered)


def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, arrow_type(f.type)) for f in schema])


def ambiguous(schema: Schema) -> bool:
    """Two columns differ by case only; DuckDB does not tell them apart as we do."""
    return len({n.casefold() for n in schema.names}) < len(schema.names)


def _batch(schema: Schema, shown: Shown, columns: frozenset[str] | None) -> pa.RecordBatch:
    arrays = [
        to_arrow(shown.columns[f.name](), f.type)
        if columns is None or f.name.casefold() in columns
        else pa.nulls(shown.rows, arrow_type(f.type))
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(schema))


def is_passed(log: Log, tp: TopicPartition, begin: int, end: int) -> bool:
    """Whether records before an end may be gone: a new generation has replaced them, or compaction has dropped them because of later ones. begin: the
    first offset. Brokers keep what is younger than any tick that is read.
    """
    if begin > end or not log.drops_with_commits:
        return begin > end
    admin = log.admin()
    last = max((base for base, _ in admin.files_of(tp) or ()), default=0)  # which is not compacted
    return end < last and bool(admin.was_compacted(tp))


def are_readable(relations: Iterable[Relation], at_rest: Callable[[], bool]) -> bool:
    """Whether the relations show what their commit has. at_rest: tells whether the log has no later commit. Topics that are read up to a tick need not wait for that."""
    topics = [r for r in relations if not isinstance(r, StoreRelation | StoresRelation)]
    bounded = [r for r in topics if isinstance(r, TopicRelation) and r.is_bounded]
    return (len(bounded) == len(topics) or at_rest()) and not any(r.is_out_of_date() for r in bounded)


def within(span: tuple[int, int], end: int | None) -> tuple[int, int]:
    """A span up to `end` at most; the whole span for None."""
    return span if end is None else (span[0], max(span[0], min(span[1], end)))


def spans_of(log: Log, *topics: str) -> dict[TopicPartition, tuple[int, int]]:
    """First offset and end of each partition, for `TopicRelation`; {} for no topic.

    Ends are of one moment and taken last, so what is replaced in between shows when it is read: its first offset is gone.
    """
    admin = log.admin()
    known = admin.topics()
    tps = [TopicPartition(t, p) for t in topics if t in known for p in range(known[t].partitions)]
    begins = admin.begin_offsets(tps)
    ends = admin.end_offsets(list(begins))
    return {tp: (begin, ends[tp]) for tp, begin in begins.items() if tp in ends}


def records(log: Log, tp: TopicPartition, begin: int, end: int) -> Iterator[RawBatch]:
    """The records of a partition from `begin` to below `end`. OffsetOutOfRange if the first are gone."""
    if begin >= end:
        return
    reader = log.reader(tp, begin)
    while (raw := reader.read(READ_RECORDS, READ_BYTES)) is not None:
        offsets = raw.records.column(0).to_numpy()
        kept = int(np.searchsorted(offsets, end))
        if kept:
            yield raw if kept == len(offsets) else RawBatch(tp, raw.records.slice(0, kept), end, raw.size_bytes)
        if kept < len(offsets) or raw.next_offset >= end:
            return


def decode(decoder: Decoder, raw: RawBatch) -> Batch:
    """Records that cannot be read are left out."""
    return decoder.decode(raw, MicroBatchContext(NO_STATE))


def offsets_of(batch: Batch) -> np.ndarray:
    """The offsets of a batch of `TopicRelation.numbered`."""
    return np.asarray(batch.arrow().column(_OFFSET.name))


def _latest(found: Iterable[Batch], room: Room) -> list[Batch]:
    """The last row of each key, without those whose last record was a removal."""
    last: dict[bytes, tuple[int, int]] = {}
    batches: list[Batch] = []
    for n, batch in enumerate(found):
        before = len(last)
        names = [f.name for f in batch.schema if f.role in ("key", "window")]
        keys = zip(*(batch.column(name) for name in names), strict=True)
        last.update((encode_value(key), (n, i)) for i, key in enumerate(keys))
        batches.append(batch)
        room.take(batch.arrow().nbytes + (len(last) - before) * _KEY_BYTES)
    rows: list[list[int]] = [[] for _ in batches]
    for n, i in last.values():
        if batches[n].op[i] != DELETE:
            rows[n].append(i)
    return [b.take(np.asarray(sorted(r), np.int64)) for b, r in zip(batches, rows, strict=True) if r]
