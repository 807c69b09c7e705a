"""Retention and compaction of the embedded log, which has no broker that would do it.

What costs time - reading and writing segments - is done without the append lock. Under it, for a moment, the commit log says what
takes the place of what; if something else did so meanwhile, the work is thrown away. One process at a time compacts.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowql.runtime.errors import BatchDamaged, LogFull
from flowql.runtime.log.base import Position
from flowql.runtime.log.embedded.compaction import Compactable, Compacted, compact, worthwhile
from flowql.runtime.log.embedded.ledger import COMPACTION_LOCK, Ledger
from flowql.runtime.log.embedded.records import AdvanceStart, Replace
from flowql.runtime.log.embedded.segment import MISSING
from flowql.runtime.log.embedded.state import Partition, Segment, Topic
from flowql.runtime.log.files import Files
from flowql.runtime.log.policy import TopicPolicy, imported_topic

# A group that has not yet read a tombstone keeps it, but not for longer than this: it may be long gone.
READERS_MS = 30 * 86_400_000
# A position that so many later commits of its writer did not carry belongs to no running query.
COMMITS = 10_000


class Upkeep:
    """Rounds over all topics. One thread."""

    def __init__(self, files: Files, directory: str, ledger: Ledger) -> None:
        self._files, self._directory, self._ledger = files, directory, ledger
        # By topic and partition, from the last pass that left records for groups: the lowest position of groups, and the end of closed segments.
        self._held = dict[tuple[int, int], tuple[int, int]]()

    def run(self, now_ms: int) -> None:
        """One round. now_ms: since the epoch, as records' timestamps. LogFull if there is no space to compact; retention was done then.

        Any other trouble with the disk is a LogError, and the log is as it was.
        """
        self._ledger.refresh()
        for topic in self._topics():
            self._retain(topic, now_ms)
        with self._ledger.errors():
            lock = self._files.lock(f"{self._directory}/{COMPACTION_LOCK}", wait=False)
            if lock is None:  # another process is at it
                return
            try:
                damaged: BatchDamaged | None = None
                for topic, partition in [(t, p) for t in self._topics() if t.policy.compacts for p in t.partitions]:
                    try:
                        self._compact(topic, partition, now_ms)
                    except BatchDamaged as e:  # it stays as it is; others go on
                        damaged = e
                if damaged is not None:
                    raise damaged
            finally:
                lock.release()

    def _topics(self) -> list[Topic]:
        with self._ledger.lock:
            return list(self._ledger.state.topics.values())

    def _is_there(self, topic: Topic) -> bool:
        return self._ledger.state.by_id.get(topic.id) is topic

    # Retention

    def _retain(self, topic: Topic, now_ms: int) -> None:
        policy = topic.policy
        if not policy.deletes:
            return
        with self._ledger.lock:
            due = any(_retained_from(p, policy, now_ms) > p.start_offset for p in topic.partitions)
        if not due:
            return
        with self._ledger.owning([topic.owner_name]), self._ledger.appending():
            if not self._is_there(topic):
                return
            for partition in topic.partitions:
                start = _retained_from(partition, policy, now_ms)
                if start > partition.start_offset:
                    with self._ledger.removing([partition]):
                        self._ledger.write(AdvanceStart(topic.id, partition.number, start))

    # Compaction

    def _compact(self, topic: Topic, partition: Partition, now_ms: int) -> None:
        policy = topic.policy
        with self._ledger.lock:
            if not self._is_there(topic):
                return
            closed, skipped = list(partition.segments[:-1]), list(partition.skipped)
            floor, read = self._floor(topic, partition, now_ms), self._read(topic, partition)
            what = Compactable(
                partition.directory, partition.number, closed, partition.start_offset, floor, read, skipped
            )
        if not closed:
            return
        key, until = (topic.id, partition.number), (read, closed[-1].end_offset)
        if not worthwhile(what, policy, now_ms, is_held=self._held.get(key) == until):
            return
        try:
            done = compact(self._files, self._ledger.segments, what, policy, now_ms)
        except FileNotFoundError:
            self._check_removed(topic, partition, closed)
            return
        if any(not image.cleaned_ms for image in (done.images if done is not None else [s.image() for s in closed])):
            self._held[key] = until
        if done is not None:
            self._take_place(topic, partition, done)

    def _check_removed(self, topic: Topic, partition: Partition, segments: Sequence[Segment]) -> None:
        """Raises BatchDamaged unless retention or a deletion was quicker, which tell the commit log before they remove files."""
        gone = [s for s in segments if not self._files.exists(s.path)]
        with self._ledger.appending():  # all that other processes have told is known
            missing = next((s for s in gone if self._is_there(topic) and s in partition.segments), None)
        if missing is not None:
            whose = f"offsets {missing.base} to {missing.end_offset - 1} of {topic.info.name}-{partition.number}"
            raise BatchDamaged(missing.path, 0, MISSING, whose)

    def _take_place(self, topic: Topic, partition: Partition, done: Compacted) -> None:
        count = len(done.replaced)
        try:
            with self._ledger.appending():
                current = [s.path for s in partition.segments[:count]]
                if not self._is_there(topic) or current != done.replaced or len(partition.segments) <= count:
                    self._discard(done)
                    return
                with self._ledger.removing([partition]):
                    self._ledger.write(Replace(topic.id, partition.number, count, done.images))
        except LogFull:
            self._discard(done)
            raise

    def _discard(self, done: Compacted) -> None:
        for path in done.made:
            self._files.unlink(path)

    def _floor(self, topic: Topic, partition: Partition, now_ms: int) -> int:
        """Tombstones from here on a group has still to read."""
        floor = min([partition.end_offset, *(p.offset for p in self._positions(topic, partition))])
        old = [s.end_offset for s in partition.segments if s.cleaned_ms and s.cleaned_ms + READERS_MS <= now_ms]
        return max([floor, *old])

    def _read(self, topic: Topic, partition: Partition) -> int:
        """The offset up to which all active groups have read the partition."""
        live = (p.offset for p in self._positions(topic, partition) if not self._is_left(p))
        return min([partition.end_offset, *live])

    def _positions(self, topic: Topic, partition: Partition) -> list[Position]:
        readers = [e for g, e in self._ledger.state.groups.items() if not imported_topic(g)]
        return [e[topic.id, partition.number] for e in readers if (topic.id, partition.number) in e]

    def _is_left(self, position: Position) -> bool:
        """Whether its query has stopped or was removed: each commit of an application carries the positions of all its other queries.

        Positions that no commit of an instance wrote, such as those of Spark's queries, tell nothing of the kind, and hold no record back.
        """
        if position.commit is None:
            return True
        writer, sequence = position.commit
        newest = self._ledger.state.producers.get(writer)
        return newest is not None and newest.sequence - sequence > COMMITS


def _retained_from(partition: Partition, policy: TopicPolicy, now_ms: int) -> int:
    """The offset below which records may go: whole segments from the first on, the last one only for its age."""
    start = partition.start_offset
    size = sum(s.length for s in partition.segments)
    for i, segment in enumerate(partition.segments):
        is_last = i + 1 == len(partition.segments)
        too_old = policy.retention_ms >= 0 and segment.max_timestamp < now_ms - policy.retention_ms
        too_much = policy.retention_bytes >= 0 and not is_last and size - segment.length >= policy.retention_bytes
        if not (too_old or too_much):
            break
        start = segment.end_offset
        size -= segment.length
    return max(start, partition.start_offset)
