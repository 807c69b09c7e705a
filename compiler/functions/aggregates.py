"""The aggregates of SQL: COUNT, SUM, AVG, MIN, MAX.

They have partial forms: one DuckDB statement folds a batch per group, `from_partial` makes an accumulator of it and
`merge` adds it to the state. Integer sums are exact in DuckDB (HUGEINT) and wrapped afterwards, which gives the same
as wrapping at each step. Sums of doubles depend on the order of addition in their last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.numeric import WIDE, fit_decimal, wrap32, wrap64
from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.values import has_order, is_ordered, less_of
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, Kind, SqlType

Init = tuple[Any, ...]
Add = Callable[..., Any]
_ZERO: dict[Kind, Any] = {Kind.INT: 0, Kind.BIGINT: 0, Kind.DOUBLE: 0.0}


def _count_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) > 1:
        raise not_accepted("COUNT", types)
    return Resolution(tuple(BOOLEAN if t.kind is Kind.NULL else t for t in types), BIGINT)


def _counts(args: tuple[Any, ...]) -> bool:
    return not args or args[0] is not None


def _identity(_r: Resolution, _init: Init) -> Callable[[Any], Any]:
    return lambda acc: acc


register_aggregate(
    AggregateFunction(
        "COUNT",
        _count_types,
        initial=lambda _r, _i: 0,
        add=lambda _r, _i: lambda acc, *args: acc + 1 if _counts(args) else acc,
        undo=lambda _r, _i: lambda acc, *args: acc - 1 if _counts(args) else acc,
        merge=lambda _r, _i: lambda a, b: a + b,
        result=_identity,
        duckdb_partial=lambda args, _r: [f"count({args[0]})" if args else "count(*)"],
        from_partial=lambda _r, _i: lambda n: n or 0,
        summary="The number of rows, or of rows where the argument is not NULL.",
        example="COUNT(*)",
    )
)


def _numeric(name: str) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1 or not types[0].is_numeric:
            raise not_accepted(name, types, f"{name} takes one number")
        return Resolution(types, types[0])

    return resolve


def zero_of(t: SqlType) -> Any:
    return Decimal(0).scaleb(-t.scale) if t.kind is Kind.DECIMAL else _ZERO[t.kind]


def summing(t: SqlType, sign: int = 1) -> Callable[[Any, Any], Any]:
    """Accumulator ± value in the type: integers wrap, a DECIMAL that overflows is an error of this value."""
    if t.kind is Kind.DOUBLE:
        return (lambda acc, v: acc + v) if sign > 0 else (lambda acc, v: acc - v)
    if t.kind is Kind.DECIMAL:
        step = WIDE.add if sign > 0 else WIDE.subtract  # the operators would round to 28 digits
        return lambda acc, v: fit_decimal(step(acc, v), t.precision, t.scale)
    wrap = wrap32 if t.kind is Kind.INT else wrap64
    return lambda acc, v: wrap(acc + sign * v)


def _skip_null(step: Callable[[Any, Any], Any]) -> Add:
    return lambda acc, v: acc if v is None else step(acc, v)


def _sum_from_partial(r: Resolution, _init: Init) -> Add:
    t = r.result

    def run(total: Any) -> Any:
        if total is None:
            return zero_of(t)
        if t.kind is Kind.DOUBLE:
            return float(total)
        return fit_decimal(total, t.precision, t.scale) if t.kind is Kind.DECIMAL else summing(t)(0, int(total))

    return run


register_aggregate(
    AggregateFunction(
        "SUM",
        _numeric("SUM"),
        initial=lambda r, _i: zero_of(r.result),
        add=lambda r, _i: _skip_null(summing(r.result)),
        undo=lambda r, _i: _skip_null(summing(r.result, -1)),
        merge=lambda r, _i: summing(r.result),
        result=_identity,
        duckdb_partial=lambda args, _r: [f"sum({args[0]})"],
        from_partial=_sum_from_partial,
        summary="The sum in the type of the argument; NULLs are left out, 0 when there is nothing.",
        example="SUM(x)",
    )
)


def _avg_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) != 1 or not types[0].is_numeric:
        raise not_accepted("AVG", types, "AVG takes one number")
    exact = types[0].kind in (Kind.INT, Kind.BIGINT)
    return Resolution((BIGINT if exact else DOUBLE,), DOUBLE)


def _average(_r: Resolution, _init: Init) -> Callable[[Any], Any]:
    return lambda acc: acc[0] / acc[1] if acc[1] else 0.0


def _avg_step(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(r: Resolution, _init: Init) -> Add:
        step = summing(r.args[0], sign)
        return lambda acc, v: acc if v is None else (step(acc[0], v), acc[1] + sign)

    return make


def _avg_merge(r: Resolution, _init: Init) -> Callable[[Any, Any], Any]:
    step = summing(r.args[0])
    return lambda a, b: (step(a[0], b[0]), a[1] + b[1])


def _avg_from_partial(r: Resolution, _init: Init) -> Add:
    t = r.args[0]
    total_of = float if t.kind is Kind.DOUBLE else (lambda v: wrap64(int(v)))
    return lambda total, n: (zero_of(t) if total is None else total_of(total), n or 0)


register_aggregate(
    AggregateFunction(
        "AVG",
        _avg_types,
        initial=lambda r, _i: (zero_of(r.args[0]), 0),
        add=_avg_step(1),
        undo=_avg_step(-1),
        merge=_avg_merge,
        result=_average,
        duckdb_partial=lambda args, _r: [f"sum({args[0]})", f"count({args[0]})"],
        from_partial=_avg_from_partial,
        summary="The mean as a DOUBLE; NULLs are left out, 0.0 when there is nothing. Integers are summed in 64 bits.",
        example="AVG(x)",
    )
)


def ordered_types(name: str) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    """One argument of a type that has an order."""

    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1 or not is_ordered(types[0]):
            raise not_accepted(name, types, f"{name} takes one number, text, date or time")
        return Resolution(types, types[0])

    return resolve


def _extreme_types(name: str) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1 or not has_order(types[0]):
            raise not_accepted(name, types, f"{name} takes one number, text, date or time, or a STRUCT of such")
        return Resolution(types, types[0])

    return resolve


def _better(greatest: bool) -> Callable[[Resolution, Init], Callable[[Any, Any], Any]]:
    def make(r: Resolution, _init: Init) -> Callable[[Any, Any], Any]:
        less = less_of(r.result)

        def run(acc: Any, v: Any) -> Any:
            if acc is None or v is None:
                return v if acc is None else acc
            return v if (less(acc, v) if greatest else less(v, acc)) else acc

        return run

    return make


def _extreme_partial(function: str) -> Callable[[Sequence[str], Resolution], list[str]]:
    """Dates and timestamps leave DuckDB as the integers that stand for them.

    Of structs only those whose fields are numbers and texts and never NULL: DuckDB puts NULL last.
    """

    def partial(args: Sequence[str], r: Resolution) -> list[str]:
        value = f"{function}({args[0]})"
        if r.result.kind in (Kind.TIMESTAMP, Kind.TIME, Kind.MICROS):
            return [f"{'epoch_us' if r.result.kind is Kind.MICROS else 'epoch_ms'}({value})"]
        return [f"CAST({value} - DATE '1970-01-01' AS INTEGER)" if r.result.kind is Kind.DATE else value]

    return partial


for _name, _greatest in (("MIN", False), ("MAX", True)):
    _step = _better(_greatest)
    register_aggregate(
        AggregateFunction(
            _name,
            _extreme_types(_name),
            initial=lambda _r, _i: None,
            add=_step,
            merge=_step,
            result=_identity,
            duckdb_partial=_extreme_partial(_name.lower()),
            from_partial=lambda _r, _i: lambda v: v,
            summary=f"The {'greatest' if _greatest else 'least'} value; NULLs are left out. Structs are compared field by field, NULL first.",
            example=f"{_name}(x)",
        )
    )


def _list_sum_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) != 1 or types[0].kind is not Kind.ARRAY or not types[0].element.is_numeric:
        raise not_accepted("SUM_LIST", types, "SUM_LIST takes an ARRAY of numbers")
    return Resolution(types, types[0].element)


def _list_sum(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(r: Resolution, _init: Init) -> Add:
        step = summing(r.result, sign)

        def run(acc: Any, items: list[Any] | None) -> Any:
            for v in items or ():
                acc = acc if v is None else step(acc, v)
            return acc

        return run

    return make


register_aggregate(
    AggregateFunction(
        "SUM_LIST",
        _list_sum_types,
        initial=lambda r, _i: zero_of(r.result),
        add=_list_sum(1),
        undo=_list_sum(-1),
        merge=lambda r, _i: summing(r.result),
        result=_identity,
        summary="The sum of all elements of arrays; NULLs are left out.",
        example="SUM_LIST(xs)",
    )
)
