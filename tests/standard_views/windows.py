"""Random window functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.standard_views.expressions import NUMERIC, ORDERED, Ref

if TYPE_CHECKING:
    from tests.standard_views.queries import Maker


def window_call(maker: Maker, scope: Sequence[Ref], total: str) -> tuple[str, str]:
    """A call with OVER, and its type. total: an order of all columns, one for all calls of a statement: with two, equal rows have their numbers in any
    combination.
    """
    rng = maker.rng
    maker.labels.add("over")
    keys = [maker.exprs.any_value(scope, 0)[0] for _ in range(rng.choice((0, 1, 1, 2)))]
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    ordered = maker.exprs.column(scope, ORDERED)
    kind = rng.choices(("number", "rank", "shift", "value", "aggregate", "total"), (1.5, 2.4, 2, 2, 6, 1.5))[0]
    if kind == "rank" and ordered is not None:
        maker.labels.add("rank")
        some = f"{ordered.text}{maker._direction()}"
        name = rng.choice(("RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST"))
        type_ = "bigint" if name.endswith("K") and name != "PERCENT_RANK" else "approximate"
        return f"{name}() OVER ({partition}ORDER BY {some})", type_
    if kind == "shift":
        maker.labels.add("lag or lead")
        e, type_ = maker.exprs.any_value(scope, 1)
        offset = rng.choice(("", ", 1", ", 2"))
        return f"{rng.choice(('LAG', 'LEAD'))}({e}{offset}) OVER ({partition}ORDER BY {total})", type_
    if kind == "value":
        maker.labels.add("first or last value")
        e, type_ = maker.exprs.any_value(scope, 1)
        call = rng.choice((f"FIRST_VALUE({e})", f"LAST_VALUE({e})", f"NTH_VALUE({e}, 2)"))
        return f"{call} OVER ({partition}ORDER BY {total}{_rows(maker)})", type_
    if kind == "aggregate":
        call, type_ = _aggregate(maker, scope)
        return _closed(maker, f"{call} OVER ({partition}{_ordered(maker, scope, total)})", type_)
    if kind == "total":
        call, type_ = _aggregate(maker, scope)
        return _closed(maker, f"{call} OVER ({partition.strip()})", type_)
    name = rng.choice(("ROW_NUMBER()", "ROW_NUMBER()", "NTILE(2)"))
    return f"{name} OVER ({partition}ORDER BY {total})", "bigint"


def _closed(maker: Maker, call: str, type_: str) -> tuple[str, str]:
    if maker.exprs.natural:
        return call, "numeric" if type_ in ("sum", "sum of decimal", "average") else type_
    casts = {"sum": ("BIGINT", "bigint"), "sum of decimal": ("DECIMAL(10, 2)", "decimal")}
    if type_ in casts:
        name, result = casts[type_]
        return f"CAST({call} AS {name})", result
    return (f"CAST({call} AS DOUBLE PRECISION)", "approximate") if type_ == "average" else (call, type_)


def _aggregate(maker: Maker, scope: Sequence[Ref]) -> tuple[str, str]:
    rng = maker.rng
    number, ordered = maker.exprs.column(scope, NUMERIC), maker.exprs.column(scope, ORDERED)
    condition = ""
    if rng.random() < 0.15:
        condition = f" FILTER (WHERE {maker.exprs.condition(scope, 0)})"
    if number is not None and rng.random() < 0.5:
        type_ = {"double": "double", "decimal": "sum of decimal"}.get(number.type, "sum")
        return f"SUM({number.text}){condition}", type_
    if number is not None and rng.random() < 0.2:
        return f"AVG({number.text}){condition}", "average"
    if ordered is not None and rng.random() < 0.6:
        return f"{rng.choice(('MIN', 'MAX'))}({ordered.text}){condition}", ordered.type
    return f"COUNT({ordered.text if ordered is not None and rng.random() < 0.5 else '*'}){condition}", "bigint"


def _ordered(maker: Maker, scope: Sequence[Ref], total: str) -> str:
    """ORDER BY and a frame."""
    rng = maker.rng
    ordered = maker.exprs.column(scope, ORDERED)
    kind = rng.choice(("default", "rows", "range", "range", "groups", "groups"))
    if ordered is None or kind == "rows":
        return f"ORDER BY {total}{_rows(maker)}"
    by = f"ORDER BY {ordered.text}{maker._direction()}"
    if kind == "range":
        number = maker.exprs.column(scope, ("int", "bigint"))
        if number is not None:
            maker.labels.add("range frame")
            start, end = rng.choice((("1 PRECEDING", "1 FOLLOWING"), ("CURRENT ROW", "2 FOLLOWING"), ("2 PRECEDING", "1 PRECEDING"), ("UNBOUNDED PRECEDING", "1 PRECEDING")))  # fmt: skip
            return f"ORDER BY {number.text}{maker._direction()} RANGE BETWEEN {start} AND {end}"
    if kind == "groups":
        maker.labels.add("groups frame")
        return f"{by} GROUPS BETWEEN 1 PRECEDING AND {rng.choice(('CURRENT ROW', '1 FOLLOWING'))}"
    return by


def _rows(maker: Maker) -> str:
    maker.labels.add("rows frame")
    rng = maker.rng
    return " ROWS BETWEEN " + rng.choice(
        (
            "UNBOUNDED PRECEDING AND CURRENT ROW",
            "1 PRECEDING AND 1 FOLLOWING",
            "CURRENT ROW AND UNBOUNDED FOLLOWING",
            "2 PRECEDING AND CURRENT ROW",
            "UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
            "1 FOLLOWING AND 2 FOLLOWING",
            "3 PRECEDING AND 1 PRECEDING",
        )
    )
