"""One consumer behind all readers: what it keeps assigned, when it begins anew, and how long it waits."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable
from flowql.runtime.log.base import EARLIEST, LATEST, RawBatch, TopicPartition
from flowql.runtime.log.embedded.segment import numbered
from flowql.runtime.log.kafka import fetching, reading
from flowql.runtime.log.kafka.admin import TIMEOUT_S
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.fetching import Cursor
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.reading import KafkaKeyValues, KafkaReader, SharedReading
from tests.runtime.log.kafka.world import TestLog
from tests.runtime.log.records import batch, produce

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


class Brokers:
    """Where partitions end; each begins at 2."""

    def __init__(self, **ends: int) -> None:
        self.ends, self.refusal = ends, None

    def check_partition(self, tp: TopicPartition) -> None:
        if self.refusal is not None:
            raise self.refusal

    def begin_offset(self, tp: TopicPartition) -> int:
        return 2

    def end_offset(self, tp: TopicPartition) -> int:
        return self.ends.get(tp.topic, 0)


class Fetches:
    """Gives each partition what stands in `waiting` of it, one batch a pump."""

    member = None

    def __init__(self) -> None:
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.waiting: dict[TopicPartition, list[RawBatch]] = {}
        self.calls: list[tuple[str, Any]] = []
        self.closed = False
        self.on_pump: Any = lambda: None

    def start(self, tp: TopicPartition, offset: int, *, bare: bool = False) -> Cursor:
        self.calls.append(("start", (tp, offset, bare)))
        self.cursors[tp] = Cursor(tp, offset, offset, bare)
        return self.cursors[tp]

    def start_all(self, offsets: dict[TopicPartition, int]) -> None:
        for tp, offset in offsets.items():
            self.start(tp, offset)

    def is_at(self, tp: TopicPartition, offset: int) -> bool:
        return tp in self.cursors and self.cursors[tp].position == offset

    def stop(self, tps: list[TopicPartition]) -> None:
        self.calls.append(("stop", list(tps)))
        for tp in tps:
            self.cursors.pop(tp, None)

    def pump(self, wait_s: float = 0.0) -> None:
        self.calls.append(("pump", wait_s))
        self.on_pump()
        for tp, cursor in self.cursors.items():
            if self.waiting.get(tp):
                cursor.add(self.waiting[tp].pop(0))

    def close(self) -> None:
        self.closed = True

    def told(self, name: str) -> list[Any]:
        return [what for call, what in self.calls if call == name]


def records(tp: TopicPartition, first: int, end: int, size: int = 10) -> RawBatch:
    rows = batch([(n, b"k", b"%d" % n) for n in range(first, end)])
    return RawBatch(tp, numbered(first, rows), end, size)


@pytest.fixture
def shared() -> SharedReading:
    made: list[Fetches] = []
    found = SharedReading(Brokers(A=10, B=10), lambda: made.append(Fetches()) or made[-1])  # type: ignore[arg-type,func-returns-value]
    found._clock = VirtualClock(1_000_000)  # type: ignore[assignment]
    return found


def fetches(shared: SharedReading) -> Fetches:
    with shared.client() as client:
        return client  # type: ignore[return-value]


def read(reader: KafkaReader, most: int = 100) -> list[int] | None:
    found = reader.read(most, 1 << 20)
    return None if found is None else found.records.column(0).to_pylist()


def test_a_partition_that_is_read_on_stays_assigned(shared: SharedReading) -> None:
    reader = KafkaReader(shared, A0, EARLIEST, lambda: shared)
    assert reader.position == 2
    fetches(shared).waiting = {A0: [records(A0, 2, 5), records(A0, 5, 10)]}
    assert [read(reader, 2), read(reader), read(reader), read(reader)] == [[2, 3], [4], [5, 6, 7, 8, 9], None]
    assert reader.position == 10
    assert fetches(shared).told("start") == [(A0, 2, False)]
    assert fetches(shared).told("pump") == [reading.WAIT_MS / 1000] * 2
    other = KafkaReader(shared, A0, 4, lambda: shared)
    fetches(shared).waiting = {A0: [records(A0, 4, 6)]}
    assert read(other) == [4, 5]
    assert fetches(shared).told("start")[1:] == [(A0, 4, False)], "at another place it begins anew"
    assert KafkaReader(shared, A0, LATEST, lambda: shared).position == 10


def test_an_offset_is_none_of_a_partition_that_does_not_exist_or_below_nothing(shared: SharedReading) -> None:
    assert KafkaReader(shared, A0, 0, lambda: shared).position == 0
    with pytest.raises(LogError, match="A-0: -3 is not an offset"):
        KafkaReader(shared, A0, -3, lambda: shared)
    shared.admin.refusal = LogError("none with number 9")  # type: ignore[attr-defined]
    with pytest.raises(LogError, match="none with number 9"):
        KafkaReader(shared, TopicPartition("A", 9), 0, lambda: shared)


def test_nothing_is_begun_at_the_end(shared: SharedReading) -> None:
    reader = KafkaReader(shared, A0, 10, lambda: shared)
    assert (reader.arrived(), read(reader), reader.position) == (True, None, 10)
    assert fetches(shared).calls == []


def test_a_position_moves_over_what_is_no_record_without_a_batch(shared: SharedReading) -> None:
    reader = KafkaReader(shared, A0, 2, lambda: shared)
    fetches(shared).on_pump = lambda: fetches_of.cursors[A0].skip_to(10)
    fetches_of = fetches(shared)
    assert (read(reader), reader.position) == (None, 10)


def test_records_that_do_not_come_are_not_waited_for_for_ever(shared: SharedReading) -> None:
    reader = KafkaReader(shared, A0, 2, lambda: shared)
    fetches(shared).on_pump = lambda: shared._clock.advance(1_000)  # type: ignore[attr-defined]
    with pytest.raises(LogUnavailable, match="A-0: nothing arrives from offset 2 on"):
        read(reader)
    assert len(fetches(shared).told("pump")) == TIMEOUT_S + 1
    assert (fetches(shared).told("stop"), reader.position) == ([[A0]], 2)


def test_what_is_wrong_is_raised_and_the_next_read_begins_anew(shared: SharedReading) -> None:
    reader, error = KafkaReader(shared, A0, 2, lambda: shared), LogDenied("no")
    assert not reader.arrived()
    fetches(shared).cursors[A0].error = error
    assert reader.arrived(), "the error has"
    client = fetches(shared)

    def fails() -> None:
        client.cursors[A0].error = error

    client.on_pump = fails
    with pytest.raises(LogDenied):
        read(reader)
    assert client.told("start") == [(A0, 2, False)] * 2
    assert client.told("stop") == [[A0]]


def test_a_reader_knows_whether_something_has_arrived(shared: SharedReading) -> None:
    reader = KafkaReader(shared, A0, 2, lambda: shared)
    client = fetches(shared)
    assert not reader.arrived()
    client.waiting = {A0: [records(A0, 2, 5)]}
    assert reader.arrived()
    pumps = len(client.told("pump"))
    assert reader.arrived()
    assert len(client.told("pump")) == pumps, "what has arrived is not waited for"
    assert read(reader) == [2, 3, 4]
    client.cursors[A0].ended = True
    assert reader.arrived(), "that there is no more, too"
    assert client.told("start") == [(A0, 2, False)]


def test_keys_and_values_are_read_apart_from_whole_records(shared: SharedReading) -> None:
    bare, whole = KafkaKeyValues(shared, A0, 2, lambda: shared), KafkaReader(shared, A0, 2, lambda: shared)
    assert not bare.arrived()
    assert not whole.arrived()
    assert not whole.arrived()
    assert not bare.arrived()
    assert fetches(shared).told("start") == [(A0, 2, True), (A0, 2, False), (A0, 2, True)]


def test_partitions_that_are_not_read_for_a_while_are_given_up(
    shared: SharedReading, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, client = shared._clock, fetches(shared)
    a0, a1, b0 = (KafkaReader(shared, tp, 2, lambda: shared) for tp in (A0, A1, B0))
    a0.arrived()
    a1.arrived()
    clock.advance(reading.IDLE_MS - 1)  # type: ignore[attr-defined]
    a0.arrived()
    clock.advance(1)  # type: ignore[attr-defined]
    b0.arrived()
    assert client.told("stop") == [], "not before their time"
    clock.advance(1)  # type: ignore[attr-defined]
    b0.arrived()
    assert client.told("stop") == [[A1]]
    monkeypatch.setattr(reading, "PARTITIONS_MAX", 2)
    a1.arrived()
    assert client.told("stop")[1:] == [[A0]], "the one that was read longest ago, where there are too many"
    b0.close()
    assert client.told("stop")[2:] == [[B0]]
    a0.arrived()
    assert len(client.told("stop")) == 3, "and then it counts no more"


def test_the_last_partition_that_was_read_is_given_up_though_no_other_is_read(shared: SharedReading) -> None:
    """A member at rest fetched it 50 times a second, for ever."""
    log = KafkaLog(Connection("nowhere:1"), "app")
    log.maintain(0)
    log._shared = shared
    log.maintain(0)
    clock, client = shared._clock, fetches(shared)
    for tp in (A0, A1):
        KafkaReader(shared, tp, 2, lambda: shared).arrived()
    clock.advance(reading.IDLE_MS)  # type: ignore[attr-defined]
    log.maintain(0)
    assert client.told("stop") == []
    clock.advance(1)  # type: ignore[attr-defined]
    log.maintain(0)
    assert client.told("stop") == [[A0], [A1]]


def test_fetches_of_a_tail_wait_for_long_when_no_new_partition_has_come_for_a_while() -> None:
    """The first heartbeats of a member that started again waited a second for the end of a fetch of plans."""
    first, calm, clock = Fetches(), Fetches(), VirtualClock(1_000_000)
    tail = SharedReading(Brokers(A=10, B=10), lambda: first, lambda: calm)  # type: ignore[arg-type,return-value]
    tail._clock = clock  # type: ignore[assignment]
    readers = [KafkaReader(tail, tp, 2, lambda: tail) for tp in (A0, B0)]

    def taken() -> list[list[int]]:
        found = [reader.take(100, 1 << 20) for reader in readers]
        return [[] if batch is None else batch.records.column(0).to_pylist() for batch in found]

    readers[0].take(1, 1)
    clock.advance(reading.CALM_MS - 1)
    first.waiting = {A0: [records(A0, 2, 4)]}
    assert taken() == [[2, 3], []]
    clock.advance(reading.CALM_MS - 1)
    assert taken() == [[], []]
    assert calm.cursors == {}, "B began later"
    first.waiting = {B0: [records(B0, 2, 3)]}
    clock.advance(1)
    assert taken() == [[], [2]]
    assert calm.cursors == {}, "something is prefetched"
    assert taken() == [[], []]
    assert {tp: cursor.position for tp, cursor in calm.cursors.items()} == {A0: 4, B0: 3}
    assert (first.closed, fetches(tail)) == (True, calm)
    calm.waiting = {A0: [records(A0, 4, 5)]}
    assert taken() == [[4], []]
    clock.advance(reading.CALM_MS)
    assert taken() == [[], []]
    assert not calm.closed


def test_a_topic_that_is_gone_is_forgotten_with_what_was_fetched_of_it(shared: SharedReading) -> None:
    shared.forget("A")
    assert shared._client is None
    for tp in (A0, A1, B0):
        KafkaReader(shared, tp, 2, lambda: shared).arrived()
    shared.forget("A")
    assert list(fetches(shared).cursors) == [B0]
    first = fetches(shared)
    shared.close()
    shared.close()
    assert first.closed
    assert fetches(shared) is not first, "the next read makes another"


@pytest.mark.kafka
def test_a_topic_that_is_made_anew_is_read_from_its_own_records(kafka: str) -> None:
    """Else what was prefetched of the old one would be read at the same offsets."""
    log = TestLog(kafka)
    tp = TopicPartition(f"{log.prefix}anew", 0)
    for value in (b"old", b"new"):
        log.create_topic(tp.topic, 1)
        produce(log, "p", (tp, [value] * 3))
        found = [log.reader(tp, n).read(1, 1 << 20) for n in (0, 1)]
        assert [b.records.column("value").to_pylist() for b in found if b is not None] == [[value]] * 2
        log.delete_topic(tp.topic)
    log.close()


@pytest.mark.kafka
def test_a_partition_that_was_paused_and_given_up_is_read_again(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client library keeps a pause across assignments: such a partition never arrived again, and a rebuild that read it never ended."""
    monkeypatch.setattr(fetching, "HIGH_BYTES", 1_000)
    monkeypatch.setattr(fetching, "LOW_BYTES", 100)
    monkeypatch.setattr(reading, "TIMEOUT_S", 4.0)
    log = TestLog(kafka)
    name = f"{log.prefix}paused"
    log.create_topic(name, 2)
    full, other = TopicPartition(name, 0), TopicPartition(name, 1)
    produce(log, "p", (full, [b"v" * 100] * 200), (other, [b"v"] * 200))
    for _ in range(3):
        with closing(log.reader(full, 0)) as reader, closing(log.reader(other, 0)) as beside:
            assert reader.read(1, 1 << 20) is not None
            for _ in range(3):  # takes note of all that has come, and pauses what is full
                assert beside.read(1, 1 << 20) is not None
                with log._reading.client() as client:
                    client.pump()
            with log._reading.client() as client:
                assert client.cursors[full].paused
    log.close()
