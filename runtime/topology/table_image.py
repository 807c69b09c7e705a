"""The rows of a local table by key, as of a position in its topic: `TableImage` follows the topic, whoever writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, islice

import pyarrow as pa

from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.batch import Row
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import left_out
from flowql.runtime.topology.row_store import Followed, RowStore
from flowql.runtime.topology.table_rows import Kept, Key, RowReader, digest_of_last

# Where offsets do not tell whether compaction has removed tombstones that were not read: no broker removes them sooner than this by default.
UNREAD_MS_MAX = 3_600_000
ITEMS_AT_ONCE = 10_000
Ends = Mapping[TopicPartition, int]


class TableImage:
    """Rows of one table up to `ends`. One thread at a time."""

    def __init__(self, log: Log, source: SourceDef, store: RowStore) -> None:
        self.source = source
        self._log, self._store, self._reader = log, store, RowReader(source)
        self._columns = blake2b(
            repr((to_data(source.schema), source.key_format, source.value_format)).encode()
        ).hexdigest()
        self.ends: dict[TopicPartition, int] = {}

    def look(self) -> Ends:
        """The committed ends of the topic at this moment. TopicMissing."""
        return table_ends(self._log, self.source)

    def follow(self, ends: Ends, now_ms: int) -> None:
        """Reads on to these ends or a little beyond. Raises StatementFailed for a record that is no row of the table; LogError."""
        identity, followed = self._identity(ends), self._store.followed
        positions = {TopicPartition(self.source.topic, p): at for p, at in followed.positions.items()}
        same = followed.identity == identity and positions.keys() == ends.keys()
        if not same or self._may_have_missed(followed, now_ms) or not self._continues(positions, ends):
            positions = self._restart()
        while not self._read(positions, ends, identity, now_ms):
            positions = self._restart()
        self.ends = positions

    def get(self, key: Key) -> Row | None:
        found = self._store.get(key)
        return None if found is None else self._reader.row(found)

    def items(self) -> Iterator[tuple[Key, Row]]:
        found = self._store.items()
        while part := list(islice(found, ITEMS_AT_ONCE)):
            yield from zip([key for key, _ in part], self._reader.rows([kept for _, kept in part]), strict=True)

    def apply(
        self, changes: Mapping[Key, Row | None], parts: Sequence[tuple[int, pa.RecordBatch]], now_ms: int
    ) -> None:
        """Takes over what a commit has written behind `self.ends`, instead of reading it. parts: records by partition."""
        ends, last = dict(self.ends), dict(self._store.followed.last)
        for partition, part in parts:
            ends[TopicPartition(self.source.topic, partition)] += part.num_rows
            last[partition] = digest_of_last(part)
        self._write(changes, ends, self._store.followed.identity, now_ms, last)
        self.ends = ends

    def _identity(self, ends: Ends) -> str:
        """Rows that were read stay valid while this stays the same: the topic, where it begins, and the columns."""
        admin, topic = self._log.admin(), self.source.topic
        known = admin.describe_topics([topic]).result().get(topic)
        begins = admin.begin_offsets([*ends])
        shown = (topic, known and known.id, sorted(begins.items()), left_out(admin, [topic]), self._columns)
        return blake2b(repr(shown).encode(), digest_size=16).hexdigest()

    def _may_have_missed(self, followed: Followed, now_ms: int) -> bool:
        return not self._log.drops_with_commits and now_ms - followed.at_ms > UNREAD_MS_MAX

    def _continues(self, positions: Ends, ends: Ends) -> bool:
        """Whether the topic is the one that was followed. Its folder may be an older copy, which has grown since."""
        if any(at > ends[tp] for tp, at in positions.items()):
            return False
        last = self._store.followed.last
        return bool(self.ends) or all(
            last.get(tp.partition) == self._digest_before(tp, at)
            for tp, at in positions.items()
            if tp.partition in last
        )

    def _digest_before(self, tp: TopicPartition, offset: int) -> str | None:
        """The digest of the record before an offset; None if it is not there."""
        if not self._log.drops_with_commits:  # a marker of a transaction may be there instead
            return self._store.followed.last[tp.partition]
        if offset <= self._log.admin().begin_offset(tp):
            return None
        reader = self._log.reader(tp, offset - 1)
        try:
            raw = reader.read(1, 1)
        finally:
            reader.close()
        return digest_of_last(raw.records) if raw is not None and raw.first_offset == offset - 1 else None

    def _restart(self) -> dict[TopicPartition, int]:
        """Forgets all rows; the beginnings of the partitions."""
        self._store.clear()
        return {}

    def _read(self, positions: dict[TopicPartition, int], ends: Ends, identity: str, now_ms: int) -> bool:
        """Moves the positions to the ends. False if compaction has removed records that were not read: a tombstone may be one of them."""
        anew, admin, last = not positions, self._log.admin(), dict(self._store.followed.last)
        if anew:
            positions.update(admin.begin_offsets([*ends]))
        for tp, end in sorted(ends.items()):
            for read in self._reader.changes(self._log, tp, positions[tp], end, len(ends)):
                if read.gap and not anew and self._log.drops_with_commits:
                    return False
                positions[tp], last[tp.partition] = read.end, read.last
                self._write(read.changes, positions, identity if not anew else "", now_ms, last)
        if anew or not self._log.drops_with_commits:
            self._write({}, positions, identity, now_ms, last)
        return True

    def _write(
        self, changes: Mapping[Key, Kept | None], ends: Ends, identity: str, now_ms: int, last: Mapping[int, str]
    ) -> None:
        positions = {tp.partition: at for tp, at in ends.items()}
        self._store.write(changes, Followed(identity, positions, now_ms, dict(last)))


class Pending:
    """Rows with what statements have changed whose commit is not written yet. over: what others had changed before them."""

    def __init__(self, image: TableImage, over: Mapping[Key, Row | None] | None = None) -> None:
        self._image, self._over = image, over or {}
        self.changes: dict[Key, Row | None] = {}

    def get(self, key: Key) -> Row | None:
        for changes in (self.changes, self._over):
            if key in changes:
                return changes[key]
        return self._image.get(key)

    def items(self) -> Iterator[tuple[Key, Row]]:
        """All rows."""
        changes = {**self._over, **self.changes}
        new = ((key, row) for key, row in changes.items() if row is not None)
        return chain((kept for kept in self._image.items() if kept[0] not in changes), new)


def table_ends(log: Log, source: SourceDef) -> dict[TopicPartition, int]:
    """The committed ends of a table's topic. TopicMissing if there is none."""
    count = log.admin().partition_counts([source.topic]).get(source.topic)
    if count is None:
        raise TopicMissing(f"there is no topic {source.topic} of the table {source.name}: deploy the project")
    return dict(log.admin().end_offsets([TopicPartition(source.topic, p) for p in range(count)]))
