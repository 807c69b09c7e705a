"""Functions of texts in standard SQL, as PostgreSQL has them. Positions and lengths count Unicode characters, from 1."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from flowql.compiler.functions.bounds import check_bytes, parts_of, utf8_bytes
from flowql.compiler.functions.duckdb_text import beyond_ascii
from flowql.compiler.functions.pattern_calls import pattern_calls
from flowql.compiler.functions.registry import (
    Lowering,
    Reference,
    define,
    named,
    same_for_all,
    standard,
    takes,
    takes_many,
)
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.sql_regex import part_described
from flowql.compiler.functions.strings import check_parts, filled, missing_to, replace, replace_sql
from flowql.compiler.plan.types import BYTES, INT, STRING, Kind, SqlType

_BLANK = "' '"
STRIPPED_MAX = 64
_DESCRIBED = pattern_calls("sql_substring_by", part_described, STRING, (STRING, STRING))
_ANY = (takes(STRING, gives=INT), takes(BYTES, gives=INT))


def substring(s: Any, start: int, count: int | None = None) -> Any:
    """`count` characters from position `start`; positions before the first one count, but hold nothing. For texts and bytes."""
    if count is None:
        return s[max(start - 1, 0) :]
    if count < 0:
        raise ValueError("negative substring length not allowed")
    return s[max(start - 1, 0) : max(start - 1 + count, 0)]


def overlay(s: str, part: str, start: int, count: int | None = None) -> str:
    """`part` in the place of `count` characters from `start`, as many as it has if not given."""
    if start <= 0:
        raise ValueError("negative substring length not allowed")
    end = start - 1 + (len(part) if count is None else count)
    return s[: start - 1] + part + s[max(end, 0) :]


def pad(s: str, length: int, fill: str, *, left: bool) -> str:
    """Cut to `length`, or filled up to it; nothing is filled with an empty text."""
    length = max(length, 0)
    missing = missing_to(s, length, fill)
    if missing <= 0 or not fill:
        return s[:length]
    filling = "".join(filled(fill, missing))
    return filling + s if left else s + filling


def split_part(s: str, delimiter: str, n: int) -> str:
    """Returns the n-th part between delimiters. A negative n counts from the end. A missing part is empty."""
    if n == 0:
        raise ValueError("field position must not be zero")
    check_parts(s, delimiter or s)
    parts = s.split(delimiter) if delimiter else [s]
    at = n - 1 if n > 0 else len(parts) + n
    return parts[at] if 0 <= at < len(parts) else ""


def initcap(s: str) -> str:
    """Every run of letters and digits with its first character as a capital (Ss of ß) and the others in lower case."""
    out, inside = [], False
    for c in s:
        out.append(c.lower() if inside else c.title())
        inside = c.isalnum()
    return "".join(out)


NormalForm = Literal["NFC", "NFD", "NFKC", "NFKD"]
_NORMAL_FORMS: dict[str, NormalForm] = {f: f for f in get_args(NormalForm)}


def normalized(s: str, form: str = "NFC") -> str:
    """A text in a normal form of Unicode. Raises ValueError for an unknown one."""
    known = _NORMAL_FORMS.get(form.upper())
    if known is None:
        raise ValueError(f"invalid normalization form: {form}")
    return unicodedata.normalize(known, s)


def _by_pattern(r: Resolution) -> bool:
    return len(r.args) == 2 and r.args[1].kind is Kind.STRING


def _substring_sql(args: Sequence[str], r: Resolution) -> str:
    if _by_pattern(r):
        return _DESCRIBED["duckdb"](args, r)
    return f"substring({', '.join(args)})" if r.args[0].kind is Kind.STRING else ""


def left(s: str, n: int) -> str:
    """The first n characters; all but the last -n when negative."""
    return s[:n]


def right(s: str, n: int) -> str:
    """The last n characters; all but the first -n when negative."""
    if n >= 0:
        return s[len(s) - n :] if n < len(s) else s
    return s[-n:]


def repeat(s: str, n: int) -> str:
    """The text n times; empty when n is negative."""
    check_bytes(utf8_bytes(s) * max(n, 0))
    return s * n


def translate(s: str, source: str, target: str) -> str:
    """Each character that occurs in `source` as the one at that place of `target`; without one it goes."""
    places: dict[int, str] = {}
    for i, c in enumerate(source):
        places.setdefault(ord(c), target[i : i + 1])
    return "".join([part.translate(places) for part in parts_of(s)])


def character(code: int) -> str:
    """The character of a code point."""
    if code == 0:
        raise ValueError("null character not permitted")
    if not 0 < code <= 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"requested character not valid for encoding: {code}")
    return chr(code)


def _octets(r: Resolution) -> Callable[[Any], int]:
    return len if r.args[0].kind is Kind.BYTES else lambda s: len(s.encode())


def _octets_sql(factor: str) -> Lowering:
    def lowering(args: Sequence[str], r: Resolution) -> str:
        return f"CAST(strlen({args[0]}){factor} AS INTEGER)" if r.args[0].kind is Kind.STRING else ""

    return lowering


def _substring_declines(a: Sequence[str]) -> str:
    counted = f" OR {a[2]} NOT BETWEEN 0 AND 1000000000" if len(a) > 2 else ""
    return f"({a[1]} NOT BETWEEN 1 AND 1000000000{counted})"


def _strip(by: Callable[[str, str], str]) -> Reference:
    return lambda s, characters=" ": strip(by, s, characters) if characters else s


def strip(by: Callable[[str, str], str], s: str, characters: str) -> str:
    """`str.strip`, `lstrip` or `rstrip`, which looks through the characters for each one of `s`, with the interpreter lock kept.

    >>> strip(str.rstrip, "abcab", "ab" * 100)
    'abc'
    """
    if len(characters) <= STRIPPED_MAX:
        return by(s, characters)
    gone = set[str]()
    for part in parts_of(characters):
        gone.update(part)
    start = 0 if by is str.rstrip else next((i for i, c in enumerate(s) if c not in gone), len(s))
    end = len(s) if by is str.lstrip else next((i for i in range(len(s), start, -1) if s[i - 1] not in gone), start)
    return s[start:end]


def _strip_sql(function: str) -> Lowering:
    return lambda a, _r: f"{function}({a[0]}, {a[1] if len(a) > 1 else _BLANK})"


def _strip_declines(a: Sequence[str], _r: Resolution) -> str:
    return f"({a[1]} = '')" if len(a) > 1 else ""


def _pad(*, left: bool) -> Reference:
    return lambda s, n, fill=" ": pad(s, n, fill, left=left)


def _pad_sql(function: str) -> Lowering:
    """Guarded by CASE: DuckDB would build the huge text of a declined row all the same."""

    def lowering(a: Sequence[str], _r: Resolution) -> str:
        fill = a[2] if len(a) > 2 else _BLANK
        return f"(CASE WHEN {a[1]} BETWEEN 0 AND 100000 THEN TRY({function}({a[0]}, {a[1]}, {fill})) END)"

    return lowering


def _pad_declines(a: Sequence[str], _r: Resolution) -> str:
    fill = f" OR {a[2]} = ''" if len(a) > 2 else ""
    return f"({a[1]} NOT BETWEEN 0 AND 100000{fill})"


def _reversed(s: str) -> str:
    return s[::-1]


standard(
    "CHAR_LENGTH",
    takes(STRING, gives=INT),
    by=len,
    also=("CHARACTER_LENGTH",),
    duckdb=lambda a, _r: f"CAST(length({a[0]}) AS INTEGER)",
)
standard("OCTET_LENGTH", *_ANY, by_types=_octets, duckdb=_octets_sql(""))
standard(
    "BIT_LENGTH",
    *_ANY,
    by_types=lambda r: lambda v: 8 * _octets(r)(v),
    duckdb=_octets_sql(" * 8"),
)
standard(
    "SUBSTRING",
    takes(STRING, INT, INT, gives=STRING, needs=2),
    takes(BYTES, INT, INT, gives=BYTES, needs=2),
    takes(STRING, STRING, gives=STRING),
    by_types=lambda r: _DESCRIBED["by_types"](r) if _by_pattern(r) else substring,
    also=("SUBSTR",),
    duckdb=_substring_sql,
    declines=lambda a, r: (_DESCRIBED["declines"](a, r) if _by_pattern(r) else _substring_declines(a)),
)  # fmt: skip
standard(
    "OVERLAY",
    takes(STRING, STRING, INT, INT, gives=STRING, needs=3),
    by=overlay,
)
standard(
    "STRPOS",
    takes(STRING, STRING, gives=INT),
    by=lambda s, part: s.find(part) + 1,
    duckdb=lambda a, _r: f"CAST(instr({a[0]}, {a[1]}) AS INTEGER)",
)
for _name, _by in (
    ("BTRIM", str.strip),
    ("LTRIM", str.lstrip),
    ("RTRIM", str.rstrip),
):
    standard(
        _name,
        takes(STRING, STRING, gives=STRING, needs=1),
        by=_strip(_by),
        also=("TRIM",) if _name == "BTRIM" else (),
        duckdb=_strip_sql("trim" if _name == "BTRIM" else _name.lower()),
        declines=_strip_declines,
    )
for _name, _side in (("LPAD", "left"), ("RPAD", "right")):
    standard(
        _name,
        takes(STRING, INT, STRING, gives=STRING, needs=2),
        by=_pad(left=_side == "left"),
        duckdb=_pad_sql(_name.lower()),
        declines=_pad_declines,
    )
standard(
    "SPLIT_PART",
    takes(STRING, STRING, INT, gives=STRING),
    by=split_part,
    duckdb=lambda a, _r: f"split_part({', '.join(a)})",
    declines=lambda a, _r: f"({a[1]} = '' OR {a[2]} NOT BETWEEN 1 AND 1000000000)",
)
standard(
    "REPLACE",
    takes(STRING, STRING, STRING, gives=STRING),
    by=lambda s, a, b: replace(s, a, b) if a else s,
    duckdb=lambda a, _r: replace_sql(*a),
    declines=lambda a, _r: f"({a[1]} = '')",
)
standard("TRANSLATE", takes(STRING, STRING, STRING, gives=STRING), by=translate)
standard("REVERSE", takes(STRING, gives=STRING), by=_reversed, **beyond_ascii("reverse", _reversed))
standard(
    "REPEAT",
    takes(STRING, INT, gives=STRING),
    by=repeat,
    duckdb=lambda a, _r: (
        f"repeat({a[0]}, CASE WHEN {a[1]} BETWEEN 0 AND 1000 AND strlen({a[0]}) <= 10000 THEN {a[1]} WHEN {a[1]} < 0 THEN 0 END)"
    ),
    declines=lambda a, _r: f"({a[1]} > 1000 OR strlen({a[0]}) > 10000)",
)
for _name, _f in (("LEFT", left), ("RIGHT", right)):
    standard(
        _name,
        takes(STRING, INT, gives=STRING),
        by=_f,
        duckdb=named(_name.lower()),
        declines=lambda a, _r: f"({a[1]} NOT BETWEEN -1000000000 AND 1000000000)",
    )
standard("INITCAP", takes(STRING, gives=STRING), by=initcap)
standard(
    "NORMALIZE",
    takes(STRING, STRING, gives=STRING, needs=1),
    by=normalized,
)
standard(
    "ASCII",
    takes(STRING, gives=INT),
    by=lambda s: ord(s[0]) if s else 0,
    duckdb=lambda a, _r: f"CAST(ascii({a[0]}) AS INTEGER)",
)
standard("CHR", takes(INT, gives=STRING), by=character)


# --- the operator ||: NULL where a side is NULL (CONCAT leaves NULLs out) ---


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

# --- FORMAT, and quoting for statements ---

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_SPEC = re.compile(r"%(?:(%)|(?:(\d+)\$)?(-?)(\d*)([sIL]))?", re.ASCII)
# Words that PostgreSQL's QUOTE_IDENT quotes: those that are reserved there.
_WORDS = (
    "all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create current_date "
    "current_role current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for "
    "foreign from grant group having in initially intersect into lateral leading limit localtime localtimestamp not null offset on "
    "only or order placing primary references returning select session_user some symmetric table then to trailing true union unique "
    "user using variadic when where window with"
)
_RESERVED = frozenset(_WORDS.split())


def quote_ident(name: str) -> str:
    """A name in double quotes, where it needs them."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """A text in single quotes."""
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f" E{quoted}" if "\\" in text else quoted


def quote_nullable(text: str | None) -> str:
    """As `quote_literal`; NULL becomes the word NULL."""
    return "NULL" if text is None else quote_literal(text)


def formatted(pattern: str | None, *values: str | None) -> str | None:
    """PostgreSQL's FORMAT: %s is a text, %I a name, %L a constant, %2$s the second value, %-10s one of so many places. Raises ValueError."""
    if pattern is None:
        return None
    taken = total = 0

    def written(match: re.Match[str]) -> str:
        nonlocal taken, total
        percent, place, left, width, kind = match.groups()
        if percent:
            return "%"
        if not kind:
            raise ValueError(f'unrecognized format() type specifier in "{pattern}"')
        taken = int(place) if place else taken + 1
        if not 1 <= taken <= len(values):
            raise ValueError("too few arguments for format()")
        places = int(width or 0)
        check_bytes(places)
        text = _shown(values[taken - 1], kind)
        total += max(places, len(text))
        check_bytes(total)
        return text.ljust(places) if left else text.rjust(places)

    return _SPEC.sub(written, pattern)


def _shown(value: str | None, kind: str) -> str:
    if kind == "L":
        return quote_nullable(value)
    if kind == "I":
        if value is None:
            raise ValueError("null values cannot be formatted as an SQL identifier")
        return quote_ident(value)
    return "" if value is None else value


standard(
    "FORMAT",
    takes_many(STRING, STRING, gives=STRING, at_least=0),
    by=formatted,
    null_propagating=False,
)
for _name, _quoted in (
    ("QUOTE_IDENT", quote_ident),
    ("QUOTE_LITERAL", quote_literal),
    ("QUOTE_NULLABLE", quote_nullable),
):  # fmt: skip
    standard(_name, takes(STRING, gives=STRING), by=_quoted, null_propagating=_name != "QUOTE_NULLABLE")
