"""Aggregates that keep values: COLLECT_LIST, COLLECT_SET, HISTOGRAM, ATTR, COUNT_DISTINCT, TOPK, TOPKDISTINCT.

Accumulators are tuples in order of arrival, so they encode and compare plainly; many different values have a set beside them
(`DistinctValues`). COLLECT_LIST, COLLECT_SET and
HISTOGRAM keep at most 1,000 entries; the analyzer passes another limit (ksql.functions.collect_list.limit and the
like) as their only init value, negative for none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from flowql.compiler.functions.aggregate_forms import Add, Init
from flowql.compiler.functions.aggregates import ordered_types
from flowql.compiler.functions.comparison import distinct
from flowql.compiler.functions.distinct_values import with_value
from flowql.compiler.functions.registry import define_aggregate
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, not_accepted
from flowql.compiler.functions.values import is_ordered, less
from flowql.compiler.plan.types import BIGINT, STRING, Kind, SqlType, array, map_of, struct

DEFAULT_LIMIT = 1000
# Session properties that set the limit; the analyzer passes their value as the init value of the call.
LIMIT_PROPERTIES = {
    "COLLECT_LIST": "ksql.functions.collect_list.limit",
    "COLLECT_SET": "ksql.functions.collect_set.limit",
    "HISTOGRAM": "ksql.functions.histogram.limit",
}
_UNLIMITED = 2**31


def _limit(init: Init) -> int:
    limit = DEFAULT_LIMIT if not init else int(init[0])
    return limit if limit >= 0 else _UNLIMITED


def _one_argument(name: str, result: Callable[[SqlType], SqlType]) -> Callable[[tuple[SqlType, ...], Init], Resolution]:
    def resolve(types: tuple[SqlType, ...], _init: Init) -> Resolution:
        if len(types) != 1:
            raise not_accepted(name, types)
        return Resolution(types, result(types[0]))

    return resolve


def _as_list(_r: Resolution, _init: Init) -> Callable[[Any], Any]:
    return list


def _has(items: tuple[Any, ...], v: Any) -> bool:
    return any(not distinct(x, v) for x in items)


def _append(_r: Resolution, init: Init) -> Add:
    limit = _limit(init)
    return lambda acc, v: (*acc, v) if len(acc) < limit else acc


def _without_last(acc: tuple[Any, ...], v: Any) -> tuple[Any, ...]:
    at = next((i for i in range(len(acc) - 1, -1, -1) if not distinct(acc[i], v)), None)
    return acc if at is None else (*acc[:at], *acc[at + 1 :])


def _append_new(_r: Resolution, init: Init) -> Add:
    limit = _limit(init)
    return lambda acc, v: with_value(acc, v, limit, _equal)


def _equal(a: Any, b: Any) -> bool:
    return not distinct(a, b)


def _merging(adding: Callable[[Resolution, Init], Add]) -> Callable[[Resolution, Init], Callable[[Any, Any], Any]]:
    """Adds the values of the second accumulator to the first one."""

    def make(r: Resolution, init: Init) -> Callable[[Any, Any], Any]:
        add = adding(r, init)
        return lambda a, b: reduce(add, b, a)

    return make


_merge_new = _merging(_append_new)


define_aggregate(
    "COLLECT_LIST",
    _one_argument("COLLECT_LIST", array),
    initial=lambda _r, _i: (),
    add=_append,
    undo=lambda _r, _i: _without_last,
    merge=lambda _r, init: lambda a, b: tuple([*a, *b][: _limit(init)]),
    result=_as_list,
    takes_null=True,
)
define_aggregate(
    "COLLECT_SET",
    _one_argument("COLLECT_SET", array),
    initial=lambda _r, _i: (),
    add=_append_new,
    merge=_merge_new,
    result=_as_list,
    takes_null=True,
)
define_aggregate(
    "COUNT_DISTINCT",
    _one_argument("COUNT_DISTINCT", lambda _t: BIGINT),
    initial=lambda _r, _i: (),
    add=lambda _r, _i: lambda acc, v: acc if v is None else with_value(acc, v, _UNLIMITED, _equal),
    merge=lambda r, _i: _merge_new(r, (-1,)),
    result=lambda _r, _i: len,
)


def _histogram_types(types: tuple[SqlType, ...], _init: Init) -> Resolution:
    if len(types) != 1 or types[0].kind is not Kind.STRING:
        raise not_accepted("HISTOGRAM", types, "cast the argument to STRING")
    return Resolution(types, map_of(STRING, BIGINT))


def _tally(sign: int) -> Callable[[Resolution, Init], Add]:
    def make(_r: Resolution, init: Init) -> Add:
        limit = _limit(init)

        def run(acc: dict[str, int], v: str | None, n: int = 1) -> dict[str, int]:
            if v is None or (v not in acc and (sign < 0 or len(acc) >= limit)):
                return acc
            count = acc.get(v, 0) + sign * n
            return {**acc, v: count} if count > 0 else {k: c for k, c in acc.items() if k != v}

        return run

    return make


def _merge_tallies(r: Resolution, init: Init) -> Callable[[Any, Any], Any]:
    add = _tally(1)(r, init)

    def run(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        for k, n in b.items():
            a = add(a, k, n)
        return a

    return run


define_aggregate(
    "HISTOGRAM",
    _histogram_types,
    initial=lambda _r, _i: {},
    add=_tally(1),
    undo=_tally(-1),
    merge=_merge_tallies,
    result=lambda _r, _i: dict,
)


def _count_value(acc: tuple[Any, ...], v: Any, n: int) -> tuple[Any, ...]:
    at = next((i for i, (x, _) in enumerate(acc) if not distinct(x, v)), None)
    if at is None:
        return (*acc, (v, n)) if n > 0 else acc
    count = acc[at][1] + n
    return (*acc[:at], *(((v, count),) if count > 0 else ()), *acc[at + 1 :])


def _merge_counts(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    for v, n in b:
        a = _count_value(a, v, n)
    return a


define_aggregate(
    "ATTR",
    _one_argument("ATTR", lambda t: t),
    initial=lambda _r, _i: (),
    add=lambda _r, _i: lambda acc, v: _count_value(acc, v, 1),
    undo=lambda _r, _i: lambda acc, v: _count_value(acc, v, -1),
    merge=lambda _r, _i: _merge_counts,
    result=lambda _r, _i: lambda acc: acc[0][0] if len(acc) == 1 else None,
    takes_null=True,
)

_SORT_FIELD = "sort_col"


def _k(init: Init, name: str) -> int:
    if len(init) != 1 or not isinstance(init[0], int) or isinstance(init[0], bool) or init[0] < 1:
        raise FunctionTypeError(f"Function '{name}' needs a positive whole number as its last argument")
    return init[0]


def _topk_types(types: tuple[SqlType, ...], init: Init) -> Resolution:
    _k(init, "TOPK")
    if not types or not is_ordered(types[0]):
        raise not_accepted("TOPK", types, "TOPK takes an ordered value, other columns, and a number")
    if len(types) == 1:
        return Resolution(types, array(types[0]))
    columns = ((f"col{i}", t) for i, t in enumerate(types[1:]))
    return Resolution(types, array(struct((_SORT_FIELD, types[0]), *columns)))


def _insert(acc: tuple[Any, ...], item: Any, k: int, key: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Into a descending tuple, behind its equals, cut to k."""
    at = next((i for i, x in enumerate(acc) if less(key(x), key(item))), len(acc))
    return (*acc[:at], item, *acc[at:])[:k] if at < k else acc


