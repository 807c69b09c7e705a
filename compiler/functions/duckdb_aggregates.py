"""Aggregates over rows that are all there, as DuckDB's SQL, where that gives exactly what `change_aggregates` does.

Sums are computed as whole numbers and finished once for each group. Sums of doubles are exact, so the order of rows does not show. DuckDB fails
where a value leaves its range; then the reference decides what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from flowql.compiler.functions.change_aggregates import Linear, aggregate
from flowql.compiler.functions.duckdb_text import quoted_text
from flowql.compiler.functions.exact_sums import ratio
from flowql.compiler.functions.registry import ArrowCall, register_columns
from flowql.compiler.plan.types import (
    BIGINT,
    DOUBLE,
    Kind,
    SqlType,
    arrow_type,
    decimal,
    duckdb_type,
)

DECLINED = "flowql: not computed here"  # the error of a row that DuckDB is not to compute
_PLACES = 100  # binary
_WHOLE = (Kind.INT, Kind.BIGINT)
_SQUARES = {"VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV_POP", "STDDEV_SAMP", "STDDEV"}
# Types whose order in DuckDB is that of views.
_ORDERED = (Kind.BOOLEAN, *_WHOLE, Kind.DECIMAL, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS, Kind.STRING)
_SUM_DIGITS = decimal(38, 0)
Over = Callable[[str], str]  # an aggregate of DuckDB -> with FILTER and OVER


def lowered(
    function: str,
    args: Sequence[str],
    types: Sequence[SqlType],
    result: SqlType,
    init: Sequence[object],
    over: Over,
    *,
    distinct: bool = False,
    order: str = "",
    windowed: bool = False,
) -> str | None:
    """The SQL of an aggregate of exactly the DuckDB type of `result`; None where it has none. order: of the rows, as ORDER BY lists it."""
    of = "DISTINCT " if distinct else ""
    if function == "COUNT":
        return over(f"count({of}{args[0]})") if len(args) == 1 else over("count(*)") if not args else None
    if not args or (distinct and types[0].kind is Kind.DOUBLE):
        return None
    kind, to = types[0].kind, duckdb_type(result)
    if function in ("SUM", "AVG") and types[0].is_numeric:
        return _sum(function, of, args[0], types[0], result, over)
    if function in _SQUARES and (kind in _WHOLE or kind is Kind.DECIMAL):
        return _squares(function, of, args[0], types[0], result, over)
    if function in ("MIN", "MAX") and _is_ordered(types[0]):
        return f"CAST({over(f'{function.lower()}({args[0]})')} AS {to})"
    if function in ("MIN", "MAX") and kind is Kind.DOUBLE:
        return _extreme_double(function.lower(), args[0], over)
    if function in ("BOOL_AND", "BOOL_OR", "EVERY") and kind is Kind.BOOLEAN:
        return over(f"{'bool_or' if function == 'BOOL_OR' else 'bool_and'}({args[0]})")
    if windowed or not _is_ordered(types[0]):
        return None
    if function == "ANY_VALUE":
        return f"CAST({over(f'min({args[0]})')} AS {to})"
    if function in ("FIRST_VALUE", "LAST_VALUE"):
        return over(f"{function.lower()[:-6]}({args[0]} ORDER BY {order})")
    if function == "ARRAY_AGG":
        return over(f"list({of}{args[0]} ORDER BY {order})")
    if function == "STRING_AGG" and len(args) == 1 and init and "\0" not in str(init[0]):
        return over(f"string_agg({of}{args[0]}, {quoted_text(str(init[0]))} ORDER BY {order})")
    return None


def _is_ordered(t: SqlType) -> bool:
    return t.kind in _ORDERED and not t.form


def _sum(function: str, of: str, arg: str, t: SqlType, result: SqlType, over: Over) -> str:
    if t.kind is Kind.DOUBLE:
        return _sum_of_doubles(function, of, arg, over)
    if function == "SUM" and result.kind in (*_WHOLE, Kind.DECIMAL) and result.scale == t.scale:
        return f"CAST({over(f'sum({of}{arg})')} AS {duckdb_type(result)})"
    whole = _whole(arg, t)
    return f'"{_finish(function, t, result)}"({over(f"count({of}{arg})")}, {_digits(over(f"sum({of}{whole})"))})'


def _extreme_double(function: str, arg: str, over: Over) -> str:
    """Declines groups whose extreme is a zero and that have both zeros: the first row of them decides."""
    found = over(f"{function}({arg})")
    zeros = [over(f"bool_or({arg} = 0 AND {sign}signbit({arg}))") for sign in ("", "NOT ")]
    return f"(CASE WHEN {found} = 0 AND {' AND '.join(zeros)} THEN error('{DECLINED}') ELSE {found} END)"


def _squares(function: str, of: str, arg: str, t: SqlType, result: SqlType, over: Over) -> str:
    whole = _whole(arg, t)
    sums = [_digits(over(f"sum({of}{x})")) for x in (whole, f"{whole} * {whole}")]
    return f'"{_finish(function, t, result)}"({over(f"count({of}{arg})")}, {", ".join(sums)})'


def _whole(arg: str, t: SqlType) -> str:
    """A number of exact type without its point."""
    return (
        f"CAST({arg} * 1{'0' * t.scale} AS HUGEINT)"
        if t.kind is Kind.DECIMAL and t.scale
        else f"CAST({arg} AS HUGEINT)"
    )


def _digits(sum_: str) -> str:
    return f"CAST({sum_} AS DECIMAL(38, 0))"


def _sum_of_doubles(function: str, of: str, arg: str, over: Over) -> str:
    """Exact, by the whole parts and the fractions as whole numbers of 2**-100; declines rows of which one has more digits, and what is not finite."""
    whole = f"trunc({arg})"
    fraction = f"(({arg} - {whole}) * {float(2**_PLACES)!r})"
    odd = f"NOT isfinite({arg}) OR abs({arg}) >= {float(2**_PLACES)!r} OR {fraction} <> trunc({fraction})"
    parts = [
        _digits(over(f"sum({of}CASE WHEN {odd} THEN error('{DECLINED}') ELSE CAST({part} AS HUGEINT) END)"))
        for part in (whole, fraction)
    ]
    name = f"{function}@DOUBLES"
    mean = function == "AVG"

    def call(columns: Sequence[pa.Array]) -> pa.Array:
        made = []
        for n, m, f in zip(*(c.to_pylist() for c in columns), strict=True):
            made.append(ratio((int(m) << _PLACES) + int(f), -_PLACES, n if mean else 1) if n else None)
        return pa.array(made, arrow_type(DOUBLE))

    register_columns(name, ArrowCall((BIGINT, _SUM_DIGITS, _SUM_DIGITS), DOUBLE, call))
    return f'"{name}"({over(f"count({of}{arg})")}, {", ".join(parts)})'


def _finish(function: str, t: SqlType, result: SqlType) -> str:
    """The name of the function of a group's number of values, their sum and, of some, the sum of their squares."""
    name = f"{function}@{t} {result}".upper().replace(" ", "_").replace("(", "_").replace(")", "_").replace(",", "")
    found = aggregate(function, (t,), result)
    assert isinstance(found, Linear)
    accumulator: Callable[..., object] = _with_squares if function in _SQUARES else lambda n, s: (n, s)
    sums = 2 if function in _SQUARES else 1

    def call(columns: Sequence[pa.Array]) -> pa.Array:
        made = []
        for n, *values in zip(*(c.to_pylist() for c in columns), strict=True):
            made.append(found.result(accumulator(n, *map(int, values)) if n else found.zero))
        return pa.array(made, arrow_type(result))

    register_columns(name, ArrowCall((BIGINT, *[_SUM_DIGITS] * sums), result, call))
    return name


def _with_squares(n: int, s: int, squares: int) -> tuple[int, ...]:
    return n, s, 0, squares, 0, 0
