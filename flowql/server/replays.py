"""Replays of dead letters in several requests. Nothing happens before the last one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from flowql.runtime.log.appending import Redelivery
from flowql.server.bodies import Malformed

BYTES_MAX = 256 << 20  # of keys and values that wait
_RECORD_BYTES = 512  # of a record beside its key and value


@dataclass(frozen=True, slots=True)
class Part:
    """One request. replay: the name of its replay; empty if it is the only request. more: whether another part follows."""

    records: Sequence[Redelivery]
    replay: str
    more: bool


class Replays:
    """The parts of the newest replay; a new replay drops the parts of an unfinished one. Any thread."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._name, self._bytes, self._bytes_max = "", 0, bytes_max
        self._records: list[Redelivery] = []

    @property
    def waiting(self) -> int:
        """The number of records that wait for the last part."""
        return len(self._records)

    def whole(self, part: Part) -> Sequence[Redelivery] | None:
        """All records of the replay if this is its last part, otherwise None. Raises Malformed if they exceed `bytes_max`, and drops them."""
        with self._lock:
            if part.replay != self._name:
                self._drop()
            if not part.replay:
                return part.records
            self._name = part.replay
            self._records += part.records
            self._bytes += sum(map(_size, part.records))
            if self._bytes > self._bytes_max:
                self._drop()
                title = f"the records of a replay have {self._bytes_max:,} bytes at most; replay some of them at a time (--where)"
                raise Malformed(title, 413)
            if part.more:
                return None
            found = self._records
            self._drop()
            return found

    def _drop(self) -> None:
        self._name, self._bytes, self._records = "", 0, []


def _size(record: Redelivery) -> int:
    return _RECORD_BYTES + len(record.repair.key or b"") + len(record.repair.value or b"")
