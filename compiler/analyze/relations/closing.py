"""Which columns follow a watermark, and what that allows: EMIT ON WINDOW CLOSE, and state that is dropped.

A column *follows* with a distance `after` when no row with the value v in it comes or goes any more once v + after <= watermark.
The time column of a source does, since what is behind the watermark is late. So do

- a window's start and end, as far as the time that it is made of does;
- keys of groups, of PARTITION BY, and of ranks; the first column that window functions are ordered by, ascending: if they look
  ahead by a RANGE, later by its distance; if by ROWS or GROUPS or a session, the time of the last row that they see;
- columns of UNION ALL and DISTINCT; the left columns of a temporal join, which looks once; the time as of which versions are joined;
- columns of a join whose condition bounds the times of both sides (an interval join): how far one may be behind the other is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.relation import WindowBound
from flowql.compiler.analyze.relations.time_bounds import bounds_of, time_passed
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.plan.changes import (
    EquiJoin,
    Frame,
    GroupAggregate,
    Over,
    SetOperation,
    SortKey,
    TemporalJoin,
    TopN,
    VersionJoin,
    WindowCall,
)
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Explode, Filter, Node, Project, Union, walk_nodes
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind
from flowql.compiler.plan.watermarks import AppendOnly, Closing, EmitClosed

Following = Mapping[str, int]  # column -> after
NOTHING: Following = {}
_LOOK_BACK, _OF_ALL = ("ROW_NUMBER", "RANK", "DENSE_RANK"), ("NTILE", "PERCENT_RANK", "CUME_DIST")
_SHIFTS = {"LAG": -1, "LEAD": 1}


Windows = Mapping[str, WindowBound]  # by the plan name of the bound


def followed(node: Node, windows: Windows) -> tuple[Node, Following]:
    """The node with state that is dropped where it may be, and its columns that follow a watermark."""
    made = [followed(i, windows) for i in node.inputs]
    node = replace(node, inputs=tuple(n for n, _ in made))
    below = [f for _, f in made]
    match node.spec:
        case AppendOnly(watermark):
            field = None if watermark is None else node.schema.get(watermark.column)
            if watermark is not None and watermark.column == ROWTIME:
                return node, {ROWTIME: 1}
            return node, {field.name: 1} if field is not None and field.type.kind is Kind.TIMESTAMP else NOTHING
        case GroupAggregate(keys):
            names = {k: f.name for k, f in zip(keys, node.schema.key, strict=True)}
            found = {names[k]: below[0][k] for k in keys if k in below[0]}
            return replace(node, spec=replace(node.spec, closing=_closing(below[0], keys))), found
        case TopN(keys) | Over(keys):
            through = _through(node, below, windows)
            return replace(node, spec=replace(node.spec, closing=_closing(below[0], keys))), through
        case EquiJoin():
            found = _of_join(node.spec, below)
            left, right = (_closing(found, of) for of in below)
            kept = {c: a for c, a in found.items() if node.spec.kind not in ("semi", "anti") or c in below[0]}
            return replace(node, spec=replace(node.spec, closing=(left, right))), kept
    return node, _through(node, below, windows)


def _closing(below: Following, columns: Iterable[str]) -> tuple[Closing, ...]:
    return tuple(Closing(c, below[c]) for c in columns if c in below)


def _through(node: Node, below: Sequence[Following], windows: Windows) -> Following:
    match node.spec:
        case Project(columns) if below[0]:
            found: dict[str, int] = {}
            for c in columns:
                bound = windows.get(c.name)
                if (of := time_passed(c.expr)) is not None and of in below[0]:
                    found[c.name] = below[0][of]
                elif bound is not None and bound.column in below[0]:
                    found[c.name] = bound.last_ms + below[0][bound.column]
            return found
        case Filter() | Explode() | EmitClosed():
            return below[0]
        case Over(keys, order, calls):
            ahead = _distance_ahead(calls)
            times = {} if ahead is None else {c: a + ahead for c, a in _kept(below[0], (), order).items()}
            return {**times, **_kept(below[0], keys, ())}
        case TopN(keys, order):
            return _kept(below[0], keys, order)
        case TemporalJoin():
            return below[0]
        case VersionJoin(left_time=time, after=after):  # rows are held back, so other times of theirs may be behind
            return {time: after}
        case Union():
            return {c: max(f[c] for f in below) for c in below[0] if all(c in f for f in below)}
        case SetOperation("distinct"):
            pairs = zip(_values(node.inputs[0]), _values(node), strict=True)
            return {own: below[0][c] for c, own in pairs if c in below[0]}
    return NOTHING


def _values(node: Node) -> list[str]:
    return [f.name for f in node.schema if f.role != "key"]


def _last_seen(call: WindowCall) -> Frame | None:
    """The frame whose last row is the last one that the call sees behind the current row and its peers, or None if it sees all."""
    if call.function in _LOOK_BACK:
        return Frame("rows", 0, 0)
    if call.function in _SHIFTS:
        offset = (call.init[0] if call.init else 1) or 0
        assert isinstance(offset, int)
        ahead = max(0, offset * _SHIFTS[call.function])
        return Frame("rows", ahead, ahead) if not (ahead and call.ignore_nulls) else None
    if call.function in _OF_ALL or call.frame.end is None:
        return None
    end = max(0, call.frame.end)
    return call.frame if call.frame.unit == "session" else Frame(call.frame.unit, end, end)


def _distance_ahead(calls: Sequence[WindowCall]) -> int | None:
    """How far ahead of the current row's time calls look, in ms, or None if no time says so."""
    seen = [_last_seen(c) for c in calls]
    if any(f is None or (f.end and f.unit != "range") for f in seen):
        return None
    return max((int(f.end or 0) for f in seen if f is not None), default=0)


