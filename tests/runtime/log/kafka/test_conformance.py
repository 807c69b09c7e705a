"""What every log promises, on a real broker: the shared tests, but for those that ask for what Kafka does otherwise."""

import time

import pytest

from flowql.runtime.errors import Fenced, LogError, OffsetOutOfRange
from flowql.runtime.log.base import EARLIEST, LATEST, Position, TopicPartition
from tests.runtime.log import test_conformance as shared
from tests.runtime.log.kafka.world import PATIENCE_S, TestLog
from tests.runtime.log.logs import A0, A1, B0
from tests.runtime.log.records import batch, numbered, produce, read_all, values
from tests.runtime.log.test_conformance import arrival

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]

# Shared test -> why Kafka cannot pass it; the tests of the same names below hold it to what it can.
OTHERWISE = {
    "test_odd_topic_names": "names are letters, digits, '.', '_' and '-'",
    "test_aborted_transaction_leaves_nothing": "aborted records and markers take offsets",
    "test_offsets_are_contiguous_over_transactions_and_batches": "markers take offsets",
    "test_calls_out_of_order": "it keeps no redo",
    "test_tombstones_headers_and_null_keys_survive": "no headers and an empty list of headers are the same",
    "test_earliest_and_latest": "the end lies after the marker",
    "test_tiny_commits_are_read_as_one_batch": "markers take offsets",
    "test_offset_below_the_start_names_the_gap": "the end lies after the marker",
    "test_threads_read_while_another_writes": "partitions show a transaction one after the other",
    "test_consumer_reads_assigned_unpaused_partitions_in_turn": "positions move over markers",
    "test_redo_is_kept_until_trimmed": "it keeps no redo",
    "test_one_runtime_per_log": "a second instance takes over",
    "test_a_transaction_takes_the_place_of_older_records": "records are dropped by another call than a commit",
    "test_a_transaction_may_depend_on_where_a_partition_ends": "offsets of a transaction are not known before it",
    "test_the_log_says_who_has_written_the_records_that_are_there": "brokers do not say",
    "test_any_transactions_any_reads": "makes its own logs: many",
    "test_memory_crash_forgets_open_transactions": "of the memory log",
}
for _name in dir(shared):
    if _name.startswith("test_") and _name not in OTHERWISE:
        globals()[_name] = getattr(shared, _name)
assert set(OTHERWISE) < set(dir(shared))


@pytest.fixture
def log(kafka):
    log = TestLog(kafka)
    log.clear()
    log.create_topic("A", 2)
    log.create_topic("B", 1)
    yield log
    log.close()


def test_odd_topic_names(log):
    produce_to = TopicPartition("a.b-c_D", 0)
    log.create_topic(produce_to.topic, 1)
    produce(log, "p", (produce_to, [b"1"]))
    assert values(log, produce_to) == [b"1"]
    with pytest.raises(LogError, match="Invalid topic"):
        log.create_topic("Ünï cödé", 1)


def test_aborted_transaction_leaves_nothing(log):
    producer = log.producer("p")
    producer.begin()
    producer.send(A0, batch([b"no"]))
    producer.send_positions("g", {A0: Position(7)})
    producer.abort()
    producer.begin()
    producer.send(A0, batch([b"yes"]))
    assert producer.commit() == 1
    assert [r[1:] for r in read_all(log, A0)] == [(0, b"k0", b"yes")]
    assert log.committed("g") == {}


def test_a_reader_knows_that_an_open_transaction_hides_the_rest(log):
    produce(log, "p", (A0, [b"seen"]))
    producer = log.producer("other")
    producer.begin()
    producer.send(A0, batch([b"hidden"]))
    producer._client.flush(PATIENCE_S)
    reader = log.reader(A0)
    arrival(reader)
    assert reader.read(10, 1 << 20).records.column("value").to_pylist() == [b"seen"]
    arrival(reader)
    assert reader.read(10, 1 << 20) is None
    producer.abort()


def test_a_transaction_takes_the_place_of_older_records(log):
    produce(log, "p", (A0, [b"old"]))
    with pytest.raises(LogError, match="cannot drop records of A-0"):
        produce(log, "p", (A0, [b"new"]), drop={A0: 1})
    assert values(log, A0) == [b"old"]


def test_offsets_rise_over_transactions_and_batches(log):
    producer = log.producer("p")
    at = 0
    for sizes in ([1], [3, 5000, 2, 2], [4096, 1], [10_000]):
        producer.begin()
        for size in sizes:
            producer.send(A0, numbered(at, size))
            at += size
        producer.commit()
    rows = read_all(log, A0)
    assert [r[1:] for r in rows] == [(i, b"%d" % i, b"value %d" % i) for i in range(at)]
    offsets = [r[0] for r in rows]
    assert offsets == sorted(set(offsets))
    assert log.begin_offset(A0) == 0
    assert log.end_offset(A0) > offsets[-1]


def test_calls_out_of_order(log):
    producer = log.producer("p")
    for call in (producer.commit, producer.abort, lambda: producer.send(A0, batch([b"x"]))):
        with pytest.raises(LogError, match="no transaction"):
            call()
    producer.begin()
    with pytest.raises(LogError, match="open already"):
        producer.begin()
    with pytest.raises(LogError, match="no redo"):
        producer.attach_redo(b"1")
    producer.close()
    with pytest.raises(LogError, match="closed"):
        producer.begin()


