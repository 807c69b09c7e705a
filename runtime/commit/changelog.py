"""The part of changelogs that a commit step uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import pyarrow as pa

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.frozen import FrozenEpoch
from flowql.runtime.state.positions import ChangelogPosition, StorePartition


class Changelog(Protocol):
    """Writes state changes and task records into the commit that makes them true."""

    def records(
        self, frozen: FrozenEpoch, sequence: int, now_ms: int
    ) -> Iterable[tuple[TopicPartition, pa.RecordBatch]]: ...

    def reached(
        self, frozen: FrozenEpoch, sequence: int, ends: Mapping[TopicPartition, int]
    ) -> dict[StorePartition, ChangelogPosition]:
        """Where the stores of this commit are in their changelogs after it."""
        ...
