"""Frames of window functions: which of the rows of a partition, in order, a call sees from each of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flowql.compiler.functions.exact_sums import whole_of
from flowql.compiler.plan.changes import Frame, Offset
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Row

# Where a row stands in the order, for distances: (class, number). Numbers are of class 0 and grow along the order; NULL and NaN
# are classes of their own before or behind all numbers.
Position = tuple[int, Any]
NOWHERE: Position = (0, 0)
BoundsOf = Callable[[int], tuple[int, int]]


@dataclass(slots=True, eq=False)
class Line:
    """A row of a partition. tie: a text that peers share. at: its position. states: of running calls, with this row counted."""

    row: Row
    time: int
    tie: str
    at: Position
    states: tuple[Any, ...]


class Lines:
    """Consecutive rows of a partition in order, with all that the frames of the evaluated rows reach."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self._groups: tuple[list[int], list[int]] | None = None
        self._positions: list[Position] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, i: int) -> list[Any]:
        return [line.row[i] for line in self.lines]

    @property
    def groups(self) -> tuple[list[int], list[int]]:
        """(number of its group for each row, first row of each group and behind them the number of rows)."""
        if self._groups is None:
            of, starts, tie = [], [], None
            for i, line in enumerate(self.lines):
                if line.tie != tie:
                    starts.append(i)
                    tie = line.tie
                of.append(len(starts) - 1)
            self._groups = of, [*starts, len(self.lines)]
        return self._groups

    @property
    def positions(self) -> list[Position]:
        if self._positions is None:
            self._positions = [line.at for line in self.lines]
        return self._positions


def bounds_of(frame: Frame, lines: Lines) -> BoundsOf:
    """A function from the number of a row to its frame [start, end). Both grow with the row; an empty frame may have start > end."""
    start, end = _edge(frame, frame.start, lines, 0), _edge(frame, frame.end, lines, 1)
    return lambda i: (start(i), end(i))


def _edge(frame: Frame, offset: Offset | None, lines: Lines, behind: int) -> Callable[[int], int]:
    """behind: 0 for the first row of a frame, 1 for the row after its last one."""
    n = len(lines)
    if offset is None:
        whole = n if behind else 0
        return lambda i: whole
    if frame.unit == "rows":
        shift = int(offset) + behind
        return lambda i: min(max(i + shift, 0), n)
    if frame.unit == "groups" or not offset:
        of, starts = lines.groups
        shift = int(offset) + behind
        return lambda i: starts[min(max(of[i] + shift, 0), len(starts) - 1)]
    positions, bisect, distance = lines.positions, bisect_right if behind else bisect_left, offset
    return lambda i: bisect(positions, moved(positions[i], distance))


def moved(at: Position, distance: Any) -> Position:
    """The position so far behind; NULL and NaN stay."""
    return (0, at[1] + distance) if at[0] == 0 else at


def apart(a: Position, b: Position) -> Any:
    """The distance of two positions; None if it is no number, as between NULL and a number."""
    if a == b:
        return 0
    return abs(a[1] - b[1]) if a[0] == b[0] == 0 else None


def position_of(t: SqlType, *, descending: bool, nulls_first: bool) -> Callable[[Any], Position]:
    """A function from a value of the column that rows are ordered by to its position."""
    null, nan = (-2 if nulls_first else 2, 0), (-1 if descending else 1, 0)
    sign = -1 if descending else 1
    whole = whole_of(t) if t.kind is Kind.DECIMAL else None

    def position(v: Any) -> Position:
        if v is None:
            return null
        if v != v:
            return nan
        return 0, sign * (v if whole is None else whole(v))

    return position


def scaled_frame(frame: Frame, t: SqlType) -> Frame:
    """The frame with distances as numbers that are added to positions: for a DECIMAL in units of its last digit."""

    def scaled(offset: Offset | None) -> Any:
        if not offset:
            return offset
        if t.kind is not Kind.DECIMAL:
            return offset
        exact = Fraction(offset) * 10**t.scale
        return exact.numerator if exact.denominator == 1 else exact

    return Frame(frame.unit, scaled(frame.start), scaled(frame.end)) if frame.unit == "range" else frame
