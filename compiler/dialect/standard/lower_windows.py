"""TUMBLE, HOP, CUMULATE and SESSION in FROM as a source and a window over it."""

from __future__ import annotations

from collections.abc import Container

from flowql.compiler.dialect.ast import Name, TableRef, WindowClause
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.lower_expressions import lower_duration
from flowql.compiler.dialect.standard.names import plain_name
from flowql.compiler.dialect.standard.refuse import fail, unsupported
from flowql.compiler.dialect.window_functions import FUNCTIONS

_EXAMPLE = "write  TUMBLE(source, time_column, INTERVAL '1' MINUTE)"


def is_window_function(function: t.TableFunction) -> bool:
    """Whether it is one of those four."""
    return len(function.call.name) == 1 and function.call.name[0].upper() in FUNCTIONS


def lower_window_function(function: t.TableFunction, common: Container[str]) -> tuple[TableRef, WindowClause]:
    """The source and its window. common: names of common table expressions, which have no time."""
    call = function.call
    made = FUNCTIONS[call.name[0].upper()]
    places = ["DATA", "TIMECOL", *made.durations]
    given: dict[str, t.Expr] = {}
    for i, arg in enumerate(call.args):
        if isinstance(arg, t.Named):
            place, value = arg.name.upper(), arg.value
        else:
            place, value = places[i] if i < len(places) else "", arg
        if not place:
            unsupported("the offset of a window", arg.span, "for the grace period write  GRACE => INTERVAL '1' MINUTE")
        if place not in places and place != "GRACE":
            listed = ", ".join(places)
            fail("FQ1001", f"expected one of {listed} and GRACE, found `{place}`", arg.span, help=_EXAMPLE)
        given[place] = value
    _check_places(function, places, given)
    source = _source(given["DATA"], function.alias, common)
    durations = {p: _duration(p, e) for p, e in given.items() if p not in ("DATA", "TIMECOL")}
    size = durations.get("SIZE", durations.get("GAP", 0))
    advance = durations.get("SLIDE", durations.get("STEP"))
    time = _time(given["TIMECOL"])
    return source, WindowClause(made.kind, size, advance, durations.get("GRACE"), None, call.span, time)


def _check_places(function: t.TableFunction, places: list[str], given: dict[str, t.Expr]) -> None:
    if function.ordinality or function.lateral:
        unsupported("LATERAL and WITH ORDINALITY of a window function", function.span)
    if function.alias is not None and function.alias.columns:
        unsupported("new column names for a window function", function.alias.span)
    missing = [p for p in places if p not in given or (p == "TIMECOL" and isinstance(given[p], t.Interval))]
    if missing:
        fail("FQ1009", f"the window function lacks {', '.join(missing)}", function.call.span, help=_EXAMPLE)


def _source(data: t.Expr, alias: t.Alias | None, common: Container[str]) -> TableRef:
    if isinstance(data, t.TableArgument) and data.partition_by:
        unsupported(
            "PARTITION BY of a window over a stream", data.span, "leave it out, and name these columns in GROUP BY"
        )
    parts = data.name if isinstance(data, t.TableArgument) else data.parts if isinstance(data, t.ColumnRef) else ()
    if not parts:
        fail("FQ1001", "expected the name of a source", data.span, help=_EXAMPLE)
    name = plain_name(parts, data)
    if parts[0] in common:
        unsupported("a window function over a common table expression", data.span, "make it a view of its own")
    return TableRef(name, alias.name if alias is not None else None, None, data.span)


def _time(node: t.Expr) -> Name:
    if isinstance(node, t.Call) and node.name == ("descriptor",) and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, t.Call) and node.name == ("proctime",):
        unsupported(
            "PROCTIME(), processing time as the time of a window,",
            node.span,
            "name a column; of a stream's record it is  ROWTIME",
        )
    if not isinstance(node, t.ColumnRef) or len(node.parts) > 1:
        fail("FQ1001", "expected the time column", node.span, help=_EXAMPLE)
    return Name(node.parts, node.span)


def _duration(place: str, node: t.Expr) -> int:
    if not isinstance(node, t.Interval):
        fail("FQ1001", f"expected {place} as an interval", node.span, help="write  INTERVAL '1' MINUTE")
    duration = lower_duration(node)
    if duration < 0 or (duration == 0 and place != "GRACE"):
        fail("FQ1009", f"{place} must be longer than nothing", node.span, help="write  INTERVAL '1' MINUTE")
    return duration
