"""Columns of a relation: names, types and roles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from flowql.compiler.plan.types import BIGINT, SqlType

Role = Literal["key", "value", "window", "header", "pseudo"]
WINDOW_START, WINDOW_END = "WINDOWSTART", "WINDOWEND"


@dataclass(frozen=True, slots=True)
class Field:
    """One column.

    role: `key` (part of the record key), `value`, `window` (WINDOWSTART/WINDOWEND of a windowed key, BIGINT ms),
    `header` (read from record headers), `pseudo` (ROWPARTITION, ROWOFFSET: read from the record's position).
    header_key: for a `header` column, the header it reads; empty means all headers.
    """

    name: str
    type: SqlType
    role: Role = "value"
    header_key: str = ""


@dataclass(frozen=True, slots=True)
class KeyWindow:
    """The window part of a windowed key. `size_ms` is None for sessions."""

    kind: Literal["time", "session"]
    size_ms: int | None = None


@dataclass(frozen=True)
class Schema:
    """Ordered, uniquely named columns; key columns first by convention. `window` is set for a windowed key.

    What is derived is computed at most once: compiling asks for the names and the key of the same schema many times.
    """

    fields: tuple[Field, ...]
    window: KeyWindow | None = None

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    @cached_property
    def key(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.role == "key")

    @cached_property
    def value(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if f.role == "value")

    def get(self, name: str) -> Field | None:
        return self._by_name.get(name)

    def field(self, name: str) -> Field:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}


WINDOW_FIELDS = (Field(WINDOW_START, BIGINT, "window"), Field(WINDOW_END, BIGINT, "window"))
NO_COLUMNS = Schema(())
