"""DISTINCT and FILTER of aggregates as aggregates without them, which is what the engine knows."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.catalog.names import listing
from flowql.compiler.dialect.ast import Ast, Func, Lit, Star
from flowql.compiler.functions.registry import AggregateFunction

# What an aggregate of different values is; of these the same one: a value that comes twice changes nothing.
_DISTINCT = {"COUNT": "COUNT_DISTINCT", "TOPK": "TOPKDISTINCT", "COLLECT_LIST": "COLLECT_SET"} | {
    n: n for n in ("MIN", "MAX", "COLLECT_SET", "COUNT_DISTINCT", "TOPKDISTINCT")
}


def plain_aggregate(node: Func, function: AggregateFunction | None) -> Func:
    """The same aggregate without DISTINCT and FILTER. function: the aggregate; None if it is none.

    `COUNT(DISTINCT x)` is `COUNT_DISTINCT(x)`; `SUM(x) FILTER (WHERE c)` is `SUM(CASE WHEN c THEN x END)`, as aggregates leave
    NULLs out. Raises CompileError where there is no such form.
    """
    word = "DISTINCT" if node.distinct else "FILTER"
    if function is None:
        title = f"{word} is for aggregates, and {node.name} is none"
        raise mistake("FQ2020", title, node.span, "not an aggregate", help=f"leave {word} out")
    plain = _distinct(node) if node.distinct else node
    return plain if plain.filter is None else _filtered(plain, plain.filter, takes_null=function.takes_null)


def _distinct(node: Func) -> Func:
    name = node.name.upper()
    if not node.args:
        raise mistake(
            "FQ2005", f"{name}(DISTINCT ...) needs a value", node.span, "of what?", help=f"{name}(DISTINCT x)"
        )
    if name not in _DISTINCT:
        help_ = f"DISTINCT is known of {listing(sorted(_DISTINCT))}"
        raise unsupported(f"{name}(DISTINCT ...) is not built yet", node.span, "not built yet", help=help_)
    if name == "COUNT" and len(node.args) > 1:
        help_ = "count a struct of them: COUNT(DISTINCT STRUCT(a := x, b := y))"
        raise unsupported(
            "COUNT(DISTINCT ...) of several values is not built yet", node.span, "not built yet", help=help_
        )
    return replace(node, name=_DISTINCT[name], distinct=False)


def _filtered(node: Func, condition: Ast, *, takes_null: bool) -> Func:
    """takes_null: a row cannot be hidden from it by giving NULL."""
    name = node.name.upper()
    if takes_null or any(isinstance(a, Lit) and a.value is False for a in node.args):
        help_ = "filter in a query before this one, with WHERE"
        raise unsupported(f"FILTER of {name} is not built yet", node.span, "it takes NULLs, too", help=help_)
    counted = not node.args or isinstance(node.args[0], Star)
    value = Lit("int", 1, node.span) if counted else node.args[0]
    chosen = Func("case", (condition, value), node.span)
    return replace(node, args=(chosen, *node.args[1:]), filter=None)
