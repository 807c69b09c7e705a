"""Rows of streams as Python has them: dataclasses, `msgspec.Struct`s, or dicts by column name."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowql.compiler.functions.registry import FunctionTypeError
from flowql.compiler.functions.user_types import DefinitionError, giver, sql_type, taker
from flowql.compiler.plan.types import Kind, SqlType, array, map_of, struct

Convert = Callable[[Any], Any]
_EXAMPLE = 'a dataclass, a msgspec.Struct, or {"TOTAL": float}'


@dataclass(frozen=True, slots=True)
class RowType:
    """The columns of a row. made: the class of its objects; None for dicts by column name. hints: by name of a field."""

    fields: tuple[tuple[str, SqlType], ...]
    made: type | None
    hints: Mapping[str, Any]

    @property
    def type(self) -> SqlType:
        return struct(*self.fields)


def row_type(given: Any, what: str) -> RowType:
    """Of what a user gives as `value=` or `key=`. Raises DefinitionError."""
    hints = given if isinstance(given, Mapping) else _hints(given)
    if not hints:
        said = getattr(given, "__name__", None) or repr(given)
        raise DefinitionError(f"{what}: {said} does not say columns", _EXAMPLE)
    fields = tuple((str(name), _column(hint, f"{what}: {name}")) for name, hint in hints.items())
    return RowType(fields, None if isinstance(given, Mapping) else given, dict(hints))


def is_row(given: Any) -> bool:
    """Whether objects of this class are rows."""
    return isinstance(given, type) and (dataclasses.is_dataclass(given) or hasattr(given, "__struct_fields__"))


def _hints(given: Any) -> Mapping[str, Any]:
    if not is_row(given):
        return {}
    hints = typing.get_type_hints(given, include_extras=True)
    return {n: hints[n] for n in names_of(given)}


def names_of(made: Any) -> Sequence[str]:
    """Of the fields of a class of rows."""
    found: Sequence[str] | None = getattr(made, "__struct_fields__", None)  # of msgspec
    return [f.name for f in dataclasses.fields(made)] if found is None else found


def _column(hint: Any, what: str) -> SqlType:
    """As for user-defined functions; a class of rows is a STRUCT."""
    some, args = _plain(hint), typing.get_args(_plain(hint))
    if is_row(some):
        return row_type(some, what).type
    if typing.get_origin(some) is list and args and is_row(_plain(args[0])):
        return array(_column(args[0], what))
    if typing.get_origin(some) is dict and len(args) == 2 and args[0] is str and is_row(_plain(args[1])):
        return map_of(_column(str, what), _column(args[1], what))
    return sql_type(hint, what)[0]


def _plain(hint: Any) -> Any:
    """X of `X | None`."""
    if not typing.get_args(hint) or type(None) not in typing.get_args(hint):
        return hint
    rest = [a for a in typing.get_args(hint) if a is not type(None)]
    return rest[0] if len(rest) == 1 else hint


def reader(of: SqlType, made: type | None) -> Convert:
    """From a reference value of a STRUCT to what a function of the user takes. Raises FunctionTypeError where a field has no column."""
    take = taker(of)
    if made is None:
        return take or dict
    build = _builder(of, made)
    return build if take is None else lambda row: build(take(row))


def _builder(of: SqlType, made: type) -> Convert:
    columns = {n.casefold(): (n, t) for n, t in of.fields}
    parts: list[tuple[str, str, Convert | None]] = []
    for name, hint in _hints(made).items():
        if name.casefold() not in columns:
            known = ", ".join(n for n, _ in of.fields)
            raise FunctionTypeError(
                f"{made.__name__} has the field {name}, and the stream has no such column", f"its columns are {known}"
            )
        column, t = columns[name.casefold()]
        parts.append((name, column, _inner(t, _plain(hint))))

    def value(found: Any, convert: Convert | None) -> Any:
        return found if convert is None or found is None else convert(found)

    return lambda row: made(**{name: value(row[column], convert) for name, column, convert in parts})


def _inner(t: SqlType, hint: Any) -> Convert | None:
    """Of a value within a row, where it has objects of classes."""
    if t.kind is Kind.STRUCT and is_row(hint):
        return _builder(t, hint)
    args = typing.get_args(hint)
    each = _inner(t.args[-1], _plain(args[-1])) if t.kind in (Kind.ARRAY, Kind.MAP) and args else None
    if each is None:
        return None
    if t.kind is Kind.ARRAY:
        return lambda items: [None if x is None else each(x) for x in items]
    return lambda items: {k: None if x is None else each(x) for k, x in items.items()}


def writer(rows: RowType) -> Convert:
    """From what a function of the user returns to a reference value of the STRUCT. Raises TypeError, ValueError, OverflowError."""
    give = giver(rows.type)
    return lambda value: give(as_data(value))


def as_data(value: Any) -> Any:
    """Objects of classes of rows as dicts."""
    if is_row(type(value)):
        return {n: as_data(getattr(value, n)) for n in names_of(type(value))}
    if isinstance(value, list | tuple):
        return [as_data(v) for v in value]
    if isinstance(value, dict):
        return {k: as_data(v) for k, v in value.items()}
    return value
