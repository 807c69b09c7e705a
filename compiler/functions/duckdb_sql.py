"""Vector kernels: expressions as DuckDB SQL text, where that is proven equal to the reference.

`lower` gives the text and the rows it must not be used for. A decline is a predicate: TRUE sends the row to the row
kernel, FALSE and NULL keep it. Types of columns are those of `flowql.compiler.plan.types.duckdb_type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from flowql.compiler.functions import builtin
from flowql.compiler.functions.casts import duckdb_cast, duckdb_cast_declines, has_duckdb_cast
from flowql.compiler.functions.duckdb_text import quoted_text
from flowql.compiler.functions.registry import Function, lookup
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.types import Kind, SqlType, duckdb_type

assert builtin.FAMILIES
_INSTANT_MAX = 8_000_000_000_000_000  # ms within DuckDB's microsecond timestamps
_DAY_MAX = 700_000
NO_FUNCTIONS: Mapping[str, Function] = {}


@dataclass(frozen=True, slots=True)
class DuckSql:
    """A lowered expression. `declines`: predicates over the same columns, each TRUE for rows not to be computed."""

    sql: str
    declines: tuple[str, ...] = ()

    def decline(self) -> str:
        """One predicate for all: never NULL."""
        return " OR ".join(f"coalesce({d}, FALSE)" for d in self.declines) or "FALSE"


class _NotLowered(Exception):
    """Some part of the expression has no DuckDB text."""


def lower(expr: Expr, functions: Mapping[str, Function] = NO_FUNCTIONS) -> DuckSql | None:
    """The expression in DuckDB's SQL, of exactly the DuckDB type of `expr.type`; None when a part has no lowering. functions: by their names in
    plans, in the place of those of the catalogue.
    """
    declines: dict[str, None] = {}
    try:
        sql = _Lowering(functions, declines).of(expr)
    except _NotLowered:
        return None
    if isinstance(expr, Call):
        sql = f"CAST({sql} AS {duckdb_type(expr.type)})"
    return DuckSql(sql, tuple(declines))


@dataclass(frozen=True, slots=True)
class _Lowering:
    functions: Mapping[str, Function]
    declines: dict[str, None]

    def of(self, e: Expr) -> str:
        if isinstance(e, Column):
            return quoted(e.name)
        if isinstance(e, Literal):
            return _literal(e)
        if not isinstance(e, Call):
            raise _NotLowered
        return self._cast(e) if e.name == "cast" else self._call(e)

    def _call(self, e: Call) -> str:
        function = self.functions.get(e.name) or lookup(e.name)
        if function is None or function.duckdb is None or function.table:
            raise _NotLowered
        args = [self.of(a) for a in e.args]
        resolution = Resolution(tuple(a.type for a in e.args), e.type)
        sql = function.duckdb(args, resolution)
        if not sql:
            raise _NotLowered
        decline = function.declines(args, resolution) if function.declines else ""
        if decline:
            self.declines[decline] = None
        return sql

    def _cast(self, e: Call) -> str:
        source, target = e.args[0].type, e.type
        if not has_duckdb_cast(source, target):
            raise _NotLowered
        arg = self.of(e.args[0])
        if source == target:
            return arg
        if source.kind is Kind.NULL:
            return f"CAST(NULL AS {duckdb_type(target)})"
        decline = duckdb_cast_declines(arg, source, target)
        if decline:
            self.declines[decline] = None
        return duckdb_cast(arg, source, target)


def quoted(name: str) -> str:
    """A column name as DuckDB reads it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(e: Literal) -> str:
    v, t = e.value, e.type
    if v is None:
        return f"CAST(NULL AS {duckdb_type(t)})"
    if isinstance(v, bool):
        return "TRUE" if v else "FALSE"
    if isinstance(v, str):
        return _text(v)
    if isinstance(v, bytes):
        return "BLOB '" + "".join(f"\\x{b:02X}" for b in v) + "'"
    if isinstance(v, int):
        return _whole(v, t)
    return _fraction(v, t)


def _text(v: str) -> str:
    if "\0" in v:
        raise _NotLowered
    return quoted_text(v)


def _whole(v: int, t: SqlType) -> str:
    """Integers, dates and times; typed, as DuckDB would guess narrower types."""
    if t.kind is Kind.TIMESTAMP and abs(v) <= _INSTANT_MAX:
        return f"CAST(epoch_ms(CAST({v} AS BIGINT)) AS TIMESTAMP_MS)"
    if t.kind is Kind.DATE and abs(v) <= _DAY_MAX:
        return f"CAST(DATE '1970-01-01' + CAST({v} AS INTEGER) AS DATE)"
    if t.kind is Kind.TIME:
        return f"(TIME '00:00:00' + INTERVAL {v} MILLISECOND)"
    if t.kind is Kind.MICROS:
        return f"make_timestamp(CAST({v} AS BIGINT))"
    if t.kind in (Kind.DATE, Kind.TIMESTAMP):
        raise _NotLowered
    return f"CAST('{v}' AS {duckdb_type(t)})"


def _fraction(v: float | Decimal, t: SqlType) -> str:
    return f"CAST('{v!r}' AS DOUBLE)" if isinstance(v, float) else f"CAST('{v:f}' AS {duckdb_type(t)})"