def _first(item: Any) -> Any:
    return item[0]


def _plain(item: Any) -> Any:
    return item


def _topk_add(_r: Resolution, init: Init) -> Add:
    k = _k(init, "TOPK")
    return lambda acc, *row: acc if row[0] is None else _insert(acc, row, k, _first)


def _topk_merge(_r: Resolution, init: Init) -> Callable[[Any, Any], Any]:
    k = _k(init, "TOPK")
    return lambda a, b: reduce(lambda rows, row: _insert(rows, row, k, _first), b, a)


def _topk_result(r: Resolution, _init: Init) -> Callable[[Any], Any]:
    if len(r.args) == 1:
        return lambda acc: [row[0] for row in acc]
    names = [n for n, _ in r.result.element.fields]
    return lambda acc: [dict(zip(names, row, strict=True)) for row in acc]


define_aggregate(
    "TOPK",
    _topk_types,
    initial=lambda _r, _i: (),
    add=_topk_add,
    merge=_topk_merge,
    result=_topk_result,
    constants=lambda n: min(1, n),
)


def _topk_distinct_add(_r: Resolution, init: Init) -> Add:
    k = _k(init, "TOPKDISTINCT")
    return lambda acc, v: acc if v is None or _has(acc, v) else _insert(acc, v, k, _plain)


def _topk_distinct_types(types: tuple[SqlType, ...], init: Init) -> Resolution:
    _k(init, "TOPKDISTINCT")
    one = ordered_types("TOPKDISTINCT")(types, ())
    return Resolution(one.args, array(one.result))


define_aggregate(
    "TOPKDISTINCT",
    _topk_distinct_types,
    initial=lambda _r, _i: (),
    add=_topk_distinct_add,
    merge=_merging(_topk_distinct_add),
    result=_as_list,
    constants=lambda n: min(1, n),
)
