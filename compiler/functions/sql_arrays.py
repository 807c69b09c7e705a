"""Functions of arrays in standard SQL, as PostgreSQL has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flowql.compiler.functions.bounds import parts_of
from flowql.compiler.functions.registry import Reference, standard, takes
from flowql.compiler.functions.signatures import ArrayOf, FunctionTypeError, Resolution, T
from flowql.compiler.functions.sql_text_casts import text_writer
from flowql.compiler.functions.strings import joined
from flowql.compiler.functions.values import same
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, Kind, SqlType, map_of

_LIST = ArrayOf(T)


def _joined(r: Resolution) -> Reference:
    write = text_writer(r.args[0].element)

    def run(values: list[Any] | None, delimiter: str | None, null: str | None = None) -> str | None:
        if values is None or delimiter is None:
            return None
        texts = (null if v is None else write(v) for v in values)
        return str(joined(delimiter, [t for t in texts if t is not None]))

    return run


def _parts(text: str | None, delimiter: str | None, null: str | None = None) -> list[str | None] | None:
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
    takes(_LIST, STRING, gives=STRING),
    takes(_LIST, STRING, STRING, gives=STRING),
    by_types=_joined,
    null_propagating=False,
    also=("ARRAY_JOIN",),
)
standard(
    "STRING_TO_ARRAY",
    takes(STRING, STRING, gives=ArrayOf(STRING)),
    takes(STRING, STRING, STRING, gives=ArrayOf(STRING)),
    by=_parts,
    null_propagating=False,
)
standard(
    "ARRAY_CONTAINS",
    takes(_LIST, T, gives=BOOLEAN),
    by=lambda values, wanted: any(v is not None and same(v, wanted) for v in values),
)
standard(
    "ARRAY_LENGTH",
    takes(_LIST, gives=INT),
    takes(_LIST, INT, gives=INT),
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
