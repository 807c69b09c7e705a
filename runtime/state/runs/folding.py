"""Makes a run of rows of a store that are in none, while commits go on.

A checkpoint would upload such rows again and again, and a commit that took in thousands of them would hold up all queries by 50 ms and more.
So a thread beside the commits makes the run: blocks first, then the head, and then it deletes the rows, a few at a time and only those that
no commit has written since.

No redo leads to such a run. If a crash loses it, the redo of a commit that came after it would meet rows that it believed gone, so only stores
that changelogs bring back are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from flowql.runtime.errors import StateError
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.runs.flat import FlatRows
from flowql.runtime.state.runs.physical import RowChanges, RunsPhysical
from flowql.runtime.state.runs.reader import TOMBSTONE, RunsReader
from flowql.runtime.state.runs.run import RunBuilder, block_range, run_name, sequence_of
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
    """begin: takes hold of a prefix. coming: the epoch whose rows may be encoded already, and are not written yet."""

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
