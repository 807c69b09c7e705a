"""Values of Python as columns of a declared type: nothing is cut off, and no field is left out, without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.functions.sql_calendar import finer
from flowql.compiler.plan.types import Kind, SqlType, arrow_type

_WHOLE = (Kind.INT, Kind.BIGINT)
_IN_MS = (Kind.TIMESTAMP, Kind.TIME)
_MIDNIGHT = datetime.min.time()


class NotOfType(Exception):
    """A value that is none of a type. help: what to do."""

    def __init__(self, why: str, help: str = "") -> None:
        super().__init__(why)
        self.help = help


def column_of(values: Sequence[Any], t: SqlType | None) -> pa.Array:
    """t: None where no column of that name is declared. Raises NotOfType."""
    try:
        if t is None:
            return pa.array(values)
        if t.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT) or not _fits(set(map(type, values)), t):
            values = [_value(v, t) for v in values]
        return pa.array(values, arrow_type(t))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, UnicodeError) as error:
        why = str(error).splitlines()[0]
        if isinstance(error, UnicodeError):
            why = "it is a text with half of a surrogate pair"
        raise NotOfType(why) from error


def _fits(kinds: set[type], t: SqlType) -> bool:
    """Whether Arrow takes all values of these types as they are, or says why not."""
    if t.kind in _WHOLE:
        return not any(issubclass(k, float | np.floating | Decimal) for k in kinds)
    if t.kind is Kind.DOUBLE:
        return bool not in kinds
    return t.kind not in (Kind.DATE, *_IN_MS) or not any(issubclass(k, datetime | time) for k in kinds)


def _value(v: Any, t: SqlType) -> Any:
    if v is None:
        return None
    if t.kind in _WHOLE and isinstance(v, float | np.floating | Decimal):
        if v != v or v % 1:
            raise NotOfType(f"{v!r} is not a whole number")
        return int(v)
    if t.kind is Kind.DOUBLE and isinstance(v, bool):
        raise NotOfType(f"{v} is not a number")
    if t.kind is Kind.DATE and isinstance(v, datetime) and v.time() != _MIDNIGHT:
        raise NotOfType(f"{v} has a time of day", "value.date()")
    if t.kind in _IN_MS and isinstance(v, datetime | time) and v.microsecond % 1000:
        help = f"declare the column {finer(t)}" if t.kind is Kind.TIMESTAMP else ""
        raise NotOfType(f"{v} has parts of a millisecond", help)
    if t.kind is Kind.ARRAY and not isinstance(v, str | bytes | Mapping):
        return [_value(x, t.element) for x in v] if hasattr(v, "__iter__") else v
    if t.kind is Kind.MAP:
        pairs = v.items() if isinstance(v, Mapping) else v
        return [(k, _value(x, t.element)) for k, x in pairs] if isinstance(v, Mapping | list) else v
    return _row(v, t) if t.kind is Kind.STRUCT and isinstance(v, Mapping) else v


def check_column(column: pa.ChunkedArray, t: SqlType) -> None:
    """That the cast of a column of a frame makes nothing else of its values. Raises NotOfType."""
    _check_type(column.type, t)
    moments = t.kind is Kind.DATE and pa.types.is_timestamp(column.type)
    if moments and pc.any(pc.not_equal(pc.floor_temporal(column, unit="day"), column)).as_py():
        raise NotOfType("a moment has a time of day")


def _check_type(found: pa.DataType, t: SqlType) -> None:
    """Casts leave out fields of other names, and make numbers of truth values and times."""
    no_number = pa.types.is_boolean(found) or pa.types.is_temporal(found)
    if (t.is_numeric and no_number) or (t.kind is Kind.BOOLEAN and not _may_be_boolean(found)):
        raise NotOfType(f"it is {found}")
    if t.kind is Kind.STRUCT and pa.types.is_struct(found):
        fields = dict(t.fields)
        for field in found:
            if field.name not in fields:
                near = did_you_mean(field.name, fields) or f"its fields are {', '.join(fields)}"
                raise NotOfType(f"it has no field {field.name}", near)
            _check_type(field.type, fields[field.name])
    elif t.kind is Kind.ARRAY and hasattr(found, "value_type"):
        _check_type(found.value_type, t.element)
    elif t.kind is Kind.MAP and pa.types.is_map(found):
        _check_type(found.item_type, t.element)


def _may_be_boolean(found: pa.DataType) -> bool:
    return not (pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_temporal(found))


def _row(value: Mapping[Any, Any], t: SqlType) -> dict[str, Any]:
    """Fields are found whatever their case; missing ones are NULL."""
    names = {n.casefold(): n for n, _ in t.fields}
    found: dict[str, Any] = {}
    for key, x in value.items():
        name = names.get(key.casefold()) if isinstance(key, str) else None
        if name is None:
            fields = ", ".join(names.values())
            raise NotOfType(
                f"it has no field {key}", did_you_mean(str(key), names.values()) or f"its fields are {fields}"
            )
        if name in found:
            raise NotOfType(f"it has the field {name} twice")
        found[name] = x
    return {n: _value(found.get(n), f) for n, f in t.fields}