def _with_last_seen(node: Node, windows: Windows) -> tuple[Node, Following]:
    """Window functions that look ahead by rows, groups or a session, with the time of the last row that each row sees.

    No row comes or goes between the current row and that one once the time is closed. The time follows as the ordering time does.
    """
    spec = node.spec
    assert isinstance(spec, Over)
    times = _kept(followed(node.inputs[0], windows)[1], (), spec.order)
    seen = [_last_seen(c) for c in spec.calls]
    ahead = [f for f in seen if f is not None and f.end]
    units = {f.unit for f in ahead}
    if not times or None in seen or len(units) != 1 or units == {"range"}:
        return node, NOTHING
    ((time, after),) = times.items()
    furthest = max(ahead, key=lambda f: f.end or 0)
    if furthest.unit == "session":
        after += int(furthest.end or 0) - 1
    type_ = next(f.type for f in node.schema if f.name == time)
    name = next(n for n in ("last_seen" + "_" * i for i in count()) if n not in node.schema.names)
    call = WindowCall(name, "LAST_VALUE", (time,), type_, furthest)
    schema = Schema((*node.schema, Field(name, type_)))
    return replace(node, spec=replace(spec, calls=(*spec.calls, call)), schema=schema), {name: after}


def _kept(below: Following, keys: Sequence[str], order: Sequence[SortKey]) -> Following:
    """Rows of another key are not concerned; nor are those before the first row that comes, in an order that follows."""
    first = [o.column for o in order[:1] if not (o.descending or o.nulls_first)]
    return {c: below[c] for c in (*keys, *first) if c in below}


def _of_join(spec: EquiJoin, below: Sequence[Following]) -> dict[str, int]:
    """A row comes when the later one of a pair does: then the time of the other one is as far behind as the condition allows."""
    found: dict[str, int] = {}
    for mine, other in ((below[0], below[1]), (below[1], below[0])):
        for b in bounds_of(spec, mine, other):  # mine >= other + least
            after = max(mine[b.column], other[b.other] - b.least)
            found[b.column] = min(found.get(b.column, after), after)
    return found


def has_watermark(node: Node) -> bool:
    """Whether rows of a source with a watermark are part of it."""
    return any(isinstance(n.spec, AppendOnly) and n.spec.watermark is not None for n in walk_nodes(node))


def _every_row_has_one(node: Node, times: frozenset[str], windows: Windows) -> bool:
    """Whether one of the times is there in each row that has one in its source: an outer join leaves those of one side out.

    A group, and a rank, whose time is left out is never closed; that is as in a source.
    """
    match node.spec:
        case Project(columns):
            of = (
                time_passed(c.expr) or (b.column if (b := windows.get(c.name)) else None)
                for c in columns
                if c.name in times
            )
            return _every_row_has_one(node.inputs[0], frozenset(filter(None, of)), windows)
        case EquiJoin(kind=kind):
            left, right = (_every_row_has_one(i, times & set(i.schema.names), windows) for i in node.inputs)
            return {"left": left, "right": right, "full": left and right, "inner": left or right}.get(kind, left)
        case Filter() | Explode() | EmitClosed() | TemporalJoin() | VersionJoin():
            return _every_row_has_one(node.inputs[0], times & set(node.inputs[0].schema.names), windows)
        case Union():
            return all(_every_row_has_one(i, times, windows) for i in node.inputs)
    return bool(times)


def emitted(node: Node, windows: Windows, at: Span) -> Node:
    """EMIT ON WINDOW CLOSE of a query: its rows when they are closed. Raises CompileError where they never are."""
    chain: list[Node] = []
    while True:
        _, following = followed(node, windows)
        own: Following = {c: a for c, a in following.items() if c in node.schema.names}
        if not own and isinstance(node.spec, Over):
            node, own = _with_last_seen(node, windows)
        if not _every_row_has_one(node, frozenset(own), windows):
            own = NOTHING
        if own or not isinstance(node.spec, (Project, Filter)):
            break
        chain.append(node)
        (node,) = node.inputs
    if not own:
        raise mistake(
            "FQ2055",
            "EMIT ON WINDOW CLOSE of a query whose rows are never closed",
            at,
            "no time that follows a watermark",
            why="a row is closed when no later row can change it, which the watermark of a source tells",
            help="declare WATERMARK FOR the time of the source, and group by its windows; or leave EMIT ON WINDOW CLOSE out",
        )
    node = Node(EmitClosed(tuple(Closing(c, a) for c, a in own.items())), (node,), node.schema, "retract")
    for above in reversed(chain):
        node = replace(above, inputs=(node,))
    return node
