"""Keeps the merged rows of small runs in memory, for readers of whole stores.

A run never changes, so rows that were merged once count until other runs take the place of theirs. A later reader merges them with the runs that were
written since. Without this, each reader would decode all runs of a store, of which a small one has up to `FAN_IN` with nearly all its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowql.runtime.state.physical import PhysicalReader
from flowql.runtime.state.runs.run import FlatRows, Run, decode_blocks, newest

MERGED_BYTES, KEPT_BYTES = 4 << 20, 16 << 20  # of the runs that one reader merges, and of all rows that are kept


@dataclass(frozen=True, slots=True)
class _Merged:
    """names: of the runs, newest first. rows: theirs without deleted ones. size: of the rows in bytes."""

    names: tuple[bytes, ...]
    rows: FlatRows
    size: int


class MergedRuns:
    """The merged rows of prefixes. Any thread: each step on the dict is atomic."""

    def __init__(self) -> None:
        self._kept = dict[bytes, _Merged]()  # by prefix; those read longest ago first

    def rows(self, reader: PhysicalReader, prefix: bytes, runs: Sequence[Run]) -> FlatRows | None:
        """The rows of runs, newest first, without deleted ones, in order of their keys. None if the runs are large. RunGone, BlocksAway."""
        names = tuple(r.name for r in runs)
        before = self._kept.get(prefix)
        if before is not None and names[-len(before.names) :] != before.names:
            before = None
        new = runs[: len(runs) - len(before.names)] if before is not None else runs
        if before is None or new:
            known = [before.rows] if before is not None else []
            if sum(r.head.size for r in new) + (before.size if before is not None else 0) > MERGED_BYTES:
                return None
            merged = newest([*known, *(_all_of(reader, r) for r in reversed(new))]).without_deleted()
            rows = FlatRows(merged.keys.compact(), merged.values)
            before = _Merged(names, rows, rows.keys.words.nbytes + rows.values.nbytes)
        self._keep(prefix, before)
        return before.rows

    def _keep(self, prefix: bytes, found: _Merged) -> None:
        self._kept.pop(prefix, None)
        self._kept[prefix] = found
        for oldest in list(self._kept):
            if sum(m.size for m in list(self._kept.values())) <= KEPT_BYTES:
                break
            self._kept.pop(oldest, None)


def _all_of(reader: PhysicalReader, run: Run) -> FlatRows:
    return decode_blocks(run.blocks(reader, range(len(run.fences(reader)))))
