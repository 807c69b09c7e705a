"""Reads the topics of large tables in the background, so that the process of the gateway can answer queries over them from what it keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from flowql.query.errors import QueryError
from flowql.query.kept import KeptTopics
from flowql.query.relations import TopicRelation, spans_of
from flowql.query.room import Room
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition

if TYPE_CHECKING:
    from flowql.query.database import QueryDatabase

NEAR_RECORDS = 50_000  # which a query may read by itself
AGAIN_S = 600.0  # until a table is read again that was too large to be kept


class CatchingUp:
    """One thread, while there is something to read. Any thread may call its methods."""

    def __init__(self, kept: KeptTopics, database: QueryDatabase) -> None:
        self._kept, self._database = kept, database
        self._lock = threading.Lock()  # guards both below
        self._reading: threading.Thread | None = None
        self._not_before = dict[str, float]()  # by topic, by the monotonic clock
        self._is_closed = False

    def is_near(self, relation: TopicRelation) -> bool:
        """Whether a query need not read many records. If it would have to, they are read in the background from now on."""
        if self._kept.left_to_read(relation) <= NEAR_RECORDS:
            return True
        with self._lock:
            is_due = time.monotonic() >= self._not_before.get(relation.source.topic, 0.0)
            if is_due and not self._is_closed and (self._reading is None or not self._reading.is_alive()):
                self._reading = threading.Thread(target=self._read, args=(relation,), name="catching up", daemon=True)
                self._reading.start()
        return False

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            reading = self._reading
        if reading is not None:
            reading.join()

    def _read(self, relation: TopicRelation) -> None:
        try:
            while not self._is_closed and self._kept.left_to_read(relation) > NEAR_RECORDS // 2:
                part = replace(relation, spans=self._next(relation))
                if not self._kept.read_on(part, Room(self._database.memory)):
                    break
                relation = replace(relation, spans=spans_of(relation.log, relation.source.topic))
            else:
                return
        except (QueryError, RuntimeFailure):  # too large, or its records were replaced
            pass
        with self._lock:
            self._not_before[relation.source.topic] = time.monotonic() + AGAIN_S

    def _next(self, relation: TopicRelation) -> Mapping[TopicPartition, tuple[int, int]]:
        """The spans with the next records that are not kept."""
        left, found = NEAR_RECORDS, dict[TopicPartition, tuple[int, int]]()
        at = self._kept.read_to(relation)
        for tp, (begin, end) in relation.spans.items():
            taken = min(end - at[tp], left)
            found[tp], left = (begin, at[tp] + taken), left - taken
        return found