def test_tombstones_headers_null_keys_and_early_times_survive(log):
    rows = [
        (5, b"k", None, None),
        (4, None, b"", [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]),
        (0, b"", b"v", None),
        (-1, b"", b"v", [{"key": "h", "value": b""}]),
        (-(1 << 40), None, None, None),
    ]
    produce(log, "p", (A0, rows))
    raw = log.reader(A0).read(10, 1 << 20)
    columns = zip(*[raw.records.column(i).to_pylist() for i in range(1, 5)], strict=True)
    assert list(columns) == rows


def test_earliest_and_latest(log):
    produce(log, "p", (A0, [b"1", b"2"]))
    latest, earliest = log.reader(A0, LATEST), log.reader(A0, EARLIEST)
    assert (latest.position, earliest.position) == (log.end_offset(A0), 0)
    assert latest.read(10, 1 << 20) is None
    produce(log, "p", (A0, [b"3"]))
    assert latest.read(10, 1 << 20).records.column(3).to_pylist() == [b"3"]
    assert latest.read(10, 1 << 20) is None
    assert latest.position == log.end_offset(A0)
    with pytest.raises(LogError):
        latest.seek(-3)


def test_tiny_commits_are_read_together(log):
    producer = log.producer("p")
    for i in range(20):
        producer.begin()
        producer.send(A0, numbered(i, 1))
        producer.commit()
    assert values(log, A0) == [b"value %d" % i for i in range(20)]
    assert log.reader(A0, 7).read(5, 1 << 20).records.num_rows == 5


def test_offset_below_the_start_names_the_gap(log):
    produce(log, "p", (A0, [b"0", b"1", b"2"]))
    reader = log.reader(A0, 0)
    log.drop_before(A0, 2)
    assert log.begin_offset(A0) == 2
    with pytest.raises(OffsetOutOfRange, match="0 to 1"):
        reader.read(10, 1 << 20)
    assert log.reader(A0).read(10, 1 << 20).first_offset == 2
    assert reader.position == 0
    consumer = log.consumer("c")
    consumer.assign({A0: 0})
    with pytest.raises(OffsetOutOfRange, match="0 to 1") as raised:
        consumer.poll(10, 1 << 20)
    assert raised.value.partition == A0
    consumer.close()
    with pytest.raises(LogError):
        log.drop_before(A0, 99)


def test_consumer_reads_assigned_unpaused_partitions(log):
    produce(log, "p", (A0, [b"a"] * 5), (A1, [b"b"] * 5), (B0, [b"c"] * 5))
    consumer = log.consumer("c")
    assert consumer.poll(10, 1 << 20) == []
    consumer.assign({A0: EARLIEST, A1: 2, B0: LATEST})
    consumer.pause([A1])
    assert consumer.poll_all() == [(A0, [b"a"] * 5)]
    consumer.resume([A1])
    consumer.seek(A0, 3)
    assert sorted(consumer.poll_all()) == [(A0, [b"a"] * 2), (A1, [b"b"] * 3)]
    assert consumer.poll(100, 1 << 20) == []
    with pytest.raises(LogError, match="not assigned"):
        consumer.seek(TopicPartition("B", 1), 0)
    consumer.pause([B0])
    consumer.assign({B0: EARLIEST})  # which ends the pause
    assert [b.tp for b in consumer.poll(2, 1 << 20)] == [B0]
    consumer.close()


def test_positions_move_over_what_is_no_record(log):
    """A reader at the end is at the end, whatever stands before it: else nothing would ever have caught up."""
    producer = log.producer("p")
    producer.begin()
    producer.send(A0, batch([b"1"]))
    producer.commit()
    producer.begin()
    producer.send(A0, batch([b"never"] * 3))
    producer._client.flush(30)
    producer.abort()
    reader = log.reader(A0)
    limit = time.monotonic() + PATIENCE_S
    while reader.position < 6 and time.monotonic() < limit:  # the brokers finish an abort in their own time
        batch_read = reader.read(10, 1 << 20)
        assert batch_read is None or batch_read.records.column("value").to_pylist() == [b"1"]
    assert reader.position == log.end_offset(A0) == 6
    consumer = log.consumer("c")
    consumer.assign({A0: EARLIEST})
    assert consumer.poll_all() == [(A0, [b"1"])]  # and waits until its position is at the end
    consumer.close()


def test_a_second_instance_takes_over(log):
    log.hold("app")
    first = log.producer("app")
    first.begin()
    first.send(A0, batch([b"old"]))
    first.send_positions("app", {A0: Position(3)})
    log.hold("app")
    assert log.last_sequence("app") == 0
    with pytest.raises(Fenced):
        first.commit()
    second = log.producer("app")
    second.begin()
    second.send(A0, batch([b"new"]))
    second.send_positions("app", {A0: Position(4)})
    second.commit()
    assert values(log, A0) == [b"new"]
    assert log.committed("app") == {A0: Position(4)}
