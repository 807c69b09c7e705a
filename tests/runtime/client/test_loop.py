"""When the thread of a client has something to do, and in which pieces records come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.client import loop
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.log.base import TopicPartition, even_share
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.log.records import produce

A0, A1 = TopicPartition("A", 0), TopicPartition("A", 1)


@pytest.fixture
def log() -> MemoryLog:
    made = MemoryLog()
    made.create_topic("A", 2)
    return made


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def client(log: MemoryLog, woken: list[str]) -> ConsumerFacade:
    """Its buffer is full with the first batch."""
    made = ConsumerFacade(log, "c", 1)
    made.wake = lambda: woken.append("woken")
    return made


def run(client: ConsumerFacade) -> int:
    """Until it has nothing to do; how long it waits then."""
    while not (wait_ms := client.loop.run_once(0)):
        pass
    return wait_ms


def test_a_client_that_reads_nothing_rests_until_it_is_asked(client: ConsumerFacade, woken: list[str]) -> None:
    assert run(client) == loop.RESTING_MS
    answer = client.read_chunk(A0, 0, 0)
    assert woken
    assert run(client) == loop.RESTING_MS
    assert answer.done()


def test_a_client_whose_buffer_is_full_rests_until_somebody_takes_from_it(
    log: MemoryLog, client: ConsumerFacade, woken: list[str]
) -> None:
    for _ in range(2):
        produce(log, "p", (A0, [b"v"] * 9_000))
    client.assign({A0: 0})
    assert run(client) == loop.RESTING_MS
    woken.clear()
    assert not client.poll(lambda tp: False)
    assert not woken
    assert [b.records.num_rows for b in client.poll(lambda tp: True)] == [9_000]
    assert woken
    assert run(client) == loop.RESTING_MS, "the second batch fills it again"
    client.poll(lambda tp: True)
    assert run(client) == loop.IDLE_MS, "at the end of the log it looks for more"
    now = loop.QUIET_AFTER_MS
    assert client.loop.run_once(now) == loop.QUIET_MS, "and less often when nothing has come for a while"
    assert client.loop.run_once(now + loop.STILL_AFTER_MS) == loop.STILL_MS
    produce(log, "p", (A0, [b"v"]))
    assert client.loop.run_once(now) == 0
    client.poll(lambda tp: True)
    assert client.loop.run_once(now + 1) == loop.IDLE_MS


def test_a_partition_whose_buffer_was_full_is_read_after_another_came(log: MemoryLog) -> None:
    """It stood still for ever, with a lag and without an error, until its part of the buffer was full again, which it never was."""
    for tp in (A0, A1):
        produce(log, "p", (tp, [b"v"] * 9_000))
    client = ConsumerFacade(log, "c", 2)
    client.assign({A0: 0})
    run(client)  # the buffer is full
    client.assign({A0: 0, A1: 0})
    found: set[TopicPartition] = set()
    for _ in range(4):
        run(client)
        found.update(b.tp for b in client.poll(lambda tp: True))
    assert found == {A0, A1}


@pytest.mark.turns("cases")
@pytest.mark.parametrize("seed", range(40))
def test_partitions_go_on_whichever_others_come_and_go(seed: int) -> None:
    """Each gives its records in order, none twice and none left out, from where it was assigned or moved to; also where a partition
    that is gone makes an assignment fail.
    """
    rng = random.Random(seed)
    log = MemoryLog()
    log.create_topic("A", 4)
    log.create_topic("B", 1)
    gone = TopicPartition("B", 7)
    tps = [TopicPartition("A", p) for p in range(4)]
    client = ConsumerFacade(log, "c", 4 * rng.choice([1, 1 << 10, 1 << 20]))
    heads: dict[TopicPartition, int] = {}
    last: dict[TopicPartition, int] = {}  # where each was left
    for _ in range(120):
        match rng.choice(["produce", "assign", "seek", "run", "poll", "poll", "fail"]):
            case "produce":
                produce(log, "p", (rng.choice(tps), [b"v"] * rng.choice([1, 10, 3_000])))
            case "assign":
                wanted = {tp: heads.get(tp, last.get(tp, 0)) for tp in rng.sample(tps, rng.randint(0, 4))}
                last |= heads
                heads = wanted
                client.assign(heads)
            case "seek" if heads:
                tp = rng.choice(sorted(heads))
                heads[tp] = rng.randint(0, log.end_offset(tp))
                client.seek(tp, heads[tp])
            case "run":
                client.loop.run_once(0)
            case "poll":
                take(client, heads)
            case "fail":
                client.assign({**heads, gone: 0})
                client.loop.run_once(0)
                take(client, heads)
                client.assign(heads)
    for _ in range(400):
        client.loop.run_once(0)
        take(client, heads)
    assert heads == {tp: log.end_offset(tp) for tp in heads}


def take(client: ConsumerFacade, heads: dict[TopicPartition, int]) -> None:
    for b in client.poll(lambda tp: True):
        assert b.records.column(0)[0].as_py() == heads[b.tp], (b.tp, heads)
        heads[b.tp] = b.next_offset


def test_a_partition_that_goes_on_is_not_fetched_again(log: MemoryLog) -> None:
    produce(log, "p", (A0, [b"v"] * 9_000))
    client = ConsumerFacade(log, "c", 1 << 20)
    client.assign({A0: 0})
    run(client)
    client.assign({A0: 0, A1: 0})
    assert [b.next_offset for b in client.poll(lambda tp: True)] == [9_000]  # without another look at the log


def test_a_poll_looks_once_for_all_partitions(log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    consumer = log.consumer("c")
    consumer.assign({A0: 0, A1: 0})
    monkeypatch.setattr(log, "refresh", lambda: looks.append(1))
    assert consumer.poll(1_000, 1 << 20) == []
    assert len(looks) == 1
    produce(log, "p", (A0, [b"v"]), (A1, [b"v"]))
    assert {b.tp for b in consumer.poll(1_000, 1 << 20)} == {A0, A1}


def test_a_poll_gives_no_small_pieces_of_large_batches(log: MemoryLog) -> None:
    for tp in (A0, A1):
        produce(log, "p", (tp, [b"v"] * 25_000))
    produce(log, "p", (A0, [b"v"] * 33_000))
    consumer = log.consumer("c")
    consumer.assign({A0: 0, A1: 0})
    sizes: list[int] = []
    while batches := consumer.poll(30_000, 8 << 20):
        sizes += [b.records.num_rows for b in batches]
    assert sorted(sizes) == [16_500, 16_500, 25_000, 25_000]


@given(st.integers(1, 200), st.integers(1, 40))
def test_shares_are_as_few_and_as_even_as_can_be(rows: int, most: int) -> None:
    left, shares = rows, []
    while left:
        shares.append(even_share(left, most))
        left -= shares[-1]
    assert max(shares) <= most
    assert max(shares) - min(shares) <= 1
    assert len(shares) == -(-rows // most)
