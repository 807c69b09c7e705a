"""Texts of a file as values of declared types: ISO dates and times, booleans, spellings of NULL.

`retyped` is what a text means, for one value; `json_sql` says the same to DuckDB for a column of texts. Both give what the JSON
format reads; a text that is no value of its type stays a text, so that the decoder of the source refuses it and says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

import orjson

from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import Kind, SqlType

NULLS = frozenset({"", "null", "none", "nil", "na", "n/a", "#n/a", "\\n"})  # of columns that are no texts, in any case
TEXT_NULLS = ("", "\\N")  # of STRING columns, where they are not quoted
TRUE, FALSE = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
_TIME = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?"
_ISO = {
    Kind.DATE: r"\d{4}-\d{2}-\d{2}",
    Kind.TIME: _TIME,
    Kind.TIMESTAMP: rf"\d{{4}}-\d{{2}}-\d{{2}}([T ]{_TIME}(Z|[+-]\d{{2}}(:?\d{{2}})?)?)?",
}
_ISO[Kind.MICROS] = _ISO[Kind.TIMESTAMP]
_PATTERNS = {kind: re.compile(pattern, re.ASCII) for kind, pattern in _ISO.items()}
# How a value of a type is written, for messages.
FORMS = {
    Kind.DATE: "YYYY-MM-DD, or days since 1970",
    Kind.TIME: "HH:MM:SS, or milliseconds of the day",
    Kind.TIMESTAMP: "ISO-8601 such as 2013-01-01T05:00:00Z, or milliseconds since 1970",
    Kind.MICROS: "ISO-8601 such as 2013-01-01T05:00:00.123456Z, or microseconds since 1970",
    Kind.BOOLEAN: "true or false, yes or no, 1 or 0",
}
_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"  # what JSON calls one
_NESTED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)
_EPOCH = date(1970, 1, 1).toordinal()


def from_text(text: str, kind: Kind) -> Any:
    """The value of a text in a column of a type other than STRING.

    >>> (
    ...     from_text("1970-01-03", Kind.DATE),
    ...     from_text(" Yes ", Kind.BOOLEAN),
    ...     from_text("NULL", Kind.INT),
    ...     from_text("x", Kind.DATE),
    ... )
    (2, True, None, 'x')
    """
    bare = text.strip()
    if bare.lower() in NULLS:
        return None
    if kind is Kind.BOOLEAN:
        word = bare.lower()
        return True if word in TRUE else False if word in FALSE else bare
    pattern = _PATTERNS.get(kind)
    if pattern is None or pattern.fullmatch(bare) is None:
        return bare
    try:
        return _temporal(bare, kind)
    except ValueError:  # such as the 30th of February
        return bare


def _temporal(text: str, kind: Kind) -> int:
    text = text.replace(",", ".")
    if kind is Kind.DATE:
        return date.fromisoformat(text).toordinal() - _EPOCH
    if kind is Kind.TIME:
        hours, minutes, *seconds = text.split(":")
        whole, _, fraction = (seconds[0] if seconds else "0").partition(".")
        return (int(hours) * 60 + int(minutes)) * 60_000 + int(whole) * 1000 + int(fraction[:3].ljust(3, "0"))
    at = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text))
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    micros = since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
    return micros if kind is Kind.MICROS else micros // 1000


def retyped(value: Any, t: SqlType) -> Any:
    """A value of parsed JSON with its texts turned into what `t` is read from, at any depth."""
    if type(value) is str and t.kind in _NESTED:
        try:
            value = _loads(value) if value.strip().lower() not in NULLS else None
        except ValueError:
            return value
    if type(value) is str:
        return value if t.kind in (Kind.STRING, Kind.BYTES) else from_text(value, t.kind)
    if t.kind is Kind.ARRAY and type(value) is list:
        return [retyped(v, t.element) for v in value]
    if t.kind is Kind.MAP and type(value) is dict:
        return {k: retyped(v, t.args[1]) for k, v in value.items()}
    if t.kind is Kind.STRUCT and type(value) is dict:
        return _members(value, dict(t.fields))
    return value


def retyped_document(document: bytes, fields: Sequence[Field]) -> bytes:
    """A JSON object with the texts of declared columns turned into what they are read from; digits of numbers stay as written."""
    parsed = _loads(document)
    if not isinstance(parsed, dict):
        return document
    return orjson.dumps(_members(parsed, {f.name: f.type for f in fields}))


def _members(document: dict[str, Any], types: dict[str, SqlType]) -> dict[str, Any]:
    """Members are found as the JSON format finds them: by the exact name, else in upper case."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        t = types.get(name) or types.get(name.upper())
        found[name] = value if t is None else retyped(value, t)
    return found


def _loads(document: bytes | str) -> Any:
    return _DECODER.decode(document.decode() if isinstance(document, bytes) else document)


def json_sql(column: str, t: SqlType) -> str:
    """DuckDB: a column of texts as JSON texts of a type; SQL NULL for what stands for NULL."""
    text = f"CAST(to_json({column}) AS VARCHAR)"
    if t.kind in (Kind.STRING, Kind.BYTES):
        return text
    bare = f"trim({column}, ' \t')"
    nulls = ", ".join(f"'{n}'" for n in sorted(NULLS))
    return f"CASE WHEN lower({bare}) IN ({nulls}) THEN NULL ELSE coalesce({_value_sql(bare, t)}, CAST(to_json({bare}) AS VARCHAR)) END"


def milliseconds_sql(moment: str) -> str:
    """DuckDB: a moment in milliseconds since 1970, parts of one cut off, toward the past. `epoch_ms` alone rounds."""
    return f"epoch_ms(date_trunc('millisecond', {moment}))"


def _value_sql(bare: str, t: SqlType) -> str:
    """NULL for what is no value of the type."""
    kind = t.kind
    if kind in (Kind.DOUBLE, Kind.DECIMAL):  # the digits as they are: a DECIMAL must not pass through a DOUBLE
        return f"CASE WHEN regexp_full_match({bare}, '{_NUMBER}') THEN {bare} END"
    if kind is Kind.BOOLEAN:
        words = [", ".join(f"'{w}'" for w in sorted(some)) for some in (TRUE, FALSE)]
        return (
            f"CASE WHEN lower({bare}) IN ({words[0]}) THEN 'true' WHEN lower({bare}) IN ({words[1]}) THEN 'false' END"
        )
    if kind in _NESTED:
        return f"CASE WHEN json_valid({bare}) THEN {bare} END"
    width = "INTEGER" if kind is Kind.INT else "BIGINT"
    whole = f"CASE WHEN regexp_full_match({bare}, '[+-]?[0-9]+') THEN CAST(try_cast({bare} AS {width}) AS VARCHAR) END"
    if kind not in _ISO:
        return whole
    number = {
        Kind.DATE: f"try_cast({bare} AS DATE) - DATE '1970-01-01'",
        Kind.TIME: f"epoch_ms(try_cast(replace({bare}, ',', '.') AS TIME))",
        Kind.TIMESTAMP: milliseconds_sql(f"try_cast(replace({bare}, ',', '.') AS TIMESTAMPTZ)"),
        Kind.MICROS: f"epoch_us(try_cast(replace({bare}, ',', '.') AS TIMESTAMPTZ))",
    }[kind]
    iso = f"CASE WHEN regexp_full_match({bare}, '{_ISO[kind]}') THEN CAST({number} AS VARCHAR) END"
    return f"coalesce({whole}, {iso})"


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


# Numbers are passed on as they were written.
_DECODER = json.JSONDecoder(parse_float=orjson.Fragment, parse_int=orjson.Fragment, parse_constant=_constant)
