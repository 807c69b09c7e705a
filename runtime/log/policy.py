"""How long a topic's records are kept: what its config says, under Kafka's names.

Unlike Kafka's, records are kept for ever where nothing is said: they carry the times of what happened, so that a default of some
days would drop history the moment it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from flowql.runtime.errors import LogError

# Where `segment.bytes` is not given. Retention drops whole segments, compaction leaves the one written to alone.
SEGMENT_BYTES = 64 << 20
_IMPORT = "-flowql-import-"
_DAY_MS = 86_400_000


def _number(least: float, kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = kind(text)
        if value < least:
            raise ValueError
        return value

    return parse


def _policies(text: str) -> frozenset[str]:
    found = frozenset(word.strip() for word in text.split(","))
    if not found <= {"delete", "compact"}:
        raise ValueError
    return found


# name in the config -> (field, how to read it, what it takes)
_OPTIONS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "cleanup.policy": ("policies", _policies, "delete, compact, or both with a comma"),
    "retention.ms": ("retention_ms", _number(-1, int), "milliseconds, or -1 for ever"),
    "retention.bytes": ("retention_bytes", _number(-1, int), "bytes of a partition, or -1 without limit"),
    "segment.ms": ("segment_ms", _number(1, int), "milliseconds, at least 1"),
    "segment.bytes": ("segment_bytes", _number(1, int), "bytes, at least 1"),
    "delete.retention.ms": ("delete_retention_ms", _number(0, int), "milliseconds"),
    "min.cleanable.dirty.ratio": ("dirty_ratio", _number(0, float), "a share between 0 and 1"),
}


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """retention_ms, retention_bytes: of each partition, -1: no limit; they count where `delete` is among the policies.

    segment_ms: a segment holds records of one such span of time, as far as they come in its order; 0: of any. Counted in the times
    of records, from 1970 on.
    delete_retention_ms: how long a tombstone stays after it was first compacted, so that readers on their way see it.
    dirty_ratio: compact when so much of what could be compacted never was.
    """

    policies: frozenset[str] = frozenset({"delete"})
    retention_ms: int = -1
    retention_bytes: int = -1
    segment_bytes: int = 0
    segment_ms: int = 0
    delete_retention_ms: int = _DAY_MS
    dirty_ratio: float = 0.5

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TopicPolicy:
        """Other options are kept and mean nothing here. LogError names what cannot be read."""
        fields: dict[str, Any] = {}
        for name, (field, parse, takes) in _OPTIONS.items():
            if name in config:
                try:
                    fields[field] = parse(config[name])
                except ValueError:
                    raise LogError(f"{name} cannot be {config[name]!r}: it takes {takes}") from None
        return cls(**fields)

    @property
    def segment_limit(self) -> int:
        """Bytes after which a segment gets no more transactions."""
        return self.segment_bytes or SEGMENT_BYTES

    def begins_segment(self, before_ms: int, now_ms: int) -> bool:
        """Whether records up to `now_ms` go to another segment than those up to `before_ms`, for their times."""
        return bool(self.segment_ms) and now_ms // self.segment_ms > before_ms // self.segment_ms

    @property
    def compacts(self) -> bool:
        return "compact" in self.policies

    @property
    def deletes(self) -> bool:
        return "delete" in self.policies and (self.retention_ms >= 0 or self.retention_bytes >= 0)


def import_groups(topic: str) -> str:
    """The beginning of the names of groups of imports into a topic. They read nothing: their positions say how much of a file is imported."""
    return topic + _IMPORT


def imported_topic(group: str) -> str:
    """The topic whose import a group belongs to; empty for other groups.

    >>> imported_topic("orders-flowql-import-0123"), imported_topic("shop")
    ('orders', '')
    """
    return group.rpartition(_IMPORT)[0]


def altered(config: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The config after changes; None takes an option back. LogError where it then makes no sense."""
    after = {**config, **{name: value for name, value in changes.items() if value is not None}}
    after = {name: value for name, value in after.items() if changes.get(name, value) is not None}
    TopicPolicy.of(after)
    return after
