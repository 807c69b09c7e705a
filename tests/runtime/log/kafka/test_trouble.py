"""Trouble with a real broker, or with none."""

import threading
import time

import pytest

from flowql.kafka.broker import Broker
from flowql.runtime.errors import Fenced, LogUnavailable, RecordRefused, TopicMissing
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka import producer as producers
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from tests.kafka_broker import QUICK
from tests.runtime.log.kafka.world import PATIENCE_S, TestLog
from tests.runtime.log.records import batch, values

pytestmark = pytest.mark.turns("long")


@pytest.fixture
def log(kafka):
    log = TestLog(kafka)
    yield log
    log.close()


def partition(log, name, **config):
    """Of a topic of this test's own."""
    tp = TopicPartition(f"{log.prefix}{name}", 0)
    log.create_topic(tp.topic, 1, config)
    return tp


def test_without_brokers_calls_end_and_say_so(monkeypatch):
    monkeypatch.setattr(admins, "TIMEOUT_S", 1.0)
    log = KafkaLog(Connection("127.0.0.1:1"))
    with pytest.raises(LogUnavailable):
        log.topics()
    with pytest.raises(LogUnavailable):
        log.create_topic("A", 1)
    log.close()


@pytest.mark.kafka
def test_a_producer_that_is_fenced_while_it_sends_says_so(log):
    """The client learns it in the background, and raises its own exception from whatever is called next, polling for reports too."""
    tp = partition(log, "sent")
    older = log.producer("p")
    older.begin()
    newer = log.producer("p")
    with pytest.raises(Fenced):
        _send_on(older, tp)
    newer.begin()
    newer.send(tp, batch([b"2"]))
    newer.commit()
    assert values(log, tp) == [b"2"]


@pytest.mark.kafka
@pytest.mark.parametrize(("config", "size"), [({}, 2_000_000), ({"max.message.bytes": "1000"}, 5_000)])
def test_a_record_that_is_too_large_leaves_no_trace(log, config, size):
    """Refused by the client, or by the broker when the transaction is to be committed."""
    tp = partition(log, "large", **config)
    producer = log.producer("p")
    producer.begin()
    with pytest.raises(RecordRefused) as raised:
        _send_and_commit(producer, tp, b"small", b"x" * size)
    assert raised.value.partition == tp
    producer = log.producer("p")
    producer.begin()
    producer.send(tp, batch([b"fits"]))
    assert producer.commit() == 1
    assert values(log, tp) == [b"fits"]


@pytest.mark.kafka
def test_a_topic_that_is_deleted_is_missed_by_everyone(log):
    tp, other = partition(log, "gone"), partition(log, "stays")
    consumer = log.consumer("c")
    consumer.assign({tp: EARLIEST, other: EARLIEST})
    assert consumer.poll(10, 1 << 20) == []
    log.delete_topic(tp.topic)
    assert log.ask_end_offsets([tp, other]).result(PATIENCE_S) == {other: 0}
    assert log.end_offsets([tp]) == {}
    with pytest.raises(TopicMissing):
        log.reader(tp)
    producer = log.producer("p")
    producer.begin()
    with pytest.raises(TopicMissing):
        producer.send(tp, batch([b"x"]))
    consumer.close()


@pytest.mark.turns("kafka")
@pytest.mark.kafka
def test_a_broker_that_goes_and_comes_back(tmp_path, kafka, monkeypatch):
    """A commit without an answer is decided by the sequence; readers go on by themselves."""
    monkeypatch.setattr(producers, "COMMIT_S", 1.0)
    broker = Broker(tmp_path)  # not that of the session, which other tests hold connections to
    log = TestLog(broker.start(port=0, java_options=QUICK).bootstrap, **{"transaction.timeout.ms": "3000"})
    try:
        log.create_topic("A", 1)
        tp = TopicPartition("A", 0)
        producer = log.producer("p")
        producer.begin()
        producer.send(tp, batch([b"1"]))
        assert producer.commit() == 1
        consumer = log.consumer("c")
        consumer.assign({tp: EARLIEST})
        assert consumer.poll_all() == [(tp, [b"1"])]

        broker.kill()
        producer.begin()
        producer.send(tp, batch([b"2"]))
        with pytest.raises(LogUnavailable):
            producer.commit()
        back = threading.Thread(target=broker.start, kwargs={"java_options": QUICK})
        back.start()
        producer = _patiently(lambda: log.producer("p"))
        back.join()
        done = log.last_sequence("p")
        assert done in (1, 2)
        if done == 1:
            producer.begin()
            producer.send(tp, batch([b"2"]))
            assert producer.commit() == 2
        assert values(log, tp) == [b"1", b"2"]
        assert consumer.poll_all() == [(tp, [b"2"])]
        consumer.close()
    finally:
        log.close()
        broker.kill()


def _send_and_commit(producer, tp, *rows):
    producer.send(tp, batch(list(rows)))
    producer.commit()


def _patiently(call):
    limit = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except LogUnavailable:
            if time.monotonic() > limit:
                raise


def _send_on(producer, tp):
    """One record after the other, until that fails."""
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        producer.send(tp, batch([b"1"]))
        time.sleep(0.05)
