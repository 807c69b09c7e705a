"""Where keys are, seen from all tasks of an exact query: each reads one partition of its topics. No pyspark.

A task looks at the keys that it reads as on the runtime (`flowql.runtime.task.key_places`), and finds out whether its topics are placed alike.
That a key is in two partitions of a topic no task can see: so they tell some keys with what they did, and who commits their results compares them.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flowql.runtime.log.base import RawBatch
from flowql.runtime.task.key_places import SEEN_MAX, KeyPlaces, check_alike, sample_of

KEYS = "keys"  # in a note: topic -> how many partitions it has, the partitioner that its source names, and keys in the partition of the task


class SampledKeys:
    """Some keys of what a task reads in one batch. placed: of the topics whose records of one key have to come to one task, the number of
    partitions and the partitioner that the source names.
    """

    def __init__(self, placed: Mapping[str, tuple[int, str]]) -> None:
        self._placed = {topic: (n, name) for topic, (n, name) in placed.items() if n > 1}
        self._keys: dict[str, dict[bytes, None]] = {topic: {} for topic in self._placed}

    def look(self, raw: RawBatch) -> None:
        keys = self._keys.get(raw.tp.topic)
        if keys is not None and len(keys) < SEEN_MAX:
            keys |= dict.fromkeys(sample_of(raw.records.column("key"), SEEN_MAX - len(keys)))

    def told(self) -> dict[str, Any]:
        """The data for the note; empty if no such topic was read."""
        found = {
            t: [*self._placed[t], *(b64encode(k).decode() for k in keys)] for t, keys in self._keys.items() if keys
        }
        return {KEYS: found} if found else {}


class PlacesOfKeys:
    """The reports of a query's tasks, of all its batches since this process began. One thread at a time."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._seen: dict[int, dict[str, KeyPlaces]] = {}

    def check(self, notes: Iterable[Mapping[str, Any]]) -> None:
        """KeysMisplaced if rows of one key come to different tasks; before results are committed."""
        for note in notes:
            told: Mapping[str, Sequence[Any]] = note.get(KEYS, {})
            places = self._seen.setdefault(note["subtopology"], {}) if told else {}
            for topic, (partitions, partitioner, *keys) in told.items():
                seen = places.setdefault(topic, KeyPlaces())
                seen.declare(partitioner)
                seen.take(map(b64decode, keys), note["partition"], partitions)
        for places in self._seen.values():
            check_alike(self._query, places, repartitions=False)
