"""Declarations of the state stores of a topology."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from flowql.compiler.functions.user_types import DefinitionError, sql_type
from flowql.compiler.plan.processors import ProcessorStore
from flowql.compiler.plan.schema import Field, Role, Schema
from flowql.compiler.plan.types import BIGINT

DAY = timedelta(days=1)


@dataclass(frozen=True)
class StateStore:
    """A state store. key: a type, or several in a tuple. value: a type, or a dataclass, whose objects it keeps.

    Types are those of user-defined functions: bool, int, float, str, bytes, date, time, datetime, Annotated[Decimal, 12, 2], list[...],
    dict[str, ...].
    """

    name: str
    key: Any
    value: Any

    kind: ClassVar[str]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.replace("-", "_").isidentifier():
            raise DefinitionError(
                f"{self.name!r} is not a valid name of a store", 'KeyValueStore("totals", key=str, value=int)'
            )
        self.spec()

    def spec(self) -> ProcessorStore:
        """As plans have it. Raises DefinitionError for types that have none in SQL."""
        keys = self.key if isinstance(self.key, tuple) else (self.key,)
        names = [f"KEY_{i}" for i in range(1, len(keys) + 1)] if len(keys) > 1 else ["KEY"]
        key = tuple(self._field(n, k, "key") for n, k in zip(names, keys, strict=True))
        return ProcessorStore(self.name, self.kind, Schema((*key, *self._bounds())), Schema(self._values()))

    def _bounds(self) -> tuple[Field, ...]:
        return ()

    def _values(self) -> tuple[Field, ...]:
        if dataclasses.is_dataclass(self.value) and isinstance(self.value, type):
            hints = typing.get_type_hints(self.value, include_extras=True)
            return tuple(self._field(f.name, hints[f.name], "value") for f in dataclasses.fields(self.value))
        return (self._field("VALUE", self.value, "value"),)

    def _field(self, name: str, hint: Any, role: Role) -> Field:
        return Field(name, sql_type(hint, f"store {self.name}")[0], role)


@dataclass(frozen=True)
class KeyValueStore(StateStore):
    """A value per key.

    >>> KeyValueStore("totals", key=str, value=int).spec().value.names
    ('VALUE',)
    """

    kind = "key-value"


@dataclass(frozen=True)
class WindowStore(StateStore):
    """A value per key and window start. retention: how far behind stream time a start may be before its window is
    dropped.
    """

    retention: timedelta = DAY

    kind = "window"

    def spec(self) -> ProcessorStore:
        return dataclasses.replace(super().spec(), retention_ms=milliseconds(self.retention, f"store {self.name}"))

    def _bounds(self) -> tuple[Field, ...]:
        return (Field("WINDOWSTART", BIGINT, "window"),)


@dataclass(frozen=True)
class SessionStore(StateStore):
    """A value per session (key, start and end). retention: how far behind stream time an end may be before its session
    is dropped.
    """

    retention: timedelta = DAY

    kind = "session"

    def spec(self) -> ProcessorStore:
        return dataclasses.replace(super().spec(), retention_ms=milliseconds(self.retention, f"store {self.name}"))

    def _bounds(self) -> tuple[Field, ...]:
        return (Field("WINDOWEND", BIGINT, "window"),)

    def _values(self) -> tuple[Field, ...]:
        return (Field("WINDOWSTART", BIGINT), *super()._values())


def milliseconds(time: timedelta | int, where: str) -> int:
    """A duration, given as such or in ms. Raises DefinitionError unless it is at least one millisecond."""
    ms = time // timedelta(milliseconds=1) if isinstance(time, timedelta) else time
    if isinstance(ms, bool) or not isinstance(ms, int) or ms < 1:
        raise DefinitionError(
            f"{where}: {time!r} is not a duration", "timedelta(seconds=5), or a number of milliseconds"
        )
    return ms
