"""What waits in local exchanges at a cut: restored exactly, and written once."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.runtime.app import exchanges
from flowql.runtime.app.exchanges import Exchanges
from flowql.runtime.batch import Batch, from_rows
from flowql.runtime.errors import StateError
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.channels import ExchangeInput
from tests.runtime.app.engine import make, produce

SCHEMA = Schema((Field("K", t.STRING, "key"), Field("V", t.BIGINT)))
CHANNELS = (("a", 0, 0), ("a", 0, 1), ("a", 1, 0), ("b", 0, 0))


def batch(numbers: range) -> Batch:
    headers = [[("n", str(n).encode())] if n % 3 == 0 else None for n in numbers]
    return from_rows(SCHEMA, [(f"k{n}", n) for n in numbers], list(numbers), [0] * len(numbers), list(numbers), headers)


class ExchangeHarness:
    """Exchanges over one store; `waiting` says what each channel must hold."""

    def __init__(self) -> None:
        self.physical = MemoryPhysical()
        self.sequence = 0
        self.waiting: dict[Any, list[int]] = {channel: [] for channel in CHANNELS}
        self.start()

    def start(self) -> None:
        self.state = StateManager(self.physical, changelog=lambda spec: True)  # so that a cut lists what it wrote
        self.exchanges = Exchanges(self.state)
        for channel in CHANNELS:
            self.open(channel)

    def open(self, channel: Any) -> None:
        self.exchanges.open("op", *channel, SCHEMA)

    def channel(self, channel: Any) -> ExchangeInput:
        return self.exchanges.get(*channel)

    def push(self, channel: Any, numbers: range) -> None:
        self.channel(channel).push(batch(numbers))
        self.waiting[channel] += numbers

    def consume(self, channel: Any, most: int) -> None:
        """The next rows, as many as there are up to `most`; they may lie in several batches."""
        peeked, waiting = self.channel(channel).peek(most), self.waiting[channel]
        rows = len(peeked.rowtime)
        assert peeked.rowtime.tolist() == waiting[:most]
        assert [r[1] for b in peeked.taken(rows) for r in b.rows()] == waiting[:most]
        assert not peeked.more or len(waiting) > most
        del waiting[:rows]
        self.channel(channel).consume(rows)
        assert self.channel(channel).next_ms == (waiting[0] if waiting else None)

    def put_aside(self, topic: str, committed: dict[Any, list[int]]) -> None:
        """The query of a repartition begins again with what is committed."""
        channels = [channel for channel in CHANNELS if channel[0] == topic]
        if len(self.waiting[channels[0]]) % 2:
            self.exchanges.encode_ahead()
        with self.state.epoch_lock:
            self.exchanges.put_aside(map(self.channel, channels))
        for channel in channels:
            self.waiting[channel] = list(committed[channel])
            self.open(channel)

    def commit(self, *, ahead: bool = False) -> int:
        """Cut and apply; how many rows of the store the cut wrote. ahead: what waits is encoded before the cut."""
        if ahead:
            self.exchanges.encode_ahead()
        with self.state.epoch_lock:
            self.exchanges.save()
            frozen = self.state.cut()
        written = sum(1 for _ in frozen.changelog())
        self.sequence += 1
        self.state.apply(frozen, self.sequence)
        return written

    def held(self, channel: Any) -> list[int]:
        x = self.channel(channel)
        rows = [(r, h) for b in x.queue for r, h in zip(b.rows(), b.headers or [None] * len(b), strict=True)]
        rows = rows[x.consumed :]
        assert x.rows == len(rows)
        assert all((h is not None) == (r[1] % 3 == 0) for r, h in rows)
        return [r[1] for r, _ in rows]


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_finds_what_waited_at_the_last_cut(seed: int) -> None:
    chance, world = random.Random(seed), ExchangeHarness()
    committed = {channel: list(v) for channel, v in world.waiting.items()}
    n = 0
    for _ in range(120):
        channel, what = chance.choice(CHANNELS), chance.random()
        if what < 0.4:
            size = chance.randint(1, 5)
            world.push(channel, range(n, n + size))
            n += size
        elif what < 0.8:
            world.consume(channel, chance.randint(1, 9))
        elif what < 0.92:
            world.commit(ahead=chance.random() < 0.5)
            committed = {channel: list(v) for channel, v in world.waiting.items()}
        elif what < 0.96:
            world.put_aside(channel[0], committed)
        else:
            world.waiting = {channel: list(v) for channel, v in committed.items()}
            world.start()
        assert {channel: world.held(channel) for channel in CHANNELS} == world.waiting


def test_a_cut_writes_what_changed_and_not_what_waits() -> None:
    world, channel = ExchangeHarness(), CHANNELS[0]
    for n in range(0, 100, 10):
        world.push(channel, range(n, n + 10))
    assert world.commit() == 1
    assert world.commit() == 0
    world.push(channel, range(100, 110))
    assert world.commit() == 1
    world.consume(channel, 4)
    assert world.commit() == 1  # how far the oldest is consumed, not the batch again
    world.consume(channel, 6)
    assert world.commit() == 1  # the oldest is gone, and others of its block are not
    world.consume(channel, 90)
    assert world.commit() == 2  # its block is gone
    world.push(channel, range(110, 120))
    world.consume(channel, 20)
    assert world.commit() == 2  # the other block and how far the channel was consumed


def test_a_cut_writes_the_rows_of_all_channels_of_a_repartition_as_one_block() -> None:
    """A commit over 32 partitions wrote 1,024 of them, which took a third of its time."""
    world = ExchangeHarness()
    for n, channel in enumerate(CHANNELS):
        world.push(channel, range(n, n + 1))
    assert world.commit() == 2
    with world.state.snapshot() as snapshot:
        assert [key for key, _ in snapshot.scan("__exchange")] == [("a", 0), ("b", 0)]
        assert exchanges.rows_saved(snapshot) == {"a": 3, "b": 1}
    world.consume(CHANNELS[1], 1)
    world.commit()
    world.start()
    assert [world.held(channel) for channel in CHANNELS] == [[0], [], [2], [3]]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The first value of each batch that is encoded, in this order."""
    seen: list[int] = []
    encode = exchanges.encode_batches

    def noted(batches: Sequence[Batch]) -> bytes:
        seen.extend(batch.rows()[0][1] for batch in batches)
        return encode(batches)

    monkeypatch.setattr(exchanges, "encode_batches", noted)
    return seen


