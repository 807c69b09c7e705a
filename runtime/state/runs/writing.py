"""The writes of a commit to a store: rows one by one, or a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np

from flowql.runtime.state.columns.packed import PackedKeys, pack, pack_rows
from flowql.runtime.state.layout import BEGINNING_MS, StoreEntry
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.reader import TOMBSTONE
from flowql.runtime.state.runs.run import (
    AREA,
    PREFIX_BYTES,
    FlatRows,
    RunBuilder,
    floor_key,
    newest,
    run_name,
    sequence_of,
)

TAKEN_IN_MIN = 10_000  # so many rows that are in no run a commit takes into its own at least

RowList = tuple[list[bytes], list[bytes | None]]


class RunWriter:
    """Asked between two commits. written: prefixes that have got runs, for the merger.

    loose: about how many rows of a prefix are in no run; to_fold: prefixes whose are wanted in one; folding: those that may get it at any time, see
    `flowql.runtime.state.runs.merging`. versions: how often commits have written to a prefix (under the commit lock).
    """

    def __init__(self, physical: RunsPhysical, rows_min: int) -> None:
        self._physical, self.rows_min = physical, rows_min
        self.written: set[bytes] = set()
        self.to_fold: set[bytes] = set()
        self.folding: set[bytes] = set()
        self.loose: dict[bytes, int] = {}
        self.versions: dict[bytes, int] = {}

    def rows(
        self, entry: StoreEntry, partition: int, keys: Sequence[bytes], values: list[bytes | None], *, fresh: bool
    ) -> RowList:
        """Encoded keys and values as rows of the physical store. fresh: what is there of the store is deleted with the same commit."""
        prefix = entry.prefix(partition)
        self.loose[prefix] = self.loose.get(prefix, 0) + len(keys)
        if not fresh and None in values and self._has_runs(prefix):
            values = [TOMBSTONE if v is None else v for v in values]
        return entry.place(keys, partition), values

    def run(
        self, entry: StoreEntry, partition: int, rows: FlatRows, sequence: int, bound_ms: int, *, fresh: bool
    ) -> RowList:
        """Rows in order of their encoded keys as a run, with the rows that it takes in. sequence: of the commit; bound_ms: of time, after it."""
        prefix = entry.prefix(partition)
        if entry.segment_ms is not None:  # segments come before the keys, so the order is another one
            rows = newest([FlatRows(_placed(entry, rows.keys), rows.values)])
        gone: list[bytes] = []
        if not fresh and self._physical.has_rows(prefix):
            low = prefix if bound_ms == BEGINNING_MS else entry.expired_range(partition, bound_ms)[1]
            rows, gone = self._take_in(prefix, low, rows)
        if fresh or not self._has_runs(prefix):
            rows = rows.without_deleted()
        writes: dict[bytes, bytes | None] = {}
        if len(rows):
            builder = RunBuilder(prefix, run_name(self._unused(prefix, sequence)), len(rows))
            writes |= builder.add(rows)
            writes |= builder.heads()
        writes |= dict.fromkeys(gone)
        self._physical.expect_runs(prefix)
        self.written.add(prefix)
        return list(writes), list(writes.values())

    def _unused(self, prefix: bytes, sequence: int) -> int:
        """The number of a new run: above all that are there, and above the one of rows that are being folded.

        A crash may have left a run of a commit whose marker it lost.
        """
        folding, runs = prefix in self.folding, self._physical.runs(prefix).runs
        return max(sequence, sequence_of(runs[0].name) + 1 + folding) if runs else sequence

    def _has_runs(self, prefix: bytes) -> bool:
        """Whether a deleted row has to hide others. First those that come, then those that are there: one may come in between."""
        return prefix in self.folding or bool(self._physical.runs(prefix).runs)

    def wrote(self, prefixes: Iterable[bytes]) -> None:
        """A commit has written to these. The commit lock is held."""
        for prefix in prefixes:
            self.versions[prefix] = self.versions.get(prefix, 0) + 1

    def floor(self, entry: StoreEntry, partition: int, bound_ms: int) -> dict[bytes, bytes]:
        """The row that hides segments below a bound, if there are runs; ranges delete those that are in none."""
        prefix = entry.prefix(partition)
        if not self._has_runs(prefix):
            return {}
        return {floor_key(prefix): entry.expired_range(partition, bound_ms)[1][PREFIX_BYTES:]}

    def _take_in(self, prefix: bytes, low: bytes, rows: FlatRows) -> tuple[FlatRows, list[bytes]]:
        """With rows that are in no run, the first ones from `low` on; and all rows that have no meaning any more then."""
        wanted = max(TAKEN_IN_MIN, len(rows))
        found = list(islice(self._physical.inner.scan(low, prefix + AREA), wanted))
        if not found:
            return rows, []
        suffixes = [k[PREFIX_BYTES:] for k, _ in found]
        older = FlatRows.of(suffixes, [None if v == TOMBSTONE else v for _, v in found])
        gone = [k for k, _ in found]
        self.loose[prefix] = self.loose.get(prefix, 0) - len(found) if len(found) == wanted else 0
        if len(found) == wanted:
            gone += [prefix + k for k in rows.keys.to_bytes() if k > suffixes[-1]]
        return newest([older, rows]), gone


def _placed(entry: StoreEntry, keys: PackedKeys) -> PackedKeys:
    """Encoded keys behind their segments, see `StoreEntry.place`; at least one key."""
    segments = entry.segments(keys.last_times()).astype(">u4").view(np.uint8).reshape(-1, 4)
    if (keys.lengths == keys.lengths[0]).all():
        length = int(keys.lengths[0])
        columns = np.stack(keys.columns(), axis=1).astype(">u8").view(np.uint8)
        return pack_rows(np.concatenate([segments, columns[:, :length]], axis=1))
    return pack([bytes(s) + k for s, k in zip(segments, keys.to_bytes(), strict=True)])
