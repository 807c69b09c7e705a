"""Brings a state that is behind the log forward from changelogs while tasks use it: as at a start, but in one step, by one thread.

Open tasks keep their rows in memory, so the store must look unchanged to them: stores keep their ids, and the rows of tasks that have
committed since are cleared and read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from flowql.runtime.errors import LogCorrupt, StateLost
from flowql.runtime.state.catalog import read_restores, read_stores, read_tasks
from flowql.runtime.state.changelog import Changelogs
from flowql.runtime.state.frozen import RedoUnreadable, read_redo
from flowql.runtime.state.layout import (
    MARKER,
    NEXT_ID,
    StoreEntry,
    TaskRecord,
    catalog_key,
    decode_number,
    encode_number,
    marker,
)
from flowql.runtime.state.physical import ByteRange, WriteGuard, Writes
from flowql.runtime.state.restore import clear_writes, end_writes, place_records

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


@dataclass(frozen=True, slots=True)
class OpenState:
    """The state's knowledge of itself while its store is opened again.

    before: its last commit, and `stores` the catalog as of then; `coming`: as of the next commit, which the log may have already.
    restoring: tasks that the restoration step goes on with. Rows that are there twice do no harm, but it alone says that they are whole.
    """

    before: int
    stores: Mapping[str, StoreEntry]
    coming: Mapping[str, StoreEntry]
    next_id: int
    restoring: Collection[str]


@dataclass(frozen=True, slots=True)
class RollForwardSources:
    """The sources for rolling the store forward. changelogs: asked for where there is no redo, or it is not enough."""

    redo_after: RedoAfter | None = None
    changelogs: Callable[[], Changelogs] | None = None

    def roll_forward(self, guard: WriteGuard, kept: OpenState) -> tuple[int, list[ByteRange]]:
        """To the log's last commit: which one that is, and ranges that were deleted. StateLost if it cannot be.

        If it fails it may be called again, and so may a restart of the process.
        """
        if self.redo_after is not None:
            try:
                return _redo(guard, kept, self.redo_after), []
            except StateLost:
                if self.changelogs is None:
                    raise
        assert self.changelogs is not None, "a store that is not brought forward needs none of this"
        known = self.changelogs()
        return known.sequence, _restore(guard, kept, known)


def _redo(guard: WriteGuard, kept: OpenState, redo_after: RedoAfter) -> int:
    reached = _reached(guard)
    try:
        with guard.permit("replay"):
            for sequence in replay(guard, whole_redo(redo_after, reached), reached):
                reached = sequence
    except RedoUnreadable as error:  # the start says where it lies, and what can be done
        raise StateLost(f"{error}: start again") from error
    if reached < kept.before:
        raise StateLost(missing_redo(reached, kept.before))
    if kept.restoring or read_restores(guard.inner):
        raise StateLost("tasks were being restored, and some of their rows are gone: start again")
    return reached


def _restore(guard: WriteGuard, kept: OpenState, known: Changelogs) -> list[ByteRange]:
    if not kept.before <= known.sequence <= kept.before + 1:
        raise StateLost(
            f"the log is at commit {known.sequence}, the state was at {kept.before}: another instance has taken over"
        )
    stores = kept.stores if known.sequence == kept.before else kept.coming
    writes, behind = _lacking(guard, stores, kept.next_id, known)
    ranges = list(writes.ranges)
    with guard.permit("restore"):
        guard.write(writes.keys, writes.values, writes.ranges, marker(known.sequence))
        guard.inner.flush()  # from here on a crash leaves tasks that are known to be incomplete
        for task_id, record in behind.items():
            for name in record.stores:
                _read(guard, stores, name, record.partition, known, may_lack=task_id in kept.restoring)
            if task_id not in kept.restoring:
                ended = end_writes(guard.inner, [stores[name] for name in record.stores], task_id, record)
                guard.write(ended.keys, ended.values, ended.ranges)
                ranges += ended.ranges
        guard.inner.flush()
    return ranges


def _reached(guard: WriteGuard) -> int:
    return decode_number(guard.inner.get(MARKER), 0)


def _lacking(
    guard: WriteGuard, stores: Mapping[str, StoreEntry], next_id: int, known: Changelogs
) -> tuple[Writes, dict[str, TaskRecord]]:
    """The writes to make before those of rows, and the tasks whose rows must be read: those with commits that the store has not seen."""
    reached, before = _reached(guard), read_stores(guard.inner)
    local, begun = read_tasks(guard.inner), read_restores(guard.inner)
    whole = {task_id: w.record for task_id, w in known.tasks.items()}
    behind = {t: w.record for t, w in known.tasks.items() if w.sequence > reached or t not in local or t in begun}
    gone = (local.keys() | begun.keys()) - whole.keys()
    cleared = {
        t: [r for r in (local.get(t), begun.get(t), whole.get(t)) if r is not None]
        for t in sorted(gone | behind.keys())
    }
    writes = [clear_writes(catalog, cleared, behind) for catalog in (before, stores)]
    ranges = dict.fromkeys(r for w in writes for r in w.ranges)
    rows = {key: value for w in writes for key, value in zip(w.keys, w.values, strict=True)}
    for name, entry in before.items():
        now = stores.get(name)
        kept = now.partitions if now is not None and now.id == entry.id else ()
        for partition in set(entry.partitions).difference(kept):
            ranges[entry.partition_range(partition)] = None
            rows[entry.bound_key(partition)] = None
            rows[entry.position_key(partition)] = None
        rows[catalog_key(name)] = None
    rows |= {catalog_key(name): entry.record() for name, entry in stores.items()}
    rows[NEXT_ID] = encode_number(next_id)
    return Writes(list(ranges), list(rows), list(rows.values())), behind


def _read(
    guard: WriteGuard, stores: Mapping[str, StoreEntry], name: str, partition: int, known: Changelogs, *, may_lack: bool
) -> None:
    """All changelog records of a partition of a store. may_lack: its restoration has not begun, so it may be missing."""
    entry = stores.get(name)
    if entry is None:
        if may_lack:
            return
        raise StateLost(f"{name} is in the log and not in the state's catalog: start again, to have it restored")
    for batch in known.rows(name, partition):
        for writes in place_records(entry, partition, batch.keys, batch.values):
            if writes.ranges or writes.keys:
                guard.write(writes.keys, writes.values, writes.ranges)
