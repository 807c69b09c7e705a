"""What an input has for the next run: rows at its front, in their order, which may lie in several batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from flowql.runtime.batch import Batch, Ints

NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Front:
    """Rows from `start` of the first batch on, one for each of `rowtime`. more: rows are known to follow them."""

    batches: Sequence[Batch]
    start: int
    rowtime: Ints
    more: bool

    def taken(self, rows: int) -> list[Batch]:
        """The first `rows` of them."""
        return [batch.slice(start, end) for batch, start, end in self._parts(rows)]

    def last_op(self, rows: int) -> int:
        """The operation of the last of the first `rows` rows."""
        *_, (batch, _start, end) = self._parts(rows)
        return int(batch.op[end - 1])

    def _parts(self, rows: int) -> Iterator[tuple[Batch, int, int]]:
        start = self.start
        for batch in self.batches:
            end = min(len(batch), start + rows)
            if start < end:
                yield batch, start, end
            rows -= end - start
            if not rows:
                return
            start = 0


EMPTY = Front((), 0, NOTHING, more=False)


def front_of(batches: Sequence[Batch], start: int, rows_max: int, *, more: bool) -> Front:
    """The first rows of batches that follow each other, at most `rows_max`. more: others are known to follow the batches."""
    times = [b.rowtime for b in batches]
    rowtime = times[0] if len(times) == 1 else np.concatenate(times)
    end = start + rows_max
    return Front(batches, start, rowtime[start:end], more or end < len(rowtime))
