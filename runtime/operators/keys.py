"""Keys of rows: which columns form them, and their frozen form in stores.

A frozen key is hashable: lists become tuples and structs become tuples of their fields in order (`flowql.runtime.state.store`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Row
from flowql.runtime.state.rows import Key

NAN = float("nan")
_NESTED = frozenset({Kind.ARRAY, Kind.STRUCT, Kind.MAP})


def key_fields(schema: Schema) -> tuple[Field, ...]:
    """The columns of the record key: key columns, then the bounds of a windowed key."""
    window = tuple(f for f in schema.fields if f.role == "window") if schema.window is not None else ()
    return schema.key + window


def value_fields(schema: Schema) -> tuple[Field, ...]:
    """All columns that are not part of the record key, in schema order."""
    key = {f.name for f in key_fields(schema)}
    return tuple(f for f in schema.fields if f.name not in key)


def freeze(value: Any, t: SqlType) -> Hashable:
    """A reference value as part of a key. All NaNs are one object, for a dict finds a NaN only by identity; and all zeros
    have one sign, for a dict finds either, and a group must not be named by the row that came last.
    """
    if value is None:
        return None
    if t.kind not in _NESTED:
        return NAN if value != value else 0.0 if t.kind is Kind.DOUBLE and not value else value
    if t.kind is Kind.ARRAY:
        return tuple(freeze(v, t.element) for v in value)
    if t.kind is Kind.STRUCT:
        return tuple(freeze(value[n], f) for n, f in t.fields)
    return tuple((freeze(k, t.args[0]), freeze(v, t.args[1])) for k, v in value.items())


def is_frozen(types: Iterable[SqlType]) -> bool:
    """Whether values of these types are their own frozen form."""
    return all(t.kind not in _NESTED and t.kind is not Kind.DOUBLE for t in types)


def without_key_columns(types: Sequence[SqlType]) -> str:
    """The key of these types that has no columnar form; empty if it has one."""
    if not types:
        return "it has no key"
    return "" if is_frozen(types) else "a key with DOUBLE or nested values"


def thaw(value: Any, t: SqlType) -> Any:
    """The inverse of `freeze`."""
    if value is None or t.kind not in _NESTED:
        return value
    if t.kind is Kind.ARRAY:
        return [thaw(v, t.element) for v in value]
    if t.kind is Kind.STRUCT:
        return {n: thaw(v, f) for v, (n, f) in zip(value, t.fields, strict=True)}
    return {thaw(k, t.args[0]): thaw(v, t.args[1]) for k, v in value}


def picker(indices: Sequence[int]) -> Callable[[Row], Row]:
    """A function that takes the parts of a tuple at `indices`, always as a tuple."""
    if not indices:
        return lambda row: ()
    if len(indices) == 1:
        i = indices[0]
        return lambda row: (row[i],)
    return itemgetter(*indices)


def frozen_picker(schema: Schema, columns: Sequence[str]) -> Callable[[Row], Key]:
    """A function that takes these columns of a row as a frozen key."""
    names = schema.names
    types = tuple(schema.fields[names.index(c)].type for c in columns)
    pick = picker([names.index(c) for c in columns])
    if is_frozen(types):
        return pick
    return lambda row: tuple([freeze(v, t) for v, t in zip(pick(row), types, strict=True)])


class RowKey:
    """Takes keys from rows of one schema and splits rows into key and value, as stores keep them."""

    __slots__ = ("_key", "_rebuild", "_value", "fields", "flat", "of", "types")

    def __init__(self, schema: Schema) -> None:
        names = schema.names
        self.fields = key_fields(schema)
        self.types = tuple(f.type for f in self.fields)
        values = value_fields(schema)
        self.flat = all(t.kind not in _NESTED for t in self.types)
        self._key = picker([names.index(f.name) for f in self.fields])
        self._value = picker([names.index(f.name) for f in values])
        stored = [f.name for f in self.fields] + [f.name for f in values]
        self._rebuild = None if tuple(stored) == names else picker([stored.index(n) for n in names])
        self.of: Callable[[Row], Key] = self._key if is_frozen(self.types) else self._frozen

    def _frozen(self, row: Row) -> Key:
        return tuple(freeze(v, t) for v, t in zip(self._key(row), self.types, strict=True))

    def missing(self, key: Key) -> bool:
        """The record had no key: every part is null (a relation without key columns has one empty key for all)."""
        return bool(key) and all(part is None for part in key)

    def value(self, row: Row) -> Row:
        return self._value(row)

    def parts(self, key: Key) -> Row:
        """Key columns of a stored key as reference values."""
        if self.flat:
            return key
        return tuple(thaw(v, t) for v, t in zip(key, self.types, strict=True))

    def row(self, key: Key, value: Row) -> Row:
        """The row that was split into `key` and `value`."""
        row = self.parts(key) + value
        return row if self._rebuild is None else self._rebuild(row)
