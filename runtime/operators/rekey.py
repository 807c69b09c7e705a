"""Rekey: rows under a new key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from flowql.compiler.plan.expr import Call, Column, Literal, columns_of
from flowql.compiler.plan.logical import NamedExpr, Project, Rekey
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import DOUBLE, Kind
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints, Row, from_rows
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.kernels import DUCKDB_ROWS, VectorFailed
from flowql.runtime.operators.keys import picker
from flowql.runtime.operators.projections import RowExpr, VectorPlan, compile_expr, merge, plan_vector, run_vector
from flowql.runtime.operators.rows import Emitter

VECTOR_ROWS = 64  # below, Arrow's fixed costs exceed a loop over rows


def _signless(key: NamedExpr) -> NamedExpr:
    """Without negative zeros, which are equal to zero and would go to another partition."""
    if key.expr.type.kind is not Kind.DOUBLE:
        return key
    return replace(key, expr=Call(DOUBLE, "add", (key.expr, Literal(DOUBLE, 0.0))))


class RekeyOperator:
    """Computes key columns, puts them first, and drops rows without a key where the plan says so.

    A null value of a stream (op DELETE) has a key only where the key's expression reads key columns alone, as in ksqlDB's
    PARTITION BY. Of a table, an update whose key changed becomes the removal of the old row and the insertion of the new
    one; a pair whose key stayed travels as one (rule R6).
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Rekey)
        self.plan = plan
        spec, source = replace(plan.spec, keys=tuple(map(_signless, plan.spec.keys))), inputs[0].schema
        names, keys = source.names, [k.name for k in spec.keys]
        assert plan.schema.names[: len(keys)] == tuple(keys), "a rekeyed schema starts with its keys"
        carried = plan.schema.names[len(keys) :]
        self._drop_null = spec.drop_null
        self._table = plan.change != "append"
        self._keys: list[RowExpr] = [compile_expr(k.expr, source) for k in spec.keys]
        values = {f.name for f in source if f.role == "value"}
        self._needs_value = [bool(columns_of(k.expr) & values) for k in spec.keys]
        self._carried = picker([names.index(n) for n in carried])
        self._plain: list[int] | None = None
        if all(isinstance(k.expr, Column) and k.expr.name in names for k in spec.keys):
            plain = [k.expr.name for k in spec.keys if isinstance(k.expr, Column)]
            self._plain = [names.index(n) for n in (*plain, *carried)]
        self._source = source
        self._computed = self._vector_plan(plan, spec) if self._plain is None else None

    def _vector_plan(self, plan: Operator, spec: Rekey) -> VectorPlan | None:
        """Computed keys as columns; only of streams, of batches in which every row has a value."""
        if self._table:
            return None
        types = {f.name: f.type for f in self._source}
        carried = [NamedExpr(f.name, Column(types[f.name], f.name)) for f in plan.schema.fields[len(spec.keys) :]]
        project = Operator(plan.id, Project((*spec.keys, *carried)), plan.inputs, plan.schema, plan.change)
        return plan_vector([project], self._source)

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        vector = run.vector if run.vector is not None else batch.is_columns and len(batch) >= VECTOR_ROWS
        if vector and self._plain is not None and self._can_vector(batch):
            return self._columns(batch)
        if self._computed is not None and self._has_values(batch) and self._worth_a_statement(batch, run):
            try:
                return self._computed_columns(self._computed, batch, run)
            except VectorFailed:
                pass  # the row kernel below gives the meaning
        return self._rows(batch, run)

    def _has_values(self, batch: Batch) -> bool:
        """Whether every row of a stream that is passed on has a value."""
        return self._drop_null or not bool((batch.op == DELETE).any())

    def _worth_a_statement(self, batch: Batch, run: MicroBatchContext) -> bool:
        if run.vector is not None:
            return run.vector
        return len(batch) >= (DUCKDB_ROWS if batch.is_columns else 4 * DUCKDB_ROWS)

    def _computed_columns(self, plan: VectorPlan, batch: Batch, run: MicroBatchContext) -> Batch | None:
        """Keys by one statement; rows that it declines go through the row kernel and are merged back in order."""
        if (batch.op == DELETE).any():
            batch = batch.take(np.flatnonzero(batch.op != DELETE))
        if not len(batch):
            return None
        images = run_vector(plan, batch.arrow().columns, batch.rowtime, self._source.names)
        keep = images.known.copy()
        for array in images.columns[: len(self._keys)]:
            if array.null_count and self._drop_null:
                keep &= pc.is_valid(array).to_numpy(zero_copy_only=False)
        out = batch.with_columns(self.plan.schema, images.columns)
        kept = np.flatnonzero(keep)
        if len(kept) < len(batch):
            out = out.take(kept)
        declined = np.flatnonzero(~images.known)
        if len(declined):
            slow, at = self._declined(batch, declined, run)
            out, _ = merge(self.plan.schema, [(kept, out), (at, slow)])
        return out if len(out) else None

    def _declined(self, batch: Batch, places: Ints, run: MicroBatchContext) -> tuple[Batch, Ints]:
        """The rows at `places` by the row kernel, and the places of those that have a key."""
        part = batch.take(places)
        rowtime, seq = part.rowtime.tolist(), part.seq.tolist()
        moved = [self._move(row, rowtime[i], INSERT, seq[i], run) for i, row in enumerate(part.rows())]
        has_key = np.flatnonzero([m is not None for m in moved])
        headers = None if part.headers is None else [part.headers[i] for i in has_key.tolist()]
        at = (part.rowtime[has_key], part.op[has_key], part.seq[has_key])
        return from_rows(self.plan.schema, [m for m in moved if m is not None], *at, headers), places[has_key]

    def _can_vector(self, batch: Batch) -> bool:
        """Plain columns; no pairs to take apart, and no null values to look at one by one."""
        if self._table:
            return not bool(np.isin(batch.op, (UPDATE_BEFORE, UPDATE_AFTER)).any())
        return self._has_values(batch)

    def _columns(self, batch: Batch) -> Batch | None:
        assert self._plain is not None
        source = batch.arrow()
        arrays = [source.column(i) for i in self._plain]
        out = batch.with_columns(self.plan.schema, arrays)
        if not self._drop_null:
            return out
        keep = np.ones(len(batch), bool) if self._table else batch.op != DELETE
        for array in arrays[: len(self._keys)]:
            if array.null_count:
                keep &= pc.is_valid(array).to_numpy(zero_copy_only=False)
        if keep.all():
            return out
        kept = np.flatnonzero(keep)
        return out.take(kept) if len(kept) else None

    def _rows(self, batch: Batch, run: MicroBatchContext) -> Batch | None:
        out = Emitter(self.plan.schema)
        headers = batch.headers
        before: Row | None = None
        rows = zip(batch.rows(), batch.rowtime.tolist(), batch.op.tolist(), batch.seq.tolist(), strict=True)
        for i, (row, rowtime, op, seq) in enumerate(rows):
            head = headers[i] if headers is not None else None
            moved = self._move(row, rowtime, op, seq, run)
            if not self._table:
                if moved is not None:
                    out.add(moved, rowtime, op, seq, head)
            elif op == UPDATE_BEFORE:
                before = moved
            elif op == UPDATE_AFTER and self.plan.change == "retract":
                self._pair(out, before, moved, rowtime, seq, head)
                before = None
            elif moved is not None:
                out.add(moved, rowtime, op, seq, head)
        return out.batch()

    def _pair(
        self, out: Emitter, before: Row | None, after: Row | None, rowtime: int, seq: int, headers: object
    ) -> None:
        n = len(self._keys)
        if before is not None and after is not None and before[:n] == after[:n]:
            out.add(before, rowtime, UPDATE_BEFORE, seq, headers)
            out.add(after, rowtime, UPDATE_AFTER, seq, headers)
            return
        if before is not None:
            out.add(before, rowtime, DELETE, seq, headers)
        if after is not None:
            out.add(after, rowtime, INSERT, seq, headers)

    def _move(self, row: Row, rowtime: int, op: int, seq: int, run: MicroBatchContext) -> Row | None:
        """The row under its new key; None if it is dropped."""
        null_value = op == DELETE and not self._table
        if null_value and self._drop_null:
            return None
        key = tuple(
            None if null_value and needs else f(row, rowtime, seq, run)
            for f, needs in zip(self._keys, self._needs_value, strict=True)
        )
        if self._drop_null and any(part is None for part in key):
            return None
        return key + self._carried(row)
