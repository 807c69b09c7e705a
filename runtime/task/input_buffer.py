"""The waiting input of a task from the log: fetched records of a partition. `flowql.runtime.task.channels` has those of other tasks.

The polling thread fills buffers, and the thread that holds the task consumes them.
Nothing is taken out before the run that used it is published: a failed run finds its input again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.runtime.batch import Batch, Ints, concat
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.operators.base import DeadLetter
from flowql.runtime.task.arrivals import Arrivals
from flowql.runtime.task.channels import Known, nothing_waits
from flowql.runtime.task.deletions import Deletions
from flowql.runtime.task.peeked import EMPTY, PeekedRows
from flowql.runtime.task.position_names import numbered

# Who falls behind while records come one by one has as many batches as records: small ones are gathered, so that a run costs the
# same for many rows as for one. Not more at once: the rows are copied, and each batch may have to be decoded, which takes 0.3 ms.
GATHERED_ROWS, GATHERED_BATCHES = 1_024, 32
SEEN_MIN = 100  # offsets from which one can tell how many are records


@dataclass(slots=True)
class DecodedRows:
    """The decoded first batch of a buffer, whose rows before `cursor` are consumed. origin: index of each decoded row in the raw batch."""

    batch: Batch
    origin: Ints
    raw_rows: int
    dead_letters: list[DeadLetter]
    raw: RawBatch | None = None
    cursor: int = 0

    @classmethod
    def joined(cls, parts: Sequence[DecodedRows], raw: RawBatch) -> DecodedRows:
        """The decoded rows of consecutive batches as rows of `raw`, which holds the records of all of them."""
        starts = np.cumsum([0, *(part.raw_rows for part in parts)])[:-1]
        origin = np.concatenate([part.origin + start for part, start in zip(parts, starts, strict=True)])
        rows = concat(parts[0].batch.schema, [part.batch for part in parts]).numbered(origin)
        dead = [
            replace(d, seq=d.seq + int(start))
            for part, start in zip(parts, starts, strict=True)
            for d in part.dead_letters
        ]
        return cls(rows, origin, raw.records.num_rows, dead, raw)

    def origin_of(self, cursor: int) -> int:
        """Raw rows before this index are consumed once rows before `cursor` are."""
        return int(self.origin[cursor]) if cursor < len(self.batch) else self.raw_rows


# Decodes a batch, given the fetched ones from which it was gathered: others may have gathered them in another way.
Decode = Callable[[RawBatch, Sequence[RawBatch]], DecodedRows]


@dataclass(slots=True)
class Probes:
    """Counts the probes of what is upstream of repartition topics (`flowql.runtime.app.frontier`). started: the last one that has begun."""

    started: int = 0


@dataclass(slots=True)
class LogInput:
    """Records of one partition for one source operator of one task.

    position: next offset to process. next_fetch: offset after what is buffered. attached: fed from the shared head of the
    partition, else through a catch-up reader (an own read position) until it has caught up with the head. stop_at: records from this
    offset on have to wait (`flowql.runtime.app.consistent_snapshot`); others of the task wait with them, for their order is not known.
    line: records from this offset on belong to a later tick (`flowql.runtime.ticks`); the input is idle there, and others go on.
    arrivals: of the partition, since_ms: when this reader came to it; set by the polling thread. ordinal: its number among the inputs
    of its task that read this partition.

    channel: of a repartition topic, only records with this key (`flowql.runtime.task.repartition`); source: whose they are. within: rows of
    the record at `position` that are processed already, for a record may hold many. probes: of tasks with channels, and needed_probes:
    for each batch in `queue`, the first probe that began after it arrived, before whose end the batch must not be processed; siblings: all inputs of
    the task. complete: the last probe for which all rows of this channel are in the topic, before offset `complete_at`.

    topic_id: of the topic that `position` is of; empty where it is not compared, or the log does not tell it. partitions: of the topic when the
    task was made; 0 where it is not compared.
    seen: of how many offsets that were fetched how many were records for this input, and not markers of transactions or of others.
    """

    operator: str
    tp: TopicPartition
    position: int
    channel: bytes | None = None
    source: int = 0
    ordinal: int = 0
    topic_id: str = ""
    partitions: int = 0
    within: int = 0
    next_fetch: int = 0
    attached: bool = False
    chunk: Future[object] | None = None
    end_offset: int = 0
    stop_at: int | None = None
    line: int | None = None
    deletions: Deletions | None = None  # of a table's topic where some may be missed
    skipped: int = 0  # raw rows of the head batch that a fused run has consumed
    queue: deque[RawBatch] = field(default_factory=deque)
    rows: int = 0
    size_bytes: int = 0
    decoded: DecodedRows | None = None
    probes: Probes | None = None
    siblings: list[LogInput] = field(default_factory=list)
    needed_probes: deque[int] = field(default_factory=deque)
    complete: int = 0
    complete_at: int = 0
    arrivals: Arrivals | None = None
    since_ms: int = 0
    seen: tuple[int, int] = (0, 0)
    sampled: tuple[int, int] = field(
        init=False
    )  # where `take_latency_samples` was last, and how many records are consumed since
    lock: threading.Lock = field(default_factory=threading.Lock)
    wake: Callable[[], object] = nothing_waits  # called after rows were added

    def __post_init__(self) -> None:
        self.next_fetch = self.position
        self.sampled = (self.position, 0)

    @property
    def name(self) -> str:
        """The name of its position in the metadata of the task."""
        return self.name_in(self.tp.topic)

    def name_in(self, topic: str) -> str:
        """The same, had it read another topic."""
        if self.channel is not None:
            return numbered(topic, self.source)
        return numbered(topic, self.ordinal) if self.ordinal else topic

    def position_in(self, positions: Mapping[str, int], otherwise: int) -> int:
        """Its position in the metadata of a task. Older versions wrote one position for all inputs of a partition."""
        return positions.get(self.name, positions.get(self.tp.topic, otherwise))

    @property
    def rows_within(self) -> int:
        """How many rows of the record at `position` are published."""
        decoded = self.decoded
        if decoded is None or decoded.cursor >= len(decoded.batch):
            return self.within
        return decoded.cursor - int(np.searchsorted(decoded.origin, decoded.origin[decoded.cursor]))

    def add(self, batch: RawBatch) -> None:
        """Append fetched records; what is below `next_fetch` was buffered before and is cut off."""
        if batch.next_offset <= self.next_fetch:
            return
        if not batch.records.num_rows:  # there are no more records up to here
            self._skip_to(batch.next_offset)
            return
        if self.channel is not None:
            mine = batch.records.filter(pc.equal(batch.records.column("key"), self.channel))
            if not mine.num_rows:
                self._skip_to(batch.next_offset)
                return
            size = batch.size_bytes * mine.num_rows // batch.records.num_rows
            batch = RawBatch(batch.tp, mine, batch.next_offset, size)
        if batch.first_offset < self.next_fetch:
            offsets = batch.records.column(0).to_numpy()
            start = int(np.searchsorted(offsets, self.next_fetch))
            kept = batch.records.slice(start)
            if not kept.num_rows:  # only a gap (transaction markers) is left
                self._skip_to(batch.next_offset)
                return
            size = batch.size_bytes * kept.num_rows // batch.records.num_rows
            batch = RawBatch(batch.tp, kept, batch.next_offset, size)
        self._see(batch.next_offset, batch.records.num_rows)
        with self.lock:
            self.queue.append(batch)
            if self.probes is not None:
                self.needed_probes.append(self.probes.started + 1)
            self.rows += batch.records.num_rows
            self.size_bytes += batch.size_bytes
        self.next_fetch = batch.next_offset
        self.wake()

    def _see(self, offset: int, records: int) -> None:
        offsets, known = self.seen
        self.seen = offsets + offset - self.next_fetch, known + records

    def lag(self, end_offset: int) -> int:
        """Number of records that are not processed: buffered ones, and those up to `end_offset` that are not fetched.

        The latter is an estimate, with the same share of records among the offsets as before: a writer with one transaction per record writes as
        many markers as records.
        """
        behind = end_offset - self.next_fetch
        return self.rows + (self.records_in(behind) if behind > 0 else 0)

    def records_in(self, behind: int) -> int:
        """How many records so many offsets are."""
        offsets, records = self.seen
        return behind if offsets < SEEN_MIN else max(1, -(-behind * records // offsets))

    def _skip_to(self, offset: int) -> None:
        self._see(offset, 0)
        with self.lock:
            self.next_fetch = offset
            if not self.queue:  # else when what is buffered has been processed
                self.position = offset

    @property
    def has_rows(self) -> bool:
        """Whether the next record is buffered and of this tick."""
        return bool(self.queue) and not self.at_line

    @property
    def at_line(self) -> bool:
        """Whether all records of this tick are processed."""
        line = self.line  # read once: other threads set it
        return line is not None and (self.position >= line or self.at >= line)

    @property
    def end_of_tick(self) -> int:
        """The known end of the partition, or the line before it."""
        return self.end_offset if (line := self.line) is None else min(self.end_offset, line)

    @property
    def idle(self) -> bool:
        """Nothing is buffered and nothing more is known to exist, or all of this tick is read: other inputs need not wait for this one."""
        if self.line is not None:
            return self.at_line
        return not self.queue and self.next_fetch >= self.end_offset and (self.channel is None or self._is_complete)

    def idle_with(self, _known: Known) -> bool:
        """As `idle`, since a log input waits for nothing but its topic."""
        return self.idle

    @property
    def _is_complete(self) -> bool:
        """No row will come to this channel that belongs before what the others have next."""
        return self.complete >= self._needed_by_siblings and self.next_fetch >= self.complete_at

    @property
    def _needed_by_siblings(self) -> int:
        return max((i.needed_probe for i in self.siblings), default=0)

    @property
    def needed_probe(self) -> int:
        """The number of the next batch; 0 for none. Other threads append and take meanwhile, which an iterator does not allow."""
        try:
            return self.needed_probes[0]
        except IndexError:
            return 0

    @property
    def waited_for(self) -> bool:
        """A channel that others wait for, since it may be incomplete. In a tick all rows of it are there."""
        return self.line is None and self.complete < self._needed_by_siblings

    @property
    def more_to_come(self) -> bool:
        """Whether rows may follow the ones that are decoded or will be decoded next."""
        if (line := self.line) is not None:
            return self.next_fetch < line or self._second_offset() < line
        if self.channel is not None and not self._is_complete:
            return True
        return self.next_fetch < self.end_offset or len(self.queue) > 1

    def _second_offset(self) -> int:
        """The first offset of the second batch; that of the next fetch without one."""
        with self.lock:
            return self.queue[1].first_offset if len(self.queue) > 1 else self.next_fetch

    @property
    def at(self) -> int:
        """Offset of the next record to process; unlike `position` never that of a gap or of an unreadable record."""
        fetched = self.next_fetch
        with self.lock:
            if not self.queue:
                return max(self.position, fetched)
            head, decoded = self.queue[0], self.decoded
            row = self.skipped if decoded is None else decoded.origin_of(decoded.cursor)
            if row >= head.records.num_rows:  # nothing but unreadable records is left of it
                row = self.skipped
            return int(head.records.column(0)[row].as_py())

    @property
    def stopped(self) -> bool:
        """Whether the next record has to wait."""
        stop = self.stop_at  # read once: another thread may lift the barrier meanwhile
        return stop is not None and self.at >= stop

    def raw_rows(self, raw: RawBatch, start: int) -> int:
        """Number of records of a batch, from row `start`, before the first that has to wait."""
        stop = min((offset for offset in (self.stop_at, self.line) if offset is not None), default=raw.next_offset)
        rows = raw.records.num_rows if stop >= raw.next_offset else _row_of(raw, stop)
        return max(0, rows - start)

    @property
    def next_ms(self) -> int | None:
        """The time of the next row; None if it is not decoded yet."""
        decoded = self.decoded
        if decoded is None:
            return None
        cursor = decoded.cursor  # read once: the caller need not be the thread that holds the task
        return int(decoded.batch.rowtime[cursor]) if cursor < len(decoded.batch) else None

    def peek(self, rows_max: int, _enough: int | None = None) -> PeekedRows:
        """The next decoded rows, up to the first that has to wait. Rows of a later tick do not follow them: others go on without these."""
        decoded, line = self.decoded, self.line  # read once: other threads set the line
        if decoded is None:
            return EMPTY
        of_tick = self._rows_before(decoded, line)
        end = min(of_tick, self._rows_before(decoded, self.stop_at))
        rows = decoded.batch.rowtime[decoded.cursor : min(end, decoded.cursor + rows_max)]
        return PeekedRows([decoded.batch], decoded.cursor, rows, more=decoded.cursor + len(rows) < of_tick)

    def _rows_before(self, decoded: DecodedRows, offset: int | None) -> int:
        """The index of the first decoded row at an offset or behind it; the number of rows if there is none."""
        assert decoded.raw is not None
        if offset is None or offset >= decoded.raw.next_offset:
            return len(decoded.batch)
        return max(decoded.cursor, int(np.searchsorted(decoded.origin, _row_of(decoded.raw, offset))))

    def head(self) -> RawBatch | None:
        """The first batch, joined with those after it while they are small together. Only the thread that takes from the buffer calls it."""
        if not self.queue:
            return None
        if self.decoded is None and not self.skipped:
            self._gather(self._small())
        return self.queue[0]

    def _small(self) -> list[RawBatch]:
        """The first batch, and those after it that are joined with it."""
        small = [self.queue[0]]
        rows = small[0].records.num_rows
        for n in range(1, min(len(self.queue), GATHERED_BATCHES)):  # an iterator fails, as the queue grows meanwhile
            rows += self.queue[n].records.num_rows
            if rows > GATHERED_ROWS:
                break
            small.append(self.queue[n])
        return small

    def _gather(self, small: Sequence[RawBatch]) -> None:
        """Replaces the first batches of the queue by one that holds their records."""
        if len(small) < 2:
            return
        records = pa.concat_batches([b.records for b in small])
        gathered = RawBatch(self.tp, records, small[-1].next_offset, sum(b.size_bytes for b in small))
        with self.lock:  # both at once: another thread never sees a batch without its probe
            if self.needed_probes:  # the latest, as what must wait for one of them waits for all
                self.needed_probes = deque(islice(self.needed_probes, len(small) - 1, None))
            self.queue = deque([gathered, *islice(self.queue, len(small), None)])

    def decode_next(self, decode: Decode) -> DecodedRows | None:
        if self.decoded is None and self.queue:
            if self.skipped:  # a fused run has consumed the first rows; now others read the topic too
                self._cut_consumed()
            fetched = self._small()
            self._gather(fetched)
            self.decoded = decode(self.queue[0], fetched if self.attached else ())
            self.decoded.cursor, self.within = self.within, 0
        return self.decoded

    def _cut_consumed(self) -> None:
        head = self.queue[0]
        rest = head.records.slice(self.skipped)
        size = head.size_bytes * rest.num_rows // head.records.num_rows
        with self.lock:
            self.queue[0] = RawBatch(head.tp, rest, head.next_offset, size)
            self.size_bytes -= head.size_bytes - size
            self.skipped = 0

    def consume(self, cursor: int) -> list[DeadLetter]:
        """Decoded rows before `cursor` are published; returns the dead letters consumed with them."""
        decoded = self.decoded
        assert decoded is not None
        assert decoded.raw is not None
        before, consumed = decoded.origin_of(decoded.cursor) if decoded.cursor else 0, decoded.origin_of(cursor)
        dead = [d for d in decoded.dead_letters if before <= d.seq < consumed]
        decoded.cursor = cursor
        self._advance(decoded.raw, before, consumed)
        return dead

    def consume_raw(self, rows: int) -> None:
        """`rows` more raw rows of the head batch are published (fused runs, which decode on their own)."""
        before = self.skipped
        self._advance(self.queue[0], before, before + rows)

    def _advance(self, raw: RawBatch, before: int, consumed: int) -> None:
        total = raw.records.num_rows
        self.sampled = (self.sampled[0], self.sampled[1] + consumed - before)
        with self.lock:
            self.rows -= consumed - before
            if consumed >= total:
                self.queue.popleft()
                if self.needed_probes:
                    self.needed_probes.popleft()
                self.position = raw.next_offset if self.queue else max(raw.next_offset, self.next_fetch)
                self.size_bytes -= raw.size_bytes
                self.decoded, self.skipped = None, 0
            else:
                self.position = int(raw.records.column(0)[consumed].as_py())
                self.skipped = consumed

    def take_latency_samples(self) -> list[tuple[int, int]]:
        """(ms since when they were known to be in the log, how many) of the records consumed since the last call."""
        (start, records), self.sampled = self.sampled, (self.position, 0)
        if not records or self.arrivals is None:
            return []
        known = self.arrivals.between(start, self.position, records)
        return [(max(ms, self.since_ms), n) for ms, n in known]

    def reset(self, position: int) -> None:
        """Go back to `position`; everything buffered is forgotten and fetched anew through a catch-up reader."""
        with self.lock:
            self.queue.clear()
            self.needed_probes.clear()
            self.rows = self.size_bytes = self.skipped = 0
            self.decoded = None
        self.position = self.next_fetch = position
        self.sampled = (position, 0)
        self.within = 0
        self.attached, self.chunk = False, None


def _row_of(raw: RawBatch, offset: int) -> int:
    return int(np.searchsorted(raw.records.column(0).to_numpy(), offset))
