"""Functions of texts and URLs. Lengths and positions count Unicode characters, from 1."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote_plus, unquote, unquote_plus

from flowql.compiler.functions.bounds import (
    ELEMENTS_MAX,
    PART_MAX,
    UTF8_MAX,
    VALUE_BYTES_MAX,
    check_bytes,
    check_elements,
    parts_of,
    utf8_bytes,
)
from flowql.compiler.functions.duckdb_text import beyond_ascii
from flowql.compiler.functions.registry import Lowering, Reference, named, scalar, takes, takes_many, text
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_text import is_plain_text, null_where, whole
from flowql.compiler.functions.spark_text import text as constant_text
from flowql.compiler.plan.types import BOOLEAN, BYTES, INT, STRING, Kind, array, map_of

# --- case of long strings, part by part: `str.upper` of 1 MB of a letter with a special case keeps the interpreter lock for 70 ms ---

_SIGMA = "\u03a3"  # the one letter whose lower case depends on its neighbours: it is another one at the end of a word


def upper(text: str) -> str:
    """`str.upper`.

    >>> upper("straße")
    'STRASSE'
    """
    return text.upper() if len(text) <= PART_MAX else "".join([part.upper() for part in parts_of(text)])


def lower(text: str) -> str:
    """`str.lower`.

    >>> lower("ΟΔΟΣ")
    'οδος'
    """
    if len(text) <= PART_MAX:
        return text.lower()
    parts = parts_of(text)
    return "".join(_lower_parts(parts) if _SIGMA in text else [part.lower() for part in parts])


def _lower_parts(parts: list[str]) -> list[str]:
    """Each part between the two characters that decide about a sigma at its ends: the nearest ones that are not skipped."""
    after = [""]
    for part in reversed(parts):
        after.append(next((c for c in part if not _is_skipped(c)), after[-1]))
    before, out = "", []
    for part, behind in zip(parts, reversed(after[:-1]), strict=True):
        lowered = (before + part + behind).lower()
        out.append(lowered[len(before.lower()) : len(lowered) - len(behind.lower())])
        before = next((c for c in reversed(part) if not _is_skipped(c)), before)
    return out


def _is_skipped(c: str) -> bool:
    """Whether a character between a sigma and a letter makes no difference, such as an apostrophe or an accent."""
    return (c + _SIGMA).lower()[-1] == "\u03c3" and ("a" + c + _SIGMA).lower()[-1] == "\u03c2"


_CONTROLS = "".join(map(chr, range(33)))


def substring(s: Any, position: int, length: int | None = None) -> Any:
    """From `position`, counted from 1 or from the end when negative; 0 is the start. For texts and bytes."""
    n = len(s)
    start = position - 1 if position > 0 else (max(n + position, 0) if position < 0 else 0)
    start = min(start, n)
    if length is None:
        return s[start:]
    return s[start : start + max(length, 0)]


def legacy_substring(s: str, start: int, end: int | None = None) -> str:
    """SUBSTRING under `ksql.functions.substring.legacy.args`: 0-based start and end, failing outside the text."""
    end = len(s) if end is None else end
    if not 0 <= start <= end <= len(s):
        raise IndexError(f"begin {start}, end {end}, length {len(s)}")
    return s[start:end]


def pad_left(s: Any, length: int, padding: Any) -> Any:
    """Exactly `length` characters; NULL for a negative length or an empty padding."""
    if length < 0 or not padding:
        return None
    missing = missing_to(s, length, padding)
    return s[:length] if missing <= 0 else s[:0].join((*filled(padding, missing), s))


def pad_right(s: Any, length: int, padding: Any) -> Any:
    if length < 0 or not padding:
        return None
    missing = missing_to(s, length, padding)
    return s[:length] if missing <= 0 else s[:0].join((s, *filled(padding, missing)))


def missing_to(s: Any, length: int, padding: Any) -> int:
    """How many characters or bytes a text lacks, which are filled with copies of `padding`. Raises ValueTooLarge."""
    missing = length - len(s)
    if missing > 0 and padding:
        size = len(padding) if isinstance(padding, bytes) else utf8_bytes(padding)
        check_bytes(len(s) + missing // len(padding) * size)
    return missing


def replace(s: str, part: str, by: str) -> str:
    """`str.replace`, whose result is measured before it is made."""
    growth = utf8_bytes(by) - utf8_bytes(part)
    if growth > 0 and (len(s) + 1) * growth > VALUE_BYTES_MAX - utf8_bytes(s):
        check_bytes(utf8_bytes(s) + s.count(part) * growth)
    return s.replace(part, by)


def filled(padding: Any, n: int) -> tuple[Any, Any]:
    """The padding for n characters: a large text is copied once."""
    return padding * (n // len(padding)), padding[: n % len(padding)]


def instr(s: str, wanted: str, position: int = 1, occurrence: int = 1) -> int:
    """Where `wanted` occurs for the n-th time; searched backwards from the end for a negative position. 0: nowhere."""
    found = _from_end(s, wanted, position, occurrence) if position < 0 else _from_start(s, wanted, position, occurrence)
    return found + 1


def _from_start(s: str, wanted: str, position: int, occurrence: int) -> int:
    at = max(position - 1, 0) - 1
    for _ in range(occurrence):
        at = s.find(wanted, at + 1)
        if at < 0:
            return -1
    return at if occurrence > 0 else -1


def _from_end(s: str, wanted: str, position: int, occurrence: int) -> int:
    last = len(s) + position
    at = last + 1
    for _ in range(occurrence):
        at = s.rfind(wanted, 0, max(at - 1, -1) + len(wanted)) if at > 0 else -1
        if at < 0:
            return -1
    return at if occurrence > 0 else -1


def initcap(s: str) -> str:
    """Every word (between white space) with its first letter upper and the rest lower case."""
    out, boundary = [], True
    for c in s:
        out.append(c.upper() if boundary else c.lower())
        boundary = c.isspace()
    return "".join(out)


def split(s: Any, delimiter: Any) -> list[Any]:
    """The parts between delimiters; single characters for an empty one."""
    check_parts(s, delimiter)
    if len(delimiter):
        return list(s.split(delimiter))
    return [s[i : i + 1] for i in range(len(s))] or [s]


def check_parts(s: Any, delimiter: Any) -> None:
    """Raises ValueTooLarge for a text with too many parts between delimiters."""
    if len(s) > ELEMENTS_MAX:
        check_elements(s.count(delimiter) if len(delimiter) else len(s))


def split_to_map(s: str, entry: str, pair: str) -> dict[str, str] | None:
    """`a:1/b:2` -> {a: 1, b: 2}; entries without the second delimiter are left out."""
    if not entry or not pair:
        return None
    check_parts(s, entry)
    parts = (e.split(pair, 2) for e in s.split(entry) if e)
    return {p[0]: p[1] for p in parts if len(p) > 1}


def code_point(code: int) -> str | None:
    return chr(code) if 0 <= code <= 0x10FFFF else None


def escaped_code_point(code: str) -> str | None:
    r"""The characters of escapes such as `\u004B`; NULL for anything else."""
    units = code.split("\\u")
    if len(units) < 2 or units[0] or any(len(u) != 4 for u in units[1:]):
        return None
    try:
        raw = b"".join(int(u, 16).to_bytes(2, "big") for u in units[1:])
        return raw.decode("utf-16-be")
    except (ValueError, UnicodeDecodeError):
        return None


def _concat(r: Resolution) -> Reference:
    empty: Any = b"" if r.result.kind is Kind.BYTES else ""
    return lambda *parts: joined(empty, [p for p in parts if p is not None])


def _concat_ws(_r: Resolution) -> Reference:
    return lambda sep, *parts: None if sep is None else joined(sep, [p for p in parts if p is not None])


def joined(between: Any, parts: Sequence[Any]) -> Any:
    """`between.join(parts)`, measured before it is made: one large argument may stand in a call often."""
    if sum(map(len, parts)) + len(between) * len(parts) > VALUE_BYTES_MAX // UTF8_MAX:
        size = utf8_bytes if isinstance(between, str) else len
        check_bytes(sum(map(size, parts)) + size(between) * (len(parts) - 1))
    return between.join(parts)


def _concat_ws_sql(args: Sequence[str]) -> str:
    return f"concat_ws({', '.join(args)})"


def _texts_only(sql: Callable[[Sequence[str]], str]) -> Lowering:
    """A lowering for STRING, not for BYTES."""
    return lambda a, r: sql(a) if r.args[0].kind is Kind.STRING else ""


def replace_sql(s: str, part: str, by: str) -> str:
    """Only where the text cannot become longer: DuckDB makes any text that memory holds."""
    return f"replace({s}, {part}, {by})" if _is_constant(by) and _is_constant(part) and len(by) <= len(part) else ""


def _is_constant(sql: str) -> bool:
    """Whether the SQL of an argument is a string of ASCII characters."""
    return sql.isascii() and sql[:1] == sql[-1:] == "'" and "'" not in sql[1:-1]


def _substring_on_spark(args: Sequence[str]) -> str:
    s, position = args[0], args[1]
    known = whole(position)
    if known is None or known < 1:
        from_end = f"greatest(char_length({s}) + {position}, 0) + 1"
        position = f"(CASE WHEN {position} < 0 THEN {from_end} WHEN {position} = 0 THEN 1 ELSE {position} END)"
    return f"substring({', '.join([s, position, *args[2:]])})"


def _split_on_spark(args: Sequence[str]) -> str:
    """By a constant delimiter; Spark's is a regular expression."""
    delimiter = args[1]
    if not is_plain_text(delimiter) or delimiter == "''":
        return ""
    quoted = rf"'\\Q{delimiter[1:-1]}\\E'"
    return f"split({args[0]}, {quoted}, -1)"


