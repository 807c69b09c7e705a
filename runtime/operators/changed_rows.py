"""Changes of keyed rows in columns: for many keys the row before a micro-batch and the row after it, given as what changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.runtime.batch import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, Ints
from flowql.runtime.state.columns.packed import Flags

Rows = Callable[[Ints], pa.RecordBatch]  # rows of the keys at these places


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """One change per key. known, lives: whether there was a row, and is one. differs: whether a row that was and is has changed.

    rowtime, seq, headers: those of the last change. place: numbers in the order of the last changes, no two alike.
    """

    known: Flags
    lives: Flags
    differs: Flags
    rowtime: Ints
    seq: Ints
    place: Ints
    headers: list[Any] | None = None

    def batch(self, schema: Schema, before: Rows, after: Rows, *, befores: bool) -> Batch | None:
        """In the order of the last changes, the row that leaves in front of the row that comes. befores: whether rows that are replaced are given."""
        differs = self.differs | ~(self.known & self.lives)
        leaving = np.flatnonzero(self.known & differs if befores else self.known & ~self.lives)
        coming = np.flatnonzero(self.lives & differs)
        if not len(leaving) and not len(coming):
            return None
        order = np.argsort(np.concatenate([2 * self.place[leaving], 2 * self.place[coming] + 1]))
        keys = np.concatenate([leaving, coming])[order]
        if len(leaving):
            records = [before(leaving), after(coming)] if len(coming) else [before(leaving)]
            (arrow,) = pa.Table.from_batches(records).take(pa.array(order)).combine_chunks().to_batches()
        else:
            arrow = after(keys)
        left = np.where(self.lives[leaving], UPDATE_BEFORE, DELETE)
        ops = np.concatenate([left, np.where(self.known[coming], UPDATE_AFTER, INSERT)])[order]
        headers = None if self.headers is None else [self.headers[i] for i in keys.tolist()]
        return Batch(
            schema, arrow=arrow, rowtime=self.rowtime[keys], op=ops.astype(np.int8), seq=self.seq[keys], headers=headers
        )
