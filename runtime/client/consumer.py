"""The application side of a client: what the polling thread calls. Never blocks on the client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from flowql.runtime.client.events import (
    ApplicationEvent,
    AssignPartitions,
    BackgroundEvent,
    ReadChunk,
    SeekPartition,
)
from flowql.runtime.client.fetch_buffer import FetchBuffer
from flowql.runtime.client.loop import ConsumerLoop
from flowql.runtime.log.base import Log, RawBatch, TopicPartition

CHUNK_TIMEOUT_MS = 30_000


class ConsumerFacade:
    """A main or restore consumer. `loop` is the step of its background thread; all other methods belong to the polling thread, but
    for `read_key_values`, which the restoration thread calls.

    `wake` is called after an event was queued, so that the background thread need not be polled.
    """

    def __init__(self, log: Log, client_id: str, buffer_bytes: int) -> None:
        self._events: deque[ApplicationEvent] = deque()
        self._replies: deque[BackgroundEvent] = deque()
        self._buffer = FetchBuffer(buffer_bytes)
        self.client_id = client_id
        self.loop = ConsumerLoop(log, client_id, self._events, self._replies, self._buffer)
        self.wake: Callable[[], None] = lambda: None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions. Those that are read already go on where they are; only `seek` moves them."""
        self._send(AssignPartitions(dict(positions), self._buffer.assign(positions)))

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._send(SeekPartition(tp, offset, self._buffer.restart([tp])[tp]))

    def read_chunk(self, tp: TopicPartition, offset: int, now_ms: int, max_records: int = 20_000) -> Future[object]:
        """Records from `offset` beside the assigned position: resolves to list[RawBatch]."""
        return self._ask(ReadChunk(now_ms + CHUNK_TIMEOUT_MS, tp=tp, offset=offset, max_records=max_records))

    def read_key_values(self, tp: TopicPartition, offset: int, now_ms: int, max_records: int) -> Future[object]:
        """The same of keys and values alone: resolves to list[KeyValues], the last of which may go beyond `max_records`."""
        return self._ask(ReadChunk(now_ms + CHUNK_TIMEOUT_MS, tp=tp, offset=offset, max_records=max_records, bare=True))

    def poll(self, wanted: Callable[[TopicPartition], bool]) -> list[RawBatch]:
        """Fetched batches of partitions whose readers want more now; at most one per partition and call."""
        batches = self._buffer.take(wanted)
        if batches:
            self.wake()
        return batches

    def events(self) -> list[BackgroundEvent]:
        """Events that the background thread has reported since the last call."""
        out: list[BackgroundEvent] = []
        while self._replies:
            out.append(self._replies.popleft())
        return out

    def _ask(self, event: ReadChunk) -> Future[object]:
        self._send(event)
        return event.future

    def _send(self, event: ApplicationEvent) -> None:
        self._events.append(event)
        self.wake()
