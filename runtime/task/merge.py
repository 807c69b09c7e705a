"""The order of a run over several inputs (rule R5).

At every step the input whose head row has the lowest timestamp goes next; tables win ties, then the lower input. That greedy
order equals a stable sort by the running maximum of timestamps within each input, which is how it is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flowql.runtime.batch import Ints
from flowql.runtime.task.peeked import NOTHING


class MergeInput(NamedTuple):
    """Row times of what an input has buffered, in its order. open: more may come, so that order after its last row is unknown."""

    rowtime: Ints
    is_table: bool
    open: bool


def side_of(rowtime: Ints, is_table: bool, read_up_to_ms: int | None, *, open_: bool) -> MergeInput:
    """The rows of an input for the next micro-batch: none of its rows after the read-up-to time."""
    if read_up_to_ms is not None and (later := rowtime > read_up_to_ms).any():
        return MergeInput(
            rowtime[: int(later.argmax())], is_table, open=False
        )  # all others come after this micro-batch
    return MergeInput(rowtime, is_table, open_)


def merge_order(inputs: Sequence[MergeInput], rows_max: int) -> list[Ints]:
    """For each input the sequence numbers of its rows that belong to the next run: a prefix of its rows.

    An open input that has no rows holds everything back. At most `rows_max` rows in all.
    """
    out = [NOTHING] * len(inputs)
    # In the order in which inputs win ties.
    places = sorted((n for n, i in enumerate(inputs) if len(i.rowtime)), key=lambda n: (not inputs[n].is_table, n))
    if not places or any(i.open and not len(i.rowtime) for i in inputs):
        return out
    if len(places) == 1:  # the others will have no rows
        out[places[0]] = np.arange(min(len(inputs[places[0]].rowtime), rows_max))
        return out
    whole = [np.maximum.accumulate(inputs[n].rowtime) for n in places]
    keys = _until(whole, _end([k for k, n in zip(whole, places, strict=True) if inputs[n].open], whole, rows_max))
    # Concatenated, one stable sort does it; of sorted runs it is nearly a merge.
    counts = np.array([len(k) for k in keys])
    order = np.argsort(np.concatenate(keys), kind="stable")
    seq = np.empty(len(order), np.int64)
    seq[order] = np.arange(len(order))
    ends = np.cumsum(counts)
    limit = min(len(order), rows_max)
    for n, count, end in zip(places, counts.tolist(), ends.tolist(), strict=True):
        if count and inputs[n].open and count == len(inputs[n].rowtime):
            limit = min(limit, int(seq[end - 1]) + 1)
    # Rows of one input stay in their order, so those before the limit are its first ones.
    taken = np.bincount(np.repeat(np.arange(len(places)), counts)[order[:limit]], minlength=len(places))
    for n, begin, rows in zip(places, (ends - counts).tolist(), taken.tolist(), strict=True):
        out[n] = seq[begin : begin + rows]
    return out


def _end(open_: Sequence[Ints], keys: Sequence[Ints], rows: int) -> int:
    """A time after which nothing belongs to the next run: an open input ends there, or there are `rows` rows by then."""
    high = min((int(k[-1]) for k in open_), default=int(max(k[-1] for k in keys)))
    if sum(map(len, keys)) <= 2 * rows:  # sorting them costs less than the search
        return high
    return min(high, int(np.partition(np.concatenate(keys), rows - 1)[rows - 1]))


def _until(keys: Sequence[Ints], end: int) -> list[Ints]:
    return [k if k[-1] <= end else k[: int(k.searchsorted(end, "right"))] for k in keys]