def test_a_cut_encodes_only_what_came_after_the_encoding_ahead_of_it(encoded: list[int]) -> None:
    """While a cut holds the epoch lock, no task can publish."""
    world, channel = ExchangeHarness(), CHANNELS[0]
    world.push(channel, range(5))
    world.push(channel, range(5, 10))
    world.exchanges.encode_ahead()
    world.exchanges.encode_ahead()  # a cut that failed in between
    assert encoded == [0, 5]
    world.consume(channel, 7)  # the first batch was encoded in vain
    world.push(channel, range(10, 15))
    world.commit()
    assert encoded == [0, 5, 10]
    world.exchanges.encode_ahead()
    world.commit()
    assert encoded == [0, 5, 10], "what a cut has written is not encoded again"
    world.start()
    assert world.held(channel) == list(range(7, 15))


def test_rows_that_are_consumed_after_the_encoding_ahead_of_a_cut_do_not_come_back() -> None:
    """The block of the other channel holds them. The next cut deletes it once both are consumed."""
    world, (channel, other) = ExchangeHarness(), [c for c in CHANNELS if c[0] == CHANNELS[0][0]][:2]
    world.push(channel, range(5))
    world.push(other, range(5, 10))
    world.exchanges.encode_ahead()
    world.consume(channel, 5)
    assert world.commit() == 2, "a block and its heads"
    world.start()
    assert (world.held(channel), world.held(other)) == ([], list(range(5, 10)))
    world.consume(other, 5)
    assert world.commit() == 2
    world.start()
    assert (world.held(channel), world.held(other)) == ([], [])


def test_a_cut_looks_at_no_channel_whose_rows_came_and_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """With P partitions there are P * P channels, and most have few rows between two cuts."""
    world = ExchangeHarness()
    for channel in CHANNELS[:-1]:
        world.push(channel, range(3))
        world.consume(channel, 3)
    world.push(CHANNELS[-1], range(3))
    looked: list[Any] = []
    changes = Exchanges._changes
    monkeypatch.setattr(Exchanges, "_changes", lambda x, t, keys: (looked.extend(keys), changes(x, t, keys))[1])
    world.commit()
    world.consume(CHANNELS[-1], 3)
    world.commit()
    world.commit()
    assert looked == [CHANNELS[-1]] * 2, "what was written is deleted"


