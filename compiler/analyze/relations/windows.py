"""Window functions: what stands before OVER becomes a column, computed by one operator per window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.operators import equality_value
from flowql.compiler.analyze.relations.expressions import Placeholders, RelBinder
from flowql.compiler.analyze.relations.grouping import Aggregates, function_of, order_of
from flowql.compiler.analyze.relations.relation import Names, Order, Rel, as_columns, column_of
from flowql.compiler.catalog.names import correction, did_you_mean
from flowql.compiler.dialect import walks
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import duration_ms
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.functions.change_aggregates import names as aggregate_names
from flowql.compiler.functions.coercion import convert, unify
from flowql.compiler.functions.folding import folded
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.changes import Frame, Over, TopN, WindowCall
from flowql.compiler.plan.expr import Expr, Literal
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, Kind, SqlType
from flowql.compiler.plan.verify import DISTANCES

_RANKS = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_RESULTS = {**dict.fromkeys(_RANKS, BIGINT), "PERCENT_RANK": DOUBLE, "CUME_DIST": DOUBLE}
_VALUES = ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
_NO_FRAME = (*_RESULTS, "NTILE", "LAG", "LEAD")
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class _Window:
    """The window that the calls of one operator share."""

    keys: tuple[Expr, ...]
    order: tuple[Order, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """One call; `column`: its result."""

    function: str
    args: tuple[Expr, ...]
    column: Field
    frame: Frame
    filter: Expr | None = None
    init: tuple[Any, ...] = ()
    ignore_nulls: bool = False


def windowed(
    rel: Rel, parts: Any, named: Sequence[t.NamedWindow], binder: RelBinder, names: Names, placeholders: Placeholders
) -> tuple[Rel, Any]:
    """The relation with a column per window function, and the trees with placeholders for them."""
    windows: dict[_Window, list[_Call]] = {}

    def rule(n: t.Node) -> t.Node | None:
        if not isinstance(n, t.Call) or n.over is None:
            return None
        spec = _spec(n.over, named)
        order = tuple(order_of(o, binder) for o in spec.order_by)
        window = _Window((*binder.carried, *(equality_value(binder.bind(e)) for e in spec.partition_by)), order)
        call = _bound(n, spec, order, binder, names, placeholders)
        windows.setdefault(window, []).append(call)
        return placeholders.add(n, column_of(call.column))

    made = walks.rebuilt(parts, rule, t.Call)
    for window, calls in windows.items():
        rel = _computed(rel, window, calls, names)
    return rel, made


def _spec(spec: t.WindowSpec, named: Sequence[t.NamedWindow]) -> t.WindowSpec:
    """The window with what the named one it starts from says."""
    if not spec.base:
        return spec
    base = next((w.spec for w in named if w.name == spec.base), None)
    if base is None:
        known = [w.name for w in named]
        help, edit = did_you_mean(spec.base, known), correction(spec.span, spec.base, known)
        fail("FQ2001", f'window "{spec.base}" does not exist', spec.span, help=help, edit=edit)
    base = _spec(base, named)
    return t.WindowSpec(
        partition_by=spec.partition_by or base.partition_by,
        order_by=spec.order_by or base.order_by,
        frame=spec.frame or base.frame,
        span=spec.span,
    )


def _computed(rel: Rel, window: _Window, calls: Sequence[_Call], names: Names) -> Rel:
    rel, keys = as_columns(rel, window.keys, names, "partition")
    rel, orders = as_columns(rel, [o.expr for o in window.order], names, "order")
    sort = tuple(o.key(c) for o, c in zip(window.order, orders, strict=True))
    distinct_keys = tuple(dict.fromkeys(keys))
    spec: TopN | Over
    if len(calls) == 1 and calls[0].function in _RANKS:  # the optimiser may find that few ranks are wanted
        function: Any = calls[0].function.lower()
        spec = TopN(distinct_keys, sort, None, 0, function, calls[0].column.name)
    else:
        made: list[WindowCall] = []
        for c in calls:
            rel, args = as_columns(rel, c.args, names, "argument")
            rel, conditions = as_columns(rel, [c.filter] if c.filter is not None else [], names, "filter")
            condition = conditions[0] if conditions else ""
            made.append(
                WindowCall(
                    c.column.name, c.function, tuple(args), c.column.type, c.frame, condition, c.init, c.ignore_nulls
                )
            )
        spec = Over(distinct_keys, sort, tuple(made))
    schema = Schema((*rel.node.schema, *(c.column for c in calls)))
    return Rel(Node(spec, (rel.node,), schema, "retract"), rel.columns)


# --- calls ---


def _bound(
    node: t.Call, spec: t.WindowSpec, order: Sequence[Order], binder: RelBinder, names: Names, marks: Placeholders
) -> _Call:
    function = node.name[-1].upper()
    ignore = node.nulls == "ignore"
    if node.distinct or node.order_by or node.within_group:
        unsupported(f"DISTINCT or ORDER BY inside the window function {function}", node.span)
    if function in (*_NO_FRAME, *_VALUES):
        if node.filter is not None:
            raise mistake(
                "FQ2005", f"FILTER is not for the window function {function.lower()}", node.span, "no aggregate"
            )
        args = [binder.bind(a) for a in node.args]
        args, type_, init = _arguments(function, args, node)
        frame = Frame() if function in _NO_FRAME else _frame(spec.frame, order, binder)
        column = Field(names.fresh(function.lower()), type_)
        return _Call(function, tuple(args), column, frame, None, init, ignore)
    if not function_of(node) and not ignore:
        known = [*_NO_FRAME, *_VALUES, *aggregate_names()]
        help, edit = did_you_mean(function, known), correction(node.span, function, known, first=True)
        unsupported(f"the window function {function}", node.span, help, edit=edit)
    if not function_of(node) or ignore:
        unsupported(f"the window function {function}{' with IGNORE NULLS' if ignore else ''}", node.span)
    call = Aggregates(binder, names, marks).bound(replace(node, over=None))
    if call.function.startswith("PERCENTILE"):
        unsupported(f"{call.function} as a window function", node.span)
    frame = _frame(spec.frame, order, binder)
    return _Call(call.function, call.args, Field(call.name, call.type), frame, call.filter, call.init)


def _arguments(function: str, args: list[Expr], node: t.Call) -> tuple[list[Expr], SqlType, tuple[Any, ...]]:
    """Arguments that are columns, the type of the result, and constants."""
    counts = {"NTILE": (1, 1), "LAG": (1, 3), "LEAD": (1, 3), "NTH_VALUE": (2, 2)}
    least, most = counts.get(function, (0, 0) if function in _RESULTS else (1, 1))
    if not least <= len(args) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise mistake("FQ2005", f"{function.lower()} takes {wanted} arguments, not {len(args)}", node.span)
    if function in _RESULTS:
        return [], _RESULTS[function], ()
    if function == "NTILE":
        return [], INT, (_positive(args[0], node),)
    if function in ("LAG", "LEAD"):
        offset = (_whole(args[1], node),) if len(args) > 1 else ()
        if len(args) < 3:
            return args[:1], args[0].type, offset
        try:
            common, both = unify((args[0], args[2]), strict=True)
        except FunctionTypeError as problem:
            raise mistake("FQ2005", f"{function.lower()}: {problem}", node.span, help=problem.hint) from None
        return list(both), common, offset
    return args[:1], args[0].type, (_positive(args[1], node),) if function == "NTH_VALUE" else ()


def _positive(e: Expr, node: t.Call) -> int | None:
    n = _whole(e, node)
    if n is not None and n <= 0:
        raise mistake("FQ2005", f"the number of {node.name[-1].lower()} must be greater than zero", node.span)
    return n


def _whole(e: Expr, node: t.Call) -> int | None:
    e = folded(e)
    if not isinstance(e, Literal) or not (e.value is None or isinstance(e.value, int)):
        unsupported(f"{node.name[-1].upper()} with a number that is not a constant", node.span, "write a whole number")
    return e.value


# --- frames ---


_TIMES = (Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS)


def _frame(frame: t.Frame | None, order: Sequence[Order], binder: RelBinder) -> Frame:
    """Without one: from the beginning to the peers of the row; of a window without ORDER BY all rows are peers."""
    if frame is None:
        return Frame("range", None, 0)
    if frame.unit == "session":
        return _session(frame, order, binder)
    end = frame.end if frame.end is not None else t.Bound("current row", span=frame.span)
    kinds = ("unbounded preceding", "preceding", "current row", "following", "unbounded following")
    if kinds.index(frame.start.kind) > kinds.index(end.kind) or end.kind == kinds[0] or frame.start.kind == kinds[4]:
        title = f"a frame cannot start at {frame.start.kind.upper()} and end at {end.kind.upper()}"
        raise mistake("FQ2005", title, frame.span, "never holds a row")
    with_offset = any(b.offset is not None for b in (frame.start, end))
    if frame.unit == "range" and with_offset and len(order) != 1:
        raise mistake("FQ2005", "RANGE with an offset needs exactly one ORDER BY column", frame.span)
    if frame.unit == "range" and with_offset and order[0].expr.type.kind not in DISTANCES:
        title = f"RANGE with an offset needs ORDER BY a number or a time, not {order[0].expr.type}"
        raise mistake("FQ2005", title, frame.span)
    if frame.unit == "groups" and not order:
        raise mistake("FQ2005", "GROUPS needs ORDER BY", frame.span)
    column = order[0].expr.type if order else INT
    first, last = (_distance(b, frame.unit, column, binder) for b in (frame.start, end))
    exclude = "" if frame.exclude == "no others" else frame.exclude
    if exclude == "current row" and frame.unit == "rows" and 0 in (first, last):
        first, last, exclude = (first, -1, "") if last == 0 else (1, last, "")
    if first is not None and last is not None and first > last:  # it holds no row, wherever that is
        first, last = (2, 1) if first > 0 else (-1, -2)
    return Frame(frame.unit, first, last, exclude)


def _session(frame: t.Frame, order: Sequence[Order], binder: RelBinder) -> Frame:
    """SESSION WITH GAP, as RisingWave has it: rows that are the gap or more apart are of two sessions."""
    if len(order) != 1 or order[0].expr.type.kind not in DISTANCES:
        title = "SESSION WITH GAP needs exactly one ORDER BY column, of numbers or times"
        raise mistake("FQ2005", title, frame.span)
    assert frame.end is not None
    gap = _distance(frame.end, "range", order[0].expr.type, binder)
    if not gap or gap < 0:
        raise mistake("FQ2005", "the gap of a session must be greater than zero", frame.end.span)
    return Frame("session", None, gap)


def _milliseconds(interval: t.Interval, unit: str, ordered_by: SqlType) -> int:
    if unit != "range" or ordered_by.kind not in _TIMES:
        title = f"an INTERVAL is a distance in a RANGE over times, not over {ordered_by}"
        raise mistake("FQ2005", title, interval.span, "an interval", help="write a number")
    return duration_ms(interval)


def _distance(bound: t.Bound, unit: str, ordered_by: SqlType, binder: RelBinder) -> Any:
    if bound.kind.startswith("unbounded"):
        return None
    if bound.offset is None:
        return 0
    if isinstance(bound.offset, t.Interval):
        length = _milliseconds(bound.offset, unit, ordered_by) * (1000 if ordered_by.kind is Kind.MICROS else 1)
        e: Expr = Literal(BIGINT, length, bound.span)
    else:
        e = folded(binder.bind(bound.offset))
        if unit == "range" and ordered_by.kind in _TIMES:
            title = f"the distance in a RANGE over {ordered_by} is an INTERVAL"
            raise mistake(
                "FQ2005", title, bound.span, f"this is {e.type}", help="write  INTERVAL '10' MINUTE PRECEDING"
            )
    wanted = ordered_by if unit == "range" and ordered_by.is_numeric else BIGINT
    if not isinstance(e, Literal) or e.value is None:
        unsupported("an offset of a frame that is not a constant", bound.span, "write a number")
    if e.type.is_numeric:
        e = convert(e, wanted)
    value = e.value if isinstance(e, Literal) else None
    if not isinstance(value, (int, float)) and not hasattr(value, "as_tuple"):
        unsupported("this offset of a frame", bound.span)
    assert value is not None
    if unit == "range" and ordered_by.kind is Kind.DATE:
        days, rest = divmod(value, _DAY_MS)  # type: ignore[operator]
        if rest:
            unsupported("a part of a day as the distance of dates", bound.span)
        value = days
    if value < 0:  # type: ignore[operator]
        raise mistake("FQ2005", "the offset of a frame must not be negative", bound.span)
    return -value if bound.kind == "preceding" else value  # type: ignore[operator]
