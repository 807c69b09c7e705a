"""Group rows that only come by their sessions: one row of state per session, instead of all rows of a partition.

before: GroupAggregate(k, w, e, Project(e := last + gap, Over(last := MAX(ts) per k, w, Project(w := begun,
        Over(begun := MAX(__begins) per k by ts, Project(__begins := CASE WHEN LAG(ts) IS NULL OR ts > LAG(ts) + gap
        THEN ts END, Over(LAG(ts) per k by ts, rows)))))))
after:  Project(k, w, e := last + gap, GroupAggregate(k, w, last, sessions of ts with the gap, rows))

SESSION in FROM means these window functions (`flowql.compiler.analyze.relations.time_windows`). A row that comes
changes the session of each row in it, so they give as many changes as the session has rows. Two kinds of aggregates stay as they
are: those that need all values of a group, and those of a computed argument, which may fail for a row that its session counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from flowql.compiler.analyze.relations.records import only_adds
from flowql.compiler.functions.change_aggregates import keeps_all_values
from flowql.compiler.plan.changes import GroupAggregate, GroupCall, Over, Sessions, SortKey, WindowCall
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr, Node, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind
from flowql.compiler.plan.visit import rule_for, substitute

_LAG, _START, _LAST = "\0lag", "\0start", "\0last"
_Meaning = Mapping[str, Expr]  # what a column is over the rows that sessions are made of, and over the three above


class _Found(NamedTuple):
    """rows: what sessions are made of. by, time: columns of these. start, last: free names for the bounds of sessions."""

    rows: Node
    by: tuple[str, ...]
    time: str
    gap: int
    start: str
    last: str
    meaning: _Meaning


@rule_for(GroupAggregate)
def fold_sessions(node: Node) -> Node:
    """Rule: see the module."""
    spec = node.spec
    if not isinstance(spec, GroupAggregate) or any(keeps_all_values(c, appends=True) for c in spec.calls):
        return node
    found = _sessions(node.inputs[0])
    if found is None or not found.by or not only_adds(found.rows):
        return node
    keys = [found.meaning[k] for k in spec.keys]
    grouped = {e.name for e in keys if isinstance(e, Column)}
    calls = [_over_rows(c, found.meaning) for c in spec.calls]
    if not {*found.by, _START} <= grouped or None in calls:
        return node
    types = {f.name: f.type for f in found.rows.schema}
    bounds = [Field(found.start, types[found.time], "key"), Field(found.last, types[found.time], "key")]
    schema = Schema((*(Field(k, types[k], "key") for k in found.by), *bounds, *node.schema.value))
    sessions = Sessions(found.time, found.gap)
    made = GroupAggregate((*found.by, found.start, found.last), tuple(c for c in calls if c), (), True, sessions)
    shown = {_START: Column(bounds[0].type, found.start), _LAST: Column(bounds[1].type, found.last)}
    of = {f.name: substitute(e, shown) for f, e in zip(node.schema.key, keys, strict=True)}
    columns = tuple(NamedExpr(f.name, of.get(f.name, Column(f.type, f.name))) for f in node.schema)
    return replace(
        node, spec=Project(columns, drop_failed=True), inputs=(Node(made, (found.rows,), schema, "retract"),)
    )


def _over_rows(call: GroupCall, meaning: _Meaning) -> GroupCall | None:
    """The call by columns of the rows; None where it reads something else."""

    def column(name: str) -> str | None:
        e = meaning[name] if name else Column(call.type, "")
        return e.name if isinstance(e, Column) and e.name not in (_START, _LAST) else None

    args, where, order = [column(a) for a in call.args], column(call.filter), [column(k.column) for k in call.order]
    if None in (*args, where, *order):
        return None
    by = tuple(replace(k, column=c) for k, c in zip(call.order, order, strict=True) if c)
    return replace(call, args=tuple(a for a in args if a), filter=where or "", order=by)


def _sessions(node: Node) -> _Found | None:
    """The sessions that a node gives: see the module."""
    steps: list[Node] = []
    while isinstance(node.spec, Project) or (isinstance(node.spec, Over) and sum(_is_over(s) for s in steps) < 3):
        steps.append(node)
        (node,) = node.inputs
    overs = [s.spec for s in steps if isinstance(s.spec, Over)]
    if len(overs) != 3 or any(len(o.calls) != 1 for o in overs[:2]):
        return None
    while not _is_over(steps[-1]):  # a projection of the rows
        node = steps.pop()
    last, start, lag = overs
    by, (time, *more) = lag.keys, [k.column for k in lag.order] or [""]
    ordered, (begins,) = (SortKey(time),), start.calls[0].args or ("",)
    field = node.schema.get(time)
    if more or lag.order != ordered or field is None or field.type.kind is not Kind.TIMESTAMP:
        return None
    meaning: _Meaning = {f.name: Column(f.type, f.name) for f in node.schema}
    gaps: list[int] = []
    at, column = field.type, Column(field.type, time)
    for step in reversed(steps):
        match step.spec:
            case Project(columns):
                meaning = {c.name: substitute(c.expr, meaning) for c in columns}
                continue
            case Over() as spec if spec is lag:
                right = all(c == WindowCall(c.name, "LAG", (time,), at) for c in spec.calls)
                made = dict.fromkeys((c.name for c in spec.calls), Column(at, _LAG))
            case Over() as spec if spec is start:
                gaps = [g for g in [_gap(meaning[begins], column)] if g is not None]
                order = tuple(replace(k, column=_name(meaning[k.column])) for k in spec.order)
                right = (
                    bool(gaps)
                    and order == ordered
                    and spec.calls[0] == WindowCall(spec.calls[0].name, "MAX", (begins,), at)
                )
                right &= [_name(meaning[k]) for k in spec.keys] == [*by]
                made = {spec.calls[0].name: Column(at, _START)}
            case Over() as spec:
                (call,) = spec.calls
                right = not spec.order and call == WindowCall(call.name, "MAX", call.args, at)
                right = right and _name(meaning[call.args[0]]) == time
                right &= sorted(_name(meaning[k]) for k in spec.keys) == sorted([*by, _START])
                made = {call.name: Column(at, _LAST)}
            case _:
                return None
        if not right:
            return None
        meaning = {**meaning, **made}
    return _Found(node, by, time, gaps[0], start.calls[0].name, last.calls[0].name, meaning)


def _is_over(node: Node) -> bool:
    return isinstance(node.spec, Over)


def _name(e: Expr) -> str:
    return e.name if isinstance(e, Column) else ""


def _gap(begins: Expr, time: Column) -> int | None:
    """The gap of  CASE WHEN LAG IS NULL OR time > LAG + gap THEN time END; None for another expression."""
    match begins:
        case Call(
            name="case",
            args=(Call(name="or", args=(missing, Call(name="sql_gt", args=(at, then)))), shown, Literal(value=None)),
        ):
            match then:
                case Call(
                    name="sql_add",
                    args=(
                        lag,
                        Call(
                            name="sql_interval", args=(Literal(value=0), Literal(value=0), Literal(value=int(micros)))
                        ),
                    ),
                ):
                    before = Column(time.type, _LAG)
                    is_first = Call(missing.type, "is_null", (before,))
                    if (missing, at, shown, lag) == (is_first, time, time, before) and micros % 1000 == 0:
                        return micros // 1000
    return None
