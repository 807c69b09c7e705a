"""Transactions that do not end: readers of committed records see nothing behind the first record of such a one.

Another producer has left it open, with a long timeout, or brokers have lost track of it (KIP-664). The last stable offset then stands still while
the partition grows. Nothing is asked of partitions that are read on. The topics of the deployment and of tasks are asked for in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

from flowql.runtime.app.troubles import Trouble
from flowql.runtime.errors import HangingTransaction
from flowql.runtime.log.base import Admin, TopicPartition

LOOK_MS = 20_000  # between two looks at read positions; a partition that has not moved in between is asked for
HANGING_MS = 40_000  # from the first answer that shows an open transaction; with the looks before it, about a minute

Ends = Future[dict[TopicPartition, int]]


class HangingTransactions:
    """Owned by the polling thread, but for `current`. places: the next offset to read of each partition that is read, or restored from."""

    def __init__(self, admin: Admin, places: Callable[[], Mapping[TopicPartition, int]]) -> None:
        self._admin, self._places = admin, places
        self._looked_at_ms = 0
        self._before: Mapping[TopicPartition, int] = {}
        self._open: dict[
            TopicPartition, tuple[int, int]
        ] = {}  # last stable offset, and since when it was found to stand
        self._asked: tuple[list[TopicPartition], Ends, Ends] | None = None
        self._found: dict[TopicPartition, tuple[HangingTransaction, int]] = {}  # with the time since when

    def look(self, now_ms: int) -> list[HangingTransaction]:
        """Those that are new. Never waits for brokers. LogError where they do not answer."""
        if self._asked is not None:
            return self._answered(now_ms)
        if 0 <= now_ms - self._looked_at_ms < LOOK_MS:
            return []
        self._looked_at_ms = now_ms
        before, self._before = self._before, dict(self._places())
        still = [tp for tp, place in self._before.items() if before.get(tp) == place]
        self._forget_all_but(still)
        if still:
            self._asked = still, self._admin.ask_end_offsets(still), self._admin.ask_written_offsets(still)
        return []

    def current(self, now_ms: int) -> list[Trouble]:
        """For status. Any thread."""
        found = sorted(self._found.items())
        return [Trouble(tp, f"HangingTransaction: {error}", since_ms, now_ms, 1) for tp, (error, since_ms) in found]

    def _answered(self, now_ms: int) -> list[HangingTransaction]:
        assert self._asked is not None
        tps, committed, written = self._asked
        if not (committed.done() and written.done()):
            return []
        self._asked = None
        stable, ends = committed.result(), written.result()
        self._forget_all_but([tp for tp in tps if tp in stable and stable[tp] < ends.get(tp, 0)])
        new = []
        for tp in (tp for tp in tps if tp in stable and stable[tp] < ends.get(tp, 0)):
            offset, since_ms = self._open.get(tp, (-1, now_ms))
            if offset != stable[tp]:
                self._open[tp] = stable[tp], now_ms
                self._found.pop(tp, None)
            elif now_ms - since_ms >= HANGING_MS and tp not in self._found:
                error = HangingTransaction(tp, offset, ends[tp])
                self._found[tp] = error, since_ms
                new.append(error)
        return new

    def _forget_all_but(self, tps: list[TopicPartition]) -> None:
        kept = set(tps)
        self._open = {tp: at for tp, at in self._open.items() if tp in kept}
        self._found = {tp: found for tp, found in self._found.items() if tp in kept}
