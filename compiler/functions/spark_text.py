"""Pieces of Spark SQL text: names, constants, and what lowerings may ask about the text of an argument."""

from __future__ import annotations

import re
from decimal import Decimal

from flowql.compiler.plan.expr import Literal
from flowql.compiler.plan.types import BIGINT, INT, Kind, SqlType, spark_type

_WHOLE = re.compile(r"\(?(-?\d+)L?\)?")
_ESCAPED = {"\\": "\\\\", "'": "\\'", "$": "\\u0024", "\0": "\\u0000", "\n": "\\n", "\r": "\\r"}
# The characters that `str.strip` removes, as a class of java.util.regex.
SPACE = r"[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_SPACES = "".join(chr(c) for c in range(0x3001) if chr(c).isspace())
_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
INSTANT_MAX = 9_000_000_000_000_000  # ms within Spark's microsecond timestamps


def quoted(name: str) -> str:
    """A column name as Spark reads it."""
    return "`" + name.replace("`", "``") + "`"


def text(value: str) -> str:
    """A string constant. `$` would start a variable of Spark's SQL."""
    return "'" + "".join(_ESCAPED.get(c, c) for c in value) + "'"


def constant(e: Literal) -> str:
    """A literal of exactly its Spark type; "" for values that Spark cannot hold."""
    v, t = e.value, e.type
    if v is None:
        return f"CAST(NULL AS {spark_type(t)})" if t.kind is not Kind.NULL else "NULL"
    if isinstance(v, bool):
        return "TRUE" if v else "FALSE"
    if isinstance(v, str):
        return text(v)
    if isinstance(v, bytes):
        return f"X'{v.hex()}'"
    if isinstance(v, float):
        return f"CAST('{_java(v)}' AS DOUBLE)"
    if isinstance(v, Decimal):
        return f"CAST('{v:f}' AS {spark_type(t)})"
    return _whole(v, t.kind)


def _java(v: float) -> str:
    return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(v), repr(v))


def _whole(v: int, kind: Kind) -> str:
    if kind is Kind.TIMESTAMP:
        return from_millis(f"({v}L)") if abs(v) <= INSTANT_MAX else ""
    if kind is Kind.MICROS:
        return from_micros(f"({v}L)")
    if kind is Kind.DATE:
        return f"date_from_unix_date({v})"
    digits = f"{v}L" if kind is Kind.BIGINT else str(v)
    return f"({digits})" if v < 0 else digits


def is_text(sql: str) -> bool:
    """The argument is a constant text."""
    return sql.startswith("'")


def is_plain_text(sql: str) -> bool:
    """The argument is a constant text that reads as it is written."""
    return is_text(sql) and "\\" not in sql


def whole(sql: str) -> int | None:
    """The value of a constant whole number, or None."""
    m = _WHOLE.fullmatch(sql)
    return int(m[1]) if m else None


def null_where(condition: str, sql: str) -> str:
    """`sql`, or NULL where the condition is TRUE. `sql` is not computed there."""
    return f"(CASE WHEN {condition} THEN NULL ELSE {sql} END)"


def trimmed(sql: str) -> str:
    """`str.strip` of Python."""
    return f"trim(BOTH {text(_SPACES)} FROM {sql})"


def from_millis(sql: str) -> str:
    """The TIMESTAMP of a BIGINT within INSTANT_MAX; beyond it Spark fails."""
    return f"timestampadd(MILLISECOND, {sql}, {_EPOCH})"


def millis(sql: str) -> str:
    """The BIGINT of a TIMESTAMP; microseconds are cut downwards.

    As the exact difference of two times without zones: a cast to Spark's TIMESTAMP, as `timestampdiff` and `unix_millis` make it,
    goes through the zone of the session, where some hours do not exist.
    """
    return f"CAST(floor(CAST(CAST(({sql} - {_EPOCH}) AS INTERVAL SECOND) AS DECIMAL(20, 6)) * 1000) AS BIGINT)"


def from_micros(sql: str) -> str:
    """The TIMESTAMP(6) of a BIGINT."""
    return f"timestampadd(MICROSECOND, {sql}, {_EPOCH})"


def micros(sql: str) -> str:
    """The BIGINT of a TIMESTAMP(6); see `millis`."""
    return f"CAST(CAST(CAST(({sql} - {_EPOCH}) AS INTERVAL SECOND) AS DECIMAL(20, 6)) * 1000000 AS BIGINT)"


def wrapped_int(sql: str) -> str:
    """The INT with the low 32 bits of a BIGINT."""
    return f"CAST(shiftright(shiftleft({sql}, 32), 32) AS INT)"


def wrapped_bigint(sql: str) -> str:
    """The BIGINT with the low 64 bits of a whole DECIMAL of at most 36 digits."""
    return f"CAST(pmod({sql} + 9223372036854775808BD, 18446744073709551616BD) - 9223372036854775808BD AS BIGINT)"


def kept_least(v: str, sql: str, kind: Kind) -> str:
    """`sql`, but for the least integer of the type itself: its positive counterpart wraps to it."""
    return f"(CASE WHEN {v} = {least(kind)} THEN {v} ELSE {sql} END)"


def least(kind: Kind) -> str:
    """The least INT or BIGINT."""
    return constant(Literal(BIGINT, -(2**63)) if kind is Kind.BIGINT else Literal(INT, -(2**31)))


def is_plain(t: SqlType) -> bool:
    """Whether Spark's collection functions equate and order values as the reference does. It tells 0.0 from -0.0 in some of them."""
    return t.kind not in (Kind.ARRAY, Kind.MAP, Kind.STRUCT, Kind.NULL, Kind.DOUBLE)
