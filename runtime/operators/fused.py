"""Fused pipelines: raw records to records, for a source with one reader and nothing but a watermark, projections and filters behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.logical import Scan, Sink
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import Kind
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.runtime.batch import Batch, Ints, empty
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.append_only import AppendOnlyOperator
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.decode import Decoder, FastRows, WallTime
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.operators.json_scan import Located
from flowql.runtime.operators.json_splice import Splice
from flowql.runtime.operators.kernels import VectorFailed
from flowql.runtime.operators.projections import ProjectionChain, VectorPlan, run_vector

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
