"""JSONB in standard SQL: its parts, what it holds, and what is changed in it, as PostgreSQL has them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.json_values import equality_text, keys_of, kind_of, read_json, shown, write_json
from flowql.compiler.functions.registry import define, standard, takes, takes_many
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import BOOLEAN, INT, JSONB, STRING, Kind, SqlType, array

TEXTS = array(STRING)
MISSING = object()
# Operators -> functions.
OPERATORS = {
    "->": "JSONB_FIELD", "->>": "JSONB_FIELD_TEXT", "#>": "JSONB_PATH", "#>>": "JSONB_PATH_TEXT", "?": "JSONB_HAS",
    "?|": "JSONB_HAS_ANY", "?&": "JSONB_HAS_ALL",
}  # fmt: skip


def part(value: Any, key: str | int) -> Any:
    """A field of an object, or an element of an array, from the end where the place is negative; MISSING where there is none."""
    if isinstance(value, dict):
        return value.get(key, MISSING) if isinstance(key, str) else MISSING
    if isinstance(key, str):
        return MISSING
    value = value if isinstance(value, list) else [value]  # as PostgreSQL has it
    return value[key] if -len(value) <= key < len(value) else MISSING


def _at(value: Any, path: Sequence[str | None]) -> Any:
    """The value at a path, whose numbers are indexes of arrays."""
    for step in path:
        if step is None:
            return MISSING
        value = part(value, _place(step)) if isinstance(value, list) else part(value, step)
    return value


def _place(step: str) -> int | str:
    digits = step.strip()
    sign = digits[:1] in ("-", "+")
    return int(digits) if digits[sign:].isdigit() and digits.isascii() else step


def _as_json(value: Any) -> str | None:
    return None if value is MISSING else write_json(value)


def _as_text(value: Any) -> str | None:
    return None if value is MISSING else shown(value)


def _of_part(give: Callable[[Any], str | None]) -> Callable[..., str | None]:
    return lambda text, key: give(part(read_json(text), key))


def _of_path(give: Callable[[Any], str | None]) -> Callable[..., str | None]:
    return lambda text, path: give(_at(read_json(text), path))


def _of_steps(give: Callable[[Any], str | None]) -> Callable[..., str | None]:
    return lambda text, *path: give(_at(read_json(text), path))


for _gives, _give, _end in (
    (JSONB, _as_json, ""),
    (STRING, _as_text, "_TEXT"),
):
    standard(
        f"JSONB_FIELD{_end}",
        takes(JSONB, STRING, gives=_gives),
        takes(JSONB, INT, gives=_gives),
        by=_of_part(_give),
    )
    standard(f"JSONB_PATH{_end}", takes(JSONB, TEXTS, gives=_gives), by=_of_path(_give))
    standard(
        f"JSONB_EXTRACT_PATH{_end}",
        takes_many(JSONB, STRING, gives=_gives),
        by=_of_steps(_give),
    )


# --- what it holds ---


def contains(a: Any, b: Any, *, top: bool = True) -> bool:
    """Whether one value is in another: fields and elements may be more. An array may hold a simple value at the top."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(k in a and contains(a[k], v, top=False) for k, v in b.items())
    if isinstance(a, list) and isinstance(b, list):
        return all(any(contains(x, v, top=False) for x in a) for v in b)
    if isinstance(a, list) and top and not isinstance(b, dict):
        return any(_equal(x, b) for x in a)
    return _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    return kind_of(a) == kind_of(b) and bool(a == b)


def _texts(value: Any) -> Collection[Any]:
    """The fields, the elements that are texts, or the text."""
    return (
        value
        if isinstance(value, dict)
        else {v for v in (value if isinstance(value, list) else [value]) if isinstance(v, str)}
    )


def _has(text: str, keys: Iterable[str | None], test: Callable[[Iterable[bool]], bool]) -> bool:
    found = _texts(read_json(text))
    return test(k in found for k in keys if k is not None)


standard(
    "JSONB_CONTAINS",
    takes(JSONB, JSONB, gives=BOOLEAN),
    by=lambda a, b: contains(read_json(a), read_json(b)),
)
standard(
    "JSONB_IS_IN",
    takes(JSONB, JSONB, gives=BOOLEAN),
    by=lambda a, b: contains(read_json(b), read_json(a)),
)
standard(
    "JSONB_HAS",
    takes(JSONB, STRING, gives=BOOLEAN),
    by=lambda text, key: key in _texts(read_json(text)),
)
for _name, _test in (
    ("JSONB_HAS_ANY", any),
    ("JSONB_HAS_ALL", all),
):
    standard(
        _name,
        takes(JSONB, TEXTS, gives=BOOLEAN),
        by=lambda text, keys, test=_test: _has(text, keys, test),
    )
standard("JSONB_TYPEOF", takes(JSONB, gives=STRING), by=lambda text: kind_of(read_json(text)))


def _list(text: str, what: str) -> list[Any]:
    value = read_json(text)
    if not isinstance(value, list):
        raise ValueError(f"cannot {what} of {_article(kind_of(value))}")
    return value


def _object(text: str, what: str) -> dict[str, Any]:
    value = read_json(text)
    if not isinstance(value, dict):
        raise ValueError(f"cannot {what} of {_article(kind_of(value))}")
    return value


def _article(kind: str) -> str:
    return "null" if kind == "null" else f"{'an' if kind[0] in 'ao' else 'a'} {kind}"


standard(
    "JSONB_ARRAY_LENGTH",
    takes(JSONB, gives=INT),
    by=lambda text: len(_list(text, "get the length")),
)


def _is_json(text: str, kind: str) -> bool:
    try:
        value = read_json(text)
    except ValueError:
        return False
    found = "OBJECT" if isinstance(value, dict) else "ARRAY" if isinstance(value, list) else "SCALAR"
    return kind in ("VALUE", found)


