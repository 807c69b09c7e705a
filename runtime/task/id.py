"""The name of a task."""

from __future__ import annotations

from typing import NamedTuple


class TaskId(NamedTuple):
    """query / sub-topology _ partition, as in Kafka Streams with the query in front. Task id = partition group id."""

    query: str
    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.query}/{self.subtopology}_{self.partition}"
