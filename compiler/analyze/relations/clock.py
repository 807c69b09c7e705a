"""Conditions on the present moment in WHERE of a view: the wall-clock times from when and until when a row meets them.

`ts > NOW() - INTERVAL '1 hour'` is met until one hour after ts. Each such condition is turned so that the moment stands alone on one side; what
cannot be turned stays a filter, and is refused by `flowql.compiler.analyze.standard_limits`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from flowql.compiler.analyze.relations.expressions import CLOCK
from flowql.compiler.analyze.relations.relation import column_of, kept_identity, projected
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.plan.expr import Call, Column, Expr, Literal, conjunction, conjuncts, walk
from flowql.compiler.plan.logical import Filter, NamedExpr, Node, walk_nodes
from flowql.compiler.plan.temporal_filters import DAY_MS, Edge, TemporalFilter
from flowql.compiler.plan.types import BIGINT, INT, INTERVAL, STRING, TIMESTAMP, TIMESTAMPTZ, Kind
from flowql.compiler.plan.watermarks import EmitClosed

_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)
_TURNED = {"sql_lt": "sql_gt", "sql_gt": "sql_lt", "sql_le": "sql_ge", "sql_ge": "sql_le", "sql_eq": "sql_eq"}
_MONTH_DAYS = 30  # of intervals that are compared


class _Moment(NamedTuple):
    """The present moment, or midnight before it, plus `offset_ms`."""

    midnight: bool
    offset_ms: int


class _Condition(NamedTuple):
    """`moment op time + offset_ms`; moment: now, or the midnight before it."""

    midnight: bool
    op: str
    time: Expr
    offset_ms: int


def with_clock(node: Node, at: Span) -> Node:
    """The plan with an operator in the place of conditions that the clock decides. at: of the query, for messages."""
    made = _with_clock(node)
    specs = {type(n.spec) for n in walk_nodes(made)}
    if TemporalFilter in specs and EmitClosed in specs:
        unsupported("a condition on the present moment (NOW) beside EMIT ON WINDOW CLOSE", at, "leave one of them out")
    return made


def _with_clock(node: Node) -> Node:
    chain: list[Node] = []
    predicates: list[Expr] = []
    below = node
    while isinstance(below.spec, Filter):
        chain.append(below)
        predicates.append(below.spec.predicate)
        (below,) = below.inputs
    parts = [c for predicate in reversed(predicates) for c in conjuncts(predicate)]
    found = [(part, _condition(part) if _has_moment(part) else None) for part in parts]
    timed = [c for _, c in found if c is not None]
    if not timed:
        inside = replace(below, inputs=tuple(map(_with_clock, below.inputs)))
        for filtered in reversed(chain):
            inside = replace(filtered, inputs=(inside,))
        return inside
    inside = _with_clock(below)
    if rest := [part for part, c in found if c is None]:
        inside = Node(Filter(conjunction(rest)), (inside,), inside.schema, "retract")
    return _filtered(inside, timed)


def _filtered(node: Node, conditions: Sequence[_Condition]) -> Node:
    own = [NamedExpr(f.name, column_of(f)) for f in node.schema if f.role != "key"]
    computed: list[NamedExpr] = []
    starts: list[Edge] = []
    ends: list[Edge] = []
    for c in conditions:
        column = _column(c.time, computed, node.schema.names)
        edge = Edge(column, DAY_MS if c.time.type.kind is Kind.DATE else 1, c.offset_ms)
        starts += _starts(c, edge)
        ends += _ends(c, edge)
    below = projected(node, kept_identity(node), [*own, *computed]) if computed else node
    made = Node(TemporalFilter(tuple(starts), tuple(ends)), (below,), below.schema, "retract")
    return projected(made, kept_identity(made), own) if computed else made


def _column(time: Expr, computed: list[NamedExpr], taken: Sequence[str]) -> str:
    if isinstance(time, Column) and time.name in taken:
        return time.name
    same = next((c for c in computed if c.expr == time), None)
    if same is None:
        number = next(
            n
            for n in range(len(taken) + len(computed) + 1)
            if f"__moment_{n}" not in (*taken, *(c.name for c in computed))
        )
        same = NamedExpr(f"__moment_{number}", time)
        computed.append(same)
    return same.name


def _starts(c: _Condition, edge: Edge) -> Iterator[Edge]:
    """The moment is at or behind the time."""
    if c.op in ("sql_ge", "sql_eq"):
        yield replace(edge, day="ceil") if c.midnight else edge
    elif c.op == "sql_gt":
        yield replace(edge, day="floor", after_ms=DAY_MS) if c.midnight else replace(edge, after_ms=1)


def _ends(c: _Condition, edge: Edge) -> Iterator[Edge]:
    """The moment is at or before the time."""
    if c.op in ("sql_le", "sql_eq"):
        yield replace(edge, day="floor", after_ms=DAY_MS) if c.midnight else replace(edge, after_ms=1)
    elif c.op == "sql_lt":
        yield replace(edge, day="ceil") if c.midnight else edge


# --- the moment alone on one side ---


def _condition(e: Expr) -> _Condition | None:
    """A comparison with the moment; None for what is none, or has another form."""
    if not isinstance(e, Call) or e.name not in _TURNED or len(e.args) != 2:
        return None
    left, right = e.args
    if _has_moment(right) and not _has_moment(left):
        left, right, op = right, left, _TURNED[e.name]
    else:
        op = e.name
    if _has_moment(right):
        return None
    if isinstance(left, Call) and left.name == "sql_interval_micros":
        return _of_difference(left.args[0], op, _micros_of(right))
    moment, time = _moment(left), _in_ms(op, right)
    if moment is None or time is None:
        return None
    return _Condition(moment.midnight, op, time, -moment.offset_ms)


def _in_ms(op: str, time: Expr) -> Expr | None:
    """The time in whole milliseconds, or a date, that a moment in milliseconds is compared with alike; None where there is none."""
    if time.type.kind in (Kind.DATE, Kind.TIMESTAMP):
        return time
    if time.type.kind is not Kind.MICROS or op == "sql_eq":
        return None
    if op in ("sql_ge", "sql_lt"):  # the next millisecond
        parts = tuple(Literal(t, n) for t, n in ((INT, 0), (INT, 0), (BIGINT, 999)))
        time = Call(time.type, "sql_add", (time, Call(INTERVAL, "sql_interval", parts)))
    cut = Call(time.type, "sql_date_trunc", (Literal(STRING, "milliseconds"), time))
    return Call(TIMESTAMPTZ if time.type.zoned else TIMESTAMP, "cast", (cut,))


def _of_difference(e: Expr, op: str, micros: int | None) -> _Condition | None:
    """`NOW() - time op interval`, and `time - NOW() op interval`."""
    if not isinstance(e, Call) or e.name != "sql_sub" or len(e.args) != 2 or micros is None or micros % 1000:
        return None
    left, right = e.args
    ms = micros // 1000
    if (moment := _moment(left)) is not None and not _has_moment(right) and right.type.kind in _MOMENTS:
        time = _in_ms(op, right)
        return None if time is None else _Condition(moment.midnight, op, time, ms - moment.offset_ms)
    if (moment := _moment(right)) is not None and not _has_moment(left) and left.type.kind in _MOMENTS:
        time = _in_ms(_TURNED[op], left)
        return None if time is None else _Condition(moment.midnight, _TURNED[op], time, -ms - moment.offset_ms)
    return None


def _has_moment(e: Expr) -> bool:
    return any(isinstance(part, Call) and part.name in CLOCK for part in walk(e))


def _moment(e: Expr) -> _Moment | None:
    """NOW() and CURRENT_DATE, with intervals of days and less, or whole days, added and subtracted."""
    if not isinstance(e, Call):
        return None
    if e.name in CLOCK and not e.args:
        return _Moment(e.name == "sql_current_date", 0)
    if e.name == "cast" and e.type.kind in _MOMENTS:
        return _moment(e.args[0])
    if e.name not in ("sql_add", "sql_sub") or len(e.args) != 2:
        return None
    first, second = e.args
    if e.name == "sql_add" and _has_moment(second):
        first, second = second, first
    moment, length = _moment(first), _length_ms(second)
    if moment is None or length is None:
        return None
    return moment._replace(offset_ms=moment.offset_ms + (length if e.name == "sql_add" else -length))


def _length_ms(e: Expr) -> int | None:
    """A number of days, or an interval without months, as milliseconds."""
    if isinstance(e, Literal) and e.type.kind in (Kind.INT, Kind.BIGINT) and isinstance(e.value, int):
        return e.value * DAY_MS
    parts = _parts_of(e)
    if parts is None or parts[0] or parts[2] % 1000:
        return None
    return parts[1] * DAY_MS + parts[2] // 1000


def _micros_of(e: Expr) -> int | None:
    """The value by which a constant interval is compared."""
    if isinstance(e, Literal):
        return e.value if isinstance(e.value, int) else None
    parts = _parts_of(e.args[0]) if isinstance(e, Call) and e.name == "sql_interval_micros" else None
    if parts is None:
        return None
    return (parts[0] * _MONTH_DAYS + parts[1]) * DAY_MS * 1000 + parts[2]


def _parts_of(e: Expr) -> tuple[int, int, int] | None:
    """Months, days and microseconds of an interval that is written."""
    if not isinstance(e, Call) or e.name != "sql_interval":
        return None
    values = [a.value for a in e.args if isinstance(a, Literal) and isinstance(a.value, int)]
    return (values[0], values[1], values[2]) if len(values) == 3 else None
