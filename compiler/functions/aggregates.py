"""COUNT, MIN and MAX, which mean the same in both dialects.

They have partial forms: one statement folds a batch per group, `from_partial` makes an accumulator of it and `merge` adds it to the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.aggregate_forms import Asked, Init, Linear, Ordered, OverRelations, Reading
from flowql.compiler.functions.duckdb_sums import DECLINED
from flowql.compiler.functions.registry import define_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.values import has_order, is_ordered, less_of
from flowql.compiler.plan.types import BIGINT, BOOLEAN, JSONB, Kind, SqlType, duckdb_type


def _count_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) > 1:
        raise not_accepted("COUNT", types)
    return Resolution(tuple(BOOLEAN if t.kind is Kind.NULL else t for t in types), BIGINT)


def _counts(args: tuple[Any, ...]) -> bool:
    return not args or args[0] is not None


def _identity(_r: Resolution, _init: Init) -> Callable[[Any], Any]:
    return lambda acc: acc


_COUNTED = Linear(
    0,
    lambda args, weight: None if args and None in args else weight,
    lambda a, b: a + b,
    lambda acc: acc,
    of_sum=lambda n, _m, _e: n,
)


def _count_sql(call: Asked) -> str | None:
    return call.over(f"count({call.of}{''.join(call.args) or '*'})") if len(call.args) < 2 else None


define_aggregate(
    "COUNT",
    _count_types,
    initial=lambda _r, _i: 0,
    add=lambda _r, _i: lambda acc, *args: acc + 1 if _counts(args) else acc,
    undo=lambda _r, _i: lambda acc, *args: acc - 1 if _counts(args) else acc,
    merge=lambda _r, _i: lambda a, b: a + b,
    result=_identity,
    duckdb_partial=lambda args, _r: [f"count({args[0]})" if args else "count(*)"],
    from_partial=lambda _r, _i: lambda n: n or 0,
    relation=OverRelations(("COUNT",), lambda _types: BIGINT, linear=lambda _args, _result: _COUNTED, asked=_count_sql),
    summary="The number of rows, or of rows where the argument is not NULL.",
    example="COUNT(*)",
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


def _extreme_type(types: tuple[SqlType, ...]) -> SqlType | None:
    """Over relations; JSONB has no order that its text shows."""
    return None if types[0] == JSONB else types[0]


def _extreme_sql(function: str) -> Callable[[Asked], str | None]:
    """Declines groups whose extreme is a zero and that have both zeros: the first row of them decides."""

    def asked(call: Asked) -> str | None:
        if len(call.args) != 1:
            return None
        arg, over = call.args[0], call.over
        found = over(f"{function}({arg})")
        if call.is_ordered:
            return f"CAST({found} AS {duckdb_type(call.result)})"
        if call.types[0].kind is not Kind.DOUBLE:
            return None
        zeros = [over(f"bool_or({arg} = 0 AND {sign}signbit({arg}))") for sign in ("", "NOT ")]
        return f"(CASE WHEN {found} = 0 AND {' AND '.join(zeros)} THEN error('{DECLINED}') ELSE {found} END)"

    return asked


def _extreme(reading: Reading) -> Callable[[Init], Ordered]:
    return lambda _init: Ordered(reading, by_argument=True)


for _name, _greatest in (("MIN", False), ("MAX", True)):
    _step = _better(_greatest)
    define_aggregate(
        _name,
        _extreme_types(_name),
        initial=lambda _r, _i: None,
        add=_step,
        merge=_step,
        result=_identity,
        duckdb_partial=_extreme_partial(_name.lower()),
        from_partial=lambda _r, _i: lambda v: v,
        relation=OverRelations(
            (_name,),
            _extreme_type,
            ordered=_extreme("last" if _greatest else "first"),
            asked=_extreme_sql(_name.lower()),
        ),
        summary=f"The {'greatest' if _greatest else 'least'} value; NULLs are left out. Structs are compared field by field, NULL first.",
        example=f"{_name}(x)",
    )
