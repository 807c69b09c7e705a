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


define(
    "sql_to_array",
    cast_resolver(array(STRING)),
    _to_array,
    summary="Parses an array in PostgreSQL's braces.",
    example="CAST('{a,\"b c\",NULL}' AS TEXT[]) -> ['a', 'b c', None]",
)


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
    summary="Appends a value. Also `array || value`.",
    example="ARRAY_APPEND(ARRAY[1, 2], 3) -> [1, 2, 3]",
)
standard(
    "ARRAY_PREPEND",
    takes(T, _LIST, gives=_LIST),
    by=lambda v, values: [v, *(values or [])],
    null_propagating=False,
    summary="Prepends a value. Also `value || array`.",
    example="ARRAY_PREPEND(0, ARRAY[1, 2]) -> [0, 1, 2]",
)
standard(
    "ARRAY_CAT",
    takes(_LIST, _LIST, gives=_LIST),
    by=lambda a, b: None if a is None and b is None else [*(a or []), *(b or [])],
    null_propagating=False,
    summary="Concatenates two arrays. Also `a || b`.",
    example="ARRAY_CAT(ARRAY[1], ARRAY[2, 3]) -> [1, 2, 3]",
)
standard(
    "ARRAY_POSITION",
    takes(_LIST, T, gives=INT),
    takes(_LIST, T, INT, gives=INT),
    by=_place,
    null_propagating=False,
    summary="Position of the first equal element, from an optional position; NULL if missing.",
    example="ARRAY_POSITION(ARRAY['a', 'b', 'a'], 'a', 2) -> 3",
)
standard(
    "ARRAY_POSITIONS",
    takes(_LIST, T, gives=ArrayOf(INT)),
    by=lambda values, v: None if values is None else [i for i, x in enumerate(values, 1) if x == v],
    null_propagating=False,
    summary="Positions of all equal elements.",
    example="ARRAY_POSITIONS(ARRAY['a', 'b', 'a'], 'a') -> [1, 3]",
)
standard(
    "ARRAY_REPLACE",
    takes(_LIST, T, T, gives=_LIST),
    by=lambda values, a, b: None if values is None else [b if x == a else x for x in values],
    null_propagating=False,
    summary="Replaces elements equal to a value.",
    example="ARRAY_REPLACE(ARRAY[1, 2, 1], 1, 9) -> [9, 2, 9]",
)
standard(
    "ARRAY_REMOVE",
    takes(_LIST, T, gives=_LIST),
    by=lambda values, v: None if values is None else [x for x in values if x != v],
    null_propagating=False,
    summary="Removes elements equal to a value.",
    example="ARRAY_REMOVE(ARRAY[1, 2, 1], 1) -> [2]",
)
standard(
    "ARRAY_REVERSE",
    takes(_LIST, gives=_LIST),
    by=lambda values: values[::-1],
    summary="Reverses the array.",
    example="ARRAY_REVERSE(ARRAY[1, 2]) -> [2, 1]",
)
standard(
    "ARRAY_FILL",
    takes(T, ArrayOf(INT), gives=_LIST),
    by=_filled,
    null_propagating=False,
    summary="Array of equal elements, with a size for each dimension.",
    example="ARRAY_FILL(7, ARRAY[3]) -> [7, 7, 7]",
)
standard(
    "TRIM_ARRAY",
    takes(_LIST, INT, gives=_LIST),
    by=_trimmed,
    summary="Removes the last n elements.",
    example="TRIM_ARRAY(ARRAY[1, 2, 3], 2) -> [1]",
)
for _name, _by, _summary, _example in (
    ("ARRAY_LOWER", lambda values, d: 1 if d == 1 and values else None, "First position of a dimension; NULL if empty.", "(ARRAY[7], 1) -> 1"),
    ("ARRAY_UPPER", lambda values, d: len(values) if d == 1 and values else None, "Last position of a dimension; NULL if empty.", "(ARRAY[7, 8], 1) -> 2"),
):  # fmt: skip
    standard(
        _name,
        takes(_LIST, INT, gives=INT),
        by=_by,
        summary=_summary,
        example=f"{_name}{_example}",
    )
for _name, _by, _summary, _example in (
    ("ARRAY_HAS_ALL", _has_all, "Whether the left array has every element of the right.", "ARRAY[1, 2] @> ARRAY[2] -> True"),
    ("ARRAY_IS_IN", lambda a, b: _has_all(b, a), "Whether the right array has every element of the left.", "ARRAY[2] <@ ARRAY[1, 2] -> True"),
    ("ARRAY_HAS_ANY", _has_any, "Whether two arrays have an element in common.", "ARRAY[1] && ARRAY[2] -> False"),
):  # fmt: skip
    standard(
        _name,
        takes(_LIST, _LIST, gives=BOOLEAN),
        by=_by,
        summary=_summary,
        example=_example,
    )


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


for _name, _every, _summary, _example in (
    ("ANY_ELEMENT", False, "Whether a comparison holds for any element.", "2 = ANY (ARRAY[1, 2]) -> True"),
    ("ALL_ELEMENT", True, "Whether a comparison holds for all elements.", "2 < ALL (ARRAY[1, 3]) -> False"),
):  # fmt: skip
    standard(
        _name,
        takes(STRING, T, _LIST, gives=BOOLEAN),
        by=_quantified(every=_every),
        null_propagating=False,
        summary=_summary,
        example=_example,
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


standard(
    "ARRAY_DIMS",
    takes(_LIST, gives=STRING),
    by_types=_dimensions,
    summary="Bounds of each dimension; NULL if empty.",
    example="ARRAY_DIMS(ARRAY[ARRAY[1, 2], ARRAY[3, 4]]) -> '[1:2][1:2]'",
)
standard(
    "ARRAY_NDIMS",
    takes(_LIST, gives=INT),
    by_types=_dimensions,
    summary="Number of dimensions; NULL if empty.",
    example="ARRAY_NDIMS(ARRAY[ARRAY[1, 2], ARRAY[3, 4]]) -> 2",
)
