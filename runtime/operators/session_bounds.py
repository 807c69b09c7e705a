"""Which rows form one session: rows of a key, in order of time, each no further than the gap behind the end of the session before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import Flags

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Known:
    """For each code of a key, whether the state has a session, and its bounds."""

    there: Flags
    first: Ints
    last: Ints


@dataclass(frozen=True, slots=True)
class Sessions:
    """Numbered by code and time. of_rows: the session of each row. of_known: the session that each known one becomes, -1 without a known one."""

    of_rows: Ints
    of_known: Ints
    code: Ints
    first: Ints
    last: Ints


def sessions_of(codes: Ints, times: Ints, gap: int, known: Known | None = None) -> Sessions:
    """The sessions that rows make together with the known ones. codes: of the keys of rows, 0, 1, ... without holes."""
    n, begins_known = len(codes), np.zeros(0, np.int64)
    starts, ends, keys = times, times, codes
    if known is not None:
        begins_known = np.flatnonzero(known.there)
        keys = np.concatenate([codes, begins_known])
        starts = np.concatenate([times, known.first[begins_known]])
        ends = np.concatenate([times, known.last[begins_known]])
    order = np.lexsort((starts, keys))
    by, start, end = keys[order], starts[order], ends[order]
    reached = start.copy()
    if known is not None and len(begins_known):
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        begun = np.full(len(known.there), len(order), np.int64)
        begun[begins_known] = place[n:]
        reached = np.maximum(start, np.where(begun[by] <= np.arange(len(by)), known.last[by], _NEVER))
    begins = np.ones(len(by), np.bool_)
    begins[1:] = (by[1:] != by[:-1]) | (start[1:] - reached[:-1] > gap)
    first_at = np.flatnonzero(begins)
    numbers = np.empty(len(by), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    of_known = np.full(0 if known is None else len(known.there), -1, np.int64)
    of_known[begins_known] = numbers[n:]
    return Sessions(numbers[:n], of_known, by[first_at], start[first_at], np.maximum.reduceat(end, first_at))
