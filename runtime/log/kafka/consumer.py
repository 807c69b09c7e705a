"""The main consumer on Kafka: many partitions, from positions that the instance names itself. It is a member of no group of the brokers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from flowql.runtime.errors import LogError
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.log.clients import naming
from flowql.runtime.log.kafka.admin import KafkaAdmin
from flowql.runtime.log.kafka.fetching import Cursor, FetchClient
from flowql.runtime.log.kafka.reading import resolve


class KafkaConsumer:
    """Reads many partitions in turn. Owned by one thread. Its client is made when it is told what to read."""

    def __init__(self, admin: KafkaAdmin, make_client: Callable[[], FetchClient], client_id: str) -> None:
        self.client_id = client_id
        self._admin, self._make_client = admin, make_client
        self._client: FetchClient | None = None
        self._paused: set[TopicPartition] = set()
        self._turn = 0

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        resolved: dict[TopicPartition, int] = {}
        for tp, offset in positions.items():
            try:
                with naming(tp):
                    self._admin.check_partition(tp)
                    resolved[tp] = resolve(self._admin, tp, offset)
            except LogError as error:
                if not error.retriable or offset < 0:
                    raise
                resolved[tp] = (
                    offset  # its brokers are away: the client goes on asking, and the others are read meanwhile
                )
        if self._client is None:
            self._client = self._make_client()
        self._client.stop([tp for tp in self._client.cursors if tp not in resolved])
        moved = {tp: o for tp, o in resolved.items() if not self._client.is_at(tp, o)}
        if moved:
            self._client.start_all(moved)
        self._paused.clear()
        self._turn = 0

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._cursor(tp)
        assert self._client is not None
        self._client.start(tp, resolve(self._admin, tp, offset))

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        """Nothing of these is handed out. The brokers are asked to pause only when too much has arrived."""
        self._paused.update(self._cursor(tp).tp for tp in tps)

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        self._paused.difference_update(tps)

    def poll(self, max_records: int, max_bytes: int) -> list[RawBatch]:
        if self._client is None:
            return []
        self._client.pump()
        batches: list[RawBatch] = []
        enough_records, enough_bytes = -(-max_records // 2), -(-max_bytes // 2)  # no small pieces of large batches
        cursors = list(self._client.cursors.values())
        for i in range(len(cursors)):
            cursor = cursors[(self._turn + i) % len(cursors)]
            if cursor.tp in self._paused:
                continue
            if max_records < enough_records or max_bytes < enough_bytes:
                self._turn = (self._turn + i) % len(cursors)
                return batches
            batch = cursor.take(max_records, max_bytes)
            if batch is not None:
                batches.append(batch)
                max_records -= batch.records.num_rows
                max_bytes -= batch.size_bytes
            elif cursor.error is not None and not batches:  # else it is raised when nothing gets lost with it
                self._turn = (self._turn + i + 1) % len(cursors)
                raise cursor.error
            elif not batches and (trouble := cursor.take_trouble()) is not None:
                raise trouble
        self._turn += 1
        return batches

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _cursor(self, tp: TopicPartition) -> Cursor:
        cursor = self._client.cursors.get(tp) if self._client is not None else None
        if cursor is None:
            raise LogError(f"{tp} is not assigned to consumer {self.client_id}")
        return cursor
