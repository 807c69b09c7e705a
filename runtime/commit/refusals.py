"""Why a log has refused a record: which limit of the topic the record exceeds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

from flowql.runtime.errors import LogDenied, LogError, RecordAhead, RecordRefused
from flowql.runtime.log.base import Log, TopicPartition

ChangelogColumns = tuple[str, int, Sequence[bytes], Sequence[bytes | None]]  # topic, partition, keys, values


def measure_size(
    error: RecordRefused, log: Log, tp: TopicPartition, sizes: list[int], changelogs: Iterable[ChangelogColumns]
) -> None:
    """Whether it is a record that is too large: brokers also refuse many small ones that come in one batch.

    sizes: of the largest records of results. changelogs: of the commit.
    """
    with suppress(LogError):
        limit = log.record_bytes_max(tp.topic)
        for topic, partition, keys, values in changelogs if limit is not None else ():
            if (topic, partition) == tp:
                sizes += [len(k) + len(v or b"") for k, v in zip(keys, values, strict=True)]
        if limit is not None and any(size > limit for size in sizes):
            error.bytes_max = limit


def measure_ahead(error: RecordRefused, log: Log, topic: str, latest_ms: int, now_ms: int) -> None:
    """Whether the time of a record is too far ahead. Brokers also refuse the others of its batch, and do not say why.

    latest_ms: the highest time of a record. now_ms: wall clock.
    """
    with suppress(LogError):
        ahead_ms = log.record_ahead_ms_max(topic)
        last_ms = None if ahead_ms is None else now_ms + ahead_ms
        if last_ms is not None and (latest_ms > last_ms or isinstance(error, RecordAhead)):
            error.time_max_ms = min(last_ms, latest_ms - 1)  # their clock may be behind


def denied_read(
    error: Exception, positions: Container[TopicPartition], written: Mapping[TopicPartition, object]
) -> str:
    """The topic whose positions may not be moved, as it may not be read (any more); else empty. written: the records of the commit by partition."""
    if not isinstance(error, LogDenied) or error.partition is None:
        return ""
    tp = TopicPartition(*error.partition)
    return tp.topic if tp in positions and not written.get(tp) else ""
