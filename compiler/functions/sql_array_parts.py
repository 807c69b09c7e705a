"""Arrays in standard SQL: made of others and of texts, searched, as series, and as PostgreSQL writes them: `{1,NULL,"a b"}`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from flowql.compiler.functions.bounds import check_elements, parts_of
from flowql.compiler.functions.registry import Reference, define, lookup, standard, takes
from flowql.compiler.functions.signatures import ArrayOf, FunctionTypeError, Resolution, T
from flowql.compiler.functions.sql_calendar import common_moment
from flowql.compiler.functions.sql_casts import cast_resolver, sql_cast
from flowql.compiler.functions.sql_intervals import Interval, total_micros
from flowql.compiler.functions.sql_text_casts import text_writer
from flowql.compiler.functions.sql_time_arithmetic import later, later_micros
from flowql.compiler.functions.strings import joined
from flowql.compiler.functions.values import same
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    INT,
    INTERVAL,
    STRING,
    TIMESTAMP,
    Kind,
    SqlType,
    array,
    decimal,
    map_of,
)

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
    takes(_LIST, T, INT, gives=INT, needs=2),
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

# --- lists of which standard SQL makes rows ---

_MOMENTS = (Kind.TIMESTAMP, Kind.MICROS)
_TIMES = (Kind.DATE, *_MOMENTS)


def _series_types(types: tuple[SqlType, ...]) -> Resolution:
    kinds = {t.kind for t in types} - {Kind.NULL}
    if len(types) == 3 and kinds <= {*_TIMES, Kind.INTERVAL} and types[2].kind in (Kind.INTERVAL, Kind.NULL):
        moment = next((t for t in types[:2] if t.kind is Kind.TIMESTAMP), TIMESTAMP)
        moment = common_moment(types[0], types[1]) or moment
        if types[0].kind is Kind.NULL or types[1].kind is Kind.NULL:
            moment = next((t for t in types[:2] if t.kind in _MOMENTS), TIMESTAMP)
        return Resolution((moment, moment, INTERVAL), array(moment))
    if len(types) not in (2, 3) or not kinds <= {Kind.INT, Kind.BIGINT, Kind.DECIMAL}:
        given = ", ".join(map(str, types))
        raise FunctionTypeError(
            f"generate_series({given}) does not exist",
            "write two whole or decimal numbers and a step, or two times and an INTERVAL",
        )
    one = BIGINT if Kind.BIGINT in kinds else INT
    if Kind.DECIMAL in kinds:
        one = decimal(38, max(t.scale for t in types if t.kind is Kind.DECIMAL))
    return Resolution(tuple(one for _ in types), array(one))


def _series(r: Resolution) -> Reference:
    move = {Kind.TIMESTAMP: later, Kind.MICROS: later_micros}.get(r.args[0].kind)
    return _numbers if move is None else partial(_times, move)


def _numbers(first: int | Decimal, last: int | Decimal, step: int | Decimal = 1) -> list[Any]:
    """From one to another. Raises ValueError for steps of zero."""
    if not step:
        raise ValueError("the step of generate_series must not be zero")
    count = max(int((last - first) // step) + 1, 0) if (last >= first) == (step > 0) or last == first else 0
    return [first + n * step for n in range(_checked(count))]


def _times(move: Callable[[int, Interval], int], first: int, last: int, step: Interval) -> list[int]:
    """Each from the one before, as PostgreSQL does: a month after 31 January is 28 February, and the next one is 28 March."""
    sign = total_micros(step)
    if not sign:
        raise ValueError("the step of generate_series must not be zero")
    found: list[int] = []
    at = first
    while at <= last if sign > 0 else at >= last:
        found.append(at)
        _checked(len(found))
        before, at = at, move(at, step)
        if at == before:
            raise ValueError("the step of generate_series is shorter than a millisecond")
    return found


def _checked(count: int) -> int:
    check_elements(count)
    return count


define("sql_series", _series_types, _series)


def _places(*, kept: bool) -> Callable[[Resolution], Reference]:
    def run(*arrays: Sequence[Any] | None) -> list[int | None]:
        count = max((len(a) for a in arrays if a is not None), default=0)
        return [*range(1, count + 1)] or ([None] if kept else [])

    return lambda _r: run


def _array_types(types: tuple[SqlType, ...]) -> Resolution:
    if not types or any(t.kind is not Kind.ARRAY for t in types):
        raise FunctionTypeError(f"arrays are needed, not ({', '.join(map(str, types))})")
    return Resolution(types, array(BIGINT))


define("sql_places", _array_types, _places(kept=False), null_propagating=False)
define("sql_places_or_null", _array_types, _places(kept=True), null_propagating=False)

# --- arrays and texts ---


def _joined(r: Resolution) -> Reference:
    write = text_writer(r.args[0].element)

    def run(values: list[Any] | None, delimiter: str | None, null: str | None = None) -> str | None:
        if values is None or delimiter is None:
            return None
        texts = (null if v is None else write(v) for v in values)
        return str(joined(delimiter, [t for t in texts if t is not None]))

    return run


def _split(text: str | None, delimiter: str | None, null: str | None = None) -> list[str | None] | None:
    """The parts between delimiters; with a NULL delimiter the characters. An empty text has no parts."""
    if text is None:
        return None
    if delimiter is None:
        found = [c for part in parts_of(text) for c in part]
    else:
        found = (text.split(delimiter) if delimiter else [text]) if text else []
    return [None if null is not None and p == null else p for p in found]


def _element(values: list[Any], index: int) -> Any:
    return values[index - 1] if 1 <= index <= len(values) else None


def _slice(values: list[Any], low: int, high: int) -> list[Any]:
    """From one place to another, both of them in it; what lies outside is left out."""
    return values[max(low, 1) - 1 : max(high, 0)]


def _slice_sql(args: Sequence[str], _r: Resolution) -> str:
    values, low, high = args
    return f"(CASE WHEN {values} IS NULL OR {low} IS NULL OR {high} IS NULL THEN NULL WHEN {high} < 1 THEN [] ELSE list_slice({values}, greatest({low}, 1), {high}) END)"


standard(
    "SUBSCRIPT",
    takes(_LIST, INT, gives=T),
    by=_element,
    duckdb=lambda a, _r: f"(CASE WHEN {a[1]} >= 1 THEN {a[0]}[{a[1]}] END)",
)
standard("SLICE", takes(_LIST, INT, INT, gives=_LIST), by=_slice, duckdb=_slice_sql)
standard(
    "ARRAY_TO_STRING",
    takes(_LIST, STRING, STRING, gives=STRING, needs=2),
    by_types=_joined,
    null_propagating=False,
    also=("ARRAY_JOIN",),
)
standard(
    "STRING_TO_ARRAY",
    takes(STRING, STRING, STRING, gives=ArrayOf(STRING), needs=2),
    by=_split,
    null_propagating=False,
)
standard(
    "ARRAY_CONTAINS",
    takes(_LIST, T, gives=BOOLEAN),
    by=lambda values, wanted: any(v is not None and same(v, wanted) for v in values),
)
standard(
    "ARRAY_LENGTH",
    takes(_LIST, INT, gives=INT, needs=1),
    by=lambda values, *dimension: len(values) if not dimension or (dimension == (1,) and values) else None,
)


# --- maps made of arrays ---


_KEYS = (Kind.INT, Kind.BIGINT, Kind.STRING)


def _map(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key is None:
            raise ValueError("a key of a map is NULL")
        if key in found:
            raise ValueError(f"the key {key} of a map comes twice")
        found[key] = value
    return found


def _of_two(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    if len(keys) != len(values):
        raise ValueError(f"{len(keys)} keys and {len(values)} values do not make a map")
    return _map(zip(keys, values, strict=True))


def _type(key: SqlType, value: SqlType) -> SqlType:
    if key.kind not in _KEYS:
        raise FunctionTypeError(f"keys of a map are whole numbers or strings, not {key}")
    return map_of(key, value)


def _arrays(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 2 or any(t.kind is not Kind.ARRAY for t in types):
        raise FunctionTypeError("MAP_FROM_KEY_VALUES takes an array of keys and one of values")
    return Resolution(types, _type(types[0].element, types[1].element))


def _rows(types: tuple[SqlType, ...]) -> Resolution:
    fields = types[0].element.fields if len(types) == 1 and types[0].kind is Kind.ARRAY else ()
    if len(fields) != 2:
        raise FunctionTypeError("MAP_FROM_ENTRIES takes an array of rows of a key and a value")
    return Resolution(types, _type(*(t for _, t in fields)))


standard("MAP_FROM_KEY_VALUES", resolve=_arrays, by=_of_two)
standard("MAP_FROM_ENTRIES", resolve=_rows, by=lambda rows: _map(tuple(r.values()) for r in rows))
