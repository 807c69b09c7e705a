"""Which columns follow a watermark, and what that allows: EMIT ON WINDOW CLOSE, and state that is dropped.

A column *follows* with a distance `after` when no row with the value v in it comes or goes any more once v + after <= watermark.
The time column of a source does, since what is behind the watermark is late. So do

- a window's start and end, as far as the time that it is made of does;
- keys of groups, of PARTITION BY, and of ranks; the first column that rows are numbered by, ascending, if they look back alone;
- columns of UNION ALL and DISTINCT; the left columns of a temporal join, which looks once; the time as of which versions are joined;
- columns of a join whose condition bounds the times of both sides (an interval join): how far one may be behind the other is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.relation import WindowBound
from flowql.compiler.analyze.relations.time_bounds import bounds_of, time_passed
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.plan.changes import (
    EquiJoin,
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
from flowql.compiler.plan.types import Kind
from flowql.compiler.plan.watermarks import AppendOnly, Closing, EmitClosed

Following = Mapping[str, int]  # column -> after
NOTHING: Following = {}
_LOOK_BACK, _LOOK_AHEAD = ("ROW_NUMBER", "RANK", "DENSE_RANK"), ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")


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
            return _kept(below[0], keys, order if all(map(_looks_back, calls)) else ())
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


def _looks_back(call: WindowCall) -> bool:
    """Whether rows behind the current one do not matter to it, but for its peers."""
    if call.function in _LOOK_BACK or call.function in _LOOK_AHEAD:
        return call.function in _LOOK_BACK
    if call.function == "LAG":
        return not call.init or (isinstance(call.init[0], int) and call.init[0] >= 0)
    return call.frame.end is not None and call.frame.end <= 0


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
        own = {c: a for c, a in following.items() if c in node.schema.names}
        if not _every_row_has_one(node, frozenset(own), windows):
            own = {}
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