def test_a_batch_that_cannot_be_encoded_ahead_fails_its_channel_at_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ExchangeHarness()
    world.push(CHANNELS[0], range(5))

    def refuse(_batches: Sequence[Batch]) -> bytes:
        raise ValueError("no durable form")

    monkeypatch.setattr(exchanges, "encode_batches", refuse)
    world.exchanges.encode_ahead()
    with world.state.epoch_lock:
        assert list(world.exchanges.save()) == [CHANNELS[0][0]]


def test_an_instance_encodes_its_remainders_before_it_takes_the_epoch_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, _ = make(None, "CREATE TABLE SUMS AS SELECT V, COUNT(*) AS N FROM INPUT GROUP BY V EMIT CHANGES;")
    held: list[bool] = []
    encode = exchanges.encode_batches

    def noted(batches: Sequence[Batch]) -> bytes:
        held.append(instance.state.epoch_lock.held)
        return encode(batches)

    monkeypatch.setattr(exchanges, "encode_batches", noted)
    produce(instance.log, "input", *range(20))
    for step in itertools.cycle((instance.main.loop, instance.polling, instance.processing[0])):
        step.run_once(instance.clock.timer_ms())
        if not instance.exchanges.empty:
            break
    instance.commit.request()
    instance.commit.run_once(instance.clock.timer_ms())
    assert held
    assert not any(held)


def test_a_channel_that_is_opened_anew_saves_what_waits_then() -> None:
    """Of a generation that has swapped in: its batches are counted from 0 again, and those below the old number were left out of commits."""
    world = ExchangeHarness()
    for n in range(3):
        world.push(CHANNELS[0], range(n, n + 1))
        world.commit()
        world.consume(CHANNELS[0], 1)
        world.commit()
    world.open(CHANNELS[0])
    world.push(CHANNELS[0], range(10, 12))
    world.commit()
    world.start()
    assert world.held(CHANNELS[0]) == [10, 11]


def test_channels_of_tasks_that_could_not_be_made_are_put_aside_with_the_others() -> None:
    """The commit thread would die of them when their query is suspended."""
    world = ExchangeHarness()
    world.push(CHANNELS[0], range(3))
    world.commit()
    committed = {channel: list(v) for channel, v in world.waiting.items()}
    world.open(("a", 7, 0))
    world.channel(("a", 7, 0)).push(batch(range(2)))
    world.put_aside("a", committed)
    assert world.commit() == 0
    world.start()
    assert world.held(CHANNELS[0]) == [0, 1, 2]


def test_a_channel_whose_consumer_is_gone_leaves_nothing() -> None:
    world, channel = ExchangeHarness(), CHANNELS[0]
    world.push(channel, range(7))
    world.consume(channel, 3)
    world.commit()
    world.exchanges.close(world.channel(channel))
    world.commit()
    world.open(channel)
    assert not world.channel(channel).queue
    found = world.state.snapshot()
    assert not list(found.scan(exchanges.STORE.name))
    found.close()


def test_a_channel_that_is_opened_during_a_cut_waits_for_its_end(monkeypatch):
    """The commit thread died of it ("dictionary changed size"), and with it the instance."""
    world, write = ExchangeHarness(), Exchanges._changes
    for channel in CHANNELS:
        world.push(channel, range(3))
    opening = threading.Thread(target=world.open, args=[("c", 0, 0)])

    def slowly(*args):
        if opening.ident is None:
            opening.start()
        opening.join(0.05)
        return write(*args)

    monkeypatch.setattr(Exchanges, "_changes", slowly)
    with world.state.epoch_lock:
        assert not world.exchanges.save()
    opening.join()
    assert not world.channel(("c", 0, 0)).has_rows


def test_rows_of_an_earlier_version_are_refused() -> None:
    """They had one block for each channel."""
    physical = MemoryPhysical()
    state = StateManager(physical, changelog=lambda spec: True)
    names = (("TOPIC", t.STRING), ("PARTITION", t.INT), ("SOURCE", t.INT), ("NUMBER", t.BIGINT))
    spec = replace(exchanges.STORE, key=Schema(tuple(Field(name, of, "key") for name, of in names)))
    task = state.open_task(exchanges.TASK, 0, [spec])
    task.store(spec.name).put(("a", 0, 0, 0), (b"rows", None))
    with state.epoch_lock:
        task.publish({})
        frozen = state.cut()
    state.apply(frozen, 1)
    with pytest.raises(StateError, match="the store __exchange exists with another key"):
        Exchanges(StateManager(physical))
