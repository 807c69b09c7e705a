"""Epochs and ranges on a real Kafka: markers of transactions take offsets, and nothing is dropped with a commit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark import log_append
from flowql.runtime.spark.log_address import KafkaAddress
from flowql.runtime.spark.log_append import Target, append, committed_epochs, drop_all, split
from flowql.runtime.spark.log_letters import TopicLetters, put_letters
from flowql.runtime.spark.log_offsets import LogRange, bounds, read_range
from flowql.runtime.spark.shapes import DEAD, SINK
from tests.runtime.log.records import produce, read_all
from tests.runtime.spark.logs import append_emitted, emitted, records

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]
MARKERS_S = 60.0  # brokers write them after they have answered


class World:
    """A log, an application and topics that no other test has."""

    def __init__(self, bootstrap: str) -> None:
        app = f"spark-{uuid.uuid4().hex[:6]}"
        self.log = KafkaLog(Connection(bootstrap), app)
        self.target = Target("Q/1", "run-a", app)
        self.stream, self.table = TopicPartition(f"{app}-s", 0), TopicPartition(f"{app}-t", 0)
        self.log.create_topic(self.stream.topic, 1)
        self.log.create_topic(self.table.topic, 1, {"cleanup.policy": "compact"})

    def row(self, *values: bytes) -> tuple[str, str, int, int, int, object]:
        return (SINK, self.stream.topic, 0, 0, 0, records(values))

    def values(self, tp: TopicPartition) -> list[bytes | None]:
        return [value for _, _, _, value in read_all(self.log, tp)]


@pytest.fixture
def world(kafka: str) -> Iterator[World]:
    world = World(kafka)
    yield world
    world.log.close()


def test_an_epoch_counts_once_whoever_writes_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log, target = world.log, world.target
    assert committed_epochs(log, target) is None
    for epoch in (0, 0, 1, 0, 1):
        append_emitted(log, target, epoch, [emitted(world.row(b"e%d" % epoch))], {world.stream: epoch + 5})
    committed = committed_epochs(log, target)
    assert committed is not None
    assert (committed.run, committed.next_epoch, committed.counters["records_appended"]) == ("run-a", 2, 2)
    assert log.stable_positions(target.group, [world.stream])[world.stream].offset == 6
    real, overtaken = log_append.committed_epochs, []

    def overtake(of: KafkaLog, wanted: Target) -> log_append.CommittedEpochs | None:
        """Another driver commits the epoch after this one has looked."""
        seen = real(of, wanted)
        if not overtaken:
            overtaken.append(1)
            append_emitted(of, wanted, 2, [emitted(world.row(b"theirs"))])
        return seen

    monkeypatch.setattr(log_append, "committed_epochs", overtake)
    assert append_emitted(log, target, 2, [emitted(world.row(b"mine"))]).skipped
    assert world.values(world.stream) == [b"e0", b"e1", b"theirs"]


def test_a_range_has_all_its_records_and_no_more(world: World) -> None:
    log, tp = world.log, world.stream
    for n in range(3):
        produce(log, "source", (tp, [b"%d-%d" % (n, i) for i in range(4)]))
    producer = log.producer("source")
    producer.begin()
    producer.send(tp, records([b"aborted"] * 3))
    producer._client.flush(10)  # or they would not get as far as the brokers
    producer.abort()
    producer.close()
    limit = time.monotonic() + MARKERS_S
    while log.end_offset(tp) < log.written_offset(tp) or log.written_offset(tp) < 19:
        assert time.monotonic() < limit, "the marker of the aborted transaction never came"
        time.sleep(0.02)
    first, after = bounds(log, [tp.topic])
    begin, end = first[tp.topic]["0"], after[tp.topic]["0"]
    assert (begin, end) == (0, 19), "twelve records, three that were aborted, and a marker for each transaction"
    written = {offset: value for offset, _, _, value in read_all(log, tp)}
    for start in range(begin, end):
        for stop in (start + 1, (start + end) // 2 + 1, end):
            batches = list(read_range(log, LogRange(tp.topic, 0, start, stop), 3))
            found = {r["offset"]: r["value"] for b in batches for r in b.records.to_pylist()}
            assert found == {o: v for o, v in written.items() if start <= o < stop}
            assert all(b.next_offset <= stop for b in batches)
    with pytest.raises(OffsetOutOfRange, match="are not in the log"):
        list(read_range(log, LogRange(tp.topic, 0, 0, end + 1), 100))


def test_letters_in_a_topic_wait_for_the_epoch_of_their_records(world: World, kafka: str) -> None:
    """A task that is run again writes them again, perhaps over a range that is cut otherwise; a large one is cut itself."""
    log, app = world.log, world.target.application_id
    address = KafkaAddress(KafkaSettings(kafka), app)
    before = TopicLetters(log, app, "Q")

    def put(query: str, first: int, count: int) -> None:
        rows = [{"offset": first + n, "timestamp": 0, "key": None, "value": b"", "headers": None} for n in range(count)]
        raw = RawBatch(world.stream, pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA), first + count, 1)
        letters = records([b"%d" % (first + n) * (300_000 if first + n == 12 else 1) for n in range(count)])
        put_letters(before.place, address, query, raw, range(count), letters)

    put("Q", 5, 1)
    letters = TopicLetters(log, app, "Q")
    for query, first, count in (("Q", 9, 3), ("Q", 10, 3), ("other", 10, 1), ("Q", 20, 1)):
        put(query, first, count)
    found = letters.between({world.stream: 10}, {world.stream: 20})
    values = [p.records.column("value").to_pylist() for p in found]
    assert values == [[b"10"], [b"11"], [b"12" * 300_000]]
    assert [(p.kind, p.topic, p.source, p.seq) for p in found] == [(DEAD, "Q", 0, offset) for offset in (10, 11, 12)]
    letters.drop({world.stream: 20})
    assert [p.seq for p in letters.between({}, {world.stream: 99})] == [20]
    assert [p.seq for p in before.between({}, {world.stream: 99})] == [5, 9, 10, 11, 12, 20]


def test_results_take_the_place_of_earlier_ones(world: World) -> None:
    log, target = world.log, world.target
    table = (SINK, world.table.topic, 0, 0, 1, records([b"1", b"1"], [b"k1", b"k2"]))
    append_emitted(log, target, 0, [emitted(world.row(b"old"), table)])
    ends = {tp: log.end_offset(tp) for tp in (world.stream, world.table)}
    again = Target(target.query, "run-b", target.application_id)
    pieces, notes = split([emitted(world.row(b"new"), (SINK, world.table.topic, 0, 0, 1, records([b"2"], [b"k1"])))])
    for _ in range(2):
        append(log, again, 0, pieces, notes, replaces=ends)
    assert world.values(world.stream) == [b"new"]
    rows = read_all(log, world.table)
    assert [(key, value) for _, _, key, value in rows[2:]] == [(b"k1", b"2"), (b"k2", None)]
    for tp in (world.stream, world.table):
        drop_all(log, tp.topic, f"{target.application_id}-drop")
    assert world.values(world.stream) == []
    assert {key: value for _, _, key, value in read_all(log, world.table)} == {b"k1": None, b"k2": None}
