"""Spark lowerings of constructors and of functions of arrays and maps.

Elements of type DOUBLE stay with the reference where equality counts: Spark tells 0.0 from -0.0 in some of its functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flowql.compiler.functions.registry import Lowering, lower_on_spark
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_text import is_text, null_where, text
from flowql.compiler.plan.types import Kind, SqlType, spark_type

_NESTED = frozenset({Kind.ARRAY, Kind.MAP, Kind.STRUCT, Kind.NULL})
_INDEX_MAX = 2**31 - 1


def _plain(t: SqlType) -> bool:
    """Values that Spark's collection functions equate and order as the reference does."""
    return t.kind not in _NESTED and t.kind is not Kind.DOUBLE


def _of_plain(sql: Callable[[Sequence[str]], str]) -> Lowering:
    """For arrays of plain elements."""
    return lambda a, r: sql(a) if _plain(r.args[0].element) else ""


def _struct(args: Sequence[str], r: Resolution) -> str:
    fields = zip(r.result.fields, args, strict=True)
    return "named_struct(" + ", ".join(f"{text(n)}, CAST({a} AS {spark_type(t)})" for (n, t), a in fields) + ")"


def _array(args: Sequence[str], r: Resolution) -> str:
    element = spark_type(r.result.element)
    return f"array({', '.join(f'CAST({a} AS {element})' for a in args)})"


def _subscript(args: Sequence[str], r: Resolution) -> str:
    base, index = args
    if r.args[0].kind is Kind.MAP:
        return f"({base})[{index}]" if _plain(r.args[0].args[0]) else ""
    at = f"CAST({index} AS INT)"
    inside = f"{index} BETWEEN -{_INDEX_MAX} AND {_INDEX_MAX}"
    forward = f"WHEN {inside} AND {index} > 0 THEN get({base}, {at} - 1)"
    return f"(CASE {forward} WHEN {inside} AND {index} < 0 THEN get({base}, array_size({base}) + {at}) END)"


def _contains(a: Sequence[str]) -> str:
    return f"coalesce(exists({a[0]}, x__ -> x__ <=> {a[1]}), FALSE)"


def _concat(args: Sequence[str], r: Resolution) -> str:
    empty = f"CAST(array() AS {spark_type(r.result)})"
    both = f"concat(coalesce({args[0]}, {empty}), coalesce({args[1]}, {empty}))"
    return null_where(f"{args[0]} IS NULL AND {args[1]} IS NULL", both)


def _sorted(args: Sequence[str]) -> str:
    if len(args) == 1:
        return f"array_sort({args[0]})"
    if not is_text(args[1]):
        return ""
    word = args[1].strip("'").upper()
    if word in ("ASC", "ASCENDING"):
        return f"array_sort({args[0]})"
    return f"sort_array({args[0]}, FALSE)" if word in ("DESC", "DESCENDING") else ""


_WRITTEN = frozenset({Kind.STRING, Kind.INT, Kind.BIGINT, Kind.BOOLEAN})


def _join(args: Sequence[str], r: Resolution) -> str:
    if r.args[0].element.kind not in _WRITTEN:
        return ""
    items = args[0] if r.args[0].element.kind is Kind.STRING else f"CAST({args[0]} AS ARRAY<STRING>)"
    delimiter = f"coalesce({args[1]}, '')" if len(args) > 1 else "','"
    return f"array_join({items}, {delimiter}, 'null')"


def _slice(args: Sequence[str], _r: Resolution) -> str:
    items, first, last = args
    start = f"(coalesce(CAST({first} AS BIGINT), 1L) - 1L)"
    end = f"coalesce(CAST({last} AS BIGINT), CAST(array_size({items}) AS BIGINT))"
    there = f"{start} >= 0 AND {start} <= {end} AND {end} <= array_size({items})"
    return f"(CASE WHEN {there} THEN slice({items}, CAST({start} + 1L AS INT), CAST({end} - {start} AS INT)) END)"


def _entries(args: Sequence[str], r: Resolution) -> str:
    """The flag must be constant. Keys are all different, so entries sort by key alone, if their values can be sorted at all."""
    made = "e__ -> named_struct('K', e__.key, 'V', e__.value)"
    if args[1] == "TRUE":
        if r.args[0].args[1].kind is Kind.MAP:
            return ""
        return f"transform(array_sort(map_entries({args[0]})), {made})"
    return f"transform(map_entries({args[0]}), {made})" if args[1] == "FALSE" else ""


lower_on_spark("array", _array)
lower_on_spark("struct", _struct)
lower_on_spark("subscript", _subscript)
lower_on_spark("ARRAY_LENGTH CARDINALITY", lambda a, _r: f"array_size({a[0]})")
lower_on_spark("ARRAY_CONTAINS", _of_plain(_contains))
lower_on_spark("ARRAY_CONCAT", _concat)
lower_on_spark("ARRAY_DISTINCT", _of_plain(lambda a: f"array_distinct({a[0]})"))
lower_on_spark("ARRAY_EXCEPT", _of_plain(lambda a: f"array_except({a[0]}, {a[1]})"))
lower_on_spark("ARRAY_INTERSECT", _of_plain(lambda a: f"array_intersect({a[0]}, {a[1]})"))
lower_on_spark("ARRAY_UNION", _of_plain(lambda a: f"array_union({a[0]}, {a[1]})"))
lower_on_spark("ARRAY_REMOVE", _of_plain(lambda a: f"filter({a[0]}, x__ -> NOT (x__ <=> {a[1]}))"))
lower_on_spark("ARRAY_MAX", _of_plain(lambda a: f"array_max({a[0]})"))
lower_on_spark("ARRAY_MIN", _of_plain(lambda a: f"array_min({a[0]})"))
lower_on_spark("ARRAY_SORT", _of_plain(_sorted))
lower_on_spark("ARRAY_JOIN", _join)
lower_on_spark("SLICE", _slice)
lower_on_spark("MAP_KEYS", lambda a, _r: f"map_keys({a[0]})")
lower_on_spark("MAP_VALUES", lambda a, _r: f"map_values({a[0]})")
lower_on_spark("ENTRIES", _entries)
