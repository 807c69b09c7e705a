"""Functions of arrays and maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from flowql.compiler.functions.bounds import PART_MAX, check_elements
from flowql.compiler.functions.registry import Lowering, Reference, named, scalar, takes
from flowql.compiler.functions.signatures import ArrayOf, K, MapOf, Resolution, T, V, Var
from flowql.compiler.functions.spark_text import is_plain, is_text, null_where
from flowql.compiler.functions.strings import joined
from flowql.compiler.functions.values import identity, map_key, same, sort_key, text_of
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, STRING, Kind, SqlType, array, spark_type, struct

_LIST = ArrayOf(T)
_CONTAINERS = frozenset({Kind.ARRAY, Kind.MAP, Kind.STRUCT, Kind.NULL, Kind.LAMBDA})
_SORTABLE = ArrayOf(Var("T", frozenset(Kind) - _CONTAINERS))


def distinct(items: Iterable[Any]) -> list[Any]:
    """The first of each value, in order."""
    seen: dict[Any, Any] = {}
    for v in items:
        seen.setdefault(identity(v), v)
    return list(seen.values())


def _except(items: list[Any], excluded: list[Any]) -> list[Any]:
    gone = {identity(v) for v in excluded}
    return [v for v in distinct(items) if identity(v) not in gone]


def _intersect(items: list[Any], others: list[Any]) -> list[Any]:
    kept = {identity(v) for v in others}
    return [v for v in distinct(items) if identity(v) in kept]


def _concat(a: list[Any] | None, b: list[Any] | None) -> list[Any] | None:
    return None if a is None and b is None else [*(a or ()), *(b or ())]


def _contains(items: list[Any] | None, wanted: Any) -> bool:
    if items is None:
        return False
    return any(v is wanted if v is None or wanted is None else same(v, wanted) for v in items)


def _remove(items: list[Any] | None, unwanted: Any) -> list[Any] | None:
    return None if items is None else [v for v in items if not _contains([v], unwanted)]


def _extreme(pick: Callable[..., Any]) -> Reference:
    def run(items: list[Any]) -> Any:
        known = [v for v in items if v is not None]
        return pick(known, key=sort_key) if known else None

    return run


def sort(items: list[Any], direction: str = "ASC") -> list[Any] | None:
    """Ascending or descending, NULLs last; NULL for another direction."""
    word = direction[:11].upper()  # one more than the longest: a long string would take long
    if word not in ("ASC", "ASCENDING", "DESC", "DESCENDING"):
        return None
    known = sorted((v for v in items if v is not None), key=sort_key, reverse=word.startswith("DESC"))
    return known + [None] * (len(items) - len(known))


def _join(r: Resolution) -> Reference:
    text = text_of(r.args[0].element)

    def run(items: list[Any] | None, delimiter: str | None = ",") -> str | None:
        if items is None:
            return None
        return str(joined(delimiter or "", ["null" if v is None else text(v) for v in items]))

    return run


def slice_(items: list[Any] | None, first: int | None, last: int | None) -> list[Any] | None:
    """Elements from `first` to `last`, both counted from 1 and included; NULL when they are not there."""
    if items is None:
        return None
    start, end = (0 if first is None else first - 1), (len(items) if last is None else last)
    return items[start:end] if 0 <= start <= end <= len(items) else None


def series(first: int, last: int, step: int | None = None) -> list[int]:
    """From first to last, downwards when last is below. Raises ValueError for a step of the wrong sign."""
    step = (1 if last >= first else -1) if step is None else step
    if step == 0 or ((last > first) == (step < 0) and last != first):
        raise ValueError(f"GENERATE_SERIES cannot go from {first} to {last} in steps of {step}")
    numbers = range(first, last + (1 if step > 0 else -1), step)
    check_elements(1 + (numbers.stop - numbers.start) // numbers.step)  # `len` of a range is limited
    found: list[int] = []
    for at in range(0, len(numbers), PART_MAX):
        found.extend(numbers[at : at + PART_MAX])
    return found


def _map_union(a: dict[Any, Any] | None, b: dict[Any, Any] | None) -> dict[Any, Any] | None:
    return None if a is None and b is None else {**(a or {}), **(b or {})}


def _as_map(r: Resolution) -> Reference:
    key = map_key(r.result)
    return lambda keys, values: dict(zip(map(key, keys), values, strict=False))


def _entry_type(args: tuple[SqlType, ...]) -> SqlType:
    return array(struct(("K", args[0].args[0]), ("V", args[0].args[1])))


def _entries(m: dict[Any, Any], ordered: bool) -> list[dict[str, Any]]:
    return [{"K": k, "V": m[k]} for k in (sorted(m) if ordered else m)]


def _of_plain(sql: Callable[[Sequence[str]], str]) -> Lowering:
    """A Spark lowering for arrays of plain elements."""
    return lambda a, r: sql(a) if is_plain(r.args[0].element) else ""


def _contains_on_spark(a: Sequence[str]) -> str:
    return f"coalesce(exists({a[0]}, x__ -> x__ <=> {a[1]}), FALSE)"


def _concat_on_spark(args: Sequence[str], r: Resolution) -> str:
    empty = f"CAST(array() AS {spark_type(r.result)})"
    both = f"concat(coalesce({args[0]}, {empty}), coalesce({args[1]}, {empty}))"
    return null_where(f"{args[0]} IS NULL AND {args[1]} IS NULL", both)


def _sorted_on_spark(args: Sequence[str]) -> str:
    if len(args) == 1:
        return f"array_sort({args[0]})"
    if not is_text(args[1]):
        return ""
    word = args[1].strip("'").upper()
    if word in ("ASC", "ASCENDING"):
        return f"array_sort({args[0]})"
    return f"sort_array({args[0]}, FALSE)" if word in ("DESC", "DESCENDING") else ""


_WRITTEN = frozenset({Kind.STRING, Kind.INT, Kind.BIGINT, Kind.BOOLEAN})


def _join_on_spark(args: Sequence[str], r: Resolution) -> str:
    if r.args[0].element.kind not in _WRITTEN:
        return ""
    items = args[0] if r.args[0].element.kind is Kind.STRING else f"CAST({args[0]} AS ARRAY<STRING>)"
    delimiter = f"coalesce({args[1]}, '')" if len(args) > 1 else "','"
    return f"array_join({items}, {delimiter}, 'null')"


def _slice_on_spark(args: Sequence[str], _r: Resolution) -> str:
    items, first, last = args
    start = f"(coalesce(CAST({first} AS BIGINT), 1L) - 1L)"
    end = f"coalesce(CAST({last} AS BIGINT), CAST(array_size({items}) AS BIGINT))"
    there = f"{start} >= 0 AND {start} <= {end} AND {end} <= array_size({items})"
    return f"(CASE WHEN {there} THEN slice({items}, CAST({start} + 1L AS INT), CAST({end} - {start} AS INT)) END)"


def _entries_on_spark(args: Sequence[str], r: Resolution) -> str:
    """The flag must be constant. Keys are all different, so entries sort by key alone, if their values can be sorted at all."""
    made = "e__ -> named_struct('K', e__.key, 'V', e__.value)"
    if args[1] == "TRUE":
        if r.args[0].args[1].kind is Kind.MAP:
            return ""
        return f"transform(array_sort(map_entries({args[0]})), {made})"
    return f"transform(map_entries({args[0]}), {made})" if args[1] == "FALSE" else ""


scalar(
    "ARRAY_LENGTH",
    takes(_LIST, gives=INT),
    by=len,
    aliases=("CARDINALITY",),
    duckdb=lambda a, _r: f"CAST(len({a[0]}) AS INTEGER)",
    spark=lambda a, _r: f"array_size({a[0]})",
)
scalar(
    "ARRAY_CONTAINS",
    takes(_LIST, T, gives=BOOLEAN),
    by=_contains,
    null_propagating=False,
    spark=_of_plain(_contains_on_spark),
)
scalar(
    "ARRAY_CONCAT",
    takes(_LIST, _LIST, gives=_LIST),
    by=_concat,
    null_propagating=False,
    spark=_concat_on_spark,
)
scalar(
    "ARRAY_DISTINCT",
    takes(_LIST, gives=_LIST),
    by=distinct,
    spark=_of_plain(lambda a: f"array_distinct({a[0]})"),
)
scalar(
    "ARRAY_EXCEPT",
    takes(_LIST, _LIST, gives=_LIST),
    by=_except,
    spark=_of_plain(lambda a: f"array_except({a[0]}, {a[1]})"),
)
scalar(
    "ARRAY_INTERSECT",
    takes(_LIST, _LIST, gives=_LIST),
    by=_intersect,
    spark=_of_plain(lambda a: f"array_intersect({a[0]}, {a[1]})"),
)
scalar(
    "ARRAY_UNION",
    takes(_LIST, _LIST, gives=_LIST),
    by=lambda a, b: distinct([*a, *b]),
    spark=_of_plain(lambda a: f"array_union({a[0]}, {a[1]})"),
)
scalar(
    "ARRAY_REMOVE",
    takes(_LIST, T, gives=_LIST),
    by=_remove,
    null_propagating=False,
    spark=_of_plain(lambda a: f"filter({a[0]}, x__ -> NOT (x__ <=> {a[1]}))"),
)
scalar(
    "ARRAY_MAX",
    takes(_SORTABLE, gives=T),
    by=_extreme(max),
    spark=_of_plain(lambda a: f"array_max({a[0]})"),
)
scalar(
    "ARRAY_MIN",
    takes(_SORTABLE, gives=T),
    by=_extreme(min),
    spark=_of_plain(lambda a: f"array_min({a[0]})"),
)
scalar(
    "ARRAY_SORT",
    takes(_SORTABLE, STRING, gives=_LIST, needs=1),
    by=sort,
    spark=_of_plain(_sorted_on_spark),
)
scalar(
    "ARRAY_JOIN",
    takes(_LIST, STRING, gives=STRING, needs=1),
    by_types=_join,
    null_propagating=False,
    spark=_join_on_spark,
)
scalar(
    "SLICE",
    takes(_LIST, INT, INT, gives=_LIST),
    by=slice_,
    null_propagating=False,
    spark=_slice_on_spark,
)
scalar(
    "GENERATE_SERIES",
    takes(INT, INT, INT, gives=array(INT), needs=2),
    takes(BIGINT, BIGINT, INT, gives=array(BIGINT), needs=2),
    by=series,
    aliases=("SERIES",),
)
scalar("AS_MAP", takes(ArrayOf(K), ArrayOf(V), gives=MapOf(K, V)), by_types=_as_map)
scalar("MAP_KEYS", takes(MapOf(K, V), gives=ArrayOf(K)), by=list, spark=named("map_keys"))
scalar(
    "MAP_VALUES",
    takes(MapOf(K, V), gives=ArrayOf(V)),
    by=lambda m: list(m.values()),
    spark=named("map_values"),
)
scalar(
    "MAP_UNION",
    takes(MapOf(K, V), MapOf(K, V), gives=MapOf(K, V)),
    by=_map_union,
    null_propagating=False,
)
scalar(
    "ENTRIES",
    takes(MapOf(STRING, V), BOOLEAN, gives=_entry_type),
    by=_entries,
    spark=_entries_on_spark,
)


# --- table functions: one row in, a list of values out, one output row each; NULL gives no row ---


def cube(columns: list[Any]) -> list[list[Any]]:
    """Every combination of keeping and blanking the columns; a NULL column has only one form."""
    kept = len(columns) - columns.count(None)
    check_elements((len(columns) + 1) << min(kept, 64))
    forms = [[None] if v is None else [None, v] for v in columns]
    return [list(row) for row in product(*forms)]


scalar("EXPLODE", takes(ArrayOf(T), gives=T), by=list, table=True)
scalar("CUBE_EXPLODE", takes(ArrayOf(T), gives=ArrayOf(T)), by=cube, table=True)
