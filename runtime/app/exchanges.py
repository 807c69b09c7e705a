"""Local exchanges: the repartitions of an instance that owns all partitions, as bounded queues in memory (rule R7).

Rows that are published and not yet consumed at a cut are the remainder. They are written into the same commit as state rows, so a
restart finds exactly what the committed positions upstream have already passed. A batch is written once, at the first cut that
finds it waiting, and deleted at the first cut after it was consumed: a cut costs what changed, not what waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.batch import Batch
from flowql.runtime.state.frozen import UnwritableState
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Snapshot
from flowql.runtime.task.batch_ipc import decode_batch, encode_batch, rows_of
from flowql.runtime.task.input_buffer import ExchangeInput

ChannelKey = tuple[str, int, int]
TASK = "__exchange"
HEAD = -1  # the number of the row that says how much of a channel's oldest batch is consumed
STORE = StoreSpec(
    "__exchange",
    "table",
    Schema(
        (
            Field("TOPIC", t.STRING, "key"),
            Field("PARTITION", t.INT, "key"),
            Field("SOURCE", t.INT, "key"),
            Field("NUMBER", t.BIGINT, "key"),
        )
    ),
    Schema((Field("BATCH", t.BYTES), Field("CONSUMED", t.BIGINT))),
)


@dataclass(slots=True)
class _Saved:
    """The stored part of a channel: batches first <= number < end, and how much of the oldest is consumed."""

    first: int = 0
    end: int = 0
    consumed: int = 0


class Exchanges:
    """All exchange partitions of the instance. Everything is called under the epoch lock, but `open` and `encode_ahead`, which take it."""

    def __init__(self, state: StateManager) -> None:
        self._epoch_lock = state.epoch_lock
        self._state = state.open_task(TASK, 0, [STORE])
        self._state.counts = False  # rows between tasks have limits of their own
        self._store = self._state.store(STORE.name)
        self._inputs: dict[ChannelKey, ExchangeInput] = {}
        self._saved: dict[ChannelKey, _Saved] = {}
        self._changed: set[ChannelKey] = set()  # since they were saved: with many queries most channels are empty
        self._ahead: dict[int, tuple[Batch, bytes]] = {}  # by identity; belongs to the thread that calls `save`

    def open(self, operator: str, topic: str, partition: int, source: int, schema: Schema) -> ExchangeInput:
        """The channel of one upstream partition into one partition, with the committed remainder in it."""
        exchange = ExchangeInput(operator, topic, partition, source, changed=self._changed)
        channel = (topic, partition, source)
        with self._epoch_lock.join():  # else a commit would see a saved remainder without its channel, and delete it
            saved, batches = self._read(channel)
            self._saved.pop(
                channel, None
            )  # saved for an earlier consumer of this channel, whose offsets do not apply to this one
            if batches:
                exchange.resume(saved.first, [decode_batch(b, schema) for b in batches], saved.consumed)
                self._saved[channel] = saved
            self._inputs[channel] = exchange
        return exchange

    def _read(self, channel: ChannelKey) -> tuple[_Saved, list[bytes]]:
        """The saved state and the rows of a channel in the store."""
        topic, partition, source = channel
        rows: dict[Any, Value] = {
            k[3]: v for k, v in self._store.scan(low=channel, high=(topic, partition, source + 1))
        }
        consumed = rows.pop(HEAD, (None, 0))[1]
        if not rows:
            return _Saved(), []
        numbers = sorted(rows)
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "batches of a channel are without gaps"
        return _Saved(numbers[0], numbers[-1] + 1, consumed), [rows[n][0] for n in numbers]

    def put_aside(self, channels: Iterable[ExchangeInput]) -> None:
        """These channels are as they were committed, and nothing of them is saved before they are opened anew, or closed."""
        keys = {(channel.topic, channel.partition, channel.source) for channel in channels}
        for key in keys:
            self._inputs.pop(key, None)
            self._saved.pop(key, None)
        self._store.revert_rows(lambda row: row[:3] in keys)

    def get(self, topic: str, partition: int, source: int) -> ExchangeInput:
        return self._inputs[topic, partition, source]

    def close(self, channel: ExchangeInput) -> None:
        """The consumer is gone for good: forget its remainder."""
        key = (channel.topic, channel.partition, channel.source)
        self._changed.add(key)
        if self._inputs.pop(key, None) is None:
            saved, batches = self._read(key)
            if batches:
                self._saved[key] = saved

    def encode_ahead(self) -> None:
        """Encodes the batches that the next `save` would write now, so that it holds the epoch lock, without which no task can publish,
        for less time.

        Called by the thread that calls `save`, without the epoch lock. `save` encodes rows that are published in between. Rows that are
        consumed in between were encoded in vain.
        """
        with self._epoch_lock:
            changed = [(key, self._inputs[key]) for key in self._changed & self._inputs.keys()]
            waiting = [b for key, exchange in changed for b in self._unsaved(key, exchange)]
        for batch in waiting:
            if id(batch) not in self._ahead:
                with suppress(Exception):  # `save` meets it again, and reports it
                    self._ahead[id(batch)] = batch, encode_batch(batch)

    def _unsaved(self, channel: ChannelKey, exchange: ExchangeInput) -> list[Batch]:
        """Batches that no cut has written yet."""
        saved = self._saved.get(channel)
        return list(exchange.queue)[max(0, saved.end - exchange.first) if saved is not None else 0 :]

    def _encoded(self, batch: Batch) -> bytes:
        ahead = self._ahead.get(id(batch))
        return encode_batch(batch) if ahead is None else ahead[1]

    def save(self) -> dict[str, Exception]:
        """Writes the changes of waiting rows into the epoch before its cut.

        Returns the repartitions that have rows without a durable form, with the error; nothing of their channels is written.
        """
        failed: dict[str, Exception] = {}
        changes: list[tuple[Key, Value | None]] = []
        for channel in self._changed - self._inputs.keys():
            changes += _changes(channel, self._saved.pop(channel, _Saved()), _Saved(), (), self._encoded)
            self._changed.discard(channel)
        for channel in sorted(self._changed & self._inputs.keys()):
            exchange = self._inputs[channel]
            first = exchange.first
            now = _Saved(first, first + len(exchange.queue), exchange.consumed)
            before = self._saved.get(channel) or _Saved(first, first)
            if now != before:
                try:
                    changes += _changes(channel, before, now, exchange.queue, self._encoded)
                except Exception as error:  # whatever Arrow says of a value
                    failed[exchange.topic] = UnwritableState(TASK, exchange.topic, error)
                    continue
                self._saved[channel] = now
            self._changed.discard(channel)
        if changes:
            self._store.put_many([k for k, _ in changes], [v for _, v in changes])
            self._state.publish({})
        self._ahead.clear()
        return failed

    @property
    def empty(self) -> bool:
        return not any(e.has_rows for e in self._inputs.values())


def rows_saved(snapshot: Snapshot) -> dict[str, int]:
    """Rows that wait between tasks as of a commit, by repartition; nothing where there are none. Any process may ask."""
    rows = Counter[str]()
    if any(store.name == STORE.name for store in snapshot.stores()):
        for (topic, _, _, number), (batch, consumed) in snapshot.scan(STORE.name):
            rows[str(topic)] += -consumed if number == HEAD else rows_of(batch)
    return dict(rows)


def _changes(
    channel: ChannelKey, before: _Saved, now: _Saved, queue: Sequence[Batch], encode: Callable[[Batch], bytes]
) -> list[tuple[Key, Value | None]]:
    """Rows that turn what the store holds of a channel into `now`; `queue` holds the batches from `now.first` on."""
    out: list[tuple[Key, Value | None]] = []
    for n in range(before.first, before.end):
        if not now.first <= n < now.end:
            out.append(((*channel, n), None))
    for n in range(max(before.end, now.first), now.end):
        out.append(((*channel, n), (encode(queue[n - now.first]), 0)))
    if now.consumed != before.consumed:
        out.append(((*channel, HEAD), (None, now.consumed) if now.consumed else None))
    return out
