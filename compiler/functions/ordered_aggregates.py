"""Aggregates that go by the order of rows or of values.

ksqlDB's LATEST_BY_OFFSET and EARLIEST_BY_OFFSET go by the order of arrival. Merging takes the accumulators of sessions in order of their windows:
what is kept of two sessions follows that order, where ksqlDB follows a global sequence number.

Those of standard SQL (ARRAY_AGG, STRING_AGG, FIRST_VALUE, LAST_VALUE, ANY_VALUE, MODE, PERCENTILE_CONT, PERCENTILE_DISC) go by ORDER BY or by
their values. They need all of a group, so only relations have them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flowql.compiler.functions.aggregate_forms import Add, Asked, Init, OnSpark, Ordered, OverRelations, SparkCall
from flowql.compiler.functions.duckdb_text import quoted_text
from flowql.compiler.functions.registry import define_aggregate, register_relation
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, not_accepted
from flowql.compiler.plan.types import DOUBLE, JSONB, Kind, SqlType, array, duckdb_type


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
