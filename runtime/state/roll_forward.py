"""Brings a state that is behind the log forward by redo: at a start, and while tasks use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from flowql.runtime.errors import LogCorrupt, StateLost
from flowql.runtime.state.catalog import read_restores
from flowql.runtime.state.frozen import RedoUnreadable, read_redo
from flowql.runtime.state.layout import MARKER, decode_number, marker
from flowql.runtime.state.physical import WriteGuard, Writes

ROWS_MAX = 500_000  # rows of several commits collected before they are written

RedoAfter = Callable[[int], Iterable[tuple[int, bytes]]]  # commits after a sequence


def whole_redo(redo_after: RedoAfter, reached: int) -> Iterator[tuple[int, bytes]]:
    """For a state that is in use: StateLost where redo is damaged or gone, as trying again would not help."""
    try:
        yield from redo_after(reached)
    except LogCorrupt as error:
        raise StateLost(f"{error}: start again") from error


def replay(guard: WriteGuard, commits: Iterable[tuple[int, bytes]], reached: int) -> Iterator[int]:
    """Write commits after `reached`; each time up to which. Within `permit`."""
    for sequence, writes in merged(commits, reached):
        guard.write(writes.keys, writes.values, writes.ranges, marker(sequence))
        yield sequence


def missing_redo(reached: int, before: int) -> str:
    """The message if redo cannot bring a state in use back to its last commit."""
    return f"commits {reached + 1} to {before} are not in the log any more: start again"


def merged(commits: Iterable[tuple[int, bytes]], reached: int) -> Iterator[tuple[int, Writes]]:
    """Commits after `reached`, as writes and the commit up to which they lead. Rows that later ones overwrite are left out: rows are
    absolute. If the commits cannot be read to their end, what could be read comes first.
    """
    rows: dict[bytes, bytes | None] = {}
    given = reached
    try:
        for sequence, payload in commits:
            if sequence <= reached:
                continue
            writes = read_redo(payload, sequence)
            if rows and (writes.ranges or len(rows) > ROWS_MAX):  # ranges delete rows that were written before them
                yield reached, _all(rows)
                rows, given = {}, reached
            if writes.ranges:
                yield sequence, writes
                given = sequence
            else:
                rows.update(zip(writes.keys, writes.values, strict=True))
            reached = sequence
    except Exception:
        if reached > given:
            yield reached, _all(rows)
        raise
    if reached > given:
        yield reached, _all(rows)


def _all(rows: dict[bytes, bytes | None]) -> Writes:
    return Writes([], list(rows), list(rows.values()))


def roll_forward(guard: WriteGuard, redo_after: RedoAfter, before: int, restoring: Collection[str]) -> int:
    """Brings the store to the log's last commit, and returns its number. StateLost if that is impossible.

    before: the last commit of the state. restoring: tasks that the restoration step is still restoring. If it fails it may be called again,
    and so may a restart of the process.
    """
    reached = decode_number(guard.inner.get(MARKER), 0)
    try:
        with guard.permit("replay"):
            for sequence in replay(guard, whole_redo(redo_after, reached), reached):
                reached = sequence
    except RedoUnreadable as error:  # the start says where it lies, and what can be done
        raise StateLost(f"{error}: start again") from error
    if reached < before:
        raise StateLost(missing_redo(reached, before))
    if restoring or read_restores(guard.inner):
        raise StateLost("tasks were being restored, and some of their rows are gone: start again")
    return reached
