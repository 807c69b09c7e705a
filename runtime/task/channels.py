"""Channels: the batches that one task sends to another one in the same process, and what all channels of a task have in common.

Publishing tasks fill channels, and the thread that holds the task consumes them. With P partitions a task has P channels, most of them empty, so a task
looks only at those with rows and at those whose writer has work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flowql.runtime.batch import Batch
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.peeked import EMPTY, PeekedRows, peeked_rows
from flowql.runtime.task.producer_channels import ProducerChannels

ENOUGH_MIN = 8  # rows


def nothing_waits() -> None:
    """Called after rows were added, where no task manager has the task."""


class Input(Protocol):
    """A `LogInput` or an `ExchangeInput`."""

    @property
    def has_rows(self) -> bool: ...

    @property
    def next_ms(self) -> int | None: ...


def beyond(source: Input, ms: int | None) -> bool:
    """Whether the next row is known to have a later time."""
    if ms is None:
        return False
    next_ms = source.next_ms  # read once: the caller need not be the thread that holds the task
    return next_ms is not None and next_ms > ms


def has_rows(inputs: Iterable[Input], ms: int | None) -> bool:
    """Whether one has a row that is not known to have a later time than `ms`."""
    return any(i.has_rows and not beyond(i, ms) for i in inputs)


class Known(dict[TaskId, bool]):
    """Tasks that one look for work has asked whether they are idle, and the answers. asked: the same for writers of channels."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[Upstream, Asked] = {}


@dataclass(slots=True)
class Asked:
    """Numbers of channels. busy: their writers have work. open: their writers are not asked yet; those of all others are idle."""

    busy: list[int]
    open: list[int]


class Upstream:
    """The writers of the channels of a task. Tasks of one sub-topology share it: channels with the same number have the same writer."""

    def __init__(self, channels: Sequence[ExchangeInput]) -> None:
        self._channels = channels

    def asked(self, known: Known) -> Asked:
        """The answers so far."""
        found = known.asked.get(self)
        if found is None:
            found = known.asked[self] = Asked([], list(range(len(self._channels))))
        return found

    def busy(self, known: Known, among: Sequence[ExchangeInput] = (), *, first: bool = False) -> list[int]:
        """Numbers of channels whose writers have work. The writers of channels of `among` with rows are not asked. first: stops at the first one."""
        asked = self.asked(known)
        waiting, asked.open = asked.open, []
        for n, number in enumerate(waiting):
            if among and among[number].queue:
                asked.open.append(number)
            elif not self._channels[number].upstream_idle(known):
                asked.busy.append(number)
                if first:
                    asked.open += waiting[n + 1 :]
                    break
        return asked.busy


@dataclass(slots=True)
class ConsumerChannels:
    """All channels into one task, counted as they change, because asking each of many channels for work is slow.

    rows: in all of them; filled: those that have some, by number; samples: what `take_latency_samples` gives next; wake: called when a channel gets its
    first rows. Written under the epoch lock, read by any thread.
    """

    channels: Sequence[ExchangeInput] = ()
    rows: int = 0
    filled: dict[int, ExchangeInput] = field(default_factory=dict)
    samples: list[tuple[int, int]] = field(default_factory=list)
    upstream: Upstream = field(default_factory=lambda: Upstream(()))
    wake: Callable[[], object] = nothing_waits

    @staticmethod
    def joined(channels: Sequence[ExchangeInput]) -> ConsumerChannels:
        """Those of one task, from now on counted together."""
        joined = ConsumerChannels(channels, sum(c.rows for c in channels), upstream=Upstream(channels))
        joined.filled = {n: c for n, c in enumerate(channels) if c.queue}
        for n, channel in enumerate(channels):
            channel.consumer, channel.number = joined, n
        return joined

    @property
    def waiting(self) -> int:
        """The number of channels that have rows."""
        return len(self.filled)

    def idle_with(self, known: Known, ms: int | None) -> bool:
        """Whether nothing waits, at least up to the time `ms`, and nothing comes. known: tasks that are asked already (`Task.idle_with`)."""
        if ms is not None:
            return all(c.idle_with(known) or beyond(c, ms) for c in self.channels)
        # `filled` is read twice: a task that publishes becomes idle after its rows have arrived.
        return not self.filled and not self.upstream.busy(known, first=True) and not self.filled

    def rows_or_idle(self, known: Known) -> bool:
        """Whether each channel has rows or gets none soon. known: tasks that are asked already (`Task.idle_with`)."""
        if len(self.filled) == len(self.channels):
            return True
        if any(not self.channels[n].queue for n in self.upstream.asked(known).busy):
            return False
        return all(self.channels[n].queue for n in self.upstream.busy(known, self.channels, first=True))

    def to_merge(self, known: Known) -> dict[int, bool]:
        """Channels that have rows or may get some, by number, in order; and whether rows may follow the waiting ones.

        Writers are asked before channels are looked at: rows that are published later are later input.
        """
        busy = frozenset(self.upstream.busy(known))
        return {n: n in busy for n in sorted({*busy, *tuple(self.filled)})}

    def enough(self, rows_max: int) -> int:
        """How many rows to peek of each channel at first: about twice its share, as a channel may have far more than a micro-batch takes of it."""
        return 2 * rows_max // max(1, len(self.filled)) + ENOUGH_MIN

    def take_latency_samples(self) -> list[tuple[int, int]]:
        """As `LogInput.take_latency_samples`; rows count, and each as the oldest of its batch."""
        samples, self.samples = self.samples, []
        return samples