standard(
    "IS_JSON",
    takes(STRING, STRING, gives=BOOLEAN),
    takes(JSONB, STRING, gives=BOOLEAN),
    by=_is_json,
)

# --- rows of it ---
# Functions in FROM and in a select list -> the arrays whose elements are their columns, and the names of these.
ROWS = {
    "jsonb_array_elements": (("JSONB_ELEMENTS",), ("value",)),
    "jsonb_array_elements_text": (("JSONB_ELEMENTS_TEXT",), ("value",)),
    "jsonb_object_keys": (("JSONB_KEYS",), ("jsonb_object_keys",)),
    "jsonb_each": (("JSONB_KEYS", "JSONB_VALUES"), ("key", "value")),
    "jsonb_each_text": (("JSONB_KEYS", "JSONB_VALUES_TEXT"), ("key", "value")),
}


def _values(text: str) -> list[Any]:
    value = _object(text, "get the fields")
    return [value[k] for k in keys_of(value)]


for _name, _gives, _by in (
    ("JSONB_ELEMENTS", array(JSONB), lambda text: [write_json(v) for v in _list(text, "get the elements")]),
    ("JSONB_ELEMENTS_TEXT", TEXTS, lambda text: [shown(v) for v in _list(text, "get the elements")]),
    ("JSONB_KEYS", TEXTS, lambda text: keys_of(_object(text, "get the keys"))),
    ("JSONB_VALUES", array(JSONB), lambda text: [write_json(v) for v in _values(text)]),
    ("JSONB_VALUES_TEXT", TEXTS, lambda text: [shown(v) for v in _values(text)]),
):  # fmt: skip
    standard(_name, takes(JSONB, gives=_gives), by=_by)


# --- what is changed in it ---


def _joined(a: str, b: str) -> str:
    """Fields of both, the later ones in place of equal ones; or elements of both."""
    left, right = read_json(a), read_json(b)
    if isinstance(left, dict) and isinstance(right, dict):
        return write_json({**left, **right})
    lists = [v if isinstance(v, list) else [v] for v in (left, right)]
    return write_json(lists[0] + lists[1])


def without(text: str, keys: str | int | Sequence[str | None]) -> str:
    """The text of a value without a field, an element or several fields. Raises ValueError."""
    value = read_json(text)
    if isinstance(keys, int):
        if isinstance(value, dict):
            raise ValueError("cannot delete from object using integer index")
        place = keys if keys >= 0 else len(value) + keys
        return write_json([v for i, v in enumerate(value) if i != place])
    if not isinstance(value, dict | list):
        raise ValueError("cannot delete from scalar")
    gone = {keys} if isinstance(keys, str) else {*keys}
    if isinstance(value, dict):
        return write_json({k: v for k, v in value.items() if k not in gone})
    return write_json([v for v in value if not (isinstance(v, str) and v in gone)])


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return [_without_nulls(v) for v in value] if isinstance(value, list) else value


def _set(text: str, path: Sequence[str | None], new: str, create: bool = True) -> str:
    value = read_json(text)
    if not isinstance(value, dict | list):
        raise ValueError("cannot set path in scalar")
    return write_json(_with(value, list(path), read_json(new), create) if path else value)


def _with(value: Any, path: list[str | None], new: Any, create: bool) -> Any:
    step = path[0]
    if step is None:
        raise ValueError("a step of a path is NULL")
    last = len(path) == 1
    if isinstance(value, dict):
        if step not in value:
            return {**value, step: new} if last and create else value
        return {**value, step: new if last else _with(value[step], path[1:], new, create)}
    if not isinstance(value, list):
        return value
    place = _place(step)
    if not isinstance(place, int):
        raise ValueError(f'path element is not an integer: "{step}"')
    at = place if place >= 0 else len(value) + place
    if not 0 <= at < len(value):
        return ([*value, new] if place >= 0 else [new, *value]) if last and create else value
    return [*value[:at], new if last else _with(value[at], path[1:], new, create), *value[at + 1 :]]


def _lines(value: Any, indent: str) -> str:
    inner = indent + "    "
    if isinstance(value, dict):
        parts = [f"{inner}{json.dumps(k, ensure_ascii=False)}: {_lines(value[k], inner)}" for k in keys_of(value)]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}" if parts else "{\n" + f"{indent}}}"
    if isinstance(value, list):
        parts = [inner + _lines(v, inner) for v in value]
        return "[\n" + ",\n".join(parts) + f"\n{indent}]" if parts else "[\n" + f"{indent}]"
    return write_json(value)


standard("JSONB_CONCAT", takes(JSONB, JSONB, gives=JSONB), by=_joined)
standard(
    "JSONB_WITHOUT",
    takes(JSONB, STRING, gives=JSONB),
    takes(JSONB, INT, gives=JSONB),
    takes(JSONB, TEXTS, gives=JSONB),
    by=without,
)
standard(
    "JSONB_STRIP_NULLS",
    takes(JSONB, gives=JSONB),
    by=lambda text: write_json(_without_nulls(read_json(text))),
)
standard(
    "JSONB_SET",
    takes(JSONB, TEXTS, JSONB, BOOLEAN, gives=JSONB, needs=3),
    by=_set,
)
standard("JSONB_PRETTY", takes(JSONB, gives=STRING), by=lambda text: _lines(read_json(text), ""))

# --- the order of JSONB: objects, arrays, booleans, numbers, texts, null, the largest first ---
#
# An array with fewer elements is less than one with more, and an object with fewer fields less than one with more. Then elements, or keys with their values, decide one
# after the other. An empty array that is the whole value is less than all others.

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
