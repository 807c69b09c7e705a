"""Window functions over rows of a partition: on which other rows the result of a row depends, and its computation.

A call is one of three sorts. *Accumulation*: its frame is all rows up to the current one (or its last peer); a small state per row is
enough to go on from it. *Near*: it depends on rows at a limited distance. *Whole*: on any row of the partition.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from itertools import chain
from operator import itemgetter
from typing import Any

from flowql.compiler.functions.aggregate_forms import Linear, Ordered
from flowql.compiler.functions.exact_sums import whole_of
from flowql.compiler.plan.changes import Frame, GroupCall, Offset, SortKey, WindowCall
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Row
from flowql.runtime.operators.changes.group_deltas import BoundCall, bind
from flowql.runtime.operators.fold import AggregateUnsupported

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


def pieces_of(frame: Frame, lines: Lines) -> list[BoundsOf]:
    """The frame of a row as ranges of rows, one behind the other: more than one where EXCLUDE leaves rows out.

    Each is a function from the number of a row to [start, end). Both grow with the row; an empty range may have start > end.
    """
    whole = _bounds_of(frame, lines)
    if not frame.exclude:
        return [whole]
    of, starts = lines.groups if frame.exclude != "current row" else (range(len(lines)), range(len(lines) + 1))

    def before(i: int) -> tuple[int, int]:
        start, end = whole(i)
        return start, min(end, starts[of[i]])

    def own(i: int) -> tuple[int, int]:
        start, end = whole(i)
        return max(start, i), min(end, i + 1)

    def behind(i: int) -> tuple[int, int]:
        start, end = whole(i)
        return max(start, starts[of[i] + 1]), end

    return [before, own, behind] if frame.exclude == "ties" else [before, behind]


def _bounds_of(frame: Frame, lines: Lines) -> BoundsOf:
    if frame.unit == "session":
        of, starts = _sessions(lines, frame.end)
        return lambda i: (starts[of[i]], starts[of[i] + 1])
    start, end = _edge(frame, frame.start, lines, 0), _edge(frame, frame.end, lines, 1)
    return lambda i: (start(i), end(i))


def _sessions(lines: Lines, gap: Any) -> tuple[list[int], list[int]]:
    """(number of its session for each row, first row of each session and behind them the number of rows)."""
    of, starts, last = [], [], None
    for i, line in enumerate(lines.lines):
        if last is None or not is_within(last, line.at, gap):
            starts.append(i)
        of.append(len(starts) - 1)
        last = line.at
    return of, [*starts, len(lines)]


def is_within(a: Position, b: Position, gap: Any) -> bool:
    """Whether rows at these positions, one behind the other, are of one session."""
    distance = apart(a, b)
    return distance is not None and bool(distance < gap)


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

    if frame.unit not in ("range", "session"):
        return frame
    return replace(frame, start=scaled(frame.start), end=scaled(frame.end))


_CURRENT = Frame("rows", None, 0)
Results = Callable[[Lines, int, int], list[Any]]


@dataclass(frozen=True, slots=True)
class Failed:
    """A result that its type cannot hold."""

    message: str


@dataclass(frozen=True, slots=True)
class Reach:
    """How far results depend on rows in one direction: so many rows, groups of peers (0: the own one, -1: none), a distance, or
    as long as each row is nearer than `gap` to the one before it.
    """

    rows: int = 0
    groups: int = -1
    distance: Any = None
    gap: Any = None

    def widened(self, other: Reach) -> Reach:
        distances = [d for d in (self.distance, other.distance) if d is not None]
        gaps = [g for g in (self.gap, other.gap) if g is not None]
        rows, groups = max(self.rows, other.rows), max(self.groups, other.groups)
        return Reach(rows, groups, max(distances, default=None), max(gaps, default=None))

    @property
    def counts_rows(self) -> bool:
        """Whether it is known without looking at rows."""
        return self.groups < 0 and self.distance is None and self.gap is None


@dataclass(frozen=True, slots=True)
class Accumulation:
    """A state that goes on from row to row. step: (state, row, the row before is no peer) -> state.

    peers: a row shows the state of its last peer, else its own. needs_peers: whether the step asks for the row before.
    """

    first: Any
    step: Callable[[Any, Row, bool], Any]
    result: Callable[[Any], Any]
    peers: bool = False
    needs_peers: bool = False


@dataclass(frozen=True, slots=True)
class BoundWindow:
    """A call over a schema. results: of the rows [low, high) of some; of running calls made from their states instead."""

    call: WindowCall
    running: Accumulation | None = None
    results: Results | None = None
    before: Reach = Reach()
    after: Reach = Reach()
    whole: bool = False


def bind_window(call: WindowCall, source: Schema, order: Sequence[SortKey]) -> BoundWindow:
    """Raises AggregateUnsupported for what is no window function or cannot be kept up to date."""
    names = source.names
    own = call.function in (*_RANKS, *_PLACES, *_NEIGHBOURS, *_VALUES)
    if call.filter and own:
        raise AggregateUnsupported(f"{call.function} takes no FILTER, which is of aggregates")
    if call.ignore_nulls and call.function not in (*_NEIGHBOURS, *_VALUES):
        raise AggregateUnsupported(f"{call.function} takes no IGNORE NULLS")
    if call.function in _RANKS:
        return BoundWindow(call, _RANKS[call.function])
    if call.function in _PLACES:
        return BoundWindow(call, results=_PLACES[call.function](call), whole=True)
    if call.function in _NEIGHBOURS:
        return _neighbour(call, [names.index(a) for a in call.args])
    types = {f.name: f.type for f in source}
    call = replace(call, frame=_scaled(call.frame, types, order))
    frame = call.frame
    if call.function in _VALUES:
        at = names.index(call.args[0])
        if call.function == "FIRST_VALUE" and not call.ignore_nulls and _holds_first_row(call.frame):
            call = replace(call, frame=_CURRENT)
        running = _running_value(call, at) if _is_running(call.frame, order) else None
        return _framed(call, order, running, _value_results(call, at))
    bound = bind(
        GroupCall(call.name, call.function, call.args, call.type, False, call.filter, (), call.init), 0, source
    )
    if isinstance(bound.kind, Linear):
        linear = _running_linear(bound, bound.kind, frame) if _is_running(frame, order) else None
        return _framed(call, order, linear, _linear_results(bound, bound.kind, frame))
    if bound.kind.reading == "all":
        return _framed(call, order, None, _all_results(bound, bound.kind, frame))
    if bound.kind.reading == "place":
        raise AggregateUnsupported(f"{call.function} is not a window function")
    extreme = _running_extreme(bound, frame) if _is_running(frame, order) else None
    return _framed(call, order, extreme, _extreme_results(bound, frame))


def _scaled(frame: Frame, types: dict[str, SqlType], order: Sequence[SortKey]) -> Frame:
    return scaled_frame(frame, types[order[0].column]) if len(order) == 1 else frame


def _holds_first_row(frame: Frame) -> bool:
    """The frame of every row starts with the first row of the partition and is not empty."""
    return (
        frame.start is None and (frame.end is None or frame.end >= 0) and not frame.exclude and frame.unit != "session"
    )


def _is_running(frame: Frame, order: Sequence[SortKey]) -> bool:
    return frame.start is None and frame.end == 0 and not frame.exclude and (bool(order) or frame.unit == "rows")


def _framed(call: WindowCall, order: Sequence[SortKey], running: Accumulation | None, results: Results) -> BoundWindow:
    frame = call.frame
    if running is not None:
        peers = Reach(groups=0) if running.peers else Reach()
        return BoundWindow(call, running, None, peers, peers)
    if frame.unit == "session":
        session = Reach(gap=frame.end)
        return BoundWindow(call, results=results, before=session, after=session)
    if frame.start is None or frame.end is None or (not order and frame.unit != "rows"):
        return BoundWindow(call, results=results, whole=True)
    before, after = max(0, -frame.start), max(0, frame.end)
    return BoundWindow(call, results=results, before=_reach(frame, before), after=_reach(frame, after))


def _reach(frame: Frame, offset: Any) -> Reach:
    if frame.unit == "rows":
        return Reach(rows=offset)
    if frame.unit == "groups":
        return Reach(groups=offset)
    return Reach(groups=0, distance=offset or None)


def shown(function: Callable[[Any], Any], state: Any) -> Any:
    """A result, or why there is none."""
    try:
        return function(state)
    except ArithmeticError as error:
        return Failed(str(error))


_RANKS = {
    "ROW_NUMBER": Accumulation(0, lambda s, _row, _new: s + 1, lambda s: s),
    "RANK": Accumulation(
        (0, 0), lambda s, _row, new: (s[0] + 1, s[0] + 1 if new else s[1]), lambda s: s[1], needs_peers=True
    ),
    "DENSE_RANK": Accumulation(0, lambda s, _row, new: s + new, lambda s: s, needs_peers=True),
}


def _percent_rank(_call: WindowCall) -> Results:
    def results(lines: Lines, low: int, high: int) -> list[Any]:
        of, starts = lines.groups
        return [starts[of[i]] / (len(lines) - 1) if len(lines) > 1 else 0.0 for i in range(low, high)]

    return results


def _cume_dist(_call: WindowCall) -> Results:
    def results(lines: Lines, low: int, high: int) -> list[Any]:
        of, starts = lines.groups
        return [starts[of[i] + 1] / len(lines) for i in range(low, high)]

    return results


def _ntile(call: WindowCall) -> Results:
    tiles = _number(call, 0)

    def results(lines: Lines, low: int, high: int) -> list[Any]:
        if tiles is None:
            return [None] * (high - low)
        size, larger = divmod(len(lines), tiles)
        limit = larger * (size + 1)
        return [i // (size + 1) + 1 if i < limit else larger + (i - limit) // size + 1 for i in range(low, high)]

    return results


_PLACES: dict[str, Callable[[WindowCall], Results]] = {
    "PERCENT_RANK": _percent_rank,
    "CUME_DIST": _cume_dist,
    "NTILE": _ntile,
}
_NEIGHBOURS = ("LAG", "LEAD")
_VALUES = ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")


def _number(call: WindowCall, least: int | None) -> int | None:
    """The constant of a call; None: it is NULL."""
    (found,) = call.init
    assert found is None or type(found) is int, f"{call.name}: {found!r} is not a whole number"
    assert found is None or least is None or found > least, f"{call.name}: {found} is not above {least}"
    return found


def _neighbour(call: WindowCall, args: Sequence[int]) -> BoundWindow:
    """LAG and LEAD: the value so many rows before or behind, where there is such a row, else the default."""
    offset = _number(call, None) if call.init else 1
    step = 0 if offset is None else offset if call.function == "LEAD" else -offset
    value, default = args[0], args[1] if len(args) > 1 else None

    def results(lines: Lines, low: int, high: int) -> list[Any]:
        if offset is None:
            return [None] * (high - low)
        rows = [line.row for line in lines.lines]
        known = [i for i, r in enumerate(rows) if r[value] is not None] if call.ignore_nulls and step else None
        found = []
        for i in range(low, high):
            at = i + step
            if known is not None:
                place = bisect_left(known, i) + step if step < 0 else bisect_left(known, i + 1) + step - 1
                at = known[place] if 0 <= place < len(known) else -1
            if 0 <= at < len(rows):
                found.append(rows[at][value])
            else:
                found.append(None if default is None else rows[i][default])
        return found

    if call.ignore_nulls and step:
        return BoundWindow(call, results=results, whole=True)
    return BoundWindow(call, results=results, before=Reach(rows=max(0, -step)), after=Reach(rows=max(0, step)))


def _running_value(call: WindowCall, at: int) -> Accumulation:
    """State: (rows counted, the value), counted no further than needed; so what comes behind the value changes nothing."""
    ignore, peers = call.ignore_nulls, call.frame.unit != "rows"
    if call.function == "LAST_VALUE":
        return Accumulation(None, lambda s, row, _new: s if ignore and row[at] is None else row[at], lambda s: s, peers)
    wanted = 1 if call.function == "FIRST_VALUE" else _number(call, 0)
    if wanted is None:
        return Accumulation(None, lambda s, _row, _new: s, lambda s: s)

    def step(s: Any, row: Row, _new: bool) -> Any:
        if s[0] == wanted or (ignore and row[at] is None):
            return s
        return s[0] + 1, row[at] if s[0] + 1 == wanted else None

    return Accumulation((0, None), step, lambda s: s[1], peers)


def _value_results(call: WindowCall, at: int) -> Results:
    nth = 1 if call.function == "FIRST_VALUE" else _number(call, 0) if call.function == "NTH_VALUE" else 0

    def results(lines: Lines, low: int, high: int) -> list[Any]:
        if nth is None:
            return [None] * (high - low)
        values = lines.column(at)
        known = [i for i, v in enumerate(values) if v is not None or not call.ignore_nulls]
        pieces = pieces_of(call.frame, lines)
        last = call.function == "LAST_VALUE"
        if last:
            pieces.reverse()
        found = []
        for i in range(low, high):
            before, value = 0, None  # how many values the pieces before have
            for start, end in (bounds(i) for bounds in pieces):
                first, behind = bisect_left(known, start), bisect_left(known, end)
                place = behind - 1 if last else first + nth - 1 - before
                if first <= place < behind:
                    value = values[known[place]]
                    break
                before += max(behind - first, 0)
            found.append(value)
        return found

    return results


def _arguments(bound: BoundCall) -> Callable[[Row], Row | None]:
    """The arguments of a row; None where the filter leaves it out."""
    args, condition = bound.args, bound.filter
    if condition is None:
        return lambda row: tuple([row[i] for i in args])
    return lambda row: tuple([row[i] for i in args]) if row[condition] is True else None


def _running_linear(bound: BoundCall, kind: Linear, frame: Frame) -> Accumulation:
    arguments = _arguments(bound)

    def step(s: Any, row: Row, _new: bool) -> Any:
        args = arguments(row)
        part = None if args is None else kind.part(args, 1)
        return s if part is None else kind.add(s, part)

    return Accumulation(kind.zero, step, kind.result, frame.unit != "rows")


def _linear_results(bound: BoundCall, kind: Linear, frame: Frame) -> Results:
    """Frames move forwards: what enters is added, what leaves is taken out, which is exact."""
    arguments = _arguments(bound)

    def results(lines: Lines, low: int, high: int) -> list[Any]:
        args = [arguments(line.row) for line in lines.lines]

        def moved_over(bounds: BoundsOf) -> Iterator[Any]:
            acc, first, behind = kind.zero, 0, 0
            for i in range(low, high):
                start, end = bounds(i)
                if start >= behind:
                    acc, first, behind = kind.zero, start, start
                for places, weight in ((range(behind, end), 1), (range(first, start), -1)):
                    for at in places:
                        given = args[at]
                        part = None if given is None else kind.part(given, weight)
                        acc = acc if part is None else kind.add(acc, part)
                first, behind = start, end
                yield acc

        sums = zip(*map(moved_over, pieces_of(frame, lines)), strict=True)
        return [shown(kind.result, accs[0] if len(accs) == 1 else reduce(kind.add, accs)) for accs in sums]

    return results


def _running_extreme(bound: BoundCall, frame: Frame) -> Accumulation:
    """MIN and MAX. State: (value, its text), None of no values."""
    arguments, text = _arguments(bound), bound.text
    assert text is not None

    def step(s: Any, row: Row, _new: bool) -> Any:
        args = arguments(row)
        if args is None or args[0] is None:
            return s
        found = text(args)
        return (args[0], found) if s is None or found < s[1] else s

    return Accumulation(None, step, lambda s: None if s is None else s[0], frame.unit != "rows")


def _extreme_results(bound: BoundCall, frame: Frame) -> Results:
    """The queue holds the rows of the frame that no later one is better than or as good as, so its first is the best."""
    arguments, text = _arguments(bound), bound.text
    assert text is not None

    def results(lines: Lines, low: int, high: int) -> list[Any]:
        def moved_over(bounds: BoundsOf) -> Iterator[tuple[str, Any] | None]:
            queue: deque[tuple[int, str, Any]] = deque()
            behind = 0
            for i in range(low, high):
                start, end = bounds(i)
                for at in range(max(behind, start), end):
                    args = arguments(lines.lines[at].row)
                    if args is None or args[0] is None:
                        continue
                    own = text(args)
                    while queue and queue[-1][1] >= own:
                        queue.pop()
                    queue.append((at, own, args[0]))
                behind = max(behind, end)
                while queue and queue[0][0] < start:
                    queue.popleft()
                yield queue[0][1:] if queue else None

        best = zip(*map(moved_over, pieces_of(frame, lines)), strict=True)
        return [min(filter(None, found), key=itemgetter(0), default=(None, None))[1] for found in best]

    return results


def _all_results(bound: BoundCall, kind: Ordered, frame: Frame) -> Results:
    """STRING_AGG and ARRAY_AGG, in the order of the window."""
    arguments, make = _arguments(bound), kind.result
    assert make is not None

    def results(lines: Lines, low: int, high: int) -> list[Any]:
        args = [arguments(line.row) for line in lines.lines]
        pieces = pieces_of(frame, lines)
        last: tuple[list[tuple[int, int]], Any] | None = None
        found = []
        for i in range(low, high):
            here = [bounds(i) for bounds in pieces]
            if last is None or last[0] != here:
                seen = chain.from_iterable(args[start:end] for start, end in here)
                given = [a[0] for a in seen if a is not None and (kind.nulls or a[0] is not None)]
                last = here, make([(v, 1) for v in given])
            found.append(last[1])
        return found

    return results
