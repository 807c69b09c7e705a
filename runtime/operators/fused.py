"""Fused pipelines: raw records to records, for a source with one reader and nothing but a watermark, projections and filters behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Scan, Sink
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.runtime.batch import Batch, Ints, empty
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.append_only import AppendOnlyOperator
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.decode import Decoder, FastRows, WallTime
from flowql.runtime.operators.encode import Encoder, text_of
from flowql.runtime.operators.json_scan import Located, Shape
from flowql.runtime.operators.kernels import VectorFailed
from flowql.runtime.operators.projections import ProjectionChain, VectorPlan, run_vector

_WHOLE = frozenset({Kind.INT, Kind.BIGINT, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS})
VERBATIM = frozenset({*_WHOLE, Kind.BOOLEAN, Kind.STRING})
_MINUS_ZERO = np.uint64(0x302D)
_Part = tuple[int, int]  # where it is in the pool for the first row, and how far from there for the next
FULL = 2  # copying twice as much as is needed costs less than copying piece by piece


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values first..last of the shape with the text between; with the literal before the first and after the last if told."""

    first: int
    last: int
    head: bool = False
    tail: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        """Its borders (`Located.borders`)."""
        return 2 * self.first + (not self.head), 2 * self.last + 2 + self.tail


@dataclass(frozen=True, slots=True)
class Recipe:
    """Literals and values in turn: literals[0] values[0] literals[1] ... A value is a ValueRange or the number of an output column."""

    literals: tuple[str, ...]
    values: tuple[ValueRange | int, ...]
    whole_numbers: tuple[int, ...]  # values of the shape that must not be `-0`

    @property
    def pieces(self) -> list[ValueRange]:
        """Each once, as they stand in the record."""
        return sorted({v for v in self.values if isinstance(v, ValueRange)}, key=lambda p: p.extent)

    @property
    def columns(self) -> list[int]:
        return [v for v in self.values if not isinstance(v, ValueRange)]

    def is_whole_record(self, shape: Shape) -> bool:
        return self.values == (ValueRange(0, len(shape.texts) - 1, head=True, tail=True),)


def _has_minus_zero(located: Located, values: Sequence[int]) -> bool:
    borders = located.borders([b for v in values for b in (2 * v + 1, 2 * v + 2)])
    starts = borders[:, ::2]
    starts = starts[borders[:, 1::2] - starts == len("-0")]
    return bool(((located.words[starts] & np.uint64(0xFFFF)) == _MINUS_ZERO).any())


