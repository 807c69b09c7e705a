"""Arguments that are long, deep, wide, huge or malformed, by type."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

from flowql.compiler.plan.types import JSONB, SPAN, UUID, Kind, SqlType

MEGA = 1 << 20
LONG = 16 * MEGA  # the limit of a value


@cache
def long_texts(size: int) -> tuple[str, ...]:
    """Texts of about `size` characters."""
    n = max(size, 2)
    return (
        "a" * n, "ab" * (n // 2), "a" * (n - 1) + "b", " " * n, "ß" * n, "İ" * (n // 2), "e\u0301" * (n // 2), "😀" * (n // 4), "\0" * n,
        "\ud800" * (n // 2), "9" * n, "1." + "0" * n, "1e" + "9" * n, "0x" + "f" * n, "-" * n, "%" * n, "%25" * (n // 3), "%a" * (n // 2), "_" * n,
        "'" * n, '"' * n, "\\" * n, "\\u0041" * (n // 6), "a,b" * (n // 3), "a:1/" * (n // 4), "a b " * (n // 4), "yyyy-MM-dd" * (n // 10), "HH24" * (n // 4),
        "[" * n, "{" * n, '{"a":' * (n // 5), "[" * (n // 2) + "]" * (n // 2), '{"a":' * (n // 6) + "1" + "}" * (n // 6), "[" + "0," * (n // 2) + "0]",
        "{" + ",".join(f'"k{i}":{i}' for i in range(n // 12)) + "}", "[" + "9" * n + "]", "[1e" + "9" * n + "]", "[1e999999]", '"' + "\\u00e9" * (n // 6) + '"',
        '{"a":"' + "x" * n + '"}', "{" + ",".join("NULL" for _ in range(n // 5)) + "}", "{" * (n // 2) + "}" * (n // 2), "{a,b" + ",b" * (n // 2) + "}",
        "$" + ".a" * (n // 2), "$" + "[0]" * (n // 3), "$" + "..*" * (n // 3), "$['" + "a" * n + "']", "http://" + "a." * (n // 2) + "/?" + "a=b&" * (n // 8),
        "://" * (n // 3), "?" + "&" * n, "a=" * (n // 2), "%zz" * (n // 3), "P" + "1D" * (n // 2), "1 day " * (n // 6), "-" * n + "1 day", "1" * n + " days",
        "2024-01-01T00:00:00." + "0" * n, "1" * n + "-01-01", "00:" * (n // 3), "+" + "0" * n + "1", "FM" + "9," * (n // 2), "9" * (n // 2) + "D" + "9" * (n // 2),
        "".join(chr(0x300 + i % 80) for i in range(min(n, 1 << 16))) * max(1, n >> 16), "a\u0301\u0327" * (n // 3), "가" * (n // 3), "\ufdfa" * (n // 18), "<" * n, "x" * n + "\n",
        "(" * n, "(a*)*" * (n // 5), "[a-z]" * (n // 5), "a{1000}" * (n // 7), "(?:" * (n // 3), "%s" * (n // 2), "%1$s" * (n // 4), "%99999999s" * (n // 10),
    )  # fmt: skip


SHORT = (
    "", " ", "a", "ab", "0", "1", "-1", "%", "_", "$", "$.a", "$[0]", "$..a", ",", ".", "/", ":", "\0", "\ud800", "😀", "e\u0301", "İ", "null", "true", "[]", "{}",
    "[[]]", "NaN", "Infinity", "-Infinity", "1e308", "1e-400", "1e400", "1e99999", "9999999999999999999999999999999999999999", "0.1", "hex", "base64", "utf8",
    "ascii", "ASC", "DESC", "UTC", "Europe/Berlin", "+18:00", "Nowhere", "yyyy-MM-dd", "YYYY-MM-DD", "HH24:MI:SS.US", "9999-12-31", "0000-00-00", "-9999-01-01",
    "294276-12-31", "4713-01-01 BC", "24:00:00", "century", "year", "epoch", "day", "1 day", "P1Y", "999999999 years", "%99999999s", "%999999999999$s", "FM9.9EEEE",
    "RN", "PR", "NFKC", "NFD", "LITTLE_ENDIAN", "MILES", "(a+)+$", "(.*)*x", "\\1", "$1", "(?<=a)b", "^(([a-z])+.)+[A-Z]$", "550e8400-e29b-41d4-a716-446655440000",
)  # fmt: skip
INTS = (0, 1, -1, 2, 10, 38, 63, 64, 1000, 65536, 10**6, 10**7, 16 * MEGA, 16 * MEGA + 1, 2**31 - 1, -(2**31))
BIGS = (*INTS, 2**53, 2**63 - 1, -(2**63), 253402300799999, -62135596800000, 10**15)
DOUBLES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e308,
    -1e308,
    5e-324,
    1e-300,
    2.0**63,
    math.inf,
    -math.inf,
    math.nan,
    12345.678,
    300.0,
)
DAYS = (0, -719162, 2932896, 2**31 - 1, -(2**31), 19000)


def value(t: SqlType, r: random.Random, size: int) -> Any:
    """A value of a type: mostly adversarial, at most about `size` characters or elements; now and then NULL."""
    if r.random() < 0.03:
        return None
    make = _MAKE.get(t.kind)
    return None if make is None else make(t, r, size)


def _text(t: SqlType, r: random.Random, size: int) -> str:
    if t == JSONB:
        return r.choice(_json(min(size, MEGA)))
    if t == UUID:
        return "550e8400-e29b-41d4-a716-446655440000"
    if t == SPAN:
        return "0 0 0"
    if r.random() < 0.4:
        return r.choice(SHORT)
    return r.choice(long_texts(size))


@cache
def _json(size: int) -> tuple[str, ...]:
    """Canonical texts of JSONB."""
    from flowql.compiler.functions.json_values import canonical

    found = ["1", '"a"', "null", "[]", "{}"]
    for text in long_texts(size):
        try:
            found.append(canonical(text))
        except Exception:
            continue
    return tuple(found)


def _decimal(t: SqlType, r: random.Random, _size: int) -> Decimal:
    top = 10**t.precision - 1
    return Decimal(r.choice([0, 1, -1, top, -top, r.randint(-top, top)])).scaleb(-t.scale)


def _bytes(_t: SqlType, r: random.Random, size: int) -> bytes:
    return r.choice([b"", b"\0", b"a", b"\xff" * 8, bytes(size), b"ab" * (size // 2), b"\xff" * size])


def _array(t: SqlType, r: random.Random, size: int) -> list[Any]:
    element = t.element
    count = r.choice([0, 1, 3, 100, max(size // 16, 1)])
    if element.kind in (Kind.STRING, Kind.ARRAY, Kind.MAP, Kind.STRUCT) and r.random() < 0.3:
        return [value(element, r, max(size // 4, 1)) for _ in range(r.choice([1, 3]))]
    some = [value(element, r, 8) for _ in range(min(count, 50))]
    if element.kind is Kind.STRING and r.random() < 0.5:
        return [f"{i}" for i in range(count)]
    if element.is_numeric and element.kind is not Kind.DECIMAL and r.random() < 0.5:
        of = float if element.kind is Kind.DOUBLE else int
        return [of(count - i) for i in range(count)]
    return (some * (count // max(len(some), 1) + 1))[:count]


def _map(t: SqlType, r: random.Random, size: int) -> dict[Any, Any]:
    key, of = t.args
    count = r.choice([0, 1, 3, 100, max(size // 64, 1)])
    if key.kind is not Kind.STRING:
        return {k: value(of, r, 8) for k in (value(key, r, 8) for _ in range(min(count, 100))) if k is not None}
    one = value(of, r, 8)
    return {f"k{i}": one for i in range(count)}


def _struct(t: SqlType, r: random.Random, size: int) -> dict[str, Any]:
    return {n: value(of, r, size) for n, of in t.fields}


def _one_of(values: Sequence[Any]) -> Callable[[SqlType, random.Random, int], Any]:
    return lambda _t, r, _size: r.choice(values)


_MAKE: dict[Kind, Callable[[SqlType, random.Random, int], Any]] = {
    Kind.BOOLEAN: _one_of((True, False)),
    Kind.INT: _one_of(INTS),
    Kind.BIGINT: _one_of(BIGS),
    Kind.DOUBLE: _one_of(DOUBLES),
    Kind.DECIMAL: _decimal,
    Kind.STRING: _text,
    Kind.BYTES: _bytes,
    Kind.DATE: _one_of(DAYS),
    Kind.TIME: _one_of((0, 86_399_999)),
    Kind.TIMESTAMP: _one_of((0, 253402300799999, -62135596800001, 2**63 - 1, -(2**63))),
    Kind.MICROS: _one_of((0, 253402300799999999, -62135596800000001, 2**63 - 1, -(2**63))),
    Kind.INTERVAL: _one_of(((0, 0, 0), (1, 1, 1), (2**31 - 1, 2**31 - 1, 2**63 - 1), (-(2**31), 0, 0))),
    Kind.ARRAY: _array,
    Kind.MAP: _map,
    Kind.STRUCT: _struct,
}


def shortened(v: Any) -> str:
    """A value for a report."""
    if isinstance(v, (str, bytes)) and len(v) > 40:
        return f"{v[:16]!r}...[{len(v):,}]"
    if isinstance(v, (list, dict)) and len(v) > 4:
        first = list(v.items())[:2] if isinstance(v, dict) else v[:2]
        return f"{type(v).__name__}{[shortened(x) for x in first]}...[{len(v):,}]"
    text = repr(v)
    return text if len(text) <= 80 else f"{text[:60]}...[{len(text):,}]"
