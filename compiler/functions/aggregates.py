"""COUNT, MIN and MAX, which mean the same in both dialects.

They have partial forms: one statement folds a batch per group, `from_partial` makes an accumulator of it and `merge` adds it to the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import copysign
from typing import Any

from flowql.compiler.functions.aggregate_forms import (
    Acc,
    Add,
    Asked,
    Init,
    Linear,
    OnSpark,
    Ordered,
    OverRelations,
    Reading,
    SparkCall,
)
from flowql.compiler.functions.change_aggregates import linear_aggregate
from flowql.compiler.functions.duckdb_text import DECLINED, quoted_text
from flowql.compiler.functions.registry import define_aggregate, register_relation
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, not_accepted
from flowql.compiler.functions.values import has_order, is_ordered, less, less_of
from flowql.compiler.plan.types import BIGINT, BOOLEAN, DOUBLE, JSONB, Kind, SqlType, array, duckdb_type

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

# --- BIT_AND, BIT_OR, BIT_XOR, BOOL_AND and BOOL_OR of standard SQL ---
#
# They count how often each bit or truth value exists, so that what is added can be taken out again.

Bits = tuple[int, int]  # values; how often each bit is set, the counts side by side in one whole number
_NO_BITS: Bits = (0, 0)
_COUNT_BITS = 64


def _bits(t: SqlType) -> Callable[[tuple[Any, ...], int], Bits | None]:
    """(value of a row, how many times it counts) -> its accumulator."""
    mask = (1 << _width(t)) - 1

    def part(row: tuple[Any, ...], weight: int) -> Bits | None:
        return None if row[0] is None else (weight, _spread(row[0] & mask) * weight)

    return part


def _added(a: Bits, b: Bits) -> Bits:
    return a[0] + b[0], a[1] + b[1]


def _bits_result(function: str, t: SqlType) -> Callable[[Bits], int | None]:
    width = _width(t)

    def result(acc: Bits) -> int | None:
        n, packed = acc
        if not n:
            return None
        counts = [packed >> _COUNT_BITS * i & (1 << _COUNT_BITS) - 1 for i in range(width)]
        wanted = n if function == "BIT_AND" else 1
        value = sum(1 << i for i, c in enumerate(counts) if (c % 2 if function == "BIT_XOR" else c >= wanted))
        return value - (1 << width) if value >> width - 1 else value

    return result


def _width(t: SqlType) -> int:
    return 32 if t.kind is Kind.INT else 64


def _spread(value: int) -> int:
    packed = 0
    while value:
        lowest = value & -value
        packed |= 1 << _COUNT_BITS * (lowest.bit_length() - 1)
        value ^= lowest
    return packed


def _bits_type(types: tuple[SqlType, ...]) -> SqlType | None:
    return types[0] if types[0].kind in (Kind.INT, Kind.BIGINT) else None


def _register_bits(function: str) -> None:
    def linear(args: tuple[SqlType, ...], _result: SqlType) -> Linear | None:
        return Linear(_NO_BITS, _bits(args[0]), _added, _bits_result(function, args[0])) if _bits_type(args) else None

    relation = OverRelations((function,), _bits_type, linear=linear)
    linear_aggregate(relation, takes="another argument")


for _name in ("BIT_AND", "BIT_OR", "BIT_XOR"):
    _register_bits(_name)


def _booleans(*, every: bool) -> Linear:
    """Accumulator: (how many are true, how many are false)."""

    def result(acc: Acc) -> Any:
        true, false = acc
        if not true and not false:
            return None
        return not false if every else bool(true)

    return Linear(
        (0, 0),
        lambda args, weight: None if args[0] is None else (weight, 0) if args[0] else (0, weight),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result,
    )


def _boolean_type(types: tuple[SqlType, ...]) -> SqlType | None:
    return types[0] if types[0].kind is Kind.BOOLEAN else None


def _register_booleans(*names: str, every: bool) -> None:
    def asked(call: Asked) -> str | None:
        is_taken = len(call.args) == 1 and call.types[0].kind is Kind.BOOLEAN
        return call.over(f"{names[0].lower()}({call.args[0]})") if is_taken else None

    relation = OverRelations(names, _boolean_type, linear=lambda _args, _result: _booleans(every=every), asked=asked)
    linear_aggregate(relation, takes="another argument")


_register_booleans("BOOL_AND", "EVERY", every=True)
_register_booleans("BOOL_OR", every=False)

# --- aggregates by the order of rows or of values ---
#
# ksqlDB's LATEST_BY_OFFSET and EARLIEST_BY_OFFSET go by the order of arrival. Merging takes the accumulators of sessions in the order of their
# windows: the result of two sessions follows that order, where ksqlDB follows a global sequence number.
#
# Those of standard SQL (ARRAY_AGG, STRING_AGG, FIRST_VALUE, LAST_VALUE, ANY_VALUE, MODE, PERCENTILE_CONT, PERCENTILE_DISC) go by ORDER BY or by
# their values. They need all of a group, so only relations have them.


def _by_offset_options(name: str, init: Init) -> tuple[int | None, bool]:
    """(n, ignore nulls): from (), (n), (ignore), (n, ignore)."""
    n = next((v for v in init if isinstance(v, int) and not isinstance(v, bool)), None)
    ignore = next((v for v in init if isinstance(v, bool)), True)
    if len(init) > 2 or any(not isinstance(v, int) for v in init) or (n is not None and n < 1):
        raise FunctionTypeError(f"Function '{name}' takes a column, then a positive number, TRUE or FALSE, or both")
    return n, ignore


def _by_offset_types(name: str) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], init: Init) -> Resolution:
        n, _ = _by_offset_options(name, init)
        if len(types) != 1:
            raise not_accepted(name, types)
        return Resolution(types, types[0] if n is None else array(types[0]))

    return resolve


def _keep(name: str, init: Init) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    n = _by_offset_options(name, init)[0] or 1
    return (lambda acc: acc[-n:]) if name == "LATEST_BY_OFFSET" else (lambda acc: acc[:n])


def _by_offset_add(name: str) -> Callable[[Resolution, Init], Add]:
    def make(_r: Resolution, init: Init) -> Add:
        _, ignore = _by_offset_options(name, init)
        keep = _keep(name, init)
        return lambda acc, v: acc if v is None and ignore else keep((*acc, v))

    return make


def _by_offset_merge(name: str) -> Callable[[Resolution, Init], Callable[[Any, Any], Any]]:
    def make(_r: Resolution, init: Init) -> Callable[[Any, Any], Any]:
        keep = _keep(name, init)
        return lambda a, b: keep((*a, *b))

    return make


def _by_offset_result(name: str) -> Callable[[Resolution, Init], Callable[[Any], Any]]:
    def make(_r: Resolution, init: Init) -> Callable[[Any], Any]:
        n, _ = _by_offset_options(name, init)
        return list if n is not None else (lambda acc: acc[0] if acc else None)

    return make


def _on_spark(function: str) -> OnSpark:
    def sql(call: SparkCall) -> str:
        value = call.args[0]
        return f"{function}({value}, CASE WHEN {value} IS NOT NULL THEN {call.place} END)"

    return OnSpark(sql, placed=True)


for _name, _of_place in (("LATEST_BY_OFFSET", "max_by"), ("EARLIEST_BY_OFFSET", "min_by")):
    define_aggregate(
        _name,
        _by_offset_types(_name),
        initial=lambda _r, _i: (),
        add=_by_offset_add(_name),
        merge=_by_offset_merge(_name),
        result=_by_offset_result(_name),
        constants=lambda n: max(0, n - 1),
        spark=_on_spark(_of_place),
    )


# --- standard SQL ---


def _joined(separator: str) -> Callable[[Sequence[tuple[Any, int]]], Any]:
    def result(values: Sequence[tuple[Any, int]]) -> Any:
        return separator.join([v for v, n in values for _ in range(n)]) if values else None

    return result


def _delimited(values: Sequence[tuple[tuple[str, str], int]]) -> Any:
    """Each value but the first one behind the delimiter of its own row."""
    parts = [part for (v, delimiter), n in values for _ in range(n) for part in (delimiter, v)]
    return "".join(parts[1:]) if parts else None


def _array(values: Sequence[tuple[Any, int]]) -> Any:
    return [v for v, n in values for _ in range(n)] if values else None


def _most_frequent(values: Sequence[tuple[Any, int]]) -> Any:
    """The first of those that come most often."""
    return max(values, key=lambda pair: pair[1])[0] if values else None


Sql = Callable[[Asked], str | None]


def _same(types: tuple[SqlType, ...]) -> SqlType | None:
    return types[0]


def _of_rows(sql: Sql) -> Sql:
    """Not over windows, and where DuckDB orders the values as views do."""
    return lambda call: sql(call) if call.args and not call.windowed and call.is_ordered else None


def _string_agg_sql(call: Asked) -> str | None:
    if len(call.args) != 1 or not call.init or "\0" in str(call.init[0]):
        return None
    return call.over(f"string_agg({call.of}{call.args[0]}, {quoted_text(str(call.init[0]))} ORDER BY {call.order})")


def _register(
    name: str, how: Ordered, sql: Sql = lambda _call: None, result: Callable[..., SqlType | None] = _same
) -> None:
    register_relation(OverRelations((name,), result, ordered=lambda _init: how, asked=_of_rows(sql)))


# ANY_VALUE is the least one, so that the same rows give the same.
_register(
    "ANY_VALUE",
    Ordered("first", by_argument=True),
    lambda c: f"CAST({c.over(f'min({c.args[0]})')} AS {duckdb_type(c.result)})",
)
_register("FIRST_VALUE", Ordered("first", nulls=True), lambda c: c.over(f"first({c.args[0]} ORDER BY {c.order})"))
_register("LAST_VALUE", Ordered("last", nulls=True), lambda c: c.over(f"last({c.args[0]} ORDER BY {c.order})"))
_register(
    "ARRAY_AGG",
    Ordered("all", nulls=True, result=_array),
    lambda c: c.over(f"list({c.of}{c.args[0]} ORDER BY {c.order})"),
    lambda types: array(types[0]),
)
_register(
    "MODE",
    Ordered("all", by_argument=True, result=_most_frequent),
    result=lambda types: None if types[0] == JSONB else types[0],
)
register_relation(
    OverRelations(
        ("STRING_AGG",),
        lambda types: types[0] if types[0].kind is Kind.STRING else None,
        ordered=lambda init: Ordered("all", result=_joined(str(init[0])) if init else _delimited),
        asked=_of_rows(_string_agg_sql),
    )
)


def _percentile(*, continuous: bool) -> Callable[[Init], Ordered]:
    return lambda init: Ordered("place", by_argument=True, fraction=float(init[0]), continuous=continuous)


register_relation(
    OverRelations(
        ("PERCENTILE_CONT",),
        lambda types: DOUBLE if all(t.is_numeric for t in types) else None,
        ordered=_percentile(continuous=True),
    )
)
register_relation(OverRelations(("PERCENTILE_DISC",), _same, ordered=_percentile(continuous=False)))
