"""Messages between the polling thread and a client's background thread, one class per event.

Application events go to the background thread; a completable one carries its future and deadline. Background events go the other way.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from flowql.runtime.log.base import TopicPartition

NO_PARTITION = TopicPartition("", 0)


@dataclass(frozen=True, slots=True)
class ApplicationEvent:
    """Base of what the polling thread asks for."""


@dataclass(frozen=True, slots=True)
class AssignPartitions(ApplicationEvent):
    """Read exactly these partitions. generations: of what is fetched from now on, per partition; one that is read already and keeps its
    generation goes on where it is, the others begin at their position.
    """

    positions: Mapping[TopicPartition, int]
    generations: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SeekPartition(ApplicationEvent):
    """Continue a partition elsewhere. generation: of what is fetched from there."""

    tp: TopicPartition
    offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class CompletableEvent(ApplicationEvent):
    """Base of events that are answered. Past `deadline_ms` the future fails with TimeoutError."""

    deadline_ms: int
    future: Future[object] = field(default_factory=Future, compare=False)


@dataclass(frozen=True, slots=True)
class ReadChunk(CompletableEvent):
    """Read records of a partition from an offset, beside the assigned position (channels, restoration).

    Answered with list[RawBatch], or if they are to be bare with list[KeyValues]: empty at the end of the partition.
    """

    tp: TopicPartition = NO_PARTITION
    offset: int = 0
    max_records: int = 10_000
    max_bytes: int = 1 << 22
    bare: bool = False


@dataclass(frozen=True, slots=True)
class BackgroundEvent:
    """Base of what the background thread reports."""


@dataclass(frozen=True, slots=True)
class FetchArrived(BackgroundEvent):
    """Something new is in the fetch buffer."""


@dataclass(frozen=True, slots=True)
class ClientFailed(BackgroundEvent):
    """The client raised; the background thread goes on where it can."""

    error: Exception
