"""A log over another: reads go through, writes stay above."""

import pytest

from flowql.runtime.errors import LogError, TopicMissing
from flowql.runtime.log.base import EARLIEST, LATEST, Position, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.log.overlay import OverlayLog
from tests.runtime.log.records import batch, produce, values

A0, A1, B0 = TopicPartition("A", 0), TopicPartition("A", 1), TopicPartition("B", 0)


@pytest.fixture
def below():
    log = MemoryLog()
    log.create_topic("A", 2)
    produce(log, "p", (A0, [b"1", b"2", b"3"]), (A1, [b"4"]))
    return log


def test_what_is_below_is_read_from_where_it_is_to_begin(below):
    log = OverlayLog(below, {A0: 2})
    assert (values(log, A0), values(log, A1)) == ([b"3"], [b"4"])
    assert (log.begin_offset(A0), log.end_offset(A0), log.begin_offset(A1)) == (2, 3, 0)
    consumer = log.consumer("c")
    consumer.assign({A0: log.begin_offset(A0), A1: LATEST})
    assert [b.records["value"].to_pylist() for b in consumer.poll(10, 1000)] == [[b"3"]]
    produce(below, "p", (A1, [b"5"]))
    assert [b.records["value"].to_pylist() for b in consumer.poll(10, 1000)] == [[b"5"]]


def test_what_is_written_stays_above(below):
    log = OverlayLog(below)
    log.create_topic("B", 1)
    producer = log.producer("p")
    producer.begin()
    producer.send(B0, batch([b"x"]))
    producer.send_positions("g", {A0: Position(3)})
    producer.commit()
    assert (values(log, B0), sorted(log.topics())) == ([b"x"], ["A", "B"])
    assert (sorted(below.topics()), below.committed("g"), below.last_sequence("p")) == (["A"], {}, 1)
    consumer = log.consumer("c")
    consumer.assign({A1: EARLIEST, B0: EARLIEST})
    assert sorted(v for b in consumer.poll(10, 1000) for v in b.records["value"].to_pylist()) == [b"4", b"x"]
    consumer.pause([B0])
    produce(log, "p", (B0, [b"y"]))
    assert consumer.poll(10, 1000) == []
    assert log.end_offsets([A0, B0]) == {A0: 3, B0: 2}
    log.delete_topic("B")
    with pytest.raises(TopicMissing):
        log.delete_topic("A")


def test_a_topic_is_below_or_above(below):
    log = OverlayLog(below)
    assert log.create_topic("A", 2).partitions == 2
    with pytest.raises(LogError, match="2 partitions"):
        log.create_topic("A", 3)
    with pytest.raises(TopicMissing):
        produce(log, "q", (A0, [b"no"]))


def test_memory_forgets_what_is_dropped():
    log = MemoryLog()
    log.create_topic("A", 1)
    for n in range(10):
        produce(log, "p", (A0, [b"%d" % n, b"x"]))
    log.drop_before(A0, 15)
    assert values(log, A0) == [b"x", b"8", b"x", b"9", b"x"]
    assert len(log._partition(A0).batches) == 3
    log.drop_before(A0, 20)
    produce(log, "p", (A0, [b"new"]))
    assert values(log, A0) == [b"new"]


