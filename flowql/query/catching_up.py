"""Reads the topics of large tables in the background, so that the process of the gateway can answer queries over them from what it keeps."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from flowql.query.errors import QueryError
from flowql.query.kept import KeptTopics
from flowql.query.relations import TopicRelation
from flowql.query.room import Room
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import TopicPartition

if TYPE_CHECKING:
    from flowql.query.database import QueryDatabase

NEAR_RECORDS = 50_000  # which a query may read by itself
AGAIN_S = 600.0  # until a table is read again that was too large to be kept


class CatchingUp:
    """One thread reads a part of each table in turn, up to where queries have asked for it, and ends with the last one. Any thread may call its methods."""

    def __init__(self, kept: KeptTopics, database: QueryDatabase) -> None:
        self._kept, self._database = kept, database
        self._lock = threading.Lock()  # guards all below
        self._due = dict[str, TopicRelation]()  # by topic
        self._reading: threading.Thread | None = None
        self._not_before = dict[str, float]()  # by topic, by the monotonic clock
        self._is_closed = False

    def is_near(self, relation: TopicRelation) -> bool:
        """Whether a query need not read many records. If it would have to, they are read in the background from now on."""
        if self._kept.left_to_read(relation) <= NEAR_RECORDS:
            return True
        topic = relation.source.topic
        with self._lock:
            if not self._is_closed and time.monotonic() >= self._not_before.get(topic, 0.0):
                self._due[topic] = relation
                if self._reading is None:
                    self._reading = threading.Thread(target=self._read, name="catching up", daemon=True)
                    self._reading.start()
        return False

    def close(self) -> None:
        with self._lock:
            self._is_closed, reading = True, self._reading
        if reading is not None:
            reading.join()

    def _read(self) -> None:
        while (relation := self._next()) is not None:
            topic = relation.source.topic
            try:
                part = replace(relation, spans=self._part(relation))
                is_kept = self._kept.read_on(part, Room(self._database.memory))
            except (QueryError, RuntimeFailure):  # it is too large, or its records were replaced
                is_kept = False
            except Exception:  # other tables are read nevertheless
                traceback.print_exc()
                is_kept = False
            with self._lock:
                if not is_kept:
                    self._not_before[topic] = time.monotonic() + AGAIN_S
                    self._due.pop(topic, None)
                elif self._kept.left_to_read(relation) > NEAR_RECORDS // 2:
                    self._due.setdefault(topic, relation)  # a query may have asked for later records meanwhile

    def _next(self) -> TopicRelation | None:
        """The table that has waited longest. None ends the thread."""
        with self._lock:
            if self._is_closed or not self._due:
                self._reading = None
                return None
            return self._due.pop(next(iter(self._due)))

    def _part(self, relation: TopicRelation) -> Mapping[TopicPartition, tuple[int, int]]:
        """The spans with the next records that are not kept."""
        left, found = NEAR_RECORDS, dict[TopicPartition, tuple[int, int]]()
        at = self._kept.read_to(relation)
        for tp, (begin, end) in relation.spans.items():
            taken = min(max(0, end - at[tp]), left)
            found[tp], left = (begin, at[tp] + taken), left - taken
        return found
