"""SUM, AVG, MIN and MAX of intervals, as aggregates of their months, days and microseconds, or of what intervals are compared by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flowql.compiler.analyze.operators import interval_number, kept, taken
from flowql.compiler.analyze.relations.relation import Order
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.refuse import unsupported
from flowql.compiler.plan.expr import Call, Expr
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, INTERVAL, SPAN, SqlType, decimal

FUNCTIONS = ("SUM", "AVG", "MIN", "MAX")
_PARTS = (("sql_interval_months", INT), ("sql_interval_days", INT), ("sql_interval_rest", BIGINT))
_SUM = decimal(38, 0)


@dataclass(frozen=True, slots=True)
class Part:
    """An aggregate that a value is made of. condition: of the rows that count."""

    function: str
    arg: Expr
    type: SqlType
    condition: Expr | None
    order: tuple[Order, ...] = ()


def of_intervals(node: t.Call, function: str, e: Expr, condition: Expr | None, column: Callable[[Part], Expr]) -> Expr:
    """The value of the aggregate of an interval `e`. column: that of an aggregate it needs. Raises UnsupportedError."""
    if node.distinct and function in ("SUM", "AVG"):
        unsupported(f"{function}(DISTINCT) of an INTERVAL", node.span, "take  EXTRACT(EPOCH FROM x)  of them")
    if function in ("MIN", "MAX"):
        present = Call(BOOLEAN, "is_not_null", (e,))
        there = present if condition is None else Call(BOOLEAN, "and", (condition, present))
        order = Order(interval_number(e), function == "MAX", False)
        return taken(column(Part("FIRST_VALUE", kept(e), SPAN, there, (order,))))
    parts = [Call(BIGINT, name, (e,)) for name, _ in _PARTS]
    sums = [column(Part("SUM", p, _SUM, condition)) for p in parts]
    made = (Call(to, f"sql_to_{str(to).lower()}", (s,)) for s, (_, to) in zip(sums, _PARTS, strict=True))
    total = Call(INTERVAL, "sql_interval_total", tuple(made), node.span)
    if function == "SUM":
        return total
    return Call(
        INTERVAL, "sql_interval_average", (total, column(Part("COUNT", parts[0], BIGINT, condition))), node.span
    )
