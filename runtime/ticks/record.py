"""The topic in which members of a group agree on ticks: `<app>-ticks`, with one partition and an hour of records.

The leader of the placement writes `Lines` in transactions of its producer, so that a leader that was replaced writes none. Members write `Report`s
outside of transactions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from flowql.runtime.log.base import TopicPartition

LINES, REPORT = b"lines", b"report"  # keys of records
TOPIC = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}

Ends = Mapping[TopicPartition, int]


def tick_topic(application_id: str) -> TopicPartition:
    """The topic's one partition."""
    return TopicPartition(f"{application_id}-ticks", 0)


@dataclass(frozen=True, slots=True)
class Line:
    """How far tasks of a stage may read: the ends of their inputs as of a tick. wall_ms: the one wall clock of the tick."""

    tick: int
    wall_ms: int
    ends: Ends


@dataclass(frozen=True, slots=True)
class Lines:
    """New lines, by the names of stages. newest: the number of the newest tick, which later leaders go on from. done: ticks that all tasks of
    a stage have finished. ends: the ends of all topics of a stage as of a tick that it has finished.
    """

    newest: int
    stages: Mapping[str, Line]
    done: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, tuple[int, Ends]] = field(default_factory=dict)

    def encode(self) -> bytes:
        stages = {name: [line.tick, line.wall_ms, _by_topic(line.ends)] for name, line in self.stages.items()}
        ends = {name: [tick, _by_topic(ends)] for name, (tick, ends) in self.ends.items()}
        fields = {"newest": self.newest, "stages": stages, "done": dict(self.done), "ends": ends}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Lines:
        """ValueError, TypeError, LookupError."""
        fields = json.loads(value)
        stages = {
            name: Line(tick, wall_ms, _of_topics(ends)) for name, (tick, wall_ms, ends) in fields["stages"].items()
        }
        ends = {name: (tick, _of_topics(ends)) for name, (tick, ends) in fields["ends"].items()}
        return cls(fields["newest"], stages, fields["done"], ends)


def _of_topics(by_topic: Mapping[str, Mapping[str, int]]) -> Ends:
    return {TopicPartition(t, int(p)): end for t, of in by_topic.items() for p, end in of.items()}


def _by_topic(ends: Ends) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for tp, end in sorted(ends.items()):
        found.setdefault(tp.topic, {})[tp.partition] = end
    return found


@dataclass(frozen=True, slots=True)
class Report:
    """done: tasks, and the tick that each of them has finished and committed. has_more: rows, or timers that are due, wait for a tick.
    is_new: the member knows no lines yet. newest: the highest number of a tick that it has seen, where the leader gives lower ones; else 0.
    """

    done: Mapping[str, int] = field(default_factory=dict)
    has_more: bool = False
    is_new: bool = False
    newest: int = 0

    def encode(self) -> bytes:
        fields = {"done": dict(self.done), "more": self.has_more, "new": self.is_new, "newest": self.newest}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Report:
        """ValueError, TypeError, LookupError."""
        fields = json.loads(value)
        return cls(fields["done"], fields["more"], fields["new"], fields.get("newest", 0))