def _replaced_on_spark(args: Sequence[str]) -> str:
    return f"replace({', '.join(args)})" if args[1].startswith("'") and args[1] != "''" else ""


scalar(
    "LEN",
    takes(STRING, gives=INT),
    takes(BYTES, gives=INT),
    by=len,
    aliases=("LENGTH",),
    duckdb=_texts_only(lambda a: f"CAST(length({a[0]}) AS INTEGER)"),
    spark=lambda a, r: f"{'char' if r.args[0].kind is Kind.STRING else 'octet'}_length({a[0]})",
)
scalar(
    "UCASE",
    takes(STRING, gives=STRING),
    by=upper,
    aliases=("UPPER",),
    **beyond_ascii("upper", upper),
    spark=named("upper"),  # of characters that came after Unicode 14 Spark knows more than Python
)
scalar(
    "LCASE",
    takes(STRING, gives=STRING),
    by=lower,
    aliases=("LOWER",),
    **beyond_ascii("lower", lower),
    spark=named("lower"),
)
scalar(
    "TRIM",
    takes(STRING, gives=STRING),
    by=lambda s: s.strip(_CONTROLS),
    duckdb=text(lambda a: f"trim({a}, ' ')"),  # without characters it takes all spaces of Unicode
    declines=lambda a, _r: rf"regexp_matches({a[0]}, '[\x00-\x1f]')",
    spark=text(lambda a: f"trim(BOTH {constant_text(_CONTROLS)} FROM {a})"),
)
scalar(
    "CONCAT",
    takes_many(STRING, gives=STRING),
    takes_many(BYTES, gives=BYTES),
    by_types=_concat,
    null_propagating=False,
    duckdb=_texts_only(lambda a: f"concat({', '.join(a)})"),
    spark=_texts_only(lambda a: f"concat({', '.join(f'coalesce({x}, {chr(39) * 2})' for x in a)})"),
)
scalar(
    "CONCAT_WS",
    takes_many(STRING, STRING, gives=STRING),
    takes_many(BYTES, BYTES, gives=BYTES),
    by_types=_concat_ws,
    null_propagating=False,
    duckdb=_texts_only(_concat_ws_sql),
    spark=_texts_only(_concat_ws_sql),
)
scalar(
    "SUBSTRING",
    takes(STRING, INT, INT, gives=STRING, needs=2),
    takes(BYTES, INT, INT, gives=BYTES, needs=2),
    by=substring,
    aliases=("SUBSTR",),
    duckdb=_texts_only(lambda a: f"substring({', '.join(a)})"),
    declines=lambda a, _r: (
        f"({a[1]} < 1 OR {a[1]} > 1000000000"
        + (f" OR {a[2]} NOT BETWEEN 0 AND 1000000000" if len(a) > 2 else "")
        + f" OR strlen({a[0]}) <> length({a[0]}))"
    ),
    spark=_texts_only(_substring_on_spark),
)
scalar(
    "LEGACY_SUBSTRING",
    takes(STRING, INT, INT, gives=STRING, needs=2),
    by=legacy_substring,
)


