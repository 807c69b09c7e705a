"""How much there is in topics: what a rebuild has to read, and how much a second generation will take."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from flowql.runtime.log.base import Log, TopicInfo, TopicPartition
from flowql.runtime.log.compacted import removed_from

_SAMPLE = 500  # records at the end of a partition, from which the size of all is taken


@dataclass(frozen=True, slots=True)
class Extent:
    """A topic. bytes: estimated from its newest records. begins: first offsets by partition; from_ms: time of the oldest record
    where something is gone before it, else None. compacted: a partition of which compaction has removed records, where that was asked.
    """

    records: int = 0
    bytes: int = 0
    begins: tuple[int, ...] = ()
    from_ms: int | None = None
    compacted: TopicPartition | None = None


def free_bytes(data_dir: Path) -> int:
    """The free space of its disk in bytes, also for a directory that does not exist yet."""
    there = next(p for p in (data_dir, *data_dir.absolute().parents) if p.is_dir())
    return shutil.disk_usage(there).free


def extents_of(log: Log, topics: Collection[str], whole: Collection[str]) -> Mapping[str, Extent]:
    """The extents of those topics that exist. whole: of which it matters whether compaction has removed records."""
    known = log.admin().topics()
    return {t: _extent(log, known[t], whole=t in whole) for t in topics if t in known}


def _extent(log: Log, topic: TopicInfo, *, whole: bool) -> Extent:
    admin, tps = log.admin(), [TopicPartition(topic.name, p) for p in range(topic.partitions)]
    ends, begins = admin.end_offsets(list(tps)), admin.begin_offsets(list(tps))
    records = {tp: max(0, ends.get(tp, 0) - begins.get(tp, 0)) for tp in tps}
    size = sum(_bytes(log, tp, begins.get(tp, 0), ends.get(tp, 0)) for tp, n in records.items() if n)
    oldest = [ms for tp in tps if begins.get(tp, 0) for ms in [_first_ms(log, tp)] if ms is not None]
    compacted = removed_from(log, topic) if whole else None
    begun = tuple(begins.get(tp, 0) for tp in tps)
    return Extent(sum(records.values()), size, begun, max(oldest, default=None), compacted)


def _bytes(log: Log, tp: TopicPartition, begin: int, end: int) -> int:
    reader = log.reader(tp, max(begin, end - _SAMPLE))
    try:
        batch = reader.read(_SAMPLE, 1 << 22)
    finally:
        reader.close()
    return 0 if batch is None or not batch.rows else batch.size_bytes * (end - begin) // batch.rows


def _first_ms(log: Log, tp: TopicPartition) -> int | None:
    reader = log.reader(tp)
    try:
        batch = reader.read(1, 1 << 20)
    finally:
        reader.close()
    return None if batch is None or not batch.rows else int(batch.records.column("timestamp")[0].as_py())