class _Rows:
    """Texts put together to n rows, by one `take` of all their parts from a pool."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._pool: list[pa.Array] = []
        self._size = 0

    def put(self, recipe: Recipe, located: Located, texts: Sequence[pa.Array]) -> pa.Array:
        """texts: of the columns of the recipe, in its order."""
        n = self._rows
        if not n:
            return pa.array([], pa.binary())
        pieces = self._pieces(located, recipe.pieces)
        computed = iter(texts)
        parts: list[_Part] = []
        for literal, value in zip_longest(recipe.literals, recipe.values):
            if literal:
                parts.append((self._add(pa.array([literal.encode()], pa.binary())), 0))
            if isinstance(value, ValueRange):
                parts.append(pieces[value])
            elif value is not None:
                parts.append((self._add(next(computed).view(pa.binary())), 1))
        first, step = np.array(parts, np.int32).T
        places = np.multiply.outer(np.arange(n, dtype=np.int32), step)
        places += first
        taken = pa.concat_arrays(self._pool).take(pa.array(places.ravel()))
        ends = np.frombuffer(taken.buffers()[1], np.int32)[: len(taken) + 1 : len(parts)]
        return pa.Array.from_buffers(
            pa.binary(), n, [None, pa.py_buffer(np.ascontiguousarray(ends)), taken.buffers()[2]]
        )

    def _pieces(self, located: Located, pieces: Sequence[ValueRange]) -> dict[ValueRange, _Part]:
        """The bytes of the records become an array without being copied: pieces and what stands between them in turn.

        Where pieces overlap there are several such arrays.
        """
        found: dict[ValueRange, _Part] = {}
        left = list(pieces)
        while left:
            layer: list[ValueRange] = []
            for p in left:
                if not layer or layer[-1].extent[1] <= p.extent[0]:
                    layer.append(p)
            left = [p for p in left if p not in layer]
            array, step = _cut(located, layer)
            first = self._add(array)
            found |= {p: (first + step * i, step * len(layer)) for i, p in enumerate(layer)}
        return found

    def _add(self, texts: pa.Array) -> int:
        """The place of the first in the pool."""
        first = self._size
        self._pool.append(texts)
        self._size += len(texts)
        return first


def _cut(located: Located, layer: Sequence[ValueRange]) -> tuple[pa.Array, int]:
    """The pieces of one record after the other, and how far it is from one to the next."""
    borders = located.borders([b for p in layer for b in p.extent])
    offsets = np.append(borders, borders[-1, -1]).astype(np.int32)
    array = pa.Array.from_buffers(pa.binary(), borders.size, [None, pa.py_buffer(offsets), located.buffer])
    needed = int(borders[:, 1::2].sum() - borders[:, ::2].sum())
    if FULL * needed < offsets[-1] - offsets[0]:  # few rows are left, or little of each: what is between is not copied
        return array.take(pa.array(np.arange(0, borders.size, 2))), 1
    return array, 2


class Splice:
    """Output JSON put together from pieces of the input's text. sources[i]: the source column that output column i is, or None.

    If all records of a batch have one shape, neighbouring values that the output takes over in the same order are copied as one piece, and a
    record that is passed on whole is not copied. Plain strings, null, booleans and whole numbers other than `-0` are pieces, because
    `flowql.runtime.serde.json` would write the same text. Other values are encoded.
    """

    def __init__(self, names: Sequence[str], types: Sequence[SqlType], sources: Sequence[int | None]) -> None:
        self._leads = [("," if i else "{") + orjson.dumps(n).decode() + ":" for i, n in enumerate(names)]
        self._types, self._sources = tuple(types), tuple(sources)
        self._recipes: dict[tuple[Shape, tuple[int | None, ...]], Recipe] = {}

    def encode(self, located: Located, values: pa.Array, columns: Sequence[pa.Array]) -> pa.Array | None:
        """JSON values (binary) of the located rows; None if the batch must be encoded by column.

        values: the rows' records. columns: the sink's value columns; those that pieces cover are not looked at.
        """
        recipe = self._recipe(located)
        if recipe.whole_numbers and _has_minus_zero(located, recipe.whole_numbers):
            return None
        if recipe.is_whole_record(located.shape):
            return values
        return _Rows(len(values)).put(recipe, located, [self._text(columns[i], self._types[i]) for i in recipe.columns])

    @staticmethod
    def _text(column: pa.Array, t: SqlType) -> pa.Array:
        text, plain = text_of(column, t)
        quote = plain and t.kind is Kind.STRING
        return pc.binary_join_element_wise('"', text, '"', "") if quote else text

    def _recipe(self, located: Located) -> Recipe:
        key = (located.shape, located.places)
        found = self._recipes.get(key)
        if found is None:
            if len(self._recipes) >= 64:  # shapes of odd data may be many
                self._recipes.clear()
            found = self._recipes[key] = self._plan(located.shape, located.places)
        return found

    def _plan(self, shape: Shape, places: Sequence[int | None]) -> Recipe:
        taken = [self._verbatim(i, shape, places) for i in range(len(self._types))]
        quoted = ['"' if v is not None and shape.texts[v] else "" for v in taken]
        literals = [lead + q for lead, q in zip(self._leads, quoted, strict=True)]
        literals = [before + lit for before, lit in zip(["", *quoted], literals, strict=False)] + [quoted[-1] + "}"]
        values: list[ValueRange | int] = []
        kept: list[str] = []
        pending = literals[0]
        for i, v in enumerate(taken):
            if v is None:
                kept.append(pending)
                values.append(i)
                pending = literals[i + 1]
                continue
            head = shape.literals[v] == pending.encode()
            last = values[-1] if values else None
            if head and isinstance(last, ValueRange) and last.last == v - 1 and not last.tail:
                values[-1] = ValueRange(last.first, v, last.head)
            else:
                kept.append("" if head else pending)
                values.append(ValueRange(v, v, head))
            pending = literals[i + 1]
            if shape.literals[v + 1] == pending.encode() and (i + 1 == len(taken) or taken[i + 1] is None):
                piece = values[-1]
                assert isinstance(piece, ValueRange)
                values[-1] = ValueRange(piece.first, piece.last, piece.head, tail=True)
                pending = ""
        whole = tuple(v for v, t in zip(taken, self._types, strict=True) if v is not None and t.kind in _WHOLE)
        return Recipe((*kept, pending), tuple(values), whole)

    def _verbatim(self, output: int, shape: Shape, places: Sequence[int | None]) -> int | None:
        """The value of the shape whose text is output `output`, or None when it has to be written."""
        source = self._sources[output]
        if source is None or self._types[output].kind not in VERBATIM:
            return None
        return places[source]


CHUNK_ROWS = 20_000  # rows per pass: more cost memory, fewer more hand-overs of the interpreter lock per row


class FusedPipeline:
    """scan -> stages -> sink over one raw batch. One per task (its row kernels report failures through it). The first stage may leave out late rows.

    Composed, it is Decoder, AppendOnlyOperator, ProjectionChain and Encoder one after the other; fused, records are scanned into views, only
    columns that are computed go through DuckDB, and texts are written from the views. Records that one of the steps
    declines go the composed way and are merged back in order. The input must be an append stream.
    """

    def __init__(
        self, scan: Operator, stages: Sequence[Operator], sink: Operator, wall_ms: WallTime | None = None
    ) -> None:
        assert isinstance(scan.spec, Scan)
        assert isinstance(sink.spec, Sink)
        assert scan.change == "append", "a table's records are not fused"
        self.plan = sink
        self._decoder = Decoder(scan.spec, scan.schema, wall_ms)
        self._source: AppendOnlyOperator | None = None
        if stages and isinstance(stages[0].spec, AppendOnly):
            self._source, stages = AppendOnlyOperator(stages[0], [scan]), stages[1:]
        self._chain = ProjectionChain(stages, scan.schema, "append") if stages else None
        # Nothing rekeys here: a null key is one that the record had.
        self._encoder = Encoder(sink.spec, stages[-1].schema if stages else scan.schema, null_key=True)
        self._names = scan.schema.names
        plan = VectorPlan((), tuple(range(len(self._names))), None, (), filters=False, declines=False)
        self._vector = self._chain.vector if self._chain is not None else plan
        plain_sink = sink.spec.timestamp is None and self._encoder.has_vector
        self.has_vector = self._decoder.has_vector and plain_sink and self._vector is not None
        self._splice: Splice | None = None
        self._unread: frozenset[str] = frozenset()
        if self.has_vector and self._vector is not None and self._decoder.locates:
            self._splice, self._unread = _splice(self._decoder, self._vector, self._encoder.schema, self._names)

    def process(self, raw: RawBatch, run: MicroBatchContext) -> pa.RecordBatch:
        """Records to produce (PRODUCE_SCHEMA), in order. `seq` of dead letters: row index in `raw`."""
        return self.process_with_origin(raw, run)[0]

    def process_with_origin(self, raw: RawBatch, run: MicroBatchContext) -> tuple[pa.RecordBatch, Ints]:
        """The records, and for each the index in `raw` it was made from."""
        n = raw.records.num_rows
        if not (self.has_vector and self._decoder.takes_columns(n, run.vector)):
            return self._composed(raw, run, np.arange(n), self._source)
        if n <= CHUNK_ROWS + CHUNK_ROWS // 2:
            return self._fused(raw, run, 0)
        parts = []
        for start in range(0, n, CHUNK_ROWS):
            piece = replace(raw, records=raw.records.slice(start, CHUNK_ROWS))
            parts.append(self._fused(piece, run, start))
        table = pa.Table.from_batches([records for records, _ in parts]).combine_chunks()
        merged = table.to_batches()[0] if len(table) else parts[0][0]
        return merged, np.concatenate([at for _, at in parts])

    def _composed(
        self, raw: RawBatch, run: MicroBatchContext, seq: Ints, source: AppendOnlyOperator | None
    ) -> tuple[pa.RecordBatch, Ints]:
        """source: leaves out late rows, if that is not done yet."""
        batch: Batch | None = self._decoder.decode(raw, run, seq)
        if source is not None:
            batch = source.process([batch], run)
        if self._chain is not None and batch is not None:
            batch = self._chain.process([batch], run)
        if batch is None:
            batch = empty(self._encoder.schema)
        records, kept = self._encoder.encode_with_origin(batch, run)
        return records, batch.seq[kept]

    def _fused(self, raw: RawBatch, run: MicroBatchContext, start: int) -> tuple[pa.RecordBatch, Ints]:
        assert self._vector is not None
        seq = np.arange(start, start + raw.records.num_rows)
        good, rows = self._decoder.columns(raw, views=True, unread=self._unread)
        if self._source is not None:
            if not good.all():  # a row may be late by one that is declined
                return self._composed(raw, run, seq, self._source)
            late = self._source.late_of(dict(zip(self._names, rows.columns, strict=True)), rows.rowtime, run)
            if late.any():
                seq, rows, good = seq[~late], rows.take(np.flatnonzero(~late)), good[~late]
                raw = replace(raw, records=raw.records.filter(pa.array(~late)))
        try:
            images = run_vector(self._vector, rows.columns, rows.rowtime, self._names)
        except VectorFailed:
            return self._composed(raw, run, seq, None)
        fast_at = np.flatnonzero(good)
        rest = [np.flatnonzero(~good), fast_at[~images.known]]
        columns, times, headers = images.columns, rows.rowtime, rows.headers
        if not images.passed.all():
            kept = np.flatnonzero(images.passed)
            rows = FastRows(columns, times, headers, rows.located).take(kept)
            columns, times, headers, fast_at = rows.columns, rows.rowtime, rows.headers, fast_at[kept]
        values = self._spliced(rows.located, raw, fast_at, columns)
        if values is None and self._unread and rows.located is not None:
            return self._composed(raw, _rows_only(run), seq, None)
        records = self._encoder.columns(columns, times, None, headers, values)
        declined = np.sort(np.concatenate(rest))
        if not len(declined):
            return records, seq[fast_at]
        part = replace(raw, records=raw.records.take(pa.array(declined)))
        slow, slow_seq = self._composed(part, _rows_only(run), seq[declined], None)
        return _merged(records, seq[fast_at], slow, slow_seq)

    def _spliced(
        self, located: Located | None, raw: RawBatch, at: Ints, columns: Sequence[pa.Array]
    ) -> pa.Array | None:
        """The values of the records at `at`, put together from pieces of the input; None to encode by column."""
        if located is None or self._splice is None:
            return None
        values = raw.records.column("value")
        if len(at) < len(values):
            values = values.take(pa.array(at))
        return self._splice.encode(located, values, self._encoder.value_columns(columns))


def _splice(decoder: Decoder, plan: VectorPlan, schema: Schema, names: Sequence[str]) -> tuple[Splice, frozenset[str]]:
    """The splice of a pipeline, and the STRING columns that are then passed on unread."""
    read_from = {name: i for i, name in enumerate(decoder.value_names)}
    outputs = [(f, p) for f, p in zip(schema, plan.passed, strict=True)]
    sources = [None if p is None else read_from.get(names[p]) for f, p in outputs if f.role == "value"]
    splice = Splice([f.name for f in schema.value], [f.type for f in schema.value], sources)
    elsewhere = {names[p] for f, p in outputs if p is not None and f.role != "value"} | set(plan.needs)
    if decoder.scan.timestamp is not None:
        elsewhere.add(decoder.scan.timestamp.column)
    passed = {names[p] for f, p in outputs if p is not None and f.type.kind is Kind.STRING}
    return splice, frozenset(passed & set(read_from) - elsewhere)


def _rows_only(run: MicroBatchContext) -> MicroBatchContext:
    """The same run with row kernels: what a vector kernel declined need not be tried again. Dead letters are shared."""
    return MicroBatchContext(
        run.state, run.stream_times, run.dead_letters, run.late, run.coalesce, vector=False, behind=run.behind
    )


def _merged(a: pa.RecordBatch, a_at: Ints, b: pa.RecordBatch, b_at: Ints) -> tuple[pa.RecordBatch, Ints]:
    at = np.concatenate([a_at, b_at])
    order = np.argsort(at, kind="stable")
    table = pa.Table.from_batches([a, b]).take(pa.array(order)).combine_chunks()
    return (table.to_batches()[0] if len(table) else a), at[order]