def _padding(function: str) -> Lowering:
    """Guarded by CASE: DuckDB would build the huge text of a declined row all the same."""
    return _texts_only(
        lambda a: f"(CASE WHEN {a[1]} BETWEEN 0 AND 100000 THEN TRY({function}({', '.join(a)})) ELSE NULL END)"
    )


def _padded_on_spark(function: str) -> Lowering:
    def sql(a: Sequence[str]) -> str:
        none = f"{a[1]} < 0 OR {a[2]} = '' OR {_too_long(a)}"
        return null_where(none, f"{function}({', '.join(a)})")

    return _texts_only(sql)


def _too_long(a: Sequence[str], _r: Resolution | None = None) -> str:
    """Whether padding makes more bytes than a value may have."""
    copies = f"(CAST({a[1]} AS BIGINT) - char_length({a[0]})) DIV nullif(char_length({a[2]}), 0)"
    size = f"octet_length({a[0]}) + {copies} * octet_length({a[2]})"
    large = f"({a[1]} > {VALUE_BYTES_MAX} OR {a[1]} > {VALUE_BYTES_MAX // 4} AND {size} > {VALUE_BYTES_MAX})"
    return f"({a[0]} IS NOT NULL AND {a[2]} <> '' AND {large})"


for _name, _pad in (("LPAD", pad_left), ("RPAD", pad_right)):
    scalar(
        _name,
        takes(STRING, INT, STRING, gives=STRING),
        takes(BYTES, INT, BYTES, gives=BYTES),
        by=_pad,
        duckdb=_padding(_name.lower()),
        declines=lambda a, _r: f"({a[1]} NOT BETWEEN 0 AND 100000 OR {a[2]} = '')",
        spark=_padded_on_spark(_name.lower()),
        spark_fails=_too_long,
    )
