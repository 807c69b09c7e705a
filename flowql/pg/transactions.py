"""The transaction of a session: what its queries read, rows that wait for COMMIT, and the state that each reply tells."""

from __future__ import annotations

from flowql.pg.errors import PgError
from flowql.pg.pins import Holder
from flowql.pg.settings import Mark
from flowql.pg.writes import Writes


class Transaction:
    """From BEGIN to COMMIT or ROLLBACK, and what is outside of one. BEGIN takes nothing. holder: of what its queries read; None outside of one."""

    def __init__(self) -> None:
        self.is_open = self.is_failed = False
        self.holder: Holder | None = None
        self.writes = Writes()
        self._savepoints: list[tuple[str, int, Mark]] = []

    @property
    def state(self) -> bytes:
        return b"E" if self.is_failed else b"T" if self.is_open else b"I"

    @property
    def has_written(self) -> bool:
        return bool(self.writes.all)

    @property
    def has_begun(self) -> bool:
        """Whether it has read or written."""
        return self.has_written or (self.holder is not None and self.holder.pin is not None)

    def begin(self) -> None:
        self.is_open, self.holder = True, Holder()

    def end(self) -> None:
        """Closes it, and forgets all of it."""
        self.is_open = self.is_failed = False
        self.let_go()
        self.writes, self._savepoints = Writes(), []

    def let_go(self) -> None:
        """Gives back what its queries read."""
        if self.holder is not None:
            self.holder.close()
            self.holder = None

    def fail(self) -> None:
        self.is_failed = self.is_open

    def savepoint(self, name: str, settings: Mark) -> None:
        """settings: of the session at this moment."""
        self._require("SAVEPOINT")
        self._savepoints.append((name, len(self.writes.all), settings))

    def release(self, name: str) -> None:
        self._require("RELEASE SAVEPOINT")
        del self._savepoints[self._place(name) :]

    def back_to(self, name: str) -> Mark:
        """Forgets what was written since, and a failure; the settings of the session then."""
        self._require("ROLLBACK TO SAVEPOINT")
        place = self._place(name)
        del self._savepoints[place + 1 :]
        _, since, settings = self._savepoints[place]
        self.writes = self.writes.first(since)
        self.is_failed = False
        return settings

    def _require(self, what: str) -> None:
        if not self.is_open:
            raise PgError("25P01", f"{what} can only be used in transaction blocks")

    def _place(self, name: str) -> int:
        found = [n for n, (known, *_) in enumerate(self._savepoints) if known == name]
        if not found:
            raise PgError("3B001", f'savepoint "{name}" does not exist')
        return found[-1]
