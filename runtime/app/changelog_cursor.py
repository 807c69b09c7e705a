"""Read positions of the changelogs of one task."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.log.base import Admin, TopicPartition
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.positions import ChangelogPosition


@dataclass(slots=True)
class ChangelogCursor:
    """How far one changelog partition is applied. `end`: where it ended when the restoration began; it has no writer since then.

    begun_ms: wall clock before that. kept: the position of the rows that were here; None if it is read from its beginning. topic_id: empty where
    it is not known. in_sight: records up to `end` can be read, as was found out before the next chunk is asked for. entry: once files of rows are
    asked for instead of chunks.
    """

    tp: TopicPartition
    spec: StoreSpec
    begin: int
    end: int
    position: int
    begun_ms: int
    topic_id: str
    kept: ChangelogPosition | None
    chunk: Future[object] | None = None
    in_sight: bool = False
    entry: StoreEntry | None = None

    @property
    def done(self) -> bool:
        return self.position >= self.end

    def reached(self, offset: int) -> ChangelogPosition | None:
        """The position of the rows once everything below `offset` is applied.

        Rows that were here may be of keys that were deleted since: until those deletions are read, it is as old as before.
        """
        if not self.topic_id:
            return None
        if self.kept is None:
            return ChangelogPosition(self.topic_id, offset, self.begun_ms)
        as_of_ms = self.begun_ms if offset >= self.end else self.kept.as_of_ms
        return replace(self.kept, offset=offset, as_of_ms=as_of_ms)

    def go_on_to(self, end: int, now_ms: int) -> None:
        """It has another end by now, of a partition that is followed. If it has been read up to the last one, its rows are as of then."""
        if self.done:
            self.kept = self.reached(self.position)
            self.end, self.begun_ms = end, now_ms


def cursors_of(
    admin: Admin,
    state: StateManager,
    application_id: str,
    specs: Sequence[StoreSpec],
    partition: int,
    now_ms: int,
) -> list[ChangelogCursor]:
    """One for each store of a task: from the position of the rows that are here, if there are any, else from the beginning.

    now_ms: by the wall clock, before this call.
    """
    positions = state.positions_of([s.name for s in specs], partition)
    tps = {spec.name: TopicPartition(changelog_topic(application_id, spec.name), partition) for spec in specs}
    described = admin.describe_topics({tp.topic for tp in tps.values()}).result()
    cursors: list[ChangelogCursor] = []
    for spec in specs:
        tp, kept = tps[spec.name], positions.get((spec.name, partition))
        topic_id = described[tp.topic].id if tp.topic in described else ""
        begin = admin.begin_offset(tp) if kept is None else kept.offset
        end = admin.written_offset(tp)
        cursors.append(ChangelogCursor(tp, spec, begin, end, begin, now_ms, topic_id, kept))
    return cursors
