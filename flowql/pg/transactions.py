"""The transaction of a session: rows that wait for COMMIT, and the state that each reply tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues
from flowql.pg.errors import PgError, unsupported
from flowql.pg.pins import Holder
from flowql.pg.settings import Mark
from flowql.runtime.topology.bulk_insert import GivenRows

Change = TableChange | InsertValues
WRITES_MAX = 60_000  # rows: as many as the statements of one request may insert


class Transaction:
    """From BEGIN to COMMIT or ROLLBACK, and what is outside of one. BEGIN takes nothing. holder: of what its queries read; None outside of one."""

    def __init__(self) -> None:
        self.is_open = self.is_failed = False
        self.holder: Holder | None = None
        self._changes: list[Change] = []
        self.given: dict[int, GivenRows] = {}  # the rows of COPY, by the `id` of the change
        self._sizes: dict[int, int] = {}  # of these, in bytes
        self.copied_bytes = 0
        self._savepoints: list[tuple[str, int, Mark]] = []

    @property
    def state(self) -> bytes:
        return b"E" if self.is_failed else b"T" if self.is_open else b"I"

    @property
    def writes(self) -> bool:
        return bool(self._changes)

    @property
    def has_begun(self) -> bool:
        """Whether it has read or written."""
        return self.writes or (self.holder is not None and self.holder.pin is not None)

    def begin(self) -> None:
        self.is_open, self.holder = True, Holder()

    def changes(self) -> list[Change]:
        """Those to carry out."""
        return merged(self._changes)

    def end(self) -> None:
        """Closes it, and forgets all of it."""
        self.is_open = self.is_failed = False
        self.let_go()
        self._changes, self._savepoints, self.given, self._sizes, self.copied_bytes = [], [], {}, {}, 0

    def let_go(self) -> None:
        """Gives back what its queries read."""
        if self.holder is not None:
            self.holder.close()
            self.holder = None

    def fail(self) -> None:
        self.is_failed = self.is_open

    def add(self, changes: Sequence[Change]) -> int:
        """Rows of INSERT that are written at COMMIT; their number. Raises PgError for another change, whose rows are not known before."""
        for change in changes:
            if isinstance(change, TableChange) and (change.kind != "insert" or change.select):
                what = "INSERT ... SELECT" if change.kind == "insert" else change.kind.upper()
                title = (
                    f"{what} in a transaction block is not supported: which rows it changes is not known before COMMIT"
                )
                raise unsupported(title, "run it outside of a transaction (autocommit)")
            if isinstance(change, TableChange) and change.returning:
                title = "RETURNING in a transaction block is not supported: rows are written at COMMIT"
                raise unsupported(title, "run it outside of a transaction (autocommit)")
        if len(self._changes) + len(changes) > WRITES_MAX:
            raise PgError("54000", f"a transaction writes {WRITES_MAX:,} statements or rows of streams at most")
        self._changes += changes
        return sum(count(c) for c in changes)

    def add_copied(self, change: TableChange, given: GivenRows, size: int) -> int:
        """Adds rows of COPY, which are written at COMMIT; their number. size: in bytes."""
        self._changes.append(change)
        self.given[id(change)] = given
        self._sizes[id(change)] = size
        self.copied_bytes += size
        return len(given)

    def savepoint(self, name: str, settings: Mark) -> None:
        """settings: of the session at this moment."""
        self._require("SAVEPOINT")
        self._savepoints.append((name, len(self._changes), settings))

    def release(self, name: str) -> None:
        self._require("RELEASE SAVEPOINT")
        del self._savepoints[self._place(name) :]

    def back_to(self, name: str) -> Mark:
        """Forgets what was written since, and a failure; the settings of the session then."""
        self._require("ROLLBACK TO SAVEPOINT")
        place = self._place(name)
        del self._savepoints[place + 1 :]
        _, since, settings = self._savepoints[place]
        for change in map(id, self._changes[since:]):
            self.given.pop(change, None)
            self.copied_bytes -= self._sizes.pop(change, 0)
        del self._changes[since:]
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


def count(change: Change) -> int:
    """Rows of an INSERT with VALUES."""
    return len(change.rows) if isinstance(change, TableChange) else 1


def merged(changes: Sequence[Change]) -> list[Change]:
    """With consecutive inserts of the same kind into one table as one, which is one commit of the log."""
    found: list[Change] = []
    for change in changes:
        last = found[-1] if found else None
        if isinstance(change, TableChange) and isinstance(last, TableChange) and _alike(last, change):
            found[-1] = replace(last, rows=last.rows + change.rows)
        else:
            found.append(change)
    return found


def _alike(one: TableChange, other: TableChange) -> bool:
    return (
        replace(one, rows=(), statement="") == replace(other, rows=(), statement="")
        and one.kind == "insert"
        and not (one.select or one.returning or one.copied)
    )
