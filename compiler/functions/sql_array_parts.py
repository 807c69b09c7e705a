"""Arrays made of others in standard SQL, what is found in them, and how PostgreSQL writes them as texts: `{1,NULL,"a b"}`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

from flowql.compiler.functions.registry import Reference, define, lookup, standard, takes
from flowql.compiler.functions.signatures import ArrayOf, Resolution, T
from flowql.compiler.functions.sql_casts import cast_resolver, sql_cast
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, Kind, SqlType, array

_LIST = ArrayOf(T)
_ELEMENTS_MAX = 1_000_000
# Operators between arrays -> the function in the syntax tree.
OPERATORS = {"@>": "ARRAY_HAS_ALL", "<@": "ARRAY_IS_IN", "&&": "ARRAY_HAS_ANY"}
_PART = re.compile(r'\s*(?:([{},])|"((?:[^"\\]|\\.)*)"|((?:[^{},"\\]|\\.)+))', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


# --- texts ---


def read_array(text: str) -> list[Any]:
    """The texts in `{a,"b c",NULL,{d}}`; a NULL in quotes is a text. Raises ValueError."""
    parts = _parts(text)
    if next(parts, None) != ("sign", "{"):
        raise ValueError(f'malformed array literal: "{text}"')
    found = _items(parts, text)
    if next(parts, None) is not None:
        raise ValueError(f'malformed array literal: "{text}"')
    return found


def _parts(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _PART.match(text, at)
        if match is None:
            raise ValueError(f'malformed array literal: "{text}"')
        at = match.end()
        sign, quoted, bare = match.groups()
        if sign:
            yield "sign", sign
        elif quoted is not None:
            yield "quoted", _ESCAPED.sub(r"\1", quoted)
        elif bare.strip():
            yield "bare", _ESCAPED.sub(r"\1", bare.strip())


def _items(parts: Iterator[tuple[str, str]], text: str) -> list[Any]:
    """The items up to the closing brace."""
    found: list[Any] = []
    after_item = False
    for kind, part in parts:
        if kind == "sign" and part == "}" and (after_item or not found):
            return found
        if kind == "sign" and part == ",":
            if not after_item:
                break
            after_item = False
            continue
        if after_item or (part == "}" and kind == "sign"):
            break
        found.append(
            _items(parts, text) if kind == "sign" else None if kind == "bare" and part.upper() == "NULL" else part
        )
        after_item = True
    raise ValueError(f'malformed array literal: "{text}"')


def _reader(t: SqlType) -> Reference:
    """A text, or a list of them, as a value of the type."""
    if t.kind is Kind.ARRAY:
        of_element = _reader(t.element)

        def items(found: Any) -> Any:
            if not isinstance(found, list):
                raise ValueError(f'malformed array literal: "{found}"')
            return [None if v is None else of_element(v) for v in found]

        return items
    if t == STRING:
        of_text: Reference = _same
    else:
        function = lookup(sql_cast(STRING, t) or "cast")
        assert function is not None
        of_text = function.reference(Resolution((STRING,), t))

    def one(found: Any) -> Any:
        if isinstance(found, list):
            raise ValueError("the array has more dimensions than its type")
        return of_text(found)

    return one


def _same(v: Any) -> Any:
    return v


def _to_array(r: Resolution) -> Reference:
    read = _reader(r.result)
    return lambda text: read(read_array(text))


define("sql_to_array", cast_resolver(array(STRING)), _to_array)


# --- parts ---


def _place(values: list[Any] | None, wanted: Any, start: int | None = 1) -> int | None:
    if values is None or start is None:
        return None
    found = (i for i in range(max(start, 1), len(values) + 1) if values[i - 1] == wanted)
    return next(found, None)


def _has_all(values: list[Any], wanted: list[Any]) -> bool:
    known = {_hashable(v) for v in values}
    return all(v is not None and _hashable(v) in known for v in wanted)


def _has_any(values: list[Any], wanted: list[Any]) -> bool:
    known = {_hashable(v) for v in wanted}
    return any(v is not None and _hashable(v) in known for v in values)


def _hashable(value: Any) -> Any:
    """Two are equal where the values are."""
    if isinstance(value, list):
        return tuple(map(_hashable, value))
    return frozenset((k, _hashable(v)) for k, v in value.items()) if isinstance(value, dict) else value


def _filled(value: Any, counts: list[int] | None) -> list[Any] | None:
    if counts is None or None in counts:
        raise ValueError("dimension values cannot be null")
    if len(counts) != 1:
        raise ValueError("an array has one dimension here")
    if counts[0] > _ELEMENTS_MAX:
        raise ValueError(f"an array of {counts[0]} elements is longer than {_ELEMENTS_MAX}")
    return [value] * max(counts[0], 0)


def _trimmed(values: list[Any], count: int) -> list[Any]:
    if not 0 <= count <= len(values):
        raise ValueError(f"number of elements to trim must be between 0 and {len(values)}")
    return values[: len(values) - count]


standard(
    "ARRAY_APPEND",
    takes(_LIST, T, gives=_LIST),
    by=lambda values, v: [*(values or []), v],
    null_propagating=False,
)
standard(
    "ARRAY_PREPEND",
    takes(T, _LIST, gives=_LIST),
    by=lambda v, values: [v, *(values or [])],
    null_propagating=False,
)
standard(
    "ARRAY_CAT",
    takes(_LIST, _LIST, gives=_LIST),
    by=lambda a, b: None if a is None and b is None else [*(a or []), *(b or [])],
    null_propagating=False,
)
standard(
    "ARRAY_POSITION",
    takes(_LIST, T, gives=INT),
    takes(_LIST, T, INT, gives=INT),
    by=_place,
    null_propagating=False,
)
standard(
    "ARRAY_POSITIONS",
    takes(_LIST, T, gives=ArrayOf(INT)),
    by=lambda values, v: None if values is None else [i for i, x in enumerate(values, 1) if x == v],
    null_propagating=False,
)
standard(
    "ARRAY_REPLACE",
    takes(_LIST, T, T, gives=_LIST),
    by=lambda values, a, b: None if values is None else [b if x == a else x for x in values],
    null_propagating=False,
)
standard(
    "ARRAY_REMOVE",
    takes(_LIST, T, gives=_LIST),
    by=lambda values, v: None if values is None else [x for x in values if x != v],
    null_propagating=False,
)
standard("ARRAY_REVERSE", takes(_LIST, gives=_LIST), by=lambda values: values[::-1])
standard("ARRAY_FILL", takes(T, ArrayOf(INT), gives=_LIST), by=_filled, null_propagating=False)
standard("TRIM_ARRAY", takes(_LIST, INT, gives=_LIST), by=_trimmed)
for _name, _by in (
    ("ARRAY_LOWER", lambda values, d: 1 if d == 1 and values else None),
    ("ARRAY_UPPER", lambda values, d: len(values) if d == 1 and values else None),
):  # fmt: skip
    standard(_name, takes(_LIST, INT, gives=INT), by=_by)
for _name, _by in (
    ("ARRAY_HAS_ALL", _has_all),
    ("ARRAY_IS_IN", lambda a, b: _has_all(b, a)),
    ("ARRAY_HAS_ANY", _has_any),
):  # fmt: skip
    standard(_name, takes(_LIST, _LIST, gives=BOOLEAN), by=_by)


# --- x = ANY (array) ---

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _quantified(*, every: bool) -> Callable[..., bool | None]:
    """Unknown where only what is NULL could decide."""

    def run(op: str, v: Any, values: list[Any] | None) -> bool | None:
        if values is None:
            return None
        compares = _COMPARISONS[op]
        found = [None if v is None or x is None else bool(compares(v, x)) for x in values]
        if (not every) in found:
            return not every
        return None if None in found else every

    return run


for _name, _every in (
    ("ANY_ELEMENT", False),
    ("ALL_ELEMENT", True),
):  # fmt: skip
    standard(
        _name,
        takes(STRING, T, _LIST, gives=BOOLEAN),
        by=_quantified(every=_every),
        null_propagating=False,
    )


# --- dimensions ---


def _lengths(v: list[Any], depth: int) -> list[int]:
    """How many elements there are in each dimension; of arrays in an array those of the first one. Empty for an empty array.

    Raises ValueError for arrays of different lengths in one array.
    """
    if not v or depth == 1:
        return [len(v)] if v else []
    inner = [_lengths(x or [], depth - 1) for x in v]
    if any(i != inner[0] for i in inner):
        raise ValueError("arrays of different lengths have no dimensions")
    return [len(v), *inner[0]]


def _depth(t: SqlType) -> int:
    return 1 + _depth(t.element) if t.kind is Kind.ARRAY else 0


def _dimensions(r: Resolution) -> Reference:
    depth = _depth(r.args[0])

    def written(v: list[Any]) -> str | None:
        return "".join(f"[1:{n}]" for n in _lengths(v, depth)) or None

    def counted(v: list[Any]) -> int | None:
        return len(_lengths(v, depth)) or None

    return counted if r.result == INT else written


standard("ARRAY_DIMS", takes(_LIST, gives=STRING), by_types=_dimensions)
standard("ARRAY_NDIMS", takes(_LIST, gives=INT), by_types=_dimensions)
