"""What a run may take of an input: the same rows, however they lie in batches."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.runtime.batch import INSERT, UPDATE_AFTER, UPDATE_BEFORE, Batch, from_rows
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.channels import ConsumerChannels, ExchangeInput
from flowql.runtime.task.input_buffer import DecodedRows, LogInput
from flowql.runtime.task.peeked import peeked_rows
from tests.runtime.task.test_gathering import fetched

SCHEMA = Schema((Field("K", t.STRING, "key"), Field("V", t.BIGINT)))


def batch(numbers: range, *, arrow: bool = False) -> Batch:
    ops = [INSERT if n % 4 == 0 else UPDATE_BEFORE if n % 4 == 1 else UPDATE_AFTER for n in numbers]
    made = from_rows(SCHEMA, [(f"k{n}", n) for n in numbers], list(numbers), ops, list(numbers))
    if arrow:
        made = Batch(SCHEMA, arrow=made.arrow(), rowtime=made.rowtime, op=made.op, seq=made.seq)
    return made


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_several_batches(seed: int) -> None:
    chance = random.Random(seed)
    ends = sorted({chance.randint(1, 60) for _ in range(5)})
    batches = [batch(range(a, b), arrow=chance.random() < 0.5) for a, b in zip([0, *ends], ends, strict=False)]
    start = chance.randrange(len(batches[0]))
    most = chance.randint(1, 70)
    peeked = peeked_rows(batches, start, most, more=False)
    there = list(range(start, ends[-1]))
    assert peeked.rowtime.tolist() == there[:most]
    assert peeked.more == (most < len(there))
    for rows in range(1, len(peeked.rowtime) + 1):
        parts = peeked.taken(rows)
        assert [r[1] for b in parts for r in b.rows()] == there[:rows]
        assert [n for b in parts for n in b.rowtime.tolist()] == there[:rows]
        assert peeked.last_op(rows) == parts[-1].op[-1]


def test_a_channel_gives_no_more_batches_than_a_run_can_take() -> None:
    channel = ExchangeInput("op", "a", 0, 0)
    for n in range(0, 100, 10):
        channel.push(batch(range(n, n + 10)))
    channel.consume(4)
    assert [len(b) for b in channel.peek(7).batches] == [10, 10]
    assert channel.peek(7).more
    assert not channel.peek(96).more
    assert channel.peek(95).more


def test_times_of_consumed_rows_are_those_of_their_batches() -> None:
    channel = ExchangeInput("op", "a", 0, 0)
    for n, since in ((0, 5), (10, None), (20, 7)):
        channel.push(batch(range(n, n + 10)), since)
    assert channel.next_ms == 0
    channel.consume(3)
    channel.consume(22)
    assert channel.consumer.take_latency_samples() == [(5, 3), (5, 7), (7, 5)]
    assert (channel.first, channel.consumed, channel.rows, channel.next_ms) == (2, 5, 5, 25)


def test_the_rows_of_all_channels_of_a_task_are_counted_together() -> None:
    first, second = (ExchangeInput("op", "a", 0, source) for source in range(2))
    first.push(batch(range(5)))
    channels = ConsumerChannels.joined([first, second])
    second.push(batch(range(10)))
    assert (channels.rows, channels.waiting) == (15, 2)
    first.consume(5)
    second.consume(4)
    assert (channels.rows, channels.waiting) == (6, 1)


def test_a_log_input_gives_rows_up_to_the_record_that_has_to_wait() -> None:
    """Records that could not be read have no row."""
    source = LogInput("op", TopicPartition("t", 0), 0)
    source.add(fetched(0, 10))
    origin = np.array([0, 1, 3, 4, 7, 9])
    source.decode_next(lambda raw, _parts: DecodedRows(batch(range(6)), origin, 10, [], raw))
    for stop, rows in ((None, 6), (10, 6), (9, 5), (4, 3), (2, 2), (0, 0)):
        source.stop_at = stop
        assert source.peek(20).rowtime.tolist() == list(range(rows))
    source.stop_at = 9
    source.consume(4)
    assert (source.position, source.peek(20).rowtime.tolist()) == (7, [4])
    source.stop_at = 3
    assert source.stopped
    assert source.peek(20).rowtime.tolist() == [], "a barrier that is behind already"


def test_a_record_that_could_not_be_read_waits_as_others_do() -> None:
    source = LogInput("op", TopicPartition("t", 0), 5)
    source.add(fetched(5, 3))
    source.decode_next(lambda raw, _parts: DecodedRows(batch(range(0)), np.empty(0, np.int64), 3, [], raw))
    assert source.at == 5
    for stop, stopped in ((5, True), (6, False)):
        source.stop_at = stop
        assert source.stopped is stopped
