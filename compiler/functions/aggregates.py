"""COUNT, MIN and MAX, which mean the same in both dialects.

They have partial forms: one statement folds a batch per group, `from_partial` makes an accumulator of it and `merge` adds it to the state.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign
from typing import Any

from flowql.compiler.functions.aggregate_forms import Asked, Init, Linear, OnSpark, Ordered, OverRelations, Reading
from flowql.compiler.functions.duckdb_sums import DECLINED
from flowql.compiler.functions.registry import define_aggregate
from flowql.compiler.functions.signatures import Resolution, not_accepted
from flowql.compiler.functions.values import has_order, is_ordered, less, less_of
from flowql.compiler.plan.types import BIGINT, BOOLEAN, JSONB, Kind, SqlType, duckdb_type

_ON_SPARK = frozenset(
    {Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.STRING, Kind.BYTES, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS}
    | {Kind.DOUBLE}
)


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
    arrow=("count",),
    spark=OnSpark(
        lambda call: f"count({call.args[0] if call.args else '*'})",
        lambda types: "" if len(types) <= 1 else "COUNT of several columns",
    ),
    from_partial=lambda _r, _i: lambda n: n or 0,
    relation=OverRelations(("COUNT",), lambda _types: BIGINT, linear=lambda _args, _result: _COUNTED, asked=_count_sql),
)


def ordered_types(name: str, *, structs: bool = False) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    """One argument of a type that has an order. structs: also a STRUCT of such types."""

    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1 or not (has_order if structs else is_ordered)(types[0]):
            others = ", or a STRUCT of these" if structs else ""
            raise not_accepted(name, types, f"{name} takes one number, string, date or time{others}")
        return Resolution(types, types[0])

    return resolve


def _double_less(a: float, b: float) -> bool:
    """As `less`, with -0.0 below 0.0: which of them is an extreme must not depend on the order of rows."""
    return less(a, b) or (a == 0 == b and copysign(1, a) < copysign(1, b))


def _better(greatest: bool) -> Callable[[Resolution, Init], Callable[[Any, Any], Any]]:
    def make(r: Resolution, _init: Init) -> Callable[[Any, Any], Any]:
        less = _double_less if r.result.kind is Kind.DOUBLE else less_of(r.result)

        def run(acc: Any, v: Any) -> Any:
            if acc is None or v is None:
                return v if acc is None else acc
            return v if (less(acc, v) if greatest else less(v, acc)) else acc

        return run

    return make


def _is_ordered_on_spark(t: SqlType) -> bool:
    if t.kind is Kind.STRUCT:  # Spark too orders field by field, NULL first
        return all(_is_ordered_on_spark(f) and f.kind is not Kind.DOUBLE for _, f in t.fields)
    return t.kind in _ON_SPARK


def _extreme_on_spark(name: str) -> OnSpark:
    return OnSpark(
        lambda call: f"{name.lower()}({call.args[0]})",
        lambda types: "" if _is_ordered_on_spark(types[0]) else f"{name} of {types[0]}",
    )


def _extreme_type(types: tuple[SqlType, ...]) -> SqlType | None:
    """Over relations; JSONB has no order that its text shows."""
    return None if types[0] == JSONB else types[0]


def _extreme_sql(function: str) -> Callable[[Asked], str | None]:
    """Declines groups whose extreme is a zero and that have both zeros, which DuckDB takes for one."""

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
        ordered_types(_name, structs=True),
        initial=lambda _r, _i: None,
        add=_step,
        merge=_step,
        result=_identity,
        arrow=(_name.lower(),),
        spark=_extreme_on_spark(_name),
        from_partial=lambda _r, _i: lambda v: v,
        relation=OverRelations(
            (_name,),
            _extreme_type,
            ordered=_extreme("last" if _greatest else "first"),
            asked=_extreme_sql(_name.lower()),
        ),
    )
