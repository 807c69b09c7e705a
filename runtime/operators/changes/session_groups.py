"""Grouped aggregation of sessions, over rows that only come."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.aggregate_forms import Linear
from flowql.compiler.plan.changes import GroupAggregate
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, arrow_type
from flowql.runtime.batch import Batch, Ints, from_rows
from flowql.runtime.operators.base import MicroBatchContext
from flowql.runtime.operators.changes.buckets import Bucket, Buckets
from flowql.runtime.operators.changes.deltas import Deltas
from flowql.runtime.operators.changes.group_aggregate import _ACCS, _ROWS, _TIME, GroupAggregateOperator
from flowql.runtime.operators.changes.group_deltas import GroupDelta
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import RowKey, frozen_picker
from flowql.runtime.operators.session_bounds import sessions_of
from flowql.runtime.operators.winners import group_codes
from flowql.runtime.state.rows import Key, Value

_LAST = order_text([SortPart(BIGINT)])


class SessionGroupsOperator(GroupAggregateOperator):
    """One result row per session: rows of equal keys where each is at most the gap behind the one before.

    The last two keys of the result are the first and the last time of the session. The rows of a run are grouped by the sessions
    that they make alone. Each of these is then put together with the sessions that it meets.

    State: a bucket per partition, of last time -> (first time, last time, what a group keeps).

    Touches per run: one head per distinct partition; per session of the run its own entry, those that it meets, and one more.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        spec, source = plan.spec, inputs[0]
        assert isinstance(spec, GroupAggregate)
        assert spec.sessions is not None
        assert spec.appends
        bounds = [Field(f.name, f.type) for f in plan.schema.key[-2:]]
        super().__init__(
            plan, [Operator(source.id, source.spec, (), Schema((*source.schema.fields, *bounds)), source.change)]
        )
        self._schema = Schema((*source.schema.fields, *bounds))
        self._gap, self._time_type = spec.sessions.gap, arrow_type(bounds[0].type)
        self._by = [source.schema.names.index(k) for k in spec.partition]
        self._at = source.schema.names.index(spec.sessions.time)
        self._partition_of = frozen_picker(source.schema, spec.partition)
        self._identity = RowKey(plan.schema)

    def _changes(self, batch: Batch, run: MicroBatchContext) -> dict[Key, GroupDelta]:
        return super()._changes(self._with_bounds(batch), run)

    def _with_bounds(self, batch: Batch) -> Batch:
        """Each row with the bounds of the session that rows of the batch make."""
        given: dict[str, Any] = {"rowtime": batch.rowtime, "op": batch.op, "seq": batch.seq, "headers": batch.headers}
        if not batch.is_columns:
            numbers: dict[Key, int] = {}
            rows = batch.rows()
            codes = np.array([numbers.setdefault(self._partition_of(r), len(numbers)) for r in rows], np.int64)
            first, last = self._bounds(codes, np.array([r[self._at] for r in rows], np.int64))
            made = [(*r, a, b) for r, a, b in zip(rows, first.tolist(), last.tolist(), strict=True)]
            return from_rows(self._schema, made, batch.rowtime, batch.op, batch.seq, batch.headers)
        arrow = batch.arrow()
        times = arrow.column(self._at).view(pa.int64()).to_numpy(zero_copy_only=False)
        bounds = self._bounds(group_codes([arrow.column(i) for i in self._by], sort=False)[0], times)
        columns = [*arrow.columns, *(pa.array(b).view(self._time_type) for b in bounds)]
        return Batch(self._schema, arrow=pa.RecordBatch.from_arrays(columns, [*self._schema.names]), **given)

    def _bounds(self, codes: Ints, times: Ints) -> tuple[Ints, Ints]:
        """First and last time of the sessions of rows, per row. codes: of their partitions."""
        made = sessions_of(codes, times, self._gap)
        return made.first[made.of_rows], made.last[made.of_rows]

    def _apply(self, deltas: dict[Key, GroupDelta], run: MicroBatchContext) -> Batch | None:
        buckets = Buckets(*(run.state.store(s.name) for s in self.plan.stores[:2]))
        buckets.load(key[:-2] for key in deltas)
        changes = Deltas(self._identity.of, self._same)
        for key in sorted(deltas, key=itemgetter(-2, -1)):
            self._put_together(key, deltas[key], buckets[key[:-2]], changes, run)
        buckets.flush()
        return changes.batch(self.plan.schema)

    def _put_together(
        self, key: Key, delta: GroupDelta, bucket: Bucket, changes: Deltas, run: MicroBatchContext
    ) -> None:
        """The rows of a session of the run with the sessions that they meet."""
        first: int
        last: int
        *by, first, last = key  # type: ignore[assignment]
        group = self._nothing
        for entry, (begun, ended, *kept) in self._met(bucket, first, last):
            bucket.put(entry, None)
            if (row := self._row((*by, begun, ended), tuple(kept))) is not None:
                changes.add(-1, row, kept[_TIME], delta.seq)
            group = self._of_both(group, kept)
            first, last = min(first, begun), max(last, ended)
        group = self._after(key, group, delta, None)
        bucket.put(_LAST((last,)), (first, last, *group))
        if (row := self._row((*by, first, last), group, run, delta.seq)) is not None:
            changes.add(1, row, group[_TIME], delta.seq)

    def _met(self, bucket: Bucket, first: int, last: int) -> list[tuple[str, Value]]:
        """Sessions at most the gap away, in order; those of a partition do not overlap."""
        found = []
        for entry, kept in bucket.entries(after=_LAST((first - self._gap - 1,))) if bucket.size else ():
            if kept[0] > last + self._gap:
                break
            found.append((entry, kept))
        return found

    def _of_both(self, group: Value, other: Sequence[Any]) -> Value:
        accs = zip(self._calls, group[_ACCS:], other[_ACCS:], strict=True)
        return (
            group[_ROWS] + other[_ROWS],
            max(group[_TIME], other[_TIME]),
            *(c.kind.add(a, b) if isinstance(c.kind, Linear) else _first(a, b) for c, a, b in accs),
        )


def _first(a: Any, b: Any) -> Any:
    """The value with the lower entry; either may be missing."""
    return min((v for v in (a, b) if v is not None), key=itemgetter(1), default=None)
