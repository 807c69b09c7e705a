"""Rows of a source to which rows are only added: which of them are late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.watermarks import AppendOnly
from flowql.runtime.batch import DELETE, INSERT, Batch, Ints
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext

Bools = npt.NDArray[np.bool_]


class AppendOnlyOperator:
    """Passes rows on that are not late, and moves the watermark of its partition. A row without a time is never late.

    What it remembers is the largest time that it has seen, its stream time.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, AppendOnly)
        self.plan, self._watermark = plan, plan.spec.watermark

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batch = inputs[0]
        if batch is None or not len(batch):
            return None
        if (batch.op == DELETE).any():  # a record without a value
            batch = batch.take(np.flatnonzero(batch.op != DELETE))
        if self._watermark is not None and len(batch):
            late = self.late(*_times(batch, self._watermark.column), run)
            if late.any():
                batch = batch.take(np.flatnonzero(~late))
        return batch.with_op(np.full(len(batch), INSERT, np.int8)) if len(batch) else None

    def late_of(self, columns: Mapping[str, pa.Array], rowtime: Ints, run: MicroBatchContext) -> Bools:
        """As `late` for rows with values, given by columns."""
        if self._watermark is None:
            return np.zeros(len(rowtime), np.bool_)
        return self.late(*_column_times(columns.get(self._watermark.column), rowtime), run)

    def late(self, times: Ints, known: Bools, run: MicroBatchContext) -> Bools:
        """Rows before the watermark that the rows before them have set. known: which rows have a time."""
        assert self._watermark is not None
        before = run.stream_times.get(self.plan.id, NO_TIME)
        after = run.advance(self.plan.id, np.where(known, times, NO_TIME))
        reached = np.concatenate([[before], after[:-1]])
        late = known & (times < reached - self._watermark.delay)
        if late.any():
            run.drop_late(self.plan.id, int(late.sum()), int((reached - times)[late].max()))
        if after[-1] != NO_TIME:
            run.watermarks[self.plan.id] = int(after[-1]) - self._watermark.delay
        return late


def _times(batch: Batch, column: str) -> tuple[Ints, Bools]:
    """Values of a time column, and which of them there are."""
    if column == ROWTIME or batch.is_columns:
        return _column_times(None if column == ROWTIME else batch.arrow().column(column), batch.rowtime)
    values = batch.column(column)
    known = np.array([v is not None for v in values], np.bool_)
    return np.array([v or 0 for v in values], np.int64), known


def _column_times(array: pa.Array | None, rowtime: Ints) -> tuple[Ints, Bools]:
    if array is None:
        return rowtime, np.ones(len(rowtime), np.bool_)
    if not array.null_count:
        return array.view(pa.int64()).to_numpy(), np.ones(len(rowtime), np.bool_)
    known = array.is_valid().to_numpy(zero_copy_only=False)
    return array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), known