scalar(
    "REPLACE",
    takes(STRING, STRING, STRING, gives=STRING),
    by=replace,
    duckdb=lambda a, _r: replace_sql(*a),
    declines=lambda a, _r: f"({a[1]} = '')",
    spark=_texts_only(_replaced_on_spark),
)
scalar(
    "INSTR",
    takes(STRING, STRING, INT, INT, gives=INT, needs=2),
    by=instr,
    duckdb=lambda a, _r: f"CAST(instr({a[0]}, {a[1]}) AS INTEGER)" if len(a) == 2 else "",
    spark=lambda a, _r: f"instr({a[0]}, {a[1]})" if len(a) == 2 else "",
)
scalar(
    "MD5",
    takes(STRING, gives=STRING),
    by=lambda s: hashlib.md5(s.encode(), usedforsecurity=False).hexdigest(),
    duckdb=named("md5"),
)
scalar("INITCAP", takes(STRING, gives=STRING), by=initcap)
scalar(
    "SPLIT",
    takes(STRING, STRING, gives=array(STRING)),
    takes(BYTES, BYTES, gives=array(BYTES)),
    by=split,
    duckdb=_texts_only(lambda a: f"string_split({a[0]}, {a[1]})"),
    declines=_texts_only(lambda a: f"({a[1]} IS NULL OR {a[1]} = '')"),
    spark=_texts_only(_split_on_spark),
)
scalar("SPLIT_TO_MAP", takes(STRING, STRING, STRING, gives=map_of(STRING, STRING)), by=split_to_map)
scalar(
    "CHR",
    takes(INT, gives=STRING),
    takes(STRING, gives=STRING),
    by_types=lambda r: code_point if r.args[0].kind is Kind.INT else escaped_code_point,
)


for _name, _test in (("STARTS_WITH", str.startswith), ("ENDS_WITH", str.endswith)):
    scalar(
        _name,
        takes(STRING, STRING, gives=BOOLEAN),
        by=_test,
        duckdb=named(_name.lower()),
        spark=named(_name.lower().replace("_", "")),
    )

# --- parts of URLs ---

