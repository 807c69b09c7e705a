"""How many records an input has not processed yet."""

import pyarrow as pa

from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.task.input_buffer import SEEN_MIN, LogInput
from tests.runtime.log.records import batch

TP = TopicPartition("t", 0)


def fetched(offsets, next_offset):
    records = batch([b"v"] * len(offsets))
    columns = {"offset": pa.array(offsets, pa.int64()), **{n: records.column(n) for n in records.schema.names}}
    return RawBatch(TP, pa.RecordBatch.from_pydict(columns), next_offset, 10 * len(offsets))


def test_what_is_here_is_counted_and_markers_are_not():
    i = LogInput("op", TP, 0)
    assert i.lag(10) == 10  # nothing is known of it
    i.add(fetched([0, 2, 4], 6))
    assert (i.lag(6), i.lag(8)) == (3, 5)
    i.consume_raw(2)
    assert i.lag(6) == 1
    i.consume_raw(1)
    assert (i.position, i.lag(6)) == (6, 0)


def test_of_what_is_not_fetched_as_large_a_part_is_counted_as_of_what_was():
    i = LogInput("op", TP, 0)
    i.add(fetched(list(range(0, 2 * SEEN_MIN, 2)), 2 * SEEN_MIN))
    assert i.lag(2 * SEEN_MIN + 1_000) == SEEN_MIN + 500
    assert i.lag(2 * SEEN_MIN + 1) == SEEN_MIN + 1
    plain = LogInput("op", TP, 0)
    plain.add(fetched(list(range(1_000)), 1_000))
    assert plain.lag(3_000) == 3_000


def test_a_channel_counts_its_own_records():
    i = LogInput("op", TP, 0, channel=b"k1")
    i.add(fetched(list(range(300)), 300))
    assert i.lag(300) == sum(1 for n in range(300) if b"k%d" % n == b"k1")


def test_a_position_moves_over_what_is_no_record_when_nothing_before_it_waits():
    i = LogInput("op", TP, 0)
    i.add(fetched([], 4))
    assert (i.position, i.next_fetch) == (4, 4)
    i.add(fetched([4], 5))
    i.add(fetched([], 9))
    assert (i.position, i.next_fetch) == (4, 9), "a record waits before them"
    i.consume_raw(1)
    assert i.position == 9
    assert i.take_latency_samples() == [], "it is not known when they came"
