"""Local exchanges: the repartitions of an instance that owns all partitions, as bounded queues in memory (rule R7).

Rows that are published and not yet consumed at a cut are the remainder. They are written into the same commit as state rows, so a
restart finds exactly what the committed positions upstream have already passed. A batch is written once, at the first cut that
finds it waiting. All batches of a repartition that a cut writes are one block, since a repartition of n partitions has n * n channels.
A block is deleted at the first cut after all of its batches were consumed.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import NamedTuple

import msgspec

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.batch import Batch
from flowql.runtime.state.frozen import UnwritableState
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Snapshot
from flowql.runtime.task.batch_ipc import decode_batch, encode_batches
from flowql.runtime.task.channels import ExchangeInput

Channel = tuple[int, int]  # partition, source
ChannelKey = tuple[str, int, int]  # topic, partition, source
TASK = "__exchange"
HEADS = -1  # the number of the row with the first batches of channels that are not consumed
STORE = StoreSpec(
    "__exchange",
    "table",
    Schema((Field("TOPIC", t.STRING, "key"), Field("NUMBER", t.BIGINT, "key"))),
    Schema((Field("BLOCK", t.BYTES), Field("BATCHES", t.BYTES))),
)


class _Entry(NamedTuple):
    """A batch of a block. number: within the channel."""

    partition: int
    source: int
    number: int
    rows: int


class _Head(NamedTuple):
    """How far a channel is consumed. number: of its oldest batch. consumed: rows of that batch."""

    partition: int
    source: int
    number: int
    consumed: int


class _Saved(NamedTuple):
    """A batch in the store: the block that holds it, and where it starts there."""

    block: int
    start: int
    number: int
    rows: int


class _Encoded(NamedTuple):
    """Batches that no cut has written yet, as a block. batches: with their channels and numbers."""

    batches: Sequence[tuple[ExchangeInput, int, Batch]]
    block: bytes


_entries = msgspec.msgpack.Decoder(list[_Entry])
_heads = msgspec.msgpack.Decoder(list[_Head])


@dataclass(slots=True)
class _Stored:
    """The stored part of a repartition.

    batches: by channel, those that are not consumed. heads: of channels with consumed rows in a block that exists. waiting: by block, the
    number of its batches that are not consumed. next: the number of the next block.
    """

    batches: defaultdict[Channel, deque[_Saved]] = field(default_factory=lambda: defaultdict(deque))
    heads: dict[Channel, _Head] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)
    next: int = 0

    @staticmethod
    def read(rows: dict[int, Value]) -> _Stored:
        """rows: of the store, by number."""
        stored, heads = _Stored(), rows.pop(HEADS, None)
        if heads is not None:
            stored.heads = {(h.partition, h.source): h for h in _heads.decode(heads[1])}
        for block in sorted(rows):
            stored.add(block, _entries.decode(rows[block][1]))
        for channel in list(stored.batches):
            stored.consume(channel, stored.first(channel))
        for saved in stored.batches.values():
            numbers = [b.number for b in saved]
            assert not saved or numbers == list(range(numbers[0], numbers[-1] + 1)), "batches are without gaps"
        return stored

    def add(self, block: int, entries: Iterable[_Entry]) -> None:
        start = waiting = 0
        for e in entries:
            self.batches[e.partition, e.source].append(_Saved(block, start, e.number, e.rows))
            start, waiting = start + e.rows, waiting + 1
        self.waiting[block], self.next = waiting, block + 1

    def first(self, channel: Channel) -> int:
        """The number of the oldest batch that is not consumed, or of the next one if there is none."""
        if (head := self.heads.get(channel)) is not None:
            return head.number
        saved = self.batches.get(channel)
        return saved[0].number if saved else 0

    def end(self, channel: Channel) -> int:
        """The number after the last stored batch; 0 if none is stored."""
        saved = self.batches.get(channel)
        return saved[-1].number + 1 if saved else 0

    def has(self, channel: Channel) -> bool:
        """Whether something of a channel is stored."""
        return bool(self.batches.get(channel)) or channel in self.heads

    def consume(self, channel: Channel, first: int) -> None:
        """Removes batches before number `first`."""
        saved = self.batches[channel]
        while saved and saved[0].number < first:
            self.waiting[saved.popleft().block] -= 1

    def take_consumed(self) -> list[int]:
        """Removes the blocks whose batches are all consumed; their numbers."""
        gone = [block for block, waiting in self.waiting.items() if not waiting]
        for block in gone:
            del self.waiting[block]
        if not self.waiting:
            self.heads.clear()
        return gone


class Exchanges:
    """All exchange partitions of the instance. Everything is called under the epoch lock, but `open` and `encode_ahead`, which take it."""

    def __init__(self, state: StateManager) -> None:
        self._epoch_lock = state.epoch_lock
        self.begin(state)

    def begin(self, state: StateManager) -> None:
        """As of the last commit, without channels. Its task is not open."""
        self._state = state.open_task(TASK, 0, [STORE])
        self._state.counts = False  # rows between tasks have limits of their own
        self._store = self._state.store(STORE.name)
        self._inputs: dict[ChannelKey, ExchangeInput] = {}
        self._stored: dict[str, _Stored] = {}  # by topic
        self._decoded: dict[tuple[str, int], Batch] = {}  # blocks, until the next cut: many channels are opened at once
        self._changed: set[ChannelKey] = set()  # since they were saved: with many queries most channels are empty
        self._closed: set[ChannelKey] = set()
        self._ahead: dict[str, _Encoded] = {}  # belongs to the thread that calls `save`

    def open(self, operator: str, topic: str, partition: int, source: int, schema: Schema) -> ExchangeInput:
        """The channel of one upstream partition into one partition, with the committed remainder in it."""
        exchange = ExchangeInput(operator, topic, partition, source, changed=self._changed)
        channel = partition, source
        with self._epoch_lock.join():  # else a commit would see a saved remainder without its channel, and delete it
            stored = self._stored_of(topic)
            batches = [
                self._block(topic, b.block, schema).slice(b.start, b.start + b.rows)
                for b in stored.batches.get(channel, ())
            ]
            head = stored.heads.get(channel)
            exchange.is_saved = stored.has(channel)
            exchange.resume(stored.first(channel), batches, head.consumed if head is not None and batches else 0)
            self._closed.discard((topic, *channel))
            self._inputs[topic, partition, source] = exchange
        return exchange

    def _stored_of(self, topic: str) -> _Stored:
        stored = self._stored.get(topic)
        if stored is None:
            stored = _Stored.read({k[1]: v for k, v in self._store.scan_prefix((topic,))})  # type: ignore[misc]
            self._stored[topic] = stored
        return stored

    def _block(self, topic: str, number: int, schema: Schema) -> Batch:
        found = self._decoded.get((topic, number))
        if found is None:
            row = self._store.get((topic, number))
            assert row is not None
            found = self._decoded[topic, number] = decode_batch(row[0], schema)
        return found

    def put_aside(self, channels: Iterable[ExchangeInput]) -> None:
        """These channels are as they were committed, and nothing of them is saved before they are opened anew, or closed.

        They are those of whole repartitions. Other channels of these were opened for tasks that could not be made.
        """
        topics = {channel.topic for channel in channels}
        for key in [key for key in self._inputs if key[0] in topics]:
            del self._inputs[key]
        for topic in topics:
            self._stored.pop(topic, None)
        self._store.revert_rows(lambda row: row[0] in topics)
        self._decoded.clear()

    def get(self, topic: str, partition: int, source: int) -> ExchangeInput:
        return self._inputs[topic, partition, source]

    def close(self, channel: ExchangeInput) -> None:
        """The consumer is gone for good: forget its remainder."""
        self._inputs.pop(channel.key, None)
        self._closed.add(channel.key)

    def encode_ahead(self) -> None:
        """Encodes the batches that the next `save` would write now, so that it holds the epoch lock, without which no task can publish,
        for less time.

        Called by the thread that calls `save`, without the epoch lock. `save` encodes rows that are published in between. Rows that are
        consumed in between were encoded in vain.
        """
        self._ahead = {t: e for t, e in self._ahead.items() if self._is_current(e)}  # of a cut that failed
        with self._epoch_lock:
            waiting = [
                (topic, self._unsaved(topic, channels))
                for topic, channels in _by_topic(self._changed & self._inputs.keys())
                if topic not in self._ahead
            ]
        for topic, batches in waiting:
            with suppress(Exception):  # `save` meets it again, and reports it
                self._ahead |= _encoded(topic, batches)

    def _is_current(self, encoded: _Encoded) -> bool:
        """Whether its channels have not been opened anew since."""
        return all(self._inputs.get(x.key) is x for x, _, _ in encoded.batches)

    def _unsaved(self, topic: str, channels: Iterable[ChannelKey]) -> list[tuple[ExchangeInput, int, Batch]]:
        """Batches that no cut has written and `encode_ahead` has not encoded yet."""
        stored, out = self._stored_of(topic), list[tuple[ExchangeInput, int, Batch]]()
        ahead = self._ahead.get(topic)
        ends = {} if ahead is None else {x.key: number + 1 for x, number, _ in ahead.batches}
        for key in channels:
            exchange = self._inputs[key]
            first = max(exchange.first, stored.end(key[1:]) if exchange.is_saved else 0, ends.get(key, 0))
            if first < exchange.first + len(exchange.queue):
                unsaved = islice(exchange.queue, first - exchange.first, None)
                out += [(exchange, n, batch) for n, batch in enumerate(unsaved, first)]
        return out

    def save(self) -> dict[str, Exception]:
        """Writes the changes of waiting rows into the epoch before its cut.

        Returns the repartitions that have rows without a durable form, with the error; nothing of their channels is written.
        """
        failed: dict[str, Exception] = {}
        changes: list[tuple[Key, Value | None]] = []
        self._decoded.clear()
        for topic, channels in _by_topic((self._changed & self._inputs.keys()) | self._closed):
            try:
                changes += self._changes(topic, channels)
            except Exception as error:  # whatever Arrow says of a value
                failed[topic] = UnwritableState(TASK, topic, error)
                continue
            self._changed.difference_update(channels)
            self._closed.difference_update(channels)
        if changes:
            self._store.put_many([k for k, _ in changes], [v for _, v in changes])
            self._state.publish({})
        self._ahead.clear()
        return failed

    def _changes(self, topic: str, channels: Sequence[ChannelKey]) -> list[tuple[Key, Value | None]]:
        """Rows that turn what the store holds of a repartition into what waits in it."""
        if topic in self._ahead and not self._is_current(self._ahead[topic]):
            del self._ahead[topic]
        if topic in self._ahead:  # some of these may be consumed since
            channels = sorted({*channels, *(x.key for x, _, _ in self._ahead[topic].batches)})
        open_ = [key for key in channels if key in self._inputs]
        blocks = [*filter(None, (self._ahead.get(topic), *_encoded(topic, self._unsaved(topic, open_)).values()))]
        stored, heads_before = self._stored_of(topic), dict(self._stored_of(topic).heads)
        written: dict[int, Value] = {}
        for encoded in blocks:
            entries = [_Entry(x.partition, x.source, n, len(batch)) for x, n, batch in encoded.batches]
            written[stored.next] = encoded.block, msgspec.msgpack.encode(entries)
            stored.add(stored.next, entries)
            for x, n, _ in encoded.batches:
                if n < x.first or x.consumed:
                    x.is_saved = True
        for key in channels:
            exchange, channel = self._inputs.get(key), key[1:]
            if exchange is not None and not (exchange.is_saved or exchange.consumed):
                continue  # all of it is written for the first time
            first = stored.end(channel) if exchange is None else exchange.first
            if stored.batches.get(channel) and stored.first(channel) < first:
                stored.heads[channel] = _Head(*channel, first, 0)
            stored.consume(channel, first)
            if exchange is not None and (exchange.consumed or channel in stored.heads):
                stored.heads[channel] = _Head(*channel, first, exchange.consumed)
        gone = stored.take_consumed()
        for key in open_:
            self._inputs[key].is_saved = stored.has(key[1:])
        out: list[tuple[Key, Value | None]] = [((topic, n), row) for n, row in written.items() if n not in gone]
        out += [((topic, n), None) for n in gone if n not in written]
        if stored.heads != heads_before:
            heads = [stored.heads[channel] for channel in sorted(stored.heads)]
            out.append(((topic, HEADS), (None, msgspec.msgpack.encode(heads)) if heads else None))
        return out

    @property
    def empty(self) -> bool:
        return not any(e.has_rows for e in self._inputs.values())


def are_keys(encoded: Iterable[bytes]) -> bool:
    """Whether these are encoded keys of the store: those of earlier versions had four parts."""
    codec = store_key_codec(STORE)
    try:
        return all(len(codec.decode(key)) == 2 for key in encoded)
    except AssertionError:
        return False


def rows_saved(snapshot: Snapshot) -> dict[str, int]:
    """Rows that wait between tasks as of a commit, by repartition; nothing where there are none. Any process may ask."""
    topics: defaultdict[str, dict[int, Value]] = defaultdict(dict)
    if any(store.name == STORE.name for store in snapshot.stores()):
        for (topic, number), row in snapshot.scan(STORE.name):
            topics[topic][number] = row  # type: ignore[index]
    rows = Counter[str]()
    for topic, found in topics.items():
        stored = _Stored.read(found)
        rows[topic] = sum(b.rows for saved in stored.batches.values() for b in saved)
        rows[topic] -= sum(head.consumed for head in stored.heads.values())
    return dict(rows)


def _by_topic(channels: Iterable[ChannelKey]) -> list[tuple[str, list[ChannelKey]]]:
    return [(topic, list(keys)) for topic, keys in groupby(sorted(channels), lambda key: key[0])]


def _encoded(topic: str, batches: Sequence[tuple[ExchangeInput, int, Batch]]) -> dict[str, _Encoded]:
    """A block of these batches; none if there is no batch."""
    return {topic: _Encoded(batches, encode_batches([batch for _, _, batch in batches]))} if batches else {}
