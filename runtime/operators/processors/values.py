"""Rows as records of processors, and records as rows of what a sink writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.functions.user_types import giver, taker
from flowql.compiler.plan.event_times import EARLIEST_MS, LATEST_MS
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import arrow_type
from flowql.runtime.batch import Ints, Row
from flowql.runtime.operators.keys import key_fields, value_fields

Convert = Callable[[Any], Any]


class RecordOfRow:
    """Key and value of rows of one schema."""

    def __init__(self, schema: Schema) -> None:
        names = schema.names
        self._key = [(names.index(f.name), taker(f.type)) for f in key_fields(schema)]
        self._value = [(f.name, names.index(f.name), taker(f.type)) for f in value_fields(schema)]
        self._plain = not any(take for _, _, take in self._value)
        self._names = [name for name, _, _ in self._value]
        places = [i for _, i, _ in self._value]
        first = places[0] if places else 0
        self._slice = slice(first, first + len(places)) if places == list(range(first, first + len(places))) else None

    def key(self, row: Row) -> Any:
        """The value of the only key column, a tuple of several; None without a key."""
        parts = tuple([_taken(row[i], take) for i, take in self._key])
        if len(parts) == 1:
            return parts[0]
        return None if not parts or all(p is None for p in parts) else parts

    def value(self, row: Row) -> dict[str, Any]:
        if self._plain and self._slice is not None:
            return dict(zip(self._names, row[self._slice], strict=True))
        return {name: _taken(row[i], take) for name, i, take in self._value}


class RowOfRecord:
    """Rows of what a sink writes. sink: its name, for messages."""

    def __init__(self, schema: Schema, sink: str) -> None:
        self.schema, self._sink = schema, sink
        self._key = [(f, giver(f.type)) for f in schema.key]
        self._value = [(f, giver(f.type)) for f in schema if f.role != "key"]
        self._names = frozenset(f.name for f, _ in self._value)

    def key(self, key: Any) -> Row:
        """The key columns. Raises TypeError, ValueError."""
        if key is None:
            return (None,) * len(self._key)
        parts = key if isinstance(key, tuple) and len(self._key) != 1 else (key,)
        if len(parts) != len(self._key):
            raise TypeError(
                f"a key of {len(parts)} parts is sent to {self._sink}, whose key has {len(self._key)} columns"
            )
        return tuple([_given(p, f, give) for p, (f, give) in zip(parts, self._key, strict=True)])

    def value(self, value: Any) -> Row:
        """The other columns; NULLs for None. Raises TypeError, ValueError."""
        if value is None:
            return (None,) * len(self._value)
        columns = self._columns(value)
        return tuple([_given(columns.get(f.name), f, give) for f, give in self._value])

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of many records, in the order of the schema; NULLs for those that are not given. Raises ValueError."""
        known = {*self.schema.names, "ROWTIME", "ROWOP"}
        if unknown := [n for n in batch.schema.names if n not in known]:
            raise ValueError(f"{self._sink} has no column {unknown[0]}")
        types = [(f.name, arrow_type(f.type)) for f in self.schema]
        given = set(batch.schema.names)
        return [batch.column(n).cast(t) if n in given else pa.nulls(len(batch), t) for n, t in types]

    def _columns(self, value: Any) -> Mapping[str, Any]:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if not isinstance(value, Mapping):
            raise TypeError(f"{type(value).__name__} is sent to {self._sink}, which takes a dict of columns")
        if value.keys() <= self._names:
            return value
        found: dict[str, Any] = {}
        for name, v in value.items():
            column = next((c for c in (name, str(name).upper(), str(name).lower()) if c in self._names), None)
            if column is None:
                hint = did_you_mean(str(name), self._names)
                raise ValueError(f"{self._sink} has no column {name}{': ' + hint if hint else ''}")
            found[column] = v
        return found


def checked_time(timestamp: Any) -> int:
    """An event time that a processor gave. Raises TypeError, ValueError."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise TypeError(f"a timestamp is a number of milliseconds, not {type(timestamp).__name__}")
    if not EARLIEST_MS <= timestamp < LATEST_MS:
        raise ValueError(f"the timestamp {timestamp} is outside of 1900 to 2200")
    return timestamp


def checked_headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """Headers that a processor gave. Raises TypeError."""
    found = tuple(headers)
    for pair in found:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(
                f"headers are pairs of a string and bytes, such as (('trace', b'1'),), not {type(headers).__name__}"
            )
        key, value = pair
        if not isinstance(key, str) or not (value is None or isinstance(value, bytes)):
            raise TypeError(
                f"a header is a string and bytes or None, not {type(key).__name__} and {type(value).__name__}"
            )
    return tuple((key, value) for key, value in found)


def checked_times(timestamps: pa.Array) -> Ints:
    """Event times of many records. Raises ValueError."""
    times: Ints = timestamps.cast(pa.int64()).to_numpy()
    if timestamps.null_count or ((times < EARLIEST_MS) | (times >= LATEST_MS)).any():
        raise ValueError("a ROWTIME is NULL, or outside of 1900 to 2200")
    return times


def _taken(value: Any, take: Convert | None) -> Any:
    return value if take is None or value is None else take(value)


def _given(value: Any, field: Field, give: Convert) -> Any:
    if value is None:
        return None
    try:
        return give(value)
    except TypeError:
        raise TypeError(f"column {field.name} is {field.type}, and got {type(value).__name__}") from None