@dataclass(slots=True)
class ExchangeInput:
    """Batches that one upstream task sends to one partition of a repartition, in memory (rule R7).

    One ordered channel per upstream partition: merged by time downstream, so that skew between partitions makes no row late.
    `queue` is guarded by the epoch lock. first: number of the oldest batch in it, counted since the channel was made. consumed: rows
    of it that are processed and published. next_ms: the time of the next row, for anyone to read.
    since: for each batch in it, since when (ms) the oldest of the records it came from was known to be in the log, None where
    that is not known. consumer: all channels into the same task; number: among them. producer: all out of one task. changed: gets topic, partition and source, unless
    nothing waits. is_saved: a commit has written some of it, so the next one has to write that it is consumed.
    """

    operator: str
    topic: str
    partition: int
    source: int
    rows_max: int = 200_000
    queue: deque[Batch] = field(default_factory=deque)
    since: deque[int | None] = field(default_factory=deque)
    number: int = 0
    first: int = 0
    consumed: int = 0
    rows: int = 0
    next_ms: int | None = None
    upstream_idle: Callable[[Known], bool] = lambda _known: True
    consumer: ConsumerChannels = field(default_factory=ConsumerChannels)
    producer: ProducerChannels = field(default_factory=ProducerChannels)
    changed: set[tuple[str, int, int]] = field(default_factory=set)
    is_saved: bool = False
    key: tuple[str, int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.topic, self.partition, self.source

    def push(self, batch: Batch, since_ms: int | None = None) -> None:
        rows, consumer = len(batch), self.consumer
        assert rows, "a batch in a channel has rows"
        self.changed.add(self.key)
        self.queue.append(batch)
        self.since.append(since_ms)
        self.rows += rows
        consumer.rows += rows
        self.producer.rows += rows
        if len(self.queue) == 1:
            self.next_ms = int(batch.rowtime[0])
            consumer.filled[self.number] = self
            consumer.wake()

    @property
    def full(self) -> bool:
        return self.rows >= self.rows_max

    @property
    def starving(self) -> bool:
        """The consumer has rows of other channels and waits for this one: it must be filled even if others are full."""
        return not self.queue and bool(self.consumer.filled)

    @property
    def has_rows(self) -> bool:
        return bool(self.queue)

    @property
    def idle(self) -> bool:
        return self.idle_with(Known())

    def idle_with(self, known: Known) -> bool:
        """As `idle`. known: tasks that are asked already (`Task.idle_with`)."""
        return not self.queue and self.upstream_idle(known)

    def peek(self, rows_max: int, enough: int | None = None) -> PeekedRows:
        """The next rows, at most `rows_max`, from as many batches as needed: large micro-batches cost less per row.

        enough: no further batch after so many rows. The two rows of an update are in one batch.
        """
        if not self.queue:
            return EMPTY
        batches, rows = [self.queue[0]], len(self.queue[0]) - self.consumed
        wanted = rows_max if enough is None else min(rows_max, enough)
        while rows < wanted and len(batches) < len(self.queue):  # it grows meanwhile, so that no iterator can be used
            batches.append(self.queue[len(batches)])
            rows += len(batches[-1])
        return peeked_rows(batches, self.consumed, rows_max, more=len(batches) < len(self.queue))

    def consume(self, rows: int) -> None:
        """The next `rows` are published."""
        if not rows:
            return
        self.changed.add(self.key)
        self.rows -= rows
        self.consumer.rows -= rows
        self.producer.rows -= rows
        while rows:
            head, since = self.queue[0], self.since[0]
            n = min(rows, len(head) - self.consumed)
            if since is not None:
                self.consumer.samples.append((since, n))
            rows -= n
            self.consumed += n
            if self.consumed == len(head):
                self.queue.popleft()
                self.since.popleft()
                self.first += 1
                self.consumed = 0
        if self.queue:
            self.next_ms = int(self.queue[0].rowtime[self.consumed])
        else:
            self.next_ms = None
            del self.consumer.filled[self.number]
            if not self.is_saved:
                self.changed.discard(self.key)

    def resume(self, first: int, batches: Sequence[Batch], consumed: int) -> None:
        """Begin with what a commit left waiting: `batches` from number `first` on, `consumed` rows of the oldest done."""
        assert not self.queue
        self.first = first
        for batch in batches:
            self.push(batch)
        self.consume(consumed)