_URL = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):)?(?P<rest>(?://(?P<authority>[^/?#]*+))?(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?)(?:#(?P<fragment>.*))?"
)
_AUTHORITY = re.compile(r"(?:[^@]*@)?(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])?(?::(?P<port>\d*))?")
_NOT_IN_URLS = re.compile(r"[\s\x00-\x20\x7f\"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})")


def _part(url: str, name: str) -> str | None:
    """A part of a URL, as RFC 2396 divides it, decoded; None where it is absent.

    A URL that has a scheme and then no slash (`mailto:a@b`) has neither path nor query. Raises ValueError for what is no URL.
    """
    found = _URL.fullmatch(url)
    if found is None or _NOT_IN_URLS.search(url):
        raise ValueError(f"{url!r} is not a URL")
    if found["scheme"] and not found["rest"].startswith("/") and name in ("path", "query"):
        return None
    value = found[name]
    return None if value is None else unquote(value)


def _server(url: str, name: str) -> str | None:
    """Host or port; both are None where the authority is no host name (it may be a name of another kind of registry)."""
    found = _AUTHORITY.fullmatch(_part(url, "authority") or "")
    return None if found is None or not found["host"] else found[name]


def _port(url: str) -> int | None:
    text = _server(url, "port")
    return int(text) if text else None


def _parameter(url: str, name: str) -> str | None:
    pairs = (p.partition("=") for p in (_part(url, "query") or "").split("&"))
    return next((v for k, _, v in pairs if k == name), None)


_PARTS: tuple[tuple[str, Callable[[str], Any]], ...] = (
    ("URL_EXTRACT_HOST", lambda u: _server(u, "host")),
    ("URL_EXTRACT_PORT", _port),
    ("URL_EXTRACT_PROTOCOL", lambda u: _part(u, "scheme")),
    ("URL_EXTRACT_PATH", lambda u: _part(u, "path")),
    ("URL_EXTRACT_QUERY", lambda u: _part(u, "query")),
    ("URL_EXTRACT_FRAGMENT", lambda u: _part(u, "fragment")),
)
for _name, _of in _PARTS:
    _what = _name.rpartition("_")[2].lower()
    scalar(_name, takes(STRING, gives=INT if _what == "port" else STRING), by=_of)
scalar("URL_EXTRACT_PARAMETER", takes(STRING, STRING, gives=STRING), by=_parameter)
scalar("URL_ENCODE_PARAM", takes(STRING, gives=STRING), by=lambda s: quote_plus(s, safe="*-._"))
scalar("URL_DECODE_PARAM", takes(STRING, gives=STRING), by=unquote_plus)

# --- characters hidden by their class ---


def mask(s: str, upper: str | None, lower: str | None, digit: str | None, other: str | None) -> str:
    """Each character replaced by that of its class; a NULL replacement keeps the class as it is."""
    check_bytes(len(s) * max(len(r or "") for r in (upper, lower, digit, other)))
    return "".join(_mask_one(c, upper, lower, digit, other) for c in s)


def _mask_one(c: str, upper: str | None, lower: str | None, digit: str | None, other: str | None) -> str:
    category = unicodedata.category(c)
    if category == "Lu":
        replacement = upper
    elif category == "Ll":
        replacement = lower
    else:
        replacement = digit if category == "Nd" else other
    return c if replacement is None else replacement


def _masker(upper: str, lower: str, digit: str, other: str) -> Reference:
    return lambda s, u=upper, low=lower, d=digit, o=other: None if s is None else mask(s, u, low, d, o)


def _partial_mask(keep: str) -> Reference:
    """MASK_LEFT and its kin: `n` characters masked or kept at one end."""

    def run(s: str | None, n: int | None, *characters: str | None) -> str | None:
        if s is None or n is None:
            return None
        if n < 0:
            raise ValueError(f"the number of characters must not be negative, got {n}")
        u, low, d, o = characters or ("X", "x", "n", "-")
        cut = min(n, len(s)) if keep in ("right", "left") else max(len(s) - n, 0)
        head, tail = s[:cut], s[cut:]
        if keep in ("right", "right_kept"):
            return mask(head, u, low, d, o) + tail
        return head + mask(tail, u, low, d, o)

    return run


_FOUR = (STRING, STRING, STRING, STRING)
scalar(
    "MASK",
    takes(STRING, gives=STRING),
    takes(STRING, *_FOUR, gives=STRING),
    by=_masker("X", "x", "n", "-"),
    null_propagating=False,
)
for _name, _keep in (
    ("MASK_LEFT", "right"),
    ("MASK_RIGHT", "left_kept"),
    ("MASK_KEEP_LEFT", "left"),
    ("MASK_KEEP_RIGHT", "right_kept"),
):
    scalar(
        _name,
        takes(STRING, INT, gives=STRING),
        takes(STRING, INT, *_FOUR, gives=STRING),
        by=_partial_mask(_keep),
        null_propagating=False,
    )
