"""Values of parameters as literals of SQL, and the types of parameters that a client does not name.

A value that is bound goes into the text of the statement as a literal of its type: it can end no literal, as quotes in it are doubled.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

from flowql.pg import types as p
from flowql.pg.errors import PgError
from flowql.pg.statements import Statement, Word
from flowql.pg.texts import interval_text

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_WHOLE = re.compile(r"[+-]?\d+")
_TRUE = frozenset(("t", "true", "y", "yes", "on", "1"))
_FALSE = frozenset(("f", "false", "n", "no", "off", "0"))
_DAY_2000, _MOMENT_2000 = date(2000, 1, 1), datetime(2000, 1, 1)
_COMPARING = frozenset(("=", "<", ">", "<=", ">=", "<>", "!=", "+", "-", "*", "/", "%"))
_TEXTUAL = frozenset(("LIKE", "ILIKE", "~", "~*", "!~", "!~*", "||", "^@"))
# Types as people write them after `::` and in CAST.
_WRITTEN = {
    **{t.name: t for t in p.SCALARS},
    **{"integer": p.INT4, "int": p.INT4, "smallint": p.INT2, "bigint": p.INT8, "boolean": p.BOOL, "decimal": p.NUMERIC},
    **{"character": p.TEXT, "double": p.FLOAT8, "real": p.FLOAT4, "float": p.FLOAT8, "string": p.TEXT},
}


def literal(value: str | None, t: p.PgType, *, standard: bool, adapts: bool = False) -> str:
    """A literal of SQL. value: its text form; None: NULL. standard: of FlowQL's standard dialect, otherwise of DuckDB's SQL. adapts: without a type
    of its own, to be written into a column. Raises PgError.
    """
    made = _literal(value, t, standard)
    if (
        not adapts
        or not (standard or t.element is None)
        or (t.category == "N" and value in ("NaN", "Infinity", "-Infinity"))
    ):
        return made
    if value is None:
        return "NULL"
    if t.category == "N":
        if not _NUMBER.fullmatch(value.strip()):
            raise _invalid(t, value)
        return f"({value.strip()})"
    return made if t is p.BOOL else "'" + value.replace("'", "''") + "'"


def _literal(value: str | None, t: p.PgType, standard: bool) -> str:
    if value is None:
        return f"CAST(NULL AS {_sql(t, standard)})" if t.sql and t.category != "S" else "NULL"
    if "\0" in value:
        raise PgError("22021", 'invalid byte sequence for encoding "UTF8": 0x00')
    if t in (p.INT2, p.INT4, p.INT8, p.OID):
        if not _WHOLE.fullmatch(value.strip()):
            raise _invalid(t, value)
        number = int(value)
        if not _RANGES[t.name][0] <= number <= _RANGES[t.name][1]:
            raise PgError("22003", f'value "{value}" is out of range for type {_written(t)}')
        return f"CAST({number} AS {_sql(t, standard)})" if number >= 0 else f"CAST(({number}) AS {_sql(t, standard)})"
    if t is p.NUMERIC or t.name == "numeric":
        if not _NUMBER.fullmatch(value.strip()):
            raise _invalid(t, value)
        number_text = f"{Decimal(value):f}"
        return f"({number_text})" if "." in number_text else f"({number_text}.0)" if standard else f"({number_text})"
    if t is p.BOOL:
        folded = value.strip().lower()
        if folded not in _TRUE | _FALSE:
            raise _invalid(t, value)
        return "TRUE" if folded in _TRUE else "FALSE"
    if t.element is not None and not standard:
        items = (literal(i, t.element, standard=False) for i in items_of(value))
        return f"CAST([{', '.join(items)}] AS {_sql(t, standard)})"
    quoted = "'" + value.replace("'", "''") + "'"
    if t is p.BYTEA and not standard:
        return f"unhex('{_raw(value).hex()}')"
    return f"CAST({quoted} AS {_sql(t, standard)})" if t.sql and t.category != "S" else quoted


def sample(t: p.PgType) -> str:
    """Some value of a type, in text form."""
    return _SAMPLES.get(t.name) or {"N": "0", "B": "f", "A": "{}"}.get(t.category, "")


_SAMPLES = {
    **{
        "date": "2000-01-01",
        "time": "00:00:00",
        "timestamp": "2000-01-01 00:00:00",
        "timestamptz": "2000-01-01 00:00:00+00",
    },
    **{"interval": "1 day", "uuid": "00000000-0000-0000-0000-000000000000", "json": "null", "jsonb": "null"},
}


def _sql(t: p.PgType, standard: bool) -> str:
    if standard:
        return t.sql
    return (
        t.sql.replace("(6)", "")
        .replace("BYTEA", "BLOB")
        .replace("JSONB", "VARCHAR")
        .replace("NUMERIC", "DECIMAL(38, 9)")
    )


_RANGES = {
    "int2": (-(1 << 15), (1 << 15) - 1),
    "int4": (-(1 << 31), (1 << 31) - 1),
    "int8": (-(1 << 63), (1 << 63) - 1),
    "oid": (0, (1 << 32) - 1),
}
_NAMES = {
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "bool": "boolean",
    "float8": "double precision",
    "float4": "real",
}


def _written(t: p.PgType) -> str:
    return _NAMES.get(t.name, t.name)


def _invalid(t: p.PgType, value: str) -> PgError:
    return PgError("22P02", f'invalid input syntax for type {_written(t)}: "{value}"')


def text_of(raw: bytes | None, form: int, t: p.PgType) -> str | None:
    """The text form of a value as it was sent. form: 1 for binary. Raises PgError."""
    if raw is None:
        return None
    try:
        return raw.decode() if not form else _of_binary(raw, t)
    except UnicodeDecodeError as error:
        raise PgError("22021", f'invalid byte sequence for encoding "UTF8": {error.reason}') from error
    except (struct.error, ValueError, OverflowError, IndexError) as error:
        raise PgError("22P03", f"incorrect binary data format: {error}") from error


def _of_binary(raw: bytes, t: p.PgType) -> str:
    if t.element is not None:
        return _array(raw)
    read = _BINARY.get(t.name)
    return read(raw) if read is not None else raw.decode()


def _number(form: str) -> Callable[[bytes], str]:
    return lambda raw: repr(struct.unpack(form, raw)[0])


def _numeric(raw: bytes) -> str:
    count, weight, sign, scale = struct.unpack_from("!hhHh", raw)
    if sign not in (0, 0x4000):
        return "NaN"
    digits = struct.unpack(f"!{count}h", raw[8:])
    if any(not 0 <= d < 10_000 for d in digits):
        raise ValueError("a digit of a numeric is out of range")
    value = sum((Decimal(d).scaleb(4 * (weight - n)) for n, d in enumerate(digits)), Decimal(0))
    return f"{'-' if sign else ''}{value.quantize(Decimal(1).scaleb(-scale)) if count < 20 else value:f}"


def _moment(raw: bytes) -> str:
    return (_MOMENT_2000 + timedelta(microseconds=struct.unpack("!q", raw)[0])).isoformat(" ")


def _time(raw: bytes) -> str:
    made = _MOMENT_2000 + timedelta(microseconds=struct.unpack("!q", raw)[0])
    return made.time().isoformat() if made.time() != time(0) or made == _MOMENT_2000 else "24:00:00"


def _interval(raw: bytes) -> str:
    micros, days, months = struct.unpack("!qii", raw)
    return interval_text(months, days, micros)


def _array(raw: bytes) -> str:
    dims, _, oid = struct.unpack_from("!iiI", raw)
    if dims == 0:
        return "{}"
    if dims != 1:
        raise PgError("0A000", "a parameter that is an array has one dimension")
    (count,) = struct.unpack_from("!i", raw, 12)
    element, at, found = p.BY_OID.get(oid, p.TEXT), 20, list[str]()
    for _ in range(count):
        (size,) = struct.unpack_from("!i", raw, at)
        at += 4
        if size < 0:
            found.append("NULL")
            continue
        escaped = _of_binary(raw[at : at + size], element).replace("\\", "\\\\").replace('"', '\\"')
        found.append(f'"{escaped}"')
        at += size
    return "{" + ",".join(found) + "}"


_ITEM = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^",{}]*))\s*(,|$)', re.DOTALL)


def items_of(array: str) -> list[str | None]:
    """The elements of an array of one dimension in text form. Raises PgError."""
    text, at, found = array.strip(), 1, list[str | None]()
    if text[:1] != "{" or text[-1:] != "}":
        raise PgError("22P02", f'malformed array literal: "{array}"')
    if not text[1:-1].strip():
        return []
    while at < len(text):
        item = _ITEM.match(text, at, len(text) - 1)
        if item is None:
            raise PgError("22P02", f'malformed array literal: "{array}"')
        if item[1] is not None:
            found.append(re.sub(r"\\(.)", r"\1", item[1], flags=re.DOTALL))
        else:
            plain = item[2].strip()
            found.append(None if plain.upper() == "NULL" else plain)
        at = item.end()
        if not item[3]:
            break
    return found


def _raw(text: str) -> bytes:
    try:
        return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()
    except ValueError as error:
        raise PgError("22P02", "invalid hexadecimal data") from error


_BINARY: Mapping[str, Callable[[bytes], str]] = {
    "int2": _number("!h"),
    "int4": _number("!i"),
    "int8": _number("!q"),
    "oid": _number("!I"),
    "float4": _number("!f"),
    "float8": _number("!d"),
    "bool": lambda raw: "t" if raw != b"\0" else "f",
    "bytea": lambda raw: f"\\x{raw.hex()}",
    "numeric": _numeric,
    "date": lambda raw: str(_DAY_2000 + timedelta(days=struct.unpack("!i", raw)[0])),
    "time": _time,
    "timestamp": _moment,
    "timestamptz": lambda raw: f"{_moment(raw)}+00",
    "interval": _interval,
    "uuid": lambda raw: str(UUID(bytes=raw)),
    "jsonb": lambda raw: raw[1:].decode(),
}


def inferred(
    statement: Statement, oids: Sequence[int], columns: Mapping[str, p.PgType], targets: Sequence[p.PgType]
) -> list[p.PgType]:
    """The types of the parameters. oids: those that the client names, 0 for none. columns: of the relations that are there, by name. targets: of the
    columns that INSERT ... VALUES fills, in order.
    """
    count = max(statement.parameters, len(oids))
    found: list[p.PgType | None] = [_named(oid) for oid in oids] + [None] * (count - len(oids))
    slots = _slots(statement, targets)
    for n, word in enumerate(statement.words):
        if word.kind == "parameter" and found[int(word.text[1:]) - 1] is None:
            found[int(word.text[1:]) - 1] = slots.get(n) or _around(statement.words, n, columns)
    return [p.TEXT if t is None else t for t in found]


def _named(oid: int) -> p.PgType | None:
    if oid in (0, p.UNKNOWN.oid):
        return None
    if oid not in p.BY_OID:
        raise PgError("0A000", f"a parameter of the type with OID {oid} is not supported")
    return p.BY_OID[oid]


def _slots(statement: Statement, targets: Sequence[p.PgType]) -> dict[int, p.PgType]:
    """For the words of VALUES that fill a column: its type."""
    found, depth, column, seen = dict[int, p.PgType](), 0, 0, False
    for n, word in enumerate(statement.words if targets else ()):
        seen = seen or word.upper == "VALUES"
        if not seen or word.kind in ("string", "quoted"):
            continue
        depth += {"(": 1, ")": -1}.get(word.text, 0)
        column = 0 if depth == 0 else column + (word.text == "," and depth == 1)
        if word.kind == "parameter" and depth == 1 and column < len(targets):
            found[n] = targets[column]
    return found


def _around(words: Sequence[Word], n: int, columns: Mapping[str, p.PgType]) -> p.PgType | None:
    """By what stands beside it: a cast, LIMIT, or a column that it is compared with."""
    before, after = (words[n - 1] if n else None), (words[n + 1] if n + 1 < len(words) else None)
    if (
        after is not None
        and after.upper in ("::", "AS")
        and n + 2 < len(words)
        and (made := _WRITTEN.get(words[n + 2].name or ""))
    ):
        is_array = n + 4 < len(words) and words[n + 3].text == "[" and words[n + 4].text == "]"
        return _stamped(words, n + 2, made.as_array if is_array else made)
    if before is not None and before.upper in ("LIMIT", "OFFSET", "FETCH", "FIRST", "NEXT"):
        return p.INT8
    if any(w is not None and w.upper in _TEXTUAL for w in (before, after)):
        return p.TEXT
    left = _compared(words, n, columns)
    if left is not None:
        return left
    if after is not None and after.upper in _COMPARING and n + 2 < len(words):
        at = n + 4 if n + 4 < len(words) and words[n + 3].text == "." else n + 2
        return _meant(words[at], columns)
    return None


def _compared(words: Sequence[Word], n: int, columns: Mapping[str, p.PgType]) -> p.PgType | None:
    """The type of what stands before the comparison on whose right side the parameter is."""
    at = n - 1
    if at >= 1 and words[at].text == "(" and words[at - 1].upper in ("ANY", "ALL", "SOME"):
        found = _compared(words, at - 1, columns)
        return None if found is None or not found.array else found.as_array
    if at >= 2 and words[at].upper == "AND" and words[at - 2].upper == "BETWEEN":
        at -= 2
    elif at >= 0 and (words[at].text in ("(", ",")):
        while at >= 0 and (words[at].text == "," or words[at].kind in ("parameter", "number", "string")):
            at -= 1
        if at < 2 or words[at].text != "(" or words[at - 1].upper != "IN":
            return None
        at -= 1
    if at < 1 or words[at].upper not in (*_COMPARING, "IN", "BETWEEN"):
        return None
    at -= 2 if words[at - 1].upper == "NOT" else 1
    return _meant(words[at], columns) if at >= 0 else None


def _meant(word: Word, columns: Mapping[str, p.PgType]) -> p.PgType | None:
    if word.kind == "number":
        return p.INT8 if word.text.isdecimal() else p.NUMERIC
    return columns.get(word.name or "")


def _stamped(words: Sequence[Word], at: int, t: p.PgType) -> p.PgType:
    """`timestamp with time zone` is a type of its own."""
    following = [w.upper for w in words[at + 1 : at + 4]]
    return p.TIMESTAMPTZ if t is p.TIMESTAMP and following == ["WITH", "TIME", "ZONE"] else t
