"""JSONB made of values of SQL: TO_JSONB, JSONB_BUILD_OBJECT and their like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from flowql.compiler.functions.json_values import read_json, shown, write_json
from flowql.compiler.functions.registry import Reference, lookup, standard, takes
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution, not_accepted
from flowql.compiler.functions.sql_casts import sql_cast
from flowql.compiler.functions.sql_jsonb import TEXTS
from flowql.compiler.functions.sql_text_casts import text_writer
from flowql.compiler.plan.types import JSONB, STRING, Kind, SqlType, array

_SIMPLE = (Kind.BOOLEAN, Kind.INT, Kind.BIGINT, Kind.DECIMAL)


def json_maker(t: SqlType) -> Callable[[Any], Any]:
    """How a value of a type is JSON; of NULL it is null."""
    if t.form == "JSONB":
        return lambda v: None if v is None else read_json(v)
    if t.kind in _SIMPLE:
        return lambda v: v
    if t.kind is Kind.DOUBLE:
        return _double
    if t.kind in (Kind.TIMESTAMP, Kind.MICROS):
        write = text_writer(t)
        end = ":00" if t.zoned else ""  # of the time zone
        return lambda v: None if v is None else write(v).replace(" ", "T", 1) + end
    if t.kind is Kind.ARRAY:
        element = json_maker(t.element)
        return lambda v: None if v is None else [element(x) for x in v]
    if t.kind is Kind.MAP:
        key, value = text_writer(t.args[0]), json_maker(t.args[1])
        return lambda v: None if v is None else {key(k): value(x) for k, x in v.items()}
    if t.kind is Kind.STRUCT:
        fields = [(n, json_maker(f)) for n, f in t.fields]
        return lambda v: None if v is None else {n: make(v.get(n)) for n, make in fields}
    if t.kind is Kind.NULL:
        return lambda v: None
    write = text_writer(t)
    return lambda v: None if v is None else write(v)


def _double(v: float | None) -> Any:
    """A number; one that JSON does not have is its text."""
    if v is None:
        return None
    number = Decimal(repr(v))
    if number.is_finite():
        return int(number) if v.is_integer() else number
    return "NaN" if v != v else f"{'-' if v < 0 else ''}Infinity"


def _any(types: tuple[SqlType, ...]) -> Resolution:
    return Resolution(types, JSONB)


def _one(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) != 1:
        raise not_accepted("TO_JSONB", types, "it takes one value")
    return Resolution(types, JSONB)


def _pairs(types: tuple[SqlType, ...]) -> Resolution:
    if len(types) % 2:
        raise FunctionTypeError("JSONB_BUILD_OBJECT takes a key and a value by turns", "add the last value")
    for t in types[::2]:
        if t.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT) or t.form == "JSONB":
            raise FunctionTypeError(f"a key of JSONB_BUILD_OBJECT is a simple value, not {t}")
    return Resolution(types, JSONB)


def _to_jsonb(r: Resolution) -> Reference:
    make = json_maker(r.args[0])
    return lambda v: write_json(make(v))


def _built_array(r: Resolution) -> Reference:
    makers = [json_maker(t) for t in r.args]
    return lambda *values: write_json([make(v) for make, v in zip(makers, values, strict=True)])


def _built_object(r: Resolution) -> Reference:
    keys = [_key_of(t) for t in r.args[::2]]
    makers = [json_maker(t) for t in r.args[1::2]]

    def run(*values: Any) -> str:
        return write_json({k(a): m(b) for k, m, a, b in zip(keys, makers, values[::2], values[1::2], strict=True)})

    return run


def _key_of(t: SqlType) -> Callable[[Any], str]:
    write = text_writer(t) if t.kind is not Kind.NULL else str

    def run(v: Any) -> str:
        if v is None:
            raise ValueError("a key of a JSON object is NULL")
        return write(v)

    return run


def _entries(types: tuple[SqlType, ...]) -> Resolution:
    t = types[0]
    if t.kind is Kind.NULL:
        return Resolution(types, JSONB)
    if t.kind is not Kind.ARRAY or t.element.kind is not Kind.STRUCT or len(t.element.fields) != 2:
        raise FunctionTypeError("an object is made of keys and values")
    return Resolution(types, JSONB)


def _of_entries(r: Resolution) -> Reference:
    if r.args[0].kind is Kind.NULL:
        return lambda _entries: None
    (key, k), (value, v) = r.args[0].element.fields
    make_key, make = _key_of(k), json_maker(v)
    return lambda entries: write_json({make_key(e[key]): make(e[value]) for e in entries})


standard("TO_JSONB", also=("TO_JSON", "ROW_TO_JSON"), resolve=_one, by_types=_to_jsonb)
standard("JSONB_BUILD_ARRAY", resolve=_any, by_types=_built_array, null_propagating=False)
standard("JSONB_BUILD_OBJECT", resolve=_pairs, by_types=_built_object, null_propagating=False)


def _of_texts(keys: list[str | None], values: list[str | None] | None = None) -> str:
    """Makes an object from alternating keys and values, or from keys and values apart."""
    if values is None:
        keys, values = keys[::2], keys[1::2]
    if len(keys) != len(values):
        raise ValueError("there are not as many values as keys")
    if None in keys:
        raise ValueError("a key of a JSON object is NULL")
    return write_json(dict(zip(keys, values, strict=True)))


standard("JSONB_OBJECT", takes(TEXTS, TEXTS, gives=JSONB, needs=1), by=_of_texts)
standard("JSONB_OF_ENTRIES", resolve=_entries, by_types=_of_entries)


# --- JSONB_POPULATE_RECORD and JSONB_POPULATE_RECORDSET; fields are read as the texts of their values are ---


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
