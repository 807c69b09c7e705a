"""Merges the runs of a store in the background, so that no reader has to look through many.

Runs of about the same size are merged when there are `FAN_IN` of them, so a row is written again as often as the number of rows grows by that
factor. A merge is not part of a commit: if a crash loses it, its runs are there as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

from flowql.runtime.clock import Clock
from flowql.runtime.errors import StateError
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.physical import BATCH_ROWS_MAX, Writes
from flowql.runtime.state.runs.folding import RowFolder, Write
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.reader import Runs, merge_sources, run_sources
from flowql.runtime.state.runs.run import (
    Run,
    RunBuilder,
    block_range,
    blocks_area,
    merged_name,
    name_of_block,
)

FAN_IN = 10
SLICE_MS = 2
_IDLE_MS = 500
ROWS_LEAST = 4_096  # runs below this size are taken for equal


class RunMerger:
    """A step of its own thread, with the folds of `folder` before merges. stores: all that may have runs, asked for at the start; written: prefixes that got some since."""

    def __init__(
        self,
        physical: RunsPhysical,
        write: Write,
        stores: Callable[[], Mapping[str, StoreEntry]],
        written: set[bytes],
        clock: Clock,
        folder: RowFolder,
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
            self._fold = self._fold or self._folder.next()
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
