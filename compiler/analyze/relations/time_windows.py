"""TUMBLE, HOP and CUMULATE in FROM over relations that change: each row with the windows that its time falls into.

All append `window_start` and `window_end`. A row is in one window of TUMBLE, in as many of HOP as slides fit into its size, and in those
of CUMULATE that begin where one of its size does and end, step by step, behind it. Windows begin at 1970-01-01 plus the offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.expressions import RelBinder
from flowql.compiler.analyze.relations.relation import (
    Names,
    Rel,
    RelColumn,
    WindowBound,
    column_of,
    extended,
    filtered,
    kept_identity,
    projected,
)
from flowql.compiler.catalog.catalog import Catalog
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.intervals import duration_ms
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.functions.coercion import convert
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import Explode, NamedExpr, Node
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import BIGINT, Kind, array

WINDOWS_MAX = 100  # windows that one row may be in
_NAMED = {"tumble": ("size",), "hop": ("slide", "size"), "cumulate": ("step", "size"), "session": ("gap",)}
_EXAMPLES = {
    "tumble": "write  TUMBLE(t, ts, INTERVAL '1' MINUTE)",
    "hop": "write  HOP(t, ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
    "cumulate": "write  CUMULATE(t, ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    "session": "write  SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTE)",
}


def is_time_window(function: t.TableFunction) -> bool:
    return function.call.name[-1].lower() in _NAMED


def source_of(function: t.TableFunction) -> t.Table:
    """The relation that the function reads."""
    named = [a.value for a in function.call.args if isinstance(a, t.Named) and a.name.lower() == "data"]
    positional = [a for a in function.call.args if not isinstance(a, t.Named)]
    (data,) = (*named, *positional, None)[:1]
    parts = data.name if isinstance(data, t.TableArgument) else data.parts if isinstance(data, Name) else ()
    if not parts:
        fail("FQ1001", "expected the name of a table", function.call.span, help=_example(function))
    return t.Table(parts, span=function.call.span)


def is_session(function: t.TableFunction) -> bool:
    return function.call.name[-1].lower() == "session"


def session_query(function: t.TableFunction) -> t.Query:
    """The query that SESSION stands for."""
    time, durations = _arguments(function, _NAMED["session"])
    if durations["offset"]:
        fail("FQ1009", "SESSION has no offset", function.call.span, help=_example(function))
    by = [a.partition_by for a in map(_value, function.call.args) if isinstance(a, t.TableArgument)]
    gap = t.Interval(str(durations["gap"] / 1000), ("SECOND",), span=function.call.span)
    return sessions(source_of(function), by[0] if by else (), time, gap, function.call.span)


def _value(argument: t.Expr) -> t.Expr:
    return argument.value if isinstance(argument, t.Named) else argument


def in_windows(function: t.TableFunction, rel: Rel, catalog: Catalog, names: Names) -> Rel:
    """The rows of `rel` with the windows they are in."""
    name = function.call.name[-1].lower()
    time, durations = _arguments(function, _NAMED[name])
    binder = RelBinder(rel.columns, catalog, name.upper())
    at = binder.bind(time)
    if at.type.kind is Kind.BIGINT:  # as ROWTIME counts
        binder.given = {_MARK: at}
        computed = NamedExpr(names.fresh("__time"), binder.bind(Func("from_millis", (Name((_MARK,)),))))
        rel, at = extended(rel, [computed]), Column(computed.expr.type, computed.name)
    if at.type.kind is not Kind.TIMESTAMP:
        raise mistake(
            "FQ2005",
            f"the time column of {name.upper()} is {at.type}, not TIMESTAMP or a BIGINT of ms",
            time.span,
            "microseconds" if at.type.kind is Kind.MICROS else "not a time",
            help="select  CAST(... AS TIMESTAMP(3))  of it in a view" if at.type.kind is Kind.MICROS else "",
        )
    size, slide, offset = durations["size"], durations.get("slide", durations["size"]), durations["offset"]
    step = durations.get("step")
    if step is not None and size % step:
        raise mistake(
            "FQ2005", "the size of CUMULATE is not a multiple of its step", function.call.span, help=_example(function)
        )
    count = size // step if step is not None else -(-size // slide)
    if count > WINDOWS_MAX:
        raise mistake(
            "FQ2005",
            f"a row would be in {count} windows, more than {WINDOWS_MAX}",
            function.call.span,
            help="let the window slide further",
        )
    binder.given = {_MARK: at}
    if count == 1:
        return _with_window(rel, binder, names, (size, slide, offset), None)
    distances = [slide * k for k in range(count)] if step is None else [step * (k + 1) for k in range(count)]
    return _with_window(*_repeated(rel, binder, distances, names, slide, offset), names, (size, slide, offset), step)


_MARK, _DISTANCE, _NEWEST = "\0window\0time", "\0window\0distance", "\0window\0newest"


def _repeated(
    rel: Rel, binder: RelBinder, distances: Sequence[int], names: Names, slide: int, offset: int
) -> tuple[Rel, RelBinder]:
    """A row per window that a row may be in; the row identity is that of the row and what tells its windows apart."""
    at, name, newest = binder.given[_MARK], names.fresh("__window"), names.fresh("__newest")
    each = Call(BIGINT, "EXPLODE", (Call(array(BIGINT), "array", tuple(Literal(BIGINT, d) for d in distances)),))
    below = rel.node
    if not isinstance(at, Column):  # it is computed once
        time = names.fresh("__time")
        below, at = _with_column(below, NamedExpr(time, at)), Column(at.type, time)
        binder.given = {_MARK: at}
    below = _with_column(below, NamedExpr(newest, binder.bind(_newest(slide, offset))))  # before there are more rows
    rest = [f for f in below.schema if f.role != "key"]
    schema = Schema((*below.schema.key, Field(name, BIGINT, "key"), *rest))
    binder.given = {_MARK: at, _DISTANCE: Column(BIGINT, name), _NEWEST: Column(BIGINT, newest)}
    return Rel(Node(Explode((NamedExpr(name, each),)), (below,), schema, "retract"), rel.columns), binder


def _with_column(below: Node, column: NamedExpr) -> Node:
    own = [NamedExpr(f.name, column_of(f)) for f in below.schema if f.role != "key"]
    return projected(below, kept_identity(below), [*own, column])


def _newest(slide: int, offset: int) -> Ast:
    """When the newest window that a time is in begins, in ms."""
    ms = Func("to_millis", (Name((_MARK,)),))
    since = Func("mod", (Func("add", (Func("mod", (_less(ms, offset % slide), _ms(slide))), _ms(slide))), _ms(slide)))
    return Func("sub", (ms, since))


def _with_window(rel: Rel, binder: RelBinder, names: Names, window: tuple[int, int, int], step: int | None) -> Rel:
    """The window that begins `_DISTANCE` before the newest one, or with `step` one that ends so long after it begins; rows that are not in it
    are left out.
    """
    size, slide, offset = window
    at = binder.given[_MARK]
    ms, distance = Func("to_millis", (Name((_MARK,)),)), Name((_DISTANCE,))
    start: Ast = Name((_NEWEST,)) if _NEWEST in binder.given else _newest(slide, offset)
    end: Ast
    if _DISTANCE not in binder.given:
        end = Func("add", (start, _ms(size)))
    elif step is None:
        start = Func("sub", (start, distance))
        end = Func("add", (start, _ms(size)))
    else:
        end = Func("add", (start, distance))
    columns = [
        (n, binder.bind(Func("from_millis", (value,)))) for n, value in (("window_start", start), ("window_end", end))
    ]
    if (condition := _inside(binder, window, step, ms, end)) is not None:
        rel = filtered(rel, [condition])
    computed = [NamedExpr(names.fresh(name), convert(e, at.type)) for name, e in columns]
    if isinstance(at, Column):
        for c, last_ms in zip(computed, (size - 1, -1), strict=True):
            names.windows[c.name] = WindowBound(at.name, last_ms)
    made = extended(rel, computed)
    bounds = tuple(RelColumn("", n, at.type, c.name) for (n, _), c in zip(columns, computed, strict=True))
    return replace(made, columns=(*rel.columns, *bounds))


def _inside(binder: RelBinder, window: tuple[int, int, int], step: int | None, ms: Ast, end: Ast) -> Expr | None:
    """The condition for rows in their window; None if all rows are. A row without a time is in one window, whose bounds are NULL, where no row
    can be outside of the newest window.
    """
    size, slide, _ = window
    if step is not None or size % slide:
        return binder.condition(Func("lt", (ms, end)))
    if _DISTANCE not in binder.given:
        return None
    newest = Func("eq", (Name((_DISTANCE,)), _ms(0)))
    return binder.condition(Func("or", (Func("is_not_null", (Name((_MARK,)),)), newest)))


def _ms(n: int) -> Lit:
    return Lit("bigint", n)


def _less(value: Ast, n: int) -> Ast:
    return Func("sub", (value, _ms(n))) if n else value


def _arguments(function: t.TableFunction, places: Sequence[str]) -> tuple[t.Expr, dict[str, int]]:
    """The time column, and durations in ms by name."""
    if function.ordinality:
        unsupported("WITH ORDINALITY of a window function", function.span)
    given: dict[str, t.Expr] = {}
    for place, arg in zip(("data", "timecol", *places, "offset"), function.call.args, strict=False):
        given[arg.name.lower() if isinstance(arg, t.Named) else place] = arg.value if isinstance(arg, t.Named) else arg
    missing = [p for p in ("timecol", *places) if p not in given]
    if missing or len(function.call.args) > len(places) + 3:
        fail(
            "FQ1009",
            f"{function.call.name[-1].upper()} lacks {', '.join(missing) or 'nothing'}",
            function.call.span,
            help=_example(function),
        )
    durations = {"offset": 0}
    for place in (*places, *(["offset"] if "offset" in given else [])):
        node = given[place]
        if isinstance(node, Lit) and node.kind == "string":
            node = t.Interval(str(node.value), span=node.span)
        if not isinstance(node, t.Interval):
            fail("FQ1001", f"expected the {place} as an interval", node.span, help=_example(function))
        durations[place] = duration_ms(node)
        if durations[place] <= 0 and place != "offset":
            fail("FQ1009", f"the {place} must be longer than zero", node.span, help=_example(function))
    time = given["timecol"]
    if isinstance(time, t.Call) and time.name == ("descriptor",) and len(time.args) == 1:
        time = time.args[0]
    return time, durations


def _example(function: t.TableFunction) -> str:
    return _EXAMPLES[function.call.name[-1].lower()]


# --- SESSION, by window functions: it begins at a row that comes later than the gap behind the row before it ---


_BEGINS = "__begins"


def sessions(table: t.Table, partition_by: tuple[t.Expr, ...], time: t.Expr, gap: t.Interval, span: Span) -> t.Query:
    """The rows of a table with `window_start` and `window_end` of their sessions."""
    if not isinstance(time, Name) or not all(isinstance(e, Name) for e in partition_by):
        unsupported("an expression in SESSION", span, "make it a column of a query in WITH")
    order = (t.OrderItem(time, span=span),)
    before = _over("lag", time, t.WindowSpec(partition_by=partition_by, order_by=order, span=span), span)
    late = Func("gt", (time, Func("add", (before, gap), span)), span)
    begins = Func("or", (Func("is_null", (before,), span), late), span)
    begin = t.Item(Func("case", (begins, time), span), _BEGINS, span=span)
    timed = Func("is_not_null", (time,), span)
    first = t.Select((_star(span), begin), table, where=timed, span=span)
    began = Name((_BEGINS,), span=span)
    start = _over("max", began, t.WindowSpec(partition_by=partition_by, order_by=order, span=span), span)
    second = t.Select((_star(span), t.Item(start, "window_start", span=span)), _named(first, table), span=span)
    keys = (*partition_by, Name(("window_start",), span=span))
    last = _over("max", time, t.WindowSpec(partition_by=keys, span=span), span)
    end = t.Item(Func("add", (last, gap), span), "window_end", span=span)
    shown = t.Item(Star(excluded=(began,), span=span), span=span)
    return t.Query(t.Select((shown, end), _named(second, table), span=span), span=span)


def _over(function: str, value: t.Expr, window: t.WindowSpec, span: Span) -> t.Call:
    return t.Call((function,), (value,), over=window, span=span)


def _star(span: Span) -> t.Item:
    return t.Item(Star(span=span), span=span)


def _named(select: t.Select, table: t.Table) -> t.Derived:
    """The query under the name of the table, by which expressions may call its columns."""
    alias = t.Alias(table.name[-1], span=select.span)
    return t.Derived(t.Query(select, span=select.span), alias, span=select.span)
