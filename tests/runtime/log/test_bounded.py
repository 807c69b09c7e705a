"""Reads of a log that end at bounds, which are moved on."""

from __future__ import annotations

import random

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.overlay import OverlayLog
from tests.runtime.log.records import produce

A0, A1 = TopicPartition("A", 0), TopicPartition("A", 1)


@pytest.fixture
def below() -> MemoryLog:
    log = MemoryLog()
    log.create_topic("A", 2)
    produce(log, "p", (A0, [b"0", b"1", b"2", b"3"]), (A1, [b"4"]))
    return log


def test_records_from_the_bound_on_come_once_it_is_moved(below: MemoryLog) -> None:
    log = OverlayLog(below)
    log.until = {A0: 2, A1: 0}
    assert log.end_offsets([A0, A1]) == {A0: 2, A1: 0}
    assert (log.end_offset(A0), log.written_offset(A0)) == (2, 2)
    consumer, reader = log.consumer("c"), log.reader(A0)
    consumer.assign({A0: 0, A1: 0})

    def polled() -> list[bytes]:
        found = consumer.poll(100, 1 << 20)
        return [v for raw in found for v in raw.records["value"].to_pylist()]

    first = reader.read(100, 1 << 20)
    assert first is not None
    assert (first.records["value"].to_pylist(), reader.position) == ([b"0", b"1"], 2)
    assert (reader.read(100, 1 << 20), reader.take(100, 1 << 20), reader.arrived()) == (None, None, True)
    assert (polled(), polled()) == ([b"0", b"1"], [])
    log.until = {A0: 3, A1: 1}
    second = reader.read(100, 1 << 20)
    assert second is not None
    assert second.records["value"].to_pylist() == [b"2"]
    assert (sorted(polled()), polled()) == ([b"2", b"4"], [])
    consumer.pause([A0])
    log.until = {}
    assert polled() == []
    consumer.resume([A0])
    assert polled() == [b"3"]


def test_a_consumer_that_is_moved_drops_what_it_kept(below: MemoryLog) -> None:
    log = OverlayLog(below)
    log.until = {A0: 2}
    consumer = log.consumer("c")
    consumer.assign({A0: 0})
    consumer.poll(100, 1 << 20)
    consumer.seek(A0, 1)
    log.until = {}
    assert [raw.records["value"].to_pylist() for raw in consumer.poll(100, 1 << 20)] == [[b"1", b"2", b"3"]]


@pytest.mark.parametrize("seed", range(20))
def test_every_record_comes_once_and_none_beyond_its_bound(below: MemoryLog, seed: int) -> None:
    chance, log, seen = random.Random(seed), OverlayLog(below), {A0: list[int](), A1: list[int]()}
    log.until = dict.fromkeys(seen, 0)
    consumer, paused = log.consumer("c"), set[TopicPartition]()
    consumer.assign(dict.fromkeys(seen, 0))
    for n in range(80):
        tp = chance.choice(list(seen))
        produce(below, "p", (tp, [b"x"] * chance.randrange(1, 5)))
        log.until = {t: max(end, chance.randrange(below.end_offset(t) + 1)) for t, end in log.until.items()}
        if chance.randrange(2):
            (consumer.resume if tp in paused else consumer.pause)([tp])
            paused ^= {tp}
        if n == 79:
            consumer.resume(list(seen))
            log.until = {}
        for raw in consumer.poll(chance.randrange(1, 9) if n < 79 else 10_000, 1 << 20):
            seen[raw.tp] += raw.records["offset"].to_pylist()
            assert raw.next_offset <= log.until.get(raw.tp, raw.next_offset)
    while found := consumer.poll(10_000, 1 << 20):
        for raw in found:
            seen[raw.tp] += raw.records["offset"].to_pylist()
    assert seen == {tp: list(range(below.end_offset(tp))) for tp in seen}
