"""Merges the runs of a store in the background, so that no reader has to look through many.

Runs of about the same size are merged when there are `FAN_IN` of them, so a row is written again as often as the number of rows grows by that
factor. A merge is not part of a commit: if a crash loses it, its runs are there as before.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from flowql.runtime.clock import Clock
from flowql.runtime.errors import StateError
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.physical import BATCH_ROWS_MAX, Writes
from flowql.runtime.state.runs.physical import RowChanges, RunsPhysical
from flowql.runtime.state.runs.reader import TOMBSTONE, Runs, RunsReader, merge_sources, run_sources
from flowql.runtime.state.runs.run import (
    FlatRows,
    Run,
    RunBuilder,
    block_range,
    blocks_area,
    merged_name,
    name_of_block,
    run_name,
    sequence_of,
)
from flowql.runtime.state.runs.writing import RunWriter

ROWS_MAX = 20_000  # of one run, which are in memory
PART_ROWS, DELETED_ROWS = 1_000, 200  # the commit lock is held for about a millisecond
LOOK_MS = 5

Write = Callable[[Writes, Callable[[], bool]], bool]
"""Writes if the condition holds, between two commits; whether it did."""


class FoldBegin(NamedTuple):
    """As of one moment between two commits. changes: rows that are written since; sequence: of the last commit."""

    reader: RunsReader
    changes: RowChanges
    sequence: int


class RowFolder:
    """Makes a run of rows of a store that are in none, while commits go on.

    A checkpoint would upload such rows again and again, and a commit that took in thousands of them would hold up all queries by 50 ms or more.
    So a thread beside the commits writes the blocks, then the head, and then deletes the rows, a few at a time and only those that no commit has
    written since. No redo leads to such a run. If a crash loses it, the redo of a later commit would lack rows that it believes gone, so only
    stores that changelogs bring back are folded.

    begin: takes hold of a prefix. coming: the epoch whose rows may be encoded already, and are not written yet.
    """

    def __init__(
        self,
        physical: RunsPhysical,
        writer: RunWriter,
        write: Write,
        begin: Callable[[bytes], FoldBegin],
        coming: Callable[[], object],
    ) -> None:
        self._physical, self._writer, self._write = physical, writer, write
        self._begin, self._coming = begin, coming

    def next(self) -> Iterator[int] | None:
        """The fold of a prefix that somebody waits for, in steps; each says after how many ms the next one makes sense."""
        prefix = next(iter(tuple(self._writer.to_fold)), None)  # other threads change it
        return None if prefix is None else self._fold(prefix)

    def _fold(self, prefix: bytes) -> Iterator[int]:
        """From now on commits hide deleted rows by tombstones and expired ones by a floor, as if there were a run."""
        writer = self._writer
        writer.folding.add(prefix)
        try:
            before = self._coming()
            while before is not None and self._coming() is before:  # it was encoded without that
                yield LOOK_MS
            begin = self._begin(prefix)
            try:
                yield from self._fold_rows(prefix, begin)
            finally:
                self._physical.unwatch(begin.changes)
                begin.reader.close()
        finally:
            writer.folding.discard(prefix)
            writer.to_fold.discard(prefix)

    def _fold_rows(self, prefix: bytes, begin: FoldBegin) -> Iterator[int]:
        keys, values, loose = list[bytes](), list[bytes | None](), self._writer.loose.get(prefix, 0)
        for some_keys, some_values in begin.reader.rows_in_no_run(prefix):
            keys += some_keys
            values += [None if v == TOMBSTONE else v for v in some_values]
            yield 0
            if len(keys) >= ROWS_MAX:
                break
        rows, runs = FlatRows.of(keys, values), begin.reader.runs(prefix).runs
        kept = rows if runs else rows.without_deleted()
        if len(kept):
            name = run_name(max(begin.sequence, sequence_of(runs[0].name) + 1 if runs else 0))
            if not (yield from self._put_run(prefix, name, kept, begin.changes)):
                return
        yield from self._delete([prefix + k for k in keys], begin.changes)
        self._writer.loose[prefix] = max(0, self._writer.loose.get(prefix, 0) - max(loose, len(keys)))

    def _put_run(self, prefix: bytes, name: bytes, rows: FlatRows, changes: RowChanges) -> Generator[int, None, bool]:
        """Whether it is there now: not if the store was dropped or opened again, or a commit has written a run meanwhile."""

        def still() -> bool:
            runs = self._physical.runs(prefix).runs
            return not changes.are_lost and (not runs or runs[0].name < name)

        builder, ended = RunBuilder(prefix, name, len(rows)), False
        try:
            for at in range(0, len(rows), PART_ROWS):
                blocks = builder.add(rows.part(at, min(at + PART_ROWS, len(rows))))
                if not self._write(Writes([], list(blocks), list(blocks.values())), still):
                    return False
                yield 0
            self._physical.expect_runs(prefix)
            heads = builder.heads()
            head = dict([heads.popitem()])
            ended = all(self._write(Writes([], list(part), list(part.values())), still) for part in (heads, head))
            self._writer.written.add(prefix)
            return ended
        finally:
            if not ended:
                with suppress(StateError):  # it is closed: the next start removes the blocks
                    self._write(Writes([block_range(prefix, name)], [], []), lambda: True)

    def _delete(self, keys: list[bytes], changes: RowChanges) -> Iterator[int]:
        """Rows that the run has. One that a commit has written since is newer, and stays."""
        for at in range(0, len(keys), DELETED_ROWS):
            while not changes.are_lost:
                gone = [k for k in keys[at : at + DELETED_ROWS] if k not in changes.keys]
                same = partial(changes.have_none_of, gone)
                if self._write(Writes([], list(gone), [None] * len(gone)), same):
                    break
            yield 0


FAN_IN = 10
SLICE_MS = 2
_IDLE_MS = 500
ROWS_LEAST = 4_096  # runs below this size are taken for equal


class RunMerger:
    """A step of its own thread, with the folds of `folder` before merges. stores: all that may have runs, asked for at the start; written: prefixes that got some since. folder: None for a copy of the state."""

    def __init__(
        self,
        physical: RunsPhysical,
        write: Write,
        stores: Callable[[], Mapping[str, StoreEntry]],
        written: set[bytes],
        clock: Clock,
        folder: RowFolder | None = None,
    ) -> None:
        self._physical, self._write, self._stores = physical, write, stores
        self._written, self._clock, self._folder = written, clock, folder
        self._walk: Iterator[None] | None = None
        self._fold: Iterator[int] | None = None
        self._begun = False

    def run_once(self, now_ms: int) -> int:
        """Works for about `SLICE_MS`; ms until it wants to go on."""
        start = self._clock.cost_ns()
        while (wait_ms := self._step()) == 0:
            if self._clock.cost_ns() - start >= SLICE_MS * 1_000_000:
                return SLICE_MS
        return wait_ms

    def _step(self) -> int:
        try:
            if self._fold is None and self._folder is not None:
                self._fold = self._folder.next()
            if self._fold is not None:
                wait_ms = next(self._fold, None)
                if wait_ms is None:
                    self._fold = None
                return wait_ms or 0
            self._walk = self._walk or self._next()
            if self._walk is None:
                return _IDLE_MS
            if next(self._walk, self) is self:
                self._walk = None
        except StateError:  # it is being opened again, say: the next commit of the store will lead here again
            self._walk = self._fold = None
        return 0

    def _next(self) -> Iterator[None] | None:
        if not self._begun:
            self._begun = True
            return self._from_start()
        return self._merge(self._written.pop()) if self._written else None

    def _from_start(self) -> Iterator[None]:
        for prefix in [e.prefix(p) for e in self._stores().values() for p in e.partitions]:
            yield from self._remove_orphans(prefix)
            self._written.add(prefix)
            yield

    def _remove_orphans(self, prefix: bytes) -> Iterator[None]:
        """Blocks of a merge that did not come to its end."""
        low, high = blocks_area(prefix)
        while (row := next(self._physical.inner.scan(low, high), None)) is not None:
            name = name_of_block(row[0])
            gone = block_range(prefix, name)
            self._write(Writes([gone], [], []), partial(self._is_orphan, prefix, name))
            low = gone[1]
            yield

    def _merge(self, prefix: bytes) -> Iterator[None]:
        """One merge, and the next if there is one."""
        while True:
            found = self._physical.runs(prefix)
            gone = [run for run in found.runs if run.head.last < found.floor]
            if gone:
                self._replace(gone, {}, partial(self._there, gone))
                yield
                continue
            chosen = choose(found.runs)
            if not chosen:
                self._physical.cache.keep(prefix, found.runs)
                return
            yield from self._merge_runs(prefix, found, chosen)

    def _merge_runs(self, prefix: bytes, found: Runs, chosen: Sequence[Run]) -> Iterator[None]:
        whole = chosen[-1] is found.runs[-1]
        name, rows_max = merged_name(chosen[0].name), sum(run.head.rows for run in chosen)
        builder = RunBuilder(prefix, name, rows_max)
        cache = self._physical.cache

        def still() -> bool:
            """Not if the store was opened again since: blocks may be lost."""
            return self._physical.cache is cache and self._there(chosen)

        snapshot = self._physical.inner.snapshot()
        ended = False
        try:
            for rows in merge_sources(run_sources(snapshot, Runs(chosen, found.floor))):
                left = rows.without_deleted() if whole else rows
                if len(left):
                    blocks = builder.add(left)
                    if not self._write(Writes([], list(blocks), list(blocks.values())), still):
                        return
                yield
            heads = builder.heads() if builder.rows else {}
            ended = self._replace(chosen, heads, still)
        finally:
            snapshot.close()
            if not ended:
                with suppress(StateError):  # it is closed: the next start removes the blocks
                    self._write(Writes([block_range(prefix, name)], [], []), lambda: True)

    def _replace(self, runs: Sequence[Run], heads: dict[bytes, bytes], still: Callable[[], bool]) -> bool:
        """The heads of a new run take the place of those of others; whether they were there. The last of `heads` makes it a run."""
        head = dict([heads.popitem()] if heads else [])
        if not self._write(Writes([], list(heads), list(heads.values())), still):
            return False
        rows: dict[bytes, bytes | None] = {**head, **dict.fromkeys(run.head_key for run in runs)}
        assert len(rows) <= BATCH_ROWS_MAX, "both or none"
        if not self._write(Writes([], list(rows), list(rows.values())), still):
            return False
        gone = [key for run in runs for key in run.tables()]
        self._write(Writes([run.area() for run in runs], gone, [None] * len(gone)), lambda: True)
        return True

    def _is_orphan(self, prefix: bytes, name: bytes) -> bool:
        return name not in {run.name for run in self._physical.runs(prefix).runs}

    def _there(self, runs: Sequence[Run]) -> bool:
        names = {run.name for run in self._physical.runs(runs[0].prefix).runs}
        return all(run.name in names for run in runs)


def choose(runs: Sequence[Run]) -> Sequence[Run]:
    """Which runs to merge, of those given newest first; none if there are not enough of about the same size."""
    least, limit = 0, ROWS_LEAST
    largest = max((run.head.rows for run in runs), default=0)
    while True:
        end = next((i for i, run in enumerate(runs) if run.head.rows > limit), len(runs))
        begin = next((i for i in range(end) if runs[i].head.rows > least), end)
        if end - begin >= FAN_IN:
            return runs[end - FAN_IN : end]
        if limit >= largest:
            return ()
        least, limit = limit, limit * FAN_IN
