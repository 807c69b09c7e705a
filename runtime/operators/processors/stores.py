"""State stores of processors: typed keys and values, copied on their way in and out."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from flowql.compiler.functions.user_types import giver, taker
from flowql.compiler.plan.processors import ProcessorStore
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.operators.keys import freeze, thaw
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

FAR_MS = 1 << 60  # behind all times
_MUTABLE = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)


def store_of(spec: ProcessorStore, value_class: Any) -> _KeyValue | _Windows | _Sessions:
    """value_class: the dataclass that values are, if they are of one."""
    kinds: dict[str, type[_KeyValue] | type[_Windows] | type[_Sessions]]
    kinds = {"key-value": _KeyValue, "window": _Windows, "session": _Sessions}
    return kinds[spec.kind](spec, value_class if dataclasses.is_dataclass(value_class) else None)


class _Rows:
    """Keys and values of processors as those of a store."""

    def __init__(self, spec: ProcessorStore, value_class: Any) -> None:
        self._spec = spec
        self._keys = tuple(_Column(f) for f in spec.key.key)
        self._values = tuple(_Column(f) for f in spec.value if f.name not in ("WINDOWSTART",))
        self._class = value_class
        self._fields = tuple(f.name for f in spec.value if f.name not in ("WINDOWSTART",))
        self._store: Store
        self.has_written = False  # in the run under way

    def bind(self, store: Store) -> None:
        self._store, self.has_written = store, False

    def _put(self, key: Key, value: Value | None) -> None:
        self.has_written = True
        self._store.put(key, value)

    def _key(self, key: Any) -> Key:
        if key is None:
            raise TypeError(f"store {self._spec.name}: None is not a key")
        parts = key if len(self._keys) > 1 else (key,)
        if not isinstance(parts, tuple) or len(parts) != len(self._keys):
            raise TypeError(f"store {self._spec.name}: a key has {len(self._keys)} parts")
        return tuple(self._of(c.to_key, p, "key") for c, p in zip(self._keys, parts, strict=True))

    def _of(self, convert: Callable[[Any], Any], value: Any, part: str) -> Any:
        try:
            return convert(value)
        except TypeError:
            columns = self._spec.key.key if part == "key" else self._spec.value.fields
            declared = ", ".join(str(f.type) for f in columns)
            raise TypeError(
                f"store {self._spec.name}: its {part} is {declared}, and got {type(value).__name__}"
            ) from None

    def _from_key(self, key: Key) -> Any:
        parts = tuple(c.from_key(p) for c, p in zip(self._keys, key, strict=False))
        return parts[0] if len(parts) == 1 else parts

    def _value(self, value: Any) -> Value:
        if self._class is None:
            return (self._of(self._values[0].to_value, value, "value"),)
        if not isinstance(value, self._class):
            raise TypeError(
                f"store {self._spec.name}: its values are {self._class.__name__}, and got {type(value).__name__}"
            )
        return tuple(
            self._of(c.to_value, getattr(value, n), "value") for c, n in zip(self._values, self._fields, strict=True)
        )

    def _from_value(self, value: Value) -> Any:
        if self._class is None:
            return self._values[0].from_value(value[0])
        parts = (c.from_value(v) for c, v in zip(self._values, value, strict=True))
        return self._class(**dict(zip(self._fields, parts, strict=True)))


class _KeyValue(_Rows):
    """Implements `flowql.compiler.processors.processor.KeyValueState`."""

    def get(self, key: Any, default: Any = None) -> Any:
        found = self._store.get(self._key(key))
        return default if found is None else self._from_value(found)

    def put(self, key: Any, value: Any) -> None:
        self._put(self._key(key), None if value is None else self._value(value))

    def put_if_absent(self, key: Any, value: Any) -> Any:
        found = self.get(key)
        if found is None:
            self.put(key, value)
        return found

    def delete(self, key: Any) -> Any:
        found = self.get(key)
        self.put(key, None)
        return found

    def all(self) -> Iterator[tuple[Any, Any]]:
        return self.range()

    def range(self, low: Any = None, high: Any = None) -> Iterator[tuple[Any, Any]]:
        first, last = (None if k is None else self._key(k) for k in (low, high))
        for key, value in self._store.scan(low=first, high=last):
            yield self._from_key(key), self._from_value(value)


class _Windows(_Rows):
    """Implements `flowql.compiler.processors.processor.WindowState`. A row's key ends with the start of the window."""

    def get(self, key: Any, start: int, default: Any = None) -> Any:
        found = self._store.get((*self._key(key), start))
        return default if found is None else self._from_value(found)

    def put(self, key: Any, value: Any, start: int) -> None:
        self._put((*self._key(key), start), None if value is None else self._value(value))

    def fetch(self, key: Any, since: int | None = None, until: int | None = None) -> Iterator[tuple[int, Any]]:
        parts = self._key(key)
        low = (*parts, -FAR_MS if since is None else since)
        high = (*parts, FAR_MS if until is None else until + 1)
        for found, value in self._store.scan(low=low, high=high):
            yield _time(found), self._from_value(value)

    def all(self) -> Iterator[tuple[Any, int, Any]]:
        for key, value in self._store.scan():
            yield self._from_key(key), _time(key), self._from_value(value)


class _Sessions(_Rows):
    """Implements `flowql.compiler.processors.processor.SessionState`. A row's key ends with the end of the session, since sessions of a key
    do not overlap; its value begins with the start.
    """

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        self._put((*self._key(key), end), None if value is None else (start, *self._value(value)))

    def remove(self, key: Any, start: int, end: int) -> None:
        row = (*self._key(key), end)
        found = self._store.get(row)
        if found is not None and found[0] == start:
            self._put(row, None)

    def fetch(self, key: Any) -> Iterator[tuple[int, int, Any]]:
        return self.find(key, -FAR_MS, FAR_MS)

    def find(self, key: Any, earliest_end: int, latest_start: int) -> Iterator[tuple[int, int, Any]]:
        parts = self._key(key)
        for found, (start, *value) in self._store.scan(low=(*parts, earliest_end), high=(*parts, FAR_MS)):
            if start <= latest_start:
                yield start, _time(found), self._from_value(tuple(value))

    def all(self) -> Iterator[tuple[Any, int, int, Any]]:
        for key, (start, *value) in self._store.scan():
            yield self._from_key(key), start, _time(key), self._from_value(tuple(value))


def _time(key: Key) -> int:
    last = key[-1]
    assert isinstance(last, int)
    return last


class _Column:
    """Values of a column: checked and copied on their way in, copied on their way out, where they can be changed in place."""

    __slots__ = ("_give", "_mutable", "_take", "_type")

    def __init__(self, field: Field) -> None:
        self._type: SqlType = field.type
        self._give, self._take = giver(field.type), taker(field.type)
        self._mutable = field.type.kind in _MUTABLE

    def to_value(self, value: Any) -> Any:
        """A deep copy of a list or dict: `giver` makes new values at each level that it knows."""
        return None if value is None else self._give(value)

    def from_value(self, value: Any) -> Any:
        if value is None:
            return None
        if self._take is not None:
            return self._take(value)
        return copy.deepcopy(value) if self._mutable else value

    def to_key(self, value: Any) -> Any:
        return freeze(self.to_value(value), self._type)

    def from_key(self, value: Any) -> Any:
        return self.from_value(thaw(value, self._type))
