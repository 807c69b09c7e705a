"""Queries whose function hung on a member, told to the members that get its tasks: a compacted topic with a record per member and query.

A member that leaves its group because a micro-batch does not end records that first (`write_hung`), unless other members already have
its tasks: it would say nothing about these. Each member reads the topic to its end before it builds tasks, and at intervals after that. A record is valid while the query has the definition and the
generation that hung; `flowql resume` deletes it (`release`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from flowql.runtime.errors import LogDenied, LogUnavailable, TopicMissing
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.base import EARLIEST, Log, Reader, TopicPartition
from flowql.runtime.state.changelog import COMPACTED, changes, records_of

DEATHS_MAX = 2  # one may have any reason
_READ_ROWS, _READ_BYTES = 10_000, 1 << 22


@dataclass(frozen=True, slots=True)
class HungMicroBatch:
    """A micro-batch that did not end. query: the name under which its generation runs; id: the one that people use.

    definition: of the query then. member: its process id, empty for an instance alone. at_ms: wall clock of that member. where: the code of the
    innermost call. position: offsets of the records; empty where the process was not ended for it.

    deaths: 0 for one that hung. Otherwise its process died inside of it so many times, for a reason that is not known, and `at` has the
    offsets of its records by input: one death is a suspicion (`flowql.runtime.app.trials`), DEATHS_MAX hold the query.
    """

    query: str
    id: str
    definition: str
    task: str
    member: str
    at_ms: int
    where: str
    position: str = ""
    deaths: int = 0
    at: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> bytes:
        return json.dumps([self.member, self.query, *([self.task] if self.deaths else [])]).encode()

    @property
    def suspect(self) -> tuple[str, str, str]:
        """The query, its definition and its task: deaths of these are counted together, on whichever members."""
        return self.query, self.definition, self.task

    @property
    def reason(self) -> str:
        """For status and the log."""
        at = datetime.fromtimestamp(self.at_ms / 1000, UTC)
        on = f" on member {self.member}" if self.member else ""
        position = f", {self.position}" if self.position else ""
        if self.deaths:
            return (
                f"{DEATHS_MAX} instances in a row died inside of its micro-batch, the last one{on} at {at:%Y-%m-%d %H:%M:%S} UTC (task "
                f"{self.task}{position}); flowql resume {self.id} tries again"
            )
        return (
            f"its function hung{on} at {at:%Y-%m-%d %H:%M:%S} UTC ({self.where or 'unknown code'}, task "
            f"{self.task}{position}); flowql resume {self.id} tries again"
        )


def topic_of(application_id: str) -> TopicPartition:
    """The topic's one partition."""
    return TopicPartition(f"{application_id}-hung", 0)


def write_hung(log: Log, application_id: str, runs: Collection[HungMicroBatch], now_ms: int) -> None:
    """Writes the hung functions of one member and waits for the brokers. Raises LogError."""
    tp = topic_of(application_id)
    log.admin().create_topic(tp.topic, 1, COMPACTED)
    keys, values = [one.key for one in runs], [json.dumps(asdict(one)).encode() for one in runs]
    member = next(iter(runs)).member
    producer = log.producer(f"{application_id}-{member}-hung")
    try:
        producer.begin()
        producer.send(tp, records_of(keys, values, now_ms))
        producer.commit()
    finally:
        producer.close()


def release(log: Log, application_id: str, process_id: str, ids: Collection[str], now_ms: int) -> list[str]:
    """Queries are tried again: their records are deleted. ids: as people use them. Which of them had any.

    Waits for the brokers; one call of a process at a time. A member that hangs at this moment says so again.
    """
    reader = HungReader(log, application_id)
    reader.read_on()
    found = [one for one in reader.hung if one.id in ids]
    forget(log, application_id, process_id, found, now_ms)
    return sorted({one.id for one in found})


def forget(log: Log, application_id: str, process_id: str, runs: Collection[HungMicroBatch], now_ms: int) -> None:
    """Deletes records. Waits for the brokers; one call of a process at a time."""
    if not runs:
        return
    producer = log.producer(f"{application_id}-{process_id}-resume")
    try:
        producer.begin()
        producer.send(topic_of(application_id), records_of([one.key for one in runs], [None] * len(runs), now_ms))
        producer.commit()
    finally:
        producer.close()


class HungReader:
    """The records, read on from where it was. One thread at a time.

    A topic that does not exist (any more) holds none. One that may not be read is an entry in the log, and no reason to run nothing.
    """

    def __init__(self, log: Log, application_id: str) -> None:
        self._log, self._tp = log, topic_of(application_id)
        self._reader: Reader | None = None
        self._hung: dict[bytes, HungMicroBatch] = {}
        self._denied = False  # which was said

    @property
    def is_open(self) -> bool:
        """Whether the topic existed at the last look."""
        return self._reader is not None

    @property
    def hung(self) -> list[HungMicroBatch]:
        """In the order of their members."""
        return [one for _, one in sorted(self._hung.items())]

    def read_on(self) -> None:
        """Reads all records that are visible now. Records that were read before a LogUnavailable are kept."""
        self._read(to_end=False)

    def read_to_end(self) -> None:
        """Everything that was committed before this call. LogUnavailable while some of it is not visible yet: to be tried again."""
        self._read(to_end=True)

    def _read(self, *, to_end: bool) -> None:
        try:
            self._read_records(to_end=to_end)
            self._denied = False
        except TopicMissing:
            self._reader, self._hung = None, {}
        except LogDenied as error:
            if not self._denied:
                say(WARNING, "log.trouble", f"{error}: this member does not learn of functions that hung on others")
            self._denied = True

    def _read_records(self, *, to_end: bool) -> None:
        admin = self._log.admin()
        if self._reader is None:
            if not admin.partition_counts([self._tp.topic]):
                return
            self._reader = self._log.reader(self._tp, EARLIEST)
        end = admin.written_offset(self._tp) if to_end else None
        read = self._reader.read if to_end else self._reader.take
        while (batch := read(_READ_ROWS, _READ_BYTES)) is not None:
            for key, value in changes(batch):
                self._take(key, value)
        if end is not None and self._reader.position < end:
            raise LogUnavailable(f"{self._tp}: offset {end - 1} is not visible yet")

    def _take(self, key: bytes, value: bytes | None) -> None:
        self._hung.pop(key, None)
        if value is not None:
            with suppress(ValueError, KeyError, TypeError):  # of another version: it says nothing to this one
                self._hung[key] = _decoded(json.loads(value))


def _decoded(data: Mapping[str, Any]) -> HungMicroBatch:
    """Fields that are not known are left out."""
    texts = {name: str(data[name]) for name in ("query", "id", "definition", "task", "member", "where")}
    at = {str(name): int(offset) for name, offset in dict(data.get("at", {})).items()}
    deaths, position = int(data.get("deaths", 0)), str(data.get("position", ""))
    return HungMicroBatch(**texts, at_ms=int(data["at_ms"]), position=position, deaths=deaths, at=at)
