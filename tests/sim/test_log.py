"""What every log promises, on the simulated cluster; and what Kafka does otherwise, as there."""

import pytest

from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import Fenced, LogUnavailable
from flowql.runtime.log.base import Position, TopicPartition
from tests.runtime.log import test_conformance as shared
from tests.runtime.log.kafka.test_conformance import OTHERWISE
from tests.runtime.log.records import batch, produce, values
from tests.sim.broker import TRANSACTION_MS_MAX, Broker
from tests.sim.log import SimulatedLog

A0, A1 = TopicPartition("A", 0), TopicPartition("A", 1)
MEMORY = {"test_odd_topic_names", "test_tombstones_headers_and_null_keys_survive"}  # it can do what Kafka cannot
UNCOUNTED = {
    "test_clients_are_counted_as_long_as_they_are_in_use"
}  # its clients are objects of one process: they use nothing up

for _name in dir(shared):
    if _name.startswith("test_") and (_name not in OTHERWISE | dict.fromkeys(UNCOUNTED) or _name in MEMORY):
        globals()[_name] = getattr(shared, _name)


@pytest.fixture
def log():
    clock = VirtualClock()
    log = SimulatedLog(Broker(clock))
    log.clock = clock
    log.create_topic("A", 2)
    log.create_topic("B", 1)
    yield log
    log.close()


def test_what_was_aborted_takes_offsets_and_is_never_read(log):
    producer = log.producer("p")
    producer.begin()
    producer.send(A0, batch([b"1", b"2"]))
    producer.abort()
    produce(log, "q", (A0, [b"3"]))
    assert (values(log, A0), log.end_offset(A0), log.last_sequence("p")) == ([b"3"], 5, 0)
    reader = log.reader(A0)
    assert reader.read(10, 1000).first_offset == 3
    assert (reader.position, reader.read(10, 1000), reader.position) == (4, None, 5)  # over the marker


def test_an_open_transaction_hides_what_is_behind_it(log):
    first, second = log.producer("p"), log.producer("q")
    first.begin()
    first.send(A0, batch([b"1"]))
    second.begin()
    second.send(A0, batch([b"2"]))
    second.commit()
    assert (values(log, A0), log.end_offset(A0), log.written_offset(A0)) == ([], 0, 3)
    first.commit()
    assert values(log, A0) == [b"1", b"2"]


def test_markers_reach_one_place_after_the_other(log):
    delays = iter([50, 20, 0])
    log.broker.marker_delay_ms = lambda place: next(delays)
    producer = log.producer("p")
    producer.begin()
    producer.send(A0, batch([b"1"]))
    producer.send(A1, batch([b"2"]))
    assert producer.commit() == 1
    assert (values(log, A0), values(log, A1), log.last_sequence("p")) == ([], [], 1)
    for ms, seen in ((20, ([], [b"2"])), (50, ([b"1"], [b"2"]))):
        log.clock.advance(ms - log.clock.timer_ms())
        log.broker.tick()
        assert (values(log, A0), values(log, A1)) == seen


def test_positions_that_a_transaction_moves_are_not_stable_before_it_is_finished(log):
    producer = log.producer("p")
    producer.begin()
    producer.send_positions("g", {A0: Position(7)})
    log.broker.marker_delay_ms = lambda place: 50
    producer.commit()
    with pytest.raises(LogUnavailable, match="not finished"):
        log.stable_positions("g", [A0, A1])
    assert log.stable_positions("g", [A1]) == {}
    assert log.producer("p").commit  # a new one waits for what was decided
    assert log.stable_positions("g", [A0]) == {A0: Position(7)}


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(log):
    producer = log.producer("p")
    producer.begin()
    producer.send(A0, batch([b"1"]))
    log.clock.advance(TRANSACTION_MS_MAX + 1)
    log.broker.tick()
    with pytest.raises(Fenced):
        producer.commit()
    assert (values(log, A0), log.written_offset(A0)) == ([], 2)
