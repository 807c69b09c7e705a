"""Keeps the merged rows of small runs in memory, for readers of whole stores.

Runs never change, so a later reader merges these rows with newer runs only. Otherwise each reader would decode all runs of a store. A small store can
have `FAN_IN` of them, each with nearly all its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flowql.runtime.state.physical import PhysicalReader
from flowql.runtime.state.runs.run import FlatRows, Head, Run, decode_blocks, newest

MERGED_BYTES, KEPT_BYTES = 4 << 20, 16 << 20  # of the runs that one reader merges, and of all merged rows


@dataclass(frozen=True, slots=True)
class _Merged:
    """runs: names and heads, newest first. rows: of these runs, without deleted ones. size: bytes in memory."""

    runs: tuple[tuple[bytes, Head], ...]
    rows: FlatRows
    size: int


class MergedRuns:
    """The merged rows of prefixes. Any thread: each step on the dict is atomic."""

    def __init__(self, bytes_max: int = KEPT_BYTES) -> None:
        """bytes_max: of all merged rows."""
        self._bytes_max = bytes_max
        self._kept = dict[bytes, _Merged]()  # by prefix; those read longest ago first

    def unread_bytes(self, prefix: bytes, runs: Sequence[Run]) -> int:
        """The size of the runs that `rows` would read."""
        new, _ = self._parted(prefix, runs)
        return sum(r.head.size for r in new)

    def rows(self, reader: PhysicalReader, prefix: bytes, runs: Sequence[Run]) -> FlatRows | None:
        """The rows of runs, newest first, without deleted ones, in order of their keys. None if the runs are large. RunGone, BlocksAway."""
        new, known = self._parted(prefix, runs)
        if known is None or new:
            if sum(r.head.size for r in new) + (0 if known is None else known.size) > MERGED_BYTES:
                return None
            before = [] if known is None else [known.rows]
            merged = newest([*before, *(_all_of(reader, r) for r in reversed(new))]).without_deleted()
            keys, values = merged.keys.compact(), merged.values
            size = sum(a.nbytes for a in (keys.starts, keys.lengths, keys.words, values))
            known = _Merged(_identities(runs), FlatRows(keys, values), size)
        self._keep(prefix, known)
        return known.rows

    def forget_others(self, prefix: bytes, runs: Sequence[Run]) -> None:
        """Forgets the rows of a prefix unless they are all of these runs."""
        known = self._kept.get(prefix)
        if known is not None and not set(known.runs) <= set(_identities(runs)):
            self._kept.pop(prefix, None)

    def _parted(self, prefix: bytes, runs: Sequence[Run]) -> tuple[Sequence[Run], _Merged | None]:
        """The runs whose rows are not merged yet, and the merged rows of the others. A restored store can have other runs of the same names."""
        known = self._kept.get(prefix)
        if known is None or _identities(runs)[-len(known.runs) :] != known.runs:
            return runs, None
        return runs[: len(runs) - len(known.runs)], known

    def _keep(self, prefix: bytes, found: _Merged) -> None:
        self._kept.pop(prefix, None)
        self._kept[prefix] = found
        for oldest in list(self._kept):
            if sum(m.size for m in list(self._kept.values())) <= self._bytes_max:
                break
            self._kept.pop(oldest, None)


def _identities(runs: Sequence[Run]) -> tuple[tuple[bytes, Head], ...]:
    return tuple((r.name, r.head) for r in runs)


def _all_of(reader: PhysicalReader, run: Run) -> FlatRows:
    return decode_blocks(run.blocks(reader, range(len(run.fences(reader)))))
