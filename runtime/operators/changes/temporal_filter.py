"""Conditions on the present moment: rows come and go as the wall clock passes, without input."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.temporal_filters import DAY_MS, Edge, TemporalFilter
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import INSERT, Batch, Row
from flowql.runtime.operators.base import AT_ONCE, NO_TIME, MicroBatchContext
from flowql.runtime.operators.changes.closing import WaitingForm, WaitingRows
from flowql.runtime.operators.changes.deltas import Deltas, by_columns, deltas_of
from flowql.runtime.state.rows import Key

LOOK_MS = 10_000  # the longest time without a look at what is due: a run that failed may have taken it
Span = tuple[int | None, int | None]  # from when and until when a row is there; None: always
NEVER: Span = (None, NO_TIME)


class TemporalFilterOperator:
    """Implements `Timed`.

    State: rows that will come, the text of (when, row identity) -> (row..., row time) for each row; rows that have come, by the time when they
    go. Touches per run: both heads; the entry of each row that comes, goes or changes. The moment of a run is that of the wall clock, and never
    before that of an earlier run, which is in the task's metadata: with it the row alone tells where it is kept.
    """

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, TemporalFilter)
        self.plan = plan
        self._span = span_of(plan.schema, plan.spec)
        self._form = WaitingForm(plan.schema, plan.id)
        self._identity, self._same = self._form.identity, self._form.same
        self.due_ms: int | None = AT_ONCE

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        stores = [run.state.store(s.name) for s in self.plan.stores]
        coming, present = WaitingRows(self._form, *stores[:2]), WaitingRows(self._form, *stores[2:])
        out = Deltas(self._identity.of, self._same)
        now_ms = max(run.wall_ms, run.timers.get(self.plan.id, NO_TIME))
        moved = self._pass(now_ms, coming, present, out, run)
        batch = inputs[0]
        given = None if moved or batch is None else self._given_new(batch, now_ms, coming, present, run)
        if given is None:
            for _, changes in deltas_of(batch, self._identity, self._same) if batch is not None else ():
                for sign, row, time, seq in sorted(changes, key=lambda c: c[0]):
                    self._change(now_ms, sign, row, time, seq, coming, present, out)
        coming.flush()
        present.flush()
        run.hold(self.plan.id, coming.change_rows)
        if moved or batch is not None:
            run.timers[self.plan.id] = now_ms
        self.due_ms = min([now_ms + LOOK_MS, *self._due(coming.first, 0), *self._due(present.first, 1)])
        return out.batch(self.plan.schema) if given is None else given if len(given) else None

    def _given_new(
        self, batch: Batch, now_ms: int, coming: WaitingRows, present: WaitingRows, run: MicroBatchContext
    ) -> Batch | None:
        """The result of a batch of new rows, by columns; None if it must be processed row by row."""
        if not by_columns(batch, run) or batch.headers is not None or (batch.op != INSERT).any():
            return None
        if (np.diff(batch.seq) < 0).any():
            return None
        rows, times = batch.rows(), batch.rowtime.tolist()
        keys = list(map(self._identity.of, rows))
        if len(set(keys)) < len(keys):
            return None
        shown: list[int] = []
        waiting: list[list[tuple[int, Key, Row]]] = [[], []]
        for i, (row, key, time) in enumerate(zip(rows, keys, times, strict=True)):
            start, end = self._span(row) or NEVER
            if end is not None and (end <= now_ms or (start is not None and end <= start)):
                continue
            if start is not None and now_ms < start:
                waiting[0].append((start, key, (*row, time)))
                continue
            if end is not None:
                waiting[1].append((end, key, (*row, time)))
            shown.append(i)
        made = [of.entries(w) for of, w in zip((coming, present), waiting, strict=True)]
        if made[0] is None or made[1] is None:
            return None
        coming.add(made[0])
        present.add(made[1])
        return batch if len(shown) == len(batch) else batch.take(np.array(shown, np.int64))

    def _due(self, row: Row | None, at: int) -> list[int]:
        """When a row comes (at = 0) or goes (at = 1)."""
        span = self._span(row) if row is not None else None
        ms = span[at] if span is not None else None
        return [] if ms is None else [ms]

    def _pass(
        self, now_ms: int, coming: WaitingRows, present: WaitingRows, out: Deltas, run: MicroBatchContext
    ) -> bool:
        """Rows that come and go by the clock. Whether there are any."""
        arrived, gone = coming.taken(now_ms), present.taken(now_ms)
        seq = run.add_retired(None) if run.is_tick and (arrived or gone) else 0
        for row, time in gone:
            out.add(-1, row, time, seq)
        for row, time in arrived:
            _, end = self._span(row) or (None, None)
            if end is None or now_ms < end:
                out.add(1, row, time, seq)
                if end is not None:
                    present.change(end, 1, row, time)
        return bool(arrived or gone)

    def _change(
        self,
        now_ms: int,
        sign: int,
        row: Row,
        time: int,
        seq: int,
        coming: WaitingRows,
        present: WaitingRows,
        out: Deltas,
    ) -> None:
        span = self._span(row)
        if span is None:
            return
        start, end = span
        if end is not None and (end <= now_ms or (start is not None and end <= start)):
            return  # it is gone, or never there
        if start is not None and now_ms < start:
            coming.change(start, sign, row, time)
            return
        if end is not None:
            present.change(end, sign, row, time)
        out.add(sign, row, time, seq)


def span_of(schema: Schema, spec: TemporalFilter) -> Callable[[Row], Span | None]:
    """From a row to when it is there; None for one that never is."""
    columns = [schema.names.index(c) for c in spec.columns]
    starts = [(schema.names.index(e.column), e) for e in spec.starts]
    ends = [(schema.names.index(e.column), e) for e in spec.ends]

    def span(row: Row) -> Span | None:
        if any(row[i] is None for i in columns):
            return None
        start = max((_moment(row[i], e) for i, e in starts), default=None)
        return start, min((_moment(row[i], e) for i, e in ends), default=None)

    return span


def _moment(value: int, edge: Edge) -> int:
    ms = value * edge.unit_ms + edge.shift_ms
    if edge.day == "floor":
        ms = ms // DAY_MS * DAY_MS
    elif edge.day == "ceil":
        ms = -(-ms // DAY_MS) * DAY_MS
    return ms + edge.after_ms
