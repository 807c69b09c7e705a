"""`V INT WITH (ON_ERROR = 'null')`: what a source says about columns that cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.dialect.ast import ColumnDef, Property
from flowql.compiler.plan.logical import Format, OnError
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.schemas.ref import reads_by_name

ACTIONS = ("dead_letter", "null", "default", "fail")
_INT_BITS = {Kind.INT: 32, Kind.BIGINT: 64}


def on_errors(columns: Sequence[ColumnDef], schema: Schema, values: Format) -> tuple[OnError, ...]:
    """The columns of a source that make no dead letter. Raises CompileError. values: the format of the value."""
    found = []
    for column in columns:
        if not column.properties:
            continue
        field = schema.get(column.name)
        assert field is not None, "a declared column is in the schema"
        _check_place(column, field, schema, values)
        if (given := _on_error(column, field.type)) is not None:
            found.append(given)
    return tuple(found)


def _check_place(column: ColumnDef, field: Field, schema: Schema, values: Format) -> None:
    at = column.properties[0].span
    if field.role != "value":
        title = f"ON_ERROR of {column.name}: it is not a column of the value"
        help_ = "a record whose key cannot be read is a dead letter"
        raise mistake("FQ2011", title, at, "not for keys and headers", help=help_)
    if not (reads_by_name(values, schema.value) or values.name == "DELIMITED"):
        title = f"ON_ERROR of {column.name}: a value that is one bare {values.name} column is the whole record"
        raise mistake("FQ2011", title, at, "no other column would be left", help="remove it")


def _on_error(column: ColumnDef, type_: SqlType) -> OnError | None:
    given: dict[str, Property] = {}
    for p in column.properties:
        if p.name not in ("ON_ERROR", "DEFAULT"):
            title = f"unknown property {p.name} of column {column.name}"
            raise mistake("FQ2010", title, p.span, "not a property", help="known are ON_ERROR and DEFAULT")
        if p.name in given:
            raise mistake("FQ2010", f"property {p.name} is given twice", p.span, "given before")
        given[p.name] = p
    if "ON_ERROR" not in given:
        raise mistake(
            "FQ2011",
            f"DEFAULT of {column.name} without ON_ERROR",
            given["DEFAULT"].span,
            "when is it used?",
            help="write  WITH (ON_ERROR = 'default', DEFAULT = ...)",
        )
    action = str(given["ON_ERROR"].value).lower()
    if action not in ACTIONS:
        title = f"ON_ERROR {given['ON_ERROR'].value!r} of {column.name} is not one of {', '.join(ACTIONS)}"
        raise mistake("FQ2011", title, given["ON_ERROR"].value_span, "unknown", help="write  ON_ERROR = 'null'")
    if ("DEFAULT" in given) != (action == "default"):
        help_ = "write  WITH (ON_ERROR = 'default', DEFAULT = ...)"
        title = f"ON_ERROR '{action}' of {column.name} {'needs a' if action == 'default' else 'has no'} DEFAULT"
        raise mistake("FQ2011", title, given["ON_ERROR"].span, "which value?", help=help_)
    if action == "dead_letter":
        return None
    return OnError(column.name, cast("Any", action), _default(column, given.get("DEFAULT"), type_))


def _default(column: ColumnDef, given: Property | None, type_: SqlType) -> Any:
    """A constant that JSON holds and the column can be read from."""
    if given is None:
        return None
    if not _fits(given.value, type_):
        title = f"DEFAULT of {column.name} cannot be read as {type_}"
        help_ = "BOOLEAN, INT, BIGINT, DOUBLE and STRING take a constant; of other types  ON_ERROR = 'null'"
        raise mistake("FQ2011", title, given.value_span, f"not a constant of {type_}", help=help_)
    return float(given.value) if type_.kind is Kind.DOUBLE else given.value  # type: ignore[arg-type]


def _fits(value: object, type_: SqlType) -> bool:
    if type_.kind is Kind.BOOLEAN:
        return isinstance(value, bool)
    if type_.kind is Kind.STRING:
        return isinstance(value, str)
    if type_.kind is Kind.DOUBLE:
        return not isinstance(value, bool | str) and value is not None
    bits = _INT_BITS.get(type_.kind)
    return bits is not None and type(value) is int and -(1 << bits - 1) <= value < 1 << bits - 1
