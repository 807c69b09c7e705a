"""The committed output topics and stores of a run, and how those of two runs differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from flowql.runtime.log.base import EARLIEST, Log, TopicPartition
from flowql.runtime.state.store import Snapshot
from tests.crash.project import APPENDED, UPSERTED

DEAD_LETTERS = "flowql-dead-letters"


@dataclass(slots=True)
class CommittedContents:
    """appended: records of append topics as multisets. upserted: the last value of each key that is not deleted. stores: committed rows."""

    appended: dict[str, Counter[Any]] = field(default_factory=dict)
    upserted: dict[str, dict[Any, Any]] = field(default_factory=dict)
    stores: dict[str, dict[Any, Any]] = field(default_factory=dict)


def contents_of(log: Log, snapshot: Snapshot) -> CommittedContents:
    found = CommittedContents()
    for topic in (*APPENDED, DEAD_LETTERS):
        timed = topic != DEAD_LETTERS  # they carry the time at which they were written
        found.appended[topic] = Counter(
            (p, r["timestamp"] if timed else 0, r["key"], r["value"]) for p, r in records_of(log, topic)
        )
    for topic in UPSERTED:
        last = {(p, r["key"]): (r["timestamp"], r["value"]) for p, r in records_of(log, topic)}
        found.upserted[topic] = {k: v for k, v in last.items() if v[1] is not None}  # a deleted key is no key
    for spec in snapshot.stores():
        if not spec.name.startswith("__"):
            found.stores[spec.name] = dict(snapshot.scan(spec.name))
    snapshot.close()
    return found


def records_of(log: Log, topic: str) -> list[tuple[int, dict[str, Any]]]:
    out = []
    for partition in range(log.admin().topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, partition), EARLIEST)
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            out += [(partition, r) for r in batch.records.to_pylist()]
    return out


def differences(expected: CommittedContents, seen: CommittedContents) -> list[str]:
    """Sentences, none when the runs are equal."""
    out = []
    for topic, records in expected.appended.items():
        lost, more = records - seen.appended[topic], seen.appended[topic] - records
        if lost or more:
            out.append(
                f"{topic}: {lost.total()} of {records.total()} records lost, {more.total()} too many: {_few(lost, more)}"
            )
    for kind in ("upserted", "stores"):
        one, other = getattr(expected, kind), getattr(seen, kind)
        out += [f"{kind} {n} is in one run only" for n in sorted(set(one) ^ set(other))]
        for name in sorted(set(one) & set(other)):
            wrong = [k for k in {**one[name], **other[name]} if one[name].get(k) != other[name].get(k)]
            shown = [(k, one[name].get(k), other[name].get(k)) for k in wrong[:2]]
            if wrong:
                out.append(f"{kind} {name}: {len(wrong)} of {len(one[name])} keys differ: {shown}")
    return out


def _few(lost: Counter[Any], more: Counter[Any]) -> str:
    return f"{list(lost)[:2]} {list(more)[:2]}"
