"""SESSION in FROM over relations that change: each row with the session that its time is in, by window functions that there are.

A session of a partition begins at a row that comes later than the gap behind the row before it, and ends the gap behind its last row. It is found
by the largest beginning up to a row, so that a change recomputes the sessions that it touches and no other ones. Rows without a time are in no session.
"""

from __future__ import annotations

from flowql.compiler.diagnostics.source import Span
from flowql.compiler.dialect.ast import Func, Name, Star
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported

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
