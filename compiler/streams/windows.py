"""Windows of aggregations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from flowql.compiler.dialect.ast import WindowClause
from flowql.compiler.functions.user_types import DefinitionError
from flowql.compiler.processors.stores import milliseconds

Kind = Literal["tumbling", "hopping", "session"]


@dataclass(frozen=True)
class TumblingWindow:
    """Adjacent windows of one size.

    grace: how far behind stream time a row may be. retention: how long windows are kept.

    >>> TumblingWindow(timedelta(minutes=1)).clause().size_ms
    60000
    """

    size: timedelta
    grace: timedelta | None = None
    retention: timedelta | None = None

    def clause(self) -> WindowClause:
        return _clause("tumbling", self.size, None, self.grace, self.retention)


@dataclass(frozen=True)
class HoppingWindow:
    """Windows of one size that begin every `advance` and overlap. grace, retention: as in TumblingWindow."""

    size: timedelta
    advance: timedelta
    grace: timedelta | None = None
    retention: timedelta | None = None

    def clause(self) -> WindowClause:
        return _clause("hopping", self.size, self.advance, self.grace, self.retention)


@dataclass(frozen=True)
class SessionWindow:
    """Rows of a key with at most `gap` between them. grace, retention: as in TumblingWindow."""

    gap: timedelta
    grace: timedelta | None = None
    retention: timedelta | None = None

    def clause(self) -> WindowClause:
        return _clause("session", self.gap, None, self.grace, self.retention)


Window = TumblingWindow | HoppingWindow | SessionWindow


def _clause(
    kind: Kind, size: timedelta, advance: timedelta | None, grace: timedelta | None, retention: timedelta | None
) -> WindowClause:
    size_ms = milliseconds(size, f"{kind} window")
    advance_ms = None if advance is None else milliseconds(advance, f"{kind} window")
    kept_ms = None if retention is None else milliseconds(retention, f"{kind} window")
    return WindowClause(kind, size_ms, advance_ms, duration(grace, f"grace of a {kind} window"), kept_ms)


def duration(time: timedelta | None, what: str) -> int | None:
    """In ms, 0 included. Raises DefinitionError."""
    if time is None:
        return None
    if not isinstance(time, timedelta) or time < timedelta():
        raise DefinitionError(f"{what}: {time!r} is not a duration", "timedelta(seconds=5)")
    return time // timedelta(milliseconds=1)
