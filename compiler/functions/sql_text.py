"""The operator `||` of standard SQL: NULL where a side is NULL (CONCAT leaves NULLs out)."""

from __future__ import annotations

from flowql.compiler.functions.registry import define, same_for_all
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.types import BYTES, STRING, Kind, SqlType

# Types that become text beside a text. Doubles and times need a CAST: their texts differ between the dialects.
_ADAPTS = frozenset({Kind.STRING, Kind.NULL, Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.BOOLEAN})


def _resolve(types: tuple[SqlType, ...]) -> Resolution:
    kinds = {t.kind for t in types}
    if Kind.BYTES in kinds and kinds <= {Kind.BYTES, Kind.NULL}:
        return Resolution((BYTES, BYTES), BYTES)
    texts = Kind.STRING in kinds or kinds == {Kind.NULL}
    if len(types) == 2 and texts and kinds <= _ADAPTS:
        return Resolution((STRING, STRING), STRING)
    raise FunctionTypeError(
        f"|| joins strings, not ({', '.join(map(str, types))})", "cast to a string: CAST(x AS VARCHAR)"
    )


define(
    "sql_concat",
    _resolve,
    same_for_all(lambda a, b: a + b),
    duckdb=lambda a, r: f"({a[0]} || {a[1]})" if r.result.kind is Kind.STRING else "",
    spark=lambda a, r: f"concat({a[0]}, {a[1]})" if r.result.kind is Kind.STRING else "",
)
