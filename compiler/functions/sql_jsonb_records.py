"""Rows made of JSONB: JSONB_POPULATE_RECORD and JSONB_POPULATE_RECORDSET. Fields are read as the texts of their values are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flowql.compiler.functions.json_values import read_json, shown, write_json
from flowql.compiler.functions.registry import Reference, lookup, standard
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.functions.sql_casts import sql_cast
from flowql.compiler.plan.types import JSONB, STRING, Kind, SqlType, array

Row = Mapping[str, Any]


def _reader(t: SqlType) -> Callable[[Any], Any]:
    """How a value of JSON is one of a type; null is NULL. Raises ValueError."""
    if t == JSONB:
        return lambda v: None if v is None else write_json(v)
    if t.kind is Kind.STRUCT:
        fields = [(n, _reader(f)) for n, f in t.fields]
        return lambda v: None if v is None else {n: read(_object(v).get(n)) for n, read in fields}
    read_text = _text_reader(t)
    if t.kind is not Kind.ARRAY:
        return lambda v: None if v is None else read_text(shown(v))
    element = _reader(t.element)
    return lambda v: [element(x) for x in v] if isinstance(v, list) else None if v is None else read_text(shown(v))


def _text_reader(t: SqlType) -> Callable[[Any], Any]:
    if t == STRING:
        return lambda text: text
    function = lookup(sql_cast(STRING, t) or "cast")
    assert function is not None
    read: Callable[[Any], Any] = function.reference(Resolution((STRING,), t))
    return read


def _object(value: Any) -> Row:
    if not isinstance(value, dict):
        raise ValueError(f"cannot make a row of {'an array' if isinstance(value, list) else 'a scalar'}")
    return value


def _record(r: Resolution) -> Reference:
    """Fields that the object does not have are those of the given row."""
    fields = [(n, _reader(t)) for n, t in r.result.fields]

    def record(base: Row | None, text: str | None) -> Row | None:
        if text is None:
            return base
        found, kept = _object(read_json(text)), base or {}
        return {n: read(found[n]) if n in found else kept.get(n) for n, read in fields}

    return record


def _records(r: Resolution) -> Reference:
    record = _record(Resolution(r.args, r.result.element))

    def records(base: Row | None, text: str | None) -> list[Row | None] | None:
        if text is None:
            return None
        found = read_json(text)
        if not isinstance(found, list):
            raise ValueError("cannot make rows of a value that is not an array")
        return [record(base, write_json(v)) for v in found]

    return records


def _row_and_json(name: str) -> Callable[[tuple[SqlType, ...]], SqlType]:
    def of(types: tuple[SqlType, ...]) -> SqlType:
        if len(types) != 2 or types[0].kind is not Kind.STRUCT or types[1] not in (JSONB, STRING):
            raise FunctionTypeError(f"{name} takes a row and JSONB", "write  NULL::struct<id BIGINT>  for an empty row")
        if any(f.kind is Kind.MAP for _, f in types[0].fields):
            raise FunctionTypeError(f"{name} has no fields of the type MAP")
        return types[0]

    return of


def _resolve(name: str, *, several: bool) -> Callable[[tuple[SqlType, ...]], Resolution]:
    of = _row_and_json(name)

    def resolve(types: tuple[SqlType, ...]) -> Resolution:
        row = of(types)
        return Resolution((row, JSONB), array(row) if several else row)

    return resolve


standard(
    "JSONB_POPULATE_RECORD",
    resolve=_resolve("JSONB_POPULATE_RECORD", several=False),
    by_types=_record,
    null_propagating=False,
)
standard(
    "JSONB_RECORDS",
    resolve=_resolve("JSONB_POPULATE_RECORDSET", several=True),
    by_types=_records,
    null_propagating=False,
)
