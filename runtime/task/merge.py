"""The order of a run over several inputs (rule R5).

At every step the input whose head row has the lowest timestamp goes next; tables win ties, then the lower input. That greedy
order equals a stable sort by the running maximum of timestamps within each input, which is how it is computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from runtime.batch import Ints


@dataclass(frozen=True, slots=True)
class MergeInput:
    """Row times of what an input has buffered, in its order. open: more may come, so that order after its last row is unknown."""

    rowtime: Ints
    is_table: bool
    open: bool


def merge_order(inputs: Sequence[MergeInput], rows_max: int) -> list[Ints]:
    """For each input the sequence numbers of its rows that belong to the next run: a prefix of its rows.

    An open input that has no rows holds everything back. At most `rows_max` rows in all.
    """
    if any(i.open and not len(i.rowtime) for i in inputs):
        return [np.empty(0, np.int64) for _ in inputs]
    # Concatenated in the order in which inputs win ties, one stable sort does it; of sorted runs it is nearly a merge.
    places = sorted(range(len(inputs)), key=lambda n: (not inputs[n].is_table, n))
    keys = [np.maximum.accumulate(i.rowtime) if len(i.rowtime) else i.rowtime for i in (inputs[n] for n in places)]
    order = np.argsort(np.concatenate(keys), kind="stable")
    owners = np.repeat(places, [len(k) for k in keys])[order]
    limit = min(len(order), rows_max)
    for n, i in enumerate(inputs):
        if i.open:
            last = int(np.flatnonzero(owners == n)[-1])
            limit = min(limit, last + 1)
    owners = owners[:limit]
    return [np.flatnonzero(owners == n).astype(np.int64) for n in range(len(inputs))]
