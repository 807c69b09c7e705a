r"""Casts that mean something else in standard SQL than in ksqlDB: numbers are rounded and checked, truth values read exactly, texts PostgreSQL's.

| from | to | here | ksqlDB |
|---|---|---|---|
| DECIMAL, DOUBLE | INT, BIGINT | rounded; an error out of range | cut, wrapped or clamped |
| numbers, STRING | REAL | a DOUBLE, rounded once to single precision; an error out of range | no rounding |
| DOUBLE | DECIMAL | of 15 significant digits, then rounded | of the shortest digits that give the value again |
| BIGINT | INT | an error out of range | wrapped |
| STRING | BOOLEAN | an error for what is neither true nor false | false |
| STRING | DATE, TIMESTAMP | all of year, month and day; an offset is not read; an error for a part of a millisecond | any beginning; cut |
| STRING | TIME, DOUBLE | `infinity` and `nan` in any case; an error for a part of a millisecond | `1.5f`; cut |
| STRING | ARRAY | `{1,NULL}` | no cast |
| STRING, BYTES | BYTES, STRING | `\\x1f`, octal escapes | no cast |
| BOOLEAN, INT | INT, BOOLEAN | 1 is true | no cast |
| STRING | TIMESTAMP | a blank or a T before the time of day | a T |
| TIMESTAMP, DOUBLE | STRING | `2024-05-01 12:00:00`, `1e+20`, `2` | `2024-05-01T12:00:00.000`, `1.0E20`, `2.0` |
| TIME, ARRAY, STRUCT | STRING | `08:00:00`, `{1,NULL}`, `(1,a)` | `08:00`, `[1, null]`, `{A=1}` |
| ARRAY, MAP, STRUCT | the same kind | element by element, as in this table | element by element, as there |

All other casts are `cast` in both dialects.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

from flowql.compiler.functions.casts import Cast, can_cast, parse_decimal
from flowql.compiler.functions.numeric import WIDE, NumericOverflow, fit_decimal
from flowql.compiler.functions.registry import Reference, define, lookup
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.spark_text import null_where
from flowql.compiler.functions.sql_arithmetic import RANGES
from flowql.compiler.plan.expr import Call, Expr
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    Kind,
    SqlType,
    decimal,
    duckdb_type,
    spark_type,
)

# Target -> (function, kinds it takes).
_FUNCTIONS: dict[Kind, tuple[str, frozenset[Kind]]] = {
    Kind.INT: ("sql_to_int", frozenset({Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE, Kind.BOOLEAN})),
    Kind.BIGINT: ("sql_to_bigint", frozenset({Kind.DECIMAL, Kind.DOUBLE})),
    Kind.DECIMAL: ("sql_to_decimal", frozenset({Kind.DOUBLE})),
    Kind.BOOLEAN: ("sql_to_boolean", frozenset({Kind.STRING, Kind.INT})),
    Kind.TIMESTAMP: ("sql_to_timestamp", frozenset({Kind.STRING})),
    Kind.MICROS: ("sql_to_micros", frozenset({Kind.STRING})),
    Kind.DATE: ("sql_to_date", frozenset({Kind.STRING})),
    Kind.TIME: ("sql_to_time", frozenset({Kind.STRING})),
    Kind.DOUBLE: ("sql_to_double", frozenset({Kind.STRING})),
    Kind.BYTES: ("sql_to_bytes", frozenset({Kind.STRING})),
    Kind.ARRAY: ("sql_to_array", frozenset({Kind.STRING})),
    Kind.STRING: (
        "sql_to_text",
        frozenset(
            {Kind.TIMESTAMP, Kind.MICROS, Kind.DOUBLE, Kind.TIME, Kind.BYTES, Kind.INTERVAL, Kind.ARRAY, Kind.STRUCT}
        ),
    ),
}
_NESTED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)
# PostgreSQL takes every unambiguous beginning of these words.
TRUE = ("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1")
FALSE = ("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0")


def sql_cast(source: SqlType, target: SqlType) -> str:
    """The function that casts in standard SQL; "" where `cast` means the same."""
    if source.form or target.form:
        return ""
    if source.kind is target.kind and source.kind in _NESTED:
        pairs = [(sql_cast(*pair), pair) for pair in _inner(source, target)]
        return "sql_to_nested" if any(n for n, _ in pairs) and all(n or can_cast(*pair) for n, pair in pairs) else ""
    name, kinds = _FUNCTIONS.get(target.kind, ("", frozenset()))
    if target.zoned:
        name += "tz"
    return name if source.kind in kinds else ""


def _inner(source: SqlType, target: SqlType) -> list[tuple[SqlType, SqlType]]:
    """The types that are cast inside values: of elements, keys, fields of one name."""
    fields = [(t, target.field(n) or t) for n, t in source.fields]
    return [*zip(source.args, target.args, strict=True), *fields]


def cast_resolver(result: SqlType) -> Callable[[tuple[SqlType, ...]], Resolution]:
    """How a cast to a type binds."""
    kinds = _FUNCTIONS[result.kind][1]

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        if len(types) != 1 or types[0].kind not in kinds:
            raise FunctionTypeError(f"CAST of {types[0]} to {result} is not of this function")
        return Resolution(types, result)

    return resolve


def _to_integer(r: Resolution) -> Reference:
    low, high = RANGES[r.result.kind]

    def checked(v: int) -> int:
        if not low <= v <= high:
            raise NumericOverflow(f"{v} is out of the range of {r.result}")
        return v

    def of_double(v: float) -> int:
        if not math.isfinite(v):
            raise NumericOverflow(f"{v} is out of the range of {r.result}")
        return checked(round(v))  # halves to the even number, as IEEE rounds

    def of_decimal(v: Decimal) -> int:
        return checked(int(v.quantize(Decimal(1), rounding=ROUND_HALF_UP, context=WIDE)))

    kinds: dict[Kind, Callable[[Any], int]] = {Kind.DOUBLE: of_double, Kind.DECIMAL: of_decimal, Kind.BOOLEAN: int}
    return kinds.get(r.args[0].kind, checked)


def _to_integer_sql(args: Sequence[str], r: Resolution) -> str:
    return f"TRY_CAST({args[0]} AS {duckdb_type(r.result)})"


def _is_lost(args: Sequence[str], r: Resolution) -> str:
    """Rows whose value the statement has lost: the reference names the error."""
    return f"({args[0]} IS NOT NULL AND {_to_integer_sql(args, r)} IS NULL)"


def _rounded(v: str, r: Resolution) -> str:
    """On Spark. DECIMAL: halves away from zero; DOUBLE: to the even number."""
    kind = r.args[0].kind
    if kind is Kind.DECIMAL:
        return f"round({v}, 0)"
    return f"rint({v})" if kind is Kind.DOUBLE else v


def _out_of_range(args: Sequence[str], r: Resolution) -> str:
    if r.args[0].kind is Kind.BOOLEAN:
        return ""
    low, high = RANGES[r.result.kind]
    v = _rounded(args[0], r)
    if r.args[0].kind is Kind.DOUBLE:
        return f"(isnan({args[0]}) OR {v} < CAST('{low}' AS DOUBLE) OR {v} >= CAST('{high + 1}' AS DOUBLE))"
    wide = f"CAST({v} AS DECIMAL(38, 0))"
    return f"({wide} < CAST('{low}' AS DECIMAL(38, 0)) OR {wide} > CAST('{high}' AS DECIMAL(38, 0)))"


def _to_integer_on_spark(args: Sequence[str], r: Resolution) -> str:
    fails = _out_of_range(args, r)
    sql = f"CAST({_rounded(args[0], r)} AS {spark_type(r.result)})"
    return null_where(fails, sql) if fails else sql


for _t in (INT, BIGINT):
    define(
        _FUNCTIONS[_t.kind][0],
        cast_resolver(_t),
        _to_integer,
        duckdb=_to_integer_sql,
        declines=_is_lost,
        spark=_to_integer_on_spark,
        spark_fails=_out_of_range,
    )


def _double(types: tuple[SqlType, ...]) -> Resolution:
    """The target is not among the arguments: the analyzer sets it as the type of the call."""
    if len(types) != 1 or types[0].kind is not Kind.DOUBLE:
        raise FunctionTypeError(f"a DOUBLE is needed, not ({', '.join(map(str, types))})")
    return Resolution(types, decimal(38, 18))


def _to_decimal(r: Resolution) -> Cast:
    precision, scale = r.result.precision, r.result.scale
    return lambda v: fit_decimal(parse_decimal(f"{v:.15g}"), precision, scale)


def _to_decimal_sql(args: Sequence[str], r: Resolution) -> str:
    return f"TRY_CAST(format('{{:.15g}}', {args[0]}) AS {duckdb_type(r.result)})"


define(
    "sql_to_decimal",
    _double,
    _to_decimal,
    duckdb=_to_decimal_sql,
    declines=lambda a, r: f"({a[0]} IS NOT NULL AND {_to_decimal_sql(a, r)} IS NULL)",
)


def _read_boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in TRUE or word in FALSE:
        return word in TRUE
    raise ValueError(f'invalid input syntax for type BOOLEAN: "{text}"')


def listed(words: Sequence[str]) -> str:
    """Words as SQL texts."""
    return ", ".join(f"'{w}'" for w in words)


def _boolean_sql(args: Sequence[str], r: Resolution) -> str:
    if r.args[0].kind is Kind.INT:
        return f"({args[0]} <> 0)"
    return f"(CASE WHEN {args[0]} IN ({listed(TRUE)}) THEN TRUE WHEN {args[0]} IN ({listed(FALSE)}) THEN FALSE END)"


define(
    "sql_to_boolean",
    cast_resolver(BOOLEAN),
    lambda r: (lambda v: v != 0) if r.args[0].kind is Kind.INT else _read_boolean,
    duckdb=_boolean_sql,
    declines=lambda args, r: "" if r.args[0].kind is Kind.INT else f"({args[0]} NOT IN ({listed((*TRUE, *FALSE))}))",
    spark=lambda a, r: f"({a[0]} <> 0)" if r.args[0].kind is Kind.INT else "",  # texts go to the reference
)


def _in_range(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 3 or any(t.kind is not Kind.INT for t in types):
        raise FunctionTypeError(f"an INT and its bounds are needed, not ({', '.join(map(str, types))})")
    return Resolution(types, INT)


def _checked(v: int, low: int, high: int) -> int:
    if not low <= v <= high:
        raise NumericOverflow(f"{v} is not from {low} to {high}")
    return v


define(
    "sql_in_range",
    _in_range,
    lambda _r: _checked,
    duckdb=lambda a, _r: f"(CASE WHEN {a[0]} BETWEEN {a[1]} AND {a[2]} THEN {a[0]} END)",
    declines=lambda a, _r: f"({a[0]} NOT BETWEEN {a[1]} AND {a[2]})",
)


# A DOUBLE in these bounds, without its sign, is rounded to a REAL that is finite and not zero.
_REAL_LEAST, _REAL_MOST = 7.006492321624086e-46, 3.4028235677973362e38


def rounded_from(cast: Expr) -> tuple[Expr, ...]:
    """The value that a cast to DOUBLE may have rounded; empty for other expressions."""
    if not isinstance(cast, Call) or cast.name not in ("cast", "sql_to_double"):
        return ()
    source = cast.args[0].type
    return cast.args if source in (BIGINT, STRING) or source.kind is Kind.DECIMAL else ()


def _reals(types: tuple[SqlType, ...]) -> Resolution:
    kinds = [t.kind for t in types]
    if kinds[:1] != [Kind.DOUBLE] or kinds[1:] not in ([], [Kind.BIGINT], [Kind.DECIMAL], [Kind.STRING]):
        raise FunctionTypeError(f"a DOUBLE and the value it was made of are needed, not ({', '.join(map(str, types))})")
    return Resolution(types, DOUBLE)


def _real(v: float, exact: int | Decimal | str | None = None) -> float:
    """exact: the value that v was rounded from. Rounding v to a REAL would round it twice."""
    if not v or not math.isfinite(v):
        return v
    if not _REAL_LEAST <= abs(v) <= _REAL_MOST:
        raise NumericOverflow(f"{v} is out of range for type REAL")
    whole = _number(exact) if isinstance(exact, str) else exact
    if whole is not None and whole != v and not struct.pack("<d", v)[0] & 1:
        v = math.nextafter(v, math.inf if whole > v else -math.inf)  # to odd: v then lies on the side of `exact`
    return ctypes.c_float(v).value


def _number(text: str) -> Decimal | None:
    """The finite number that a text shows. Other texts have none, and no finite DOUBLE is made of them."""
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _is_real(v: str) -> str:
    return f"({v} = 0 OR isinf({v}) OR isnan({v}) OR abs({v}) BETWEEN {_REAL_LEAST!r} AND {_REAL_MOST!r})"


def _single(v: str) -> str:
    return f"CAST(TRY_CAST({v} AS FLOAT) AS DOUBLE)"


def _rounded_by_duckdb(args: Sequence[str], _r: Resolution) -> str:
    v, *exact = args
    known = "".join(f" AND {e} IS NOT NULL" for e in exact)
    return f"(CASE WHEN {_is_real(v)}{known} THEN {_single(v)} END)"


def _not_by_duckdb(args: Sequence[str], _r: Resolution) -> str:
    """Rows out of range, and those whose DOUBLE lies in the middle of two REALs, where the exact value decides."""
    v = args[0]
    if len(args) == 1:
        return f"(NOT {_is_real(v)})"
    other = f"(2 * {v} - {_single(v)})"
    middle = f"({_single(v)} <> {v} AND {_single(other)} = {other})"
    return f"(NOT {_is_real(v)} OR CASE WHEN isfinite({v}) THEN {middle} ELSE FALSE END)"


define(
    "sql_real",
    _reals,
    lambda _r: _real,
    duckdb=_rounded_by_duckdb,
    declines=_not_by_duckdb,
)


def _nested(types: tuple[SqlType, ...]) -> Resolution:
    """The target is not among the arguments: the analyzer sets it as the type of the call."""
    if len(types) != 1 or types[0].kind not in _NESTED:
        raise FunctionTypeError(f"an array, a map or a struct is needed, not ({', '.join(map(str, types))})")
    return Resolution(types, types[0])


def _caster(source: SqlType, target: SqlType) -> Cast:
    """The cast of one value that may be NULL."""
    if source.kind is target.kind and source.kind in _NESTED:
        whole = _inside(source, target)
    else:
        function = lookup(sql_cast(source, target) or "cast")
        assert function is not None
        whole = function.reference(Resolution((source,), target))
    return lambda v: None if v is None else whole(v)


def _inside(source: SqlType, target: SqlType) -> Cast:
    parts = [_caster(s, t) for s, t in zip(source.args, target.args, strict=True)]
    if source.kind is Kind.ARRAY:
        return lambda v: [parts[0](x) for x in v]
    if source.kind is Kind.MAP:
        return lambda v: {parts[0](k): parts[1](x) for k, x in v.items()}
    fields = {n: _caster(s, t) for n, t in target.fields if (s := source.field(n)) is not None}
    return lambda v: {n: fields[n](v.get(n)) if n in fields else None for n, _ in target.fields}


define("sql_to_nested", _nested, lambda r: _inside(r.args[0], r.result))
