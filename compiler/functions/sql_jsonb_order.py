"""The order of JSONB in standard SQL, as PostgreSQL has it: objects, arrays, booleans, numbers, texts, null, the largest first.

Of arrays the one with fewer elements is less, whatever they are, and of objects the one with fewer fields; then elements, or keys with their values,
decide one after the other. An empty array that is the whole value is less than all others.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.json_values import equality_text, keys_of, read_json
from flowql.compiler.functions.registry import define, standard, takes
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import JSONB, STRING, Kind, SqlType

_NULL, _TEXT, _NUMBER, _BOOLEAN, _ARRAY, _OBJECT = (bytes([n]) for n in range(1, 7))
_END = b"\0"  # no text has such a character
_INVERTED = bytes(255 - b for b in range(256))
_EXPONENT_ZERO = 1 << 31


def order_text(text: str) -> str:
    """A text whose order, by characters, is that of the values.

    >>> sorted(["[1]", "[]", "{}", "true", "2", "-10", '"a"', "null", "[0, 0]"], key=order_text)
    ['[]', 'null', '"a"', '-10', '2', 'true', '[1]', '[0, 0]', '{}']
    """
    value = read_json(text)
    return "00" if value == [] else _bytes(value).hex()


def _bytes(value: Any) -> bytes:
    """None of them begins with those of another value, so that values may follow one another."""
    match value:
        case None:
            return _NULL
        case bool():
            return _BOOLEAN + bytes([value])
        case str():
            return _TEXT + value.encode() + _END
        case list():
            return _ARRAY + _count(value) + b"".join(map(_bytes, value))
        case dict():
            pairs = [k.encode() + _END + _bytes(value[k]) for k in keys_of(value)]
            return _OBJECT + _count(value) + b"".join(pairs)
    return _NUMBER + _number(Decimal(value))


def _count(of: Any) -> bytes:
    return len(of).to_bytes(8, "big")


def _number(value: Decimal) -> bytes:
    """The sign, the power of ten of the first digit, the digits; of a negative number inverted."""
    if not value:
        return b"\1"
    digits = "".join(map(str, value.as_tuple().digits)).lstrip("0").rstrip("0")
    size = (_EXPONENT_ZERO + value.adjusted()).to_bytes(4, "big") + digits.encode() + _END
    return b"\2" + size if value > 0 else b"\0" + size.translate(_INVERTED)


def holds_json(t: SqlType) -> bool:
    """Whether values of a type are JSONB, or have it inside."""
    return t == JSONB or any(map(holds_json, t.args)) or any(holds_json(of) for _, of in t.fields)


def _maker(t: SqlType) -> Callable[[Any], Any]:
    if t == JSONB:
        return equality_text
    if not holds_json(t):
        return lambda v: v
    if t.kind is Kind.ARRAY:
        element = _of_any(t.element)
        return lambda v: [element(x) for x in v]
    if t.kind is Kind.MAP:
        value = _of_any(t.args[1])
        return lambda v: {k: value(x) for k, x in v.items()}
    fields = {n: _of_any(of) for n, of in t.fields}
    return lambda v: {n: make(v[n]) for n, make in fields.items()}


def _of_any(t: SqlType) -> Callable[[Any], Any]:
    make = _maker(t)
    return lambda v: None if v is None else make(v)


define("sql_jsonb_equal", lambda types: Resolution(types, types[0]), lambda r: _maker(r.args[0]))
standard("JSONB_ORDER", takes(JSONB, gives=STRING), by=order_text)
