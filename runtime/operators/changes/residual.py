"""The residual condition of a join over changes: what has to be true of a pair of rows beside its equal keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

from flowql.compiler.plan.expr import Expr, columns_of
from flowql.compiler.plan.logical import Filter
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Row, from_rows
from flowql.runtime.operators.base import NO_STATE, DeadLetter, MicroBatchContext
from flowql.runtime.operators.changes.join_side import JoinRow
from flowql.runtime.operators.keys import picker
from flowql.runtime.operators.projections import ProjectionChain


class Pair(Protocol):
    """Two rows with equal keys. seq: of the change for which they are asked about; sign: whether it comes (1) or goes (-1)."""

    @property
    def left(self) -> JoinRow: ...
    @property
    def right(self) -> JoinRow: ...
    @property
    def seq(self) -> int: ...
    @property
    def sign(self) -> int: ...


P = TypeVar("P", bound=Pair)


class Residual:
    """Asks the residual of many pairs at once: one DuckDB statement where there are enough, else row by row."""

    def __init__(self, plan: Operator, condition: Expr, schemas: Sequence[Schema]) -> None:
        names = [n for s in schemas for n in s.names]
        fields = [f for s in schemas for f in s]
        wanted = [i for i, n in enumerate(names) if n in columns_of(condition)] or [0]
        self._pick: Callable[[Row], Row] = picker(wanted)
        self._schema = Schema(tuple(Field(fields[i].name, fields[i].type) for i in wanted))
        stage = Operator(plan.id, Filter(condition), (), self._schema, "append")
        self._chain = ProjectionChain([stage], self._schema, "append")

    def passing(self, candidates: Sequence[P], run: MicroBatchContext) -> Iterator[P]:
        """Candidates for which it is true, in their order."""
        if not candidates:
            return
        pairs = [(c.left.row, c.right.row) for c in candidates]
        times = [max(c.left.time, c.right.time) for c in candidates]
        # An error for a leaving pair was reported when the pair came.
        for i in self.true_of(pairs, times, [c.seq if c.sign > 0 else None for c in candidates], run):
            yield candidates[i]

    def true_of(
        self, pairs: Sequence[tuple[Row, Row]], times: Sequence[int], seqs: Sequence[int | None], run: MicroBatchContext
    ) -> list[int]:
        """The numbers of the pairs (left row, right row) for which it is true. seqs: where a failure is reported; None: nowhere."""
        n, pick = len(pairs), self._pick
        rows = [pick(left + right) for left, right in pairs]
        batch = from_rows(self._schema, rows, times, np.zeros(n, np.int8), np.arange(n))
        own = MicroBatchContext(state=NO_STATE, vector=run.vector)
        passed = self._chain.process([batch], own)
        told = [(seqs[d.seq], d) for d in own.dead_letters]
        run.dead_letters += [DeadLetter(seq, d.code, d.message) for seq, d in told if seq is not None]
        return [] if passed is None else list(passed.seq.tolist())
