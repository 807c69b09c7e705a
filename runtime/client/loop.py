"""The background thread of one client: the only code that calls its `Consumer`."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

from flowql.runtime.client.events import (
    ApplicationEvent,
    AssignPartitions,
    BackgroundEvent,
    ClientFailed,
    CompletableEvent,
    FetchArrived,
    ReadChunk,
    SeekPartition,
)
from flowql.runtime.client.fetch_buffer import FetchBuffer
from flowql.runtime.errors import LogError, LogUnavailable, RuntimeFailure
from flowql.runtime.log.base import (
    Consumer,
    KeyValueReader,
    KeyValues,
    Log,
    RawBatch,
    Reader,
    TopicPartition,
    no_records,
)

IDLE_MS = 5  # how long to wait when there is nothing to fetch; bounds the latency of a foreign append
# And where nothing has come for a while: most instances wait most of the time, and each look costs system calls.
QUIET_AFTER_MS, QUIET_MS = 1_000, 20
STILL_AFTER_MS, STILL_MS = 10_000, 50
RESTING_MS = 1_000  # while only another thread can give it work, which wakes it
FETCH_ROWS, FETCH_BYTES = 30_000, 8 << 20
READERS_MAX = 64  # cached chunk readers


class ConsumerLoop:
    """One step: application events, then chunks that are there, then a fetch for every partition with room.

    Owned by the background thread; `events` and `replies` are the two queues of the facade.
    """

    def __init__(
        self,
        log: Log,
        client_id: str,
        events: deque[ApplicationEvent],
        replies: deque[BackgroundEvent],
        buffer: FetchBuffer,
    ) -> None:
        self._log = log
        self._consumer: Consumer = log.consumer(client_id)
        self._events, self._replies, self._buffer = events, replies, buffer
        self._assigned: set[TopicPartition] = set()
        self._waits_to_assign = False  # an assignment did not get through yet
        self._paused: set[TopicPartition] = set()
        self._generations: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}  # of each generation: the offset after what was fetched
        self.notify: Callable[[], None] = lambda: None  # something arrived; wakes the polling thread
        self._now_ms = self._progress_ms = 0
        self._chunks: list[ReadChunk] = []  # asked for and not answered, oldest first
        self._chunk_readers: OrderedDict[tuple[TopicPartition, bool], Reader | KeyValueReader] = OrderedDict()

    def run_once(self, now_ms: int) -> int:
        self._now_ms = now_ms
        progress = self._serve_events()
        if self._waits_to_assign:
            self._assign()
        progress |= self._answer_chunks()
        progress |= self._fetch()
        if progress:
            self._progress_ms = now_ms
            self.notify()
            return 0
        if not self._at_work:
            return RESTING_MS
        still_ms = now_ms - self._progress_ms
        return IDLE_MS if still_ms < QUIET_AFTER_MS else QUIET_MS if still_ms < STILL_AFTER_MS else STILL_MS

    @property
    def _at_work(self) -> bool:
        """Something may come from the log. Else it is asked for first, or room is made for it, which both wake the thread."""
        reads = bool(self._assigned) and len(self._paused) < len(self._assigned)
        return reads or bool(self._chunks) or self._waits_to_assign

    def _serve_events(self) -> bool:
        progress = bool(self._events)
        while self._events:
            self._handle(self._events.popleft(), self._now_ms)
        return progress

    def close(self) -> None:
        """Fail what is still waiting, then close the client."""
        unanswered: list[ApplicationEvent] = [*self._chunks, *self._events]
        self._chunks = []
        self._events.clear()
        for event in unanswered:
            if isinstance(event, CompletableEvent):
                event.future.set_exception(RuntimeFailure("the client is closed"))
        self._consumer.close()

    def _handle(self, event: ApplicationEvent, now_ms: int) -> None:
        if isinstance(event, ReadChunk):
            if now_ms > event.deadline_ms:
                event.future.set_exception(TimeoutError(f"{type(event).__name__} was not served in time"))
            else:
                self._chunks.append(event)
        elif isinstance(event, AssignPartitions):
            self._paused = set()
            goes_on = {tp for tp, g in event.generations.items() if self._generations.get(tp) == g}
            self._generations = dict(event.generations)
            self._next = {tp: self._next[tp] if tp in goes_on else o for tp, o in event.positions.items()}
            self._assign()
        elif isinstance(event, SeekPartition):
            self._generations[event.tp], self._next[event.tp] = event.generation, event.offset
            self._consumer.seek(event.tp, event.offset)

    def _assign(self) -> None:
        """Nothing is read if one of the partitions is gone: the polling thread is told and assigns anew without it.

        Without brokers it is tried again in the next step.
        """
        self._assigned, self._waits_to_assign = set(), False
        try:
            self._consumer.assign(self._next)
            self._assigned = set(self._next)
        except LogError as error:
            self._waits_to_assign = error.retriable
            self._replies.append(ClientFailed(error))

    def _answer_chunks(self) -> bool:
        """Answer those that are there; none waits for what another partition's brokers are at. Of several for one partition only
        the first is looked at: they may want different places, and a reader that is moved begins anew.
        """
        waiting: list[ReadChunk] = []
        asked: set[TopicPartition] = set()
        for event in self._chunks:
            if event.tp in asked or not self._answer_chunk(event):
                waiting.append(event)
            asked.add(event.tp)
        progress = len(waiting) < len(self._chunks)
        self._chunks = waiting
        return progress

    def _answer_chunk(self, event: ReadChunk) -> bool:
        try:
            reader = self._reader(event)
            if reader.arrived():
                event.future.set_result(self._read_chunk(event, reader))
            elif self._now_ms > event.deadline_ms:
                reader.close()  # the log may have stopped fetching for this reader: the next request restarts it
                raise LogUnavailable(f"{event.tp}: nothing arrives from offset {event.offset} on")
            else:
                return False
        except Exception as error:  # the requesting thread gets it through the future
            event.future.set_exception(error)
        return True

    def _reader(self, event: ReadChunk) -> Reader | KeyValueReader:
        place = event.tp, event.bare
        reader = self._chunk_readers.get(place)
        if reader is None:
            make = self._log.key_values if event.bare else self._log.reader
            reader = self._chunk_readers[place] = make(event.tp, event.offset)
            while len(self._chunk_readers) > READERS_MAX:
                self._chunk_readers.popitem(last=False)
        if reader.position != event.offset:
            reader.seek(event.offset)
        return reader

    @staticmethod
    def _read_chunk(event: ReadChunk, reader: Reader | KeyValueReader) -> list[RawBatch | KeyValues]:
        """The records of a chunk that have arrived, in the batches of the reader."""
        batches: list[RawBatch | KeyValues] = []
        rows_left, bytes_left = event.max_records, event.max_bytes
        while rows_left > 0 and bytes_left > 0 and (not batches or reader.arrived()):
            batch = reader.read(rows_left, bytes_left)
            if batch is None:
                break
            batches.append(batch)
            rows_left, bytes_left = rows_left - batch.rows, bytes_left - batch.size_bytes
        if not batches and reader.position > event.offset:  # what is left is no record
            end, tp = reader.position, event.tp
            batches.append(KeyValues(tp, [], [], end, 0) if event.bare else RawBatch(tp, no_records(), end, 0))
        return batches

    def _fetch(self) -> bool:
        if not self._assigned:
            return False
        full = self._buffer.full(self._assigned)
        if full - self._paused:
            self._consumer.pause(sorted(full - self._paused))
        if self._paused - full:
            self._consumer.resume(sorted(self._paused - full))
        self._paused = full
        if len(full) == len(self._assigned):
            return False
        try:
            batches = self._consumer.poll(FETCH_ROWS, FETCH_BYTES)
        except Exception as error:  # reported and retried: the polling thread decides what it means
            self._replies.append(ClientFailed(error))
            return False
        for batch in batches:
            if batch.tp in self._generations:
                self._buffer.add(batch, self._generations[batch.tp])
                self._next[batch.tp] = batch.next_offset
        if batches:
            self._replies.append(FetchArrived())
        return bool(batches)
