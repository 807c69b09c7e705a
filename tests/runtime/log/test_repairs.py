"""Repairs lie over records wherever these are read, and nowhere else."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.repairs import CONFIG, Repair, RepairedLog, encode, topic_name
from tests.runtime.log.records import batch

APP, TP = "app", TopicPartition("t", 0)
REPAIRS = st.builds(Repair, st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=3), st.integers(0, 99))


def send(log: MemoryLog, tp: TopicPartition, batch: pa.RecordBatch) -> None:
    producer = log.producer("test")
    producer.begin()
    producer.send(tp, batch)
    producer.commit()
    producer.close()


def plain_records(n: int) -> pa.RecordBatch:
    return batch([b"v%d" % i for i in range(n)])


def read(log: RepairedLog, most: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    reader, found = log.reader(TP), []
    while (batch := reader.read(most, 1 << 20)) is not None:
        found += [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in batch.records.to_pylist()]
    consumer, polled = log.consumer("c"), []
    consumer.assign({TP: 0})
    while batches := consumer.poll(most, 1 << 20):
        polled += [(r["offset"], r["timestamp"], r["key"], r["value"]) for b in batches for r in b.records.to_pylist()]
    assert found == polled
    return found


@given(
    st.integers(1, 12),
    st.lists(st.dictionaries(st.integers(0, 15), st.none() | REPAIRS, min_size=1), max_size=3),
    st.integers(1, 5),
)
def test_repaired_records_are_read_as_the_last_repair_says(
    n: int, written: list[dict[int, Repair | None]], most: int
) -> None:
    log = MemoryLog()
    log.create_topic(TP.topic, 1)
    send(log, TP, plain_records(n))
    repaired = RepairedLog(log, APP)
    known: dict[int, Repair] = {}
    log.create_topic(topic_name(APP), 1, CONFIG)
    for repairs in written:
        send(log, TopicPartition(topic_name(APP), 0), encode({(TP, o): r for o, r in repairs.items()}, 1))
        known |= {o: r for o, r in repairs.items() if r is not None}
        known = {o: r for o, r in known.items() if repairs.get(o, r) is not None}
        repaired.repairs.read_on()
    expected = [
        (i, r.timestamp_ms, r.key, r.value) if (r := known.get(i)) else (i, i, b"k%d" % i, b"v%d" % i) for i in range(n)
    ]
    assert read(repaired, most) == expected
    assert read(RepairedLog(log, APP), most) == expected, "of one that is opened later"
    assert len(repaired.repairs) == len(known)


def test_records_of_other_partitions_are_as_they_were() -> None:
    log = MemoryLog()
    for topic in ("t", "u"):
        log.create_topic(topic, 2)
        send(log, TopicPartition(topic, 0), plain_records(2))
    log.create_topic(topic_name(APP), 1, CONFIG)
    send(log, TopicPartition(topic_name(APP), 0), encode({(TopicPartition("u", 0), 1): Repair(None, b"x", 5)}, 1))
    repaired = RepairedLog(log, APP)
    assert [r[3] for r in read(repaired, 10)] == [b"v0", b"v1"]
    batch = repaired.reader(TopicPartition("u", 0)).read(10, 1 << 20)
    assert batch is not None
    assert batch.records.column("value").to_pylist() == [b"v0", b"x"]