def test_what_is_asked_of_a_topic_is_answered_by_the_log_that_has_it(below):
    log = OverlayLog(below, {A0: 2, A1: 0})
    log.create_topic("B", 1, {"retention.ms": "5"})
    produce(log, "p", (B0, [b"x", b"y"]))
    log.drop_before(B0, 1)
    every = [A0, A1, B0]
    assert log.begin_offsets(every) == {tp: log.begin_offset(tp) for tp in every} == {A0: 2, A1: 0, B0: 1}
    ends = {A0: 3, A1: 1, B0: 2}
    assert log.end_offsets(every) == {tp: log.end_offset(tp) for tp in every} == ends
    assert {tp: log.written_offset(tp) for tp in every} == log.ask_end_offsets(every).result(0) == ends
    assert log.partition_counts(["A", "B", "none"]) == {"A": 2, "B": 1}
    assert [log.is_own(tp) for tp in every] == [False, False, True]
    assert [log.writers(tp) for tp in every] == [below.writers(A0), below.writers(A1), frozenset({"p"})]
    assert log.alter_topic("B", {"retention.ms": "6"}).config == log.topics()["B"].config == {"retention.ms": "6"}
    assert log.describe_topics(["A", "B"]).result(0) == {}
    assert (log.last_sequence("p"), below.last_sequence("p")) == (1, 1)
    assert (log.key_values(A0).read(9, 1_000).values, log.key_values(B0).read(9, 1_000).values) == ([b"3"], [b"y"])
    assert values(OverlayLog(below, {A0: -5}), A0) == [b"1", b"2", b"3"], "never below the first record"


def test_nothing_of_an_overlay_is_kept_or_shared(below):
    log = OverlayLog(below)
    log.create_topic("B", 1)
    producer = log.producer("p")
    producer.begin()
    producer.send_positions("g", {A0: Position(3)})
    with pytest.raises(AssertionError):
        producer.attach_redo(b"x")
    producer.abort()
    assert (log.committed("g"), log.stable_positions("g", [A0]), list(log.redo_after("p", 0))) == ({}, {}, [])
    assert (log.opener(), log.record_bytes_max("A")) == (None, None)


def test_calls_of_a_consumer_go_to_the_log_that_has_the_partition(below):
    log = OverlayLog(below)
    log.create_topic("B", 1)
    produce(log, "p", (B0, [b"x"]))
    consumer = log.consumer("c")
    consumer.assign({A0: 0, B0: 0})

    def polled():
        return sorted(v for b in consumer.poll(10, 1000) for v in b.records["value"].to_pylist())

    assert polled() == [b"1", b"2", b"3", b"x"]
    consumer.pause([A0, B0])
    for tp in (A0, B0):
        consumer.seek(tp, 0)
    assert polled() == []
    consumer.resume([B0])
    assert polled() == [b"x"]
    consumer.resume([A0])
    assert polled() == [b"1", b"2", b"3"]
    consumer.close()
    with pytest.raises(LogError):
        consumer.seek(A0, 0)
    with pytest.raises(LogError):
        consumer.seek(B0, 0)


def test_the_log_below_is_closed_with_it(below):
    closed = []
    below.close = lambda: closed.append("below")
    OverlayLog(below).close()
    assert closed == ["below"]


def test_what_is_below_is_read_no_further_than_it_ends_for_now(below):
    log = OverlayLog(below)
    log.until = {A0: 2, A1: 1}
    consumer = log.consumer("c")
    consumer.assign({A0: EARLIEST, A1: EARLIEST})

    def polled():
        found = consumer.poll(10, 1000)
        return {b.tp: (b.records["value"].to_pylist(), b.next_offset) for b in found}

    assert polled() == {A0: ([b"1", b"2"], 2), A1: ([b"4"], 1)}
    assert (log.end_offset(A0), log.end_offsets([A0, A1])) == (2, {A0: 2, A1: 1})
    produce(below, "p", (A0, [b"5"]), (A1, [b"6"]))
    assert polled() == {A1: ([], 1)}
    assert polled() == {}
    consumer.pause([A0])
    log.until = {}
    assert polled() == {A1: ([b"6"], 2)}
    consumer.resume([A0])
    assert polled() == {A0: ([b"3"], 3)}
    assert polled() == {A0: ([b"5"], 4)}
    consumer.seek(A0, 1)
    log.until = {A0: 2}
    assert polled() == {A0: ([b"2"], 2)}
    consumer.seek(A0, 0)
    assert polled() == {A0: ([b"1", b"2"], 2)}
