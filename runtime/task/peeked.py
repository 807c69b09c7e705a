"""The next rows of an input for a micro-batch, in their order; they may lie in several batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from flowql.runtime.batch import UPDATE_BEFORE, Batch, Ints

NOTHING = np.empty(0, np.int64)


class PeekedRows(NamedTuple):
    """Rows from `start` of the first batch on, one for each of `rowtime`. more: rows are known to follow them."""

    batches: Sequence[Batch]
    start: int
    rowtime: Ints
    more: bool

    def taken(self, rows: int) -> list[Batch]:
        """The first `rows` rows, as parts of the batches."""
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


EMPTY = PeekedRows((), 0, NOTHING, more=False)


def peeked_rows(batches: Sequence[Batch], start: int, rows_max: int, *, more: bool) -> PeekedRows:
    """The first rows of consecutive batches, at most `rows_max`. more: further batches are known to follow."""
    times = [b.rowtime for b in batches]
    rowtime = times[0] if len(times) == 1 else np.concatenate(times)
    end = start + rows_max
    return PeekedRows(batches, start, rowtime[start:end], more or end < len(rowtime))


def ends_in_a_pair(peeked: Sequence[PeekedRows], order: Sequence[Ints]) -> bool:
    """Whether the micro-batch would end between the two rows of an update, which operators need together (rule R6)."""
    last = max(range(len(order)), key=lambda n: int(order[n][-1]) if len(order[n]) else -1)
    return len(order[last]) > 0 and peeked[last].last_op(len(order[last])) == UPDATE_BEFORE


def ends_peeked(peeked: Iterable[PeekedRows], order: Sequence[Ints]) -> bool:
    """Whether the micro-batch takes all peeked rows of an input that has more: with more of them it could be larger."""
    return any(rows.more and len(taken) == len(rows.rowtime) for rows, taken in zip(peeked, order, strict=True))
