"""The request of `flowql dlq replay --append` to an instance."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.repairs import Repair


@dataclass(frozen=True, slots=True)
class Redelivery:
    """A record for the queries of these ids. is_repaired: else it is as it was written."""

    tp: TopicPartition
    offset: int
    repair: Repair
    queries: tuple[str, ...]
    is_repaired: bool

    def to_data(self) -> dict[str, Any]:
        key, value = (None if b is None else base64.b64encode(b).decode() for b in (self.repair.key, self.repair.value))
        place = {"topic": self.tp.topic, "partition": self.tp.partition, "offset": self.offset}
        record = {"key": key, "value": value, "timestamp": self.repair.timestamp_ms, "repaired": self.is_repaired}
        return place | record | {"queries": list(self.queries)}


def redelivery_of(data: Mapping[str, Any]) -> Redelivery:
    """The inverse of `Redelivery.to_data`. KeyError, TypeError, ValueError."""
    key, value = (None if data[n] is None else base64.b64decode(data[n], validate=True) for n in ("key", "value"))
    tp, repair = TopicPartition(str(data["topic"]), int(data["partition"])), Repair(key, value, int(data["timestamp"]))
    return Redelivery(tp, int(data["offset"]), repair, tuple(map(str, data["queries"])), bool(data["repaired"]))
