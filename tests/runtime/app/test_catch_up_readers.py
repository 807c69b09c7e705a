"""Catch-up readers: a query that is behind reads through its own position, and the head of a partition is fetched once for the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest

from flowql.runtime.app import polling
from flowql.runtime.app.backoff import BACKOFF_MS_MAX
from flowql.runtime.app.query_state import FAILED
from flowql.runtime.client.consumer import ConsumerFacade
from flowql.runtime.errors import LogDenied
from flowql.runtime.log.base import EARLIEST, RawBatch, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.operators.decode import Decoder
from flowql.runtime.task.input_buffer import LogInput
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows, sums

LATE = "CREATE TABLE LATE AS SELECT K, COUNT(*) AS N, SUM(V) AS S FROM S GROUP BY K;\n"


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "ROWS_HIGH", 60)
    monkeypatch.setattr(polling, "HEAD_GAP", 60)


def inputs(world: InstanceHarness, query: str) -> list[LogInput]:
    return [i for t in world.instance.queries[query].built.tasks for i in t.logs.values()]


def test_a_query_added_late_starts_at_the_earliest_record_and_the_others_stay_at_the_head() -> None:
    world = InstanceHarness(SOURCE.format(n=2) + COPY)
    for i in range(5):
        world.send("s", rows(100 * i, 100))
    world.settle()
    assert world.instance.metrics.fetched["s"] == 500
    world.deploy(SOURCE.format(n=2) + COPY + LATE)
    assert not any(i.attached for i in inputs(world, "CTAS_LATE"))
    assert all(i.attached for i in inputs(world, "CSAS_COPY"))
    world.send("s", rows(500, 100))
    world.settle()
    assert all(i.attached for i in inputs(world, "CTAS_LATE"))
    assert world.table("LATE") == sums(600)
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 601))
    assert world.instance.metrics.fetched["s"] == 600, "the head was fetched once"
    world.send("s", rows(600, 100))
    world.settle()
    assert world.instance.metrics.fetched["s"] == 700
    assert world.table("LATE") == sums(700)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("small_buffers")
def test_a_query_whose_buffer_is_full_is_detached_catches_up_and_joins_again(seed: int) -> None:
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD, seed=seed, rows_per_run=20)
    manager, slow = world.instance.manager, inputs(world, "CTAS_GOOD")
    manager.hold("CTAS_GOOD")
    for i in range(20):
        world.send("s", rows(50 * i, 50))
        for _ in range(3):
            world.driver.round()  # type: ignore[union-attr]
    assert not any(i.attached for i in slow), "it held up nobody"
    assert all(i.rows < 60 + 50 for i in slow), "its buffer is bounded"
    world.driver.commit()  # type: ignore[union-attr]
    assert world.lag("CSAS_COPY") == 0
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 1001))
    assert world.table("GOOD") == []
    manager.resume("CTAS_GOOD")
    world.settle()
    assert all(i.attached for i in slow), "it is back at the head"
    assert world.table("GOOD") == sums(1000)
    assert world.instance.metrics.fetched["s"] == 1000
    world.send("s", rows(1000, 50))
    world.settle()
    assert world.table("GOOD") == sums(1050)
    assert world.instance.metrics.fetched["s"] == 1050


@pytest.mark.usefixtures("small_buffers")
def test_small_batches_are_decoded_together_beside_a_query_that_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A live query took 134 us of processor time for a row while its rebuild read the history: each transaction was decoded by itself, for a reader that never came."""
    read_chunk = ConsumerFacade.read_chunk
    monkeypatch.setattr(ConsumerFacade, "read_chunk", lambda *asked: read_chunk(*asked, 100))
    world = InstanceHarness(SOURCE.format(n=1) + COPY, rows_per_run=20)
    world.send("s", rows(0, 500))
    world.settle()
    world.deploy(SOURCE.format(n=1) + COPY + LATE)
    manager, (late,) = world.instance.manager, inputs(world, "CTAS_LATE")
    while not late.position:
        world.driver.round()  # type: ignore[union-attr]
    manager.hold("CTAS_LATE")
    manager.hold("CSAS_COPY")
    for i in range(30):
        world.send("s", rows(500 + i, 1))
        world.driver.round()  # type: ignore[union-attr]
    assert not late.attached
    decoded, decode = [], Decoder.decode
    monkeypatch.setattr(
        Decoder, "decode", lambda self, raw, *rest: decoded.append(raw.records.num_rows) or decode(self, raw, *rest)
    )
    manager.resume("CSAS_COPY")
    for _ in range(5):
        world.driver.round()  # type: ignore[union-attr]
    assert decoded == [30]
    manager.resume("CTAS_LATE")
    world.settle()
    assert world.table("LATE") == sums(530)
    assert sorted(v["W"] for v in world.values("COPY")) == list(range(1, 531))


def test_the_head_goes_on_in_the_same_look_in_which_a_full_query_is_detached(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY + GOOD)
    world.instance.manager.hold("CTAS_GOOD")
    world.send("s", rows(0, 50))
    for _ in range(10):
        world.driver.round()  # type: ignore[union-attr]
    (full,), (starving,) = inputs(world, "CTAS_GOOD"), inputs(world, "CSAS_COPY")
    assert (full.rows, full.attached, starving.has_rows) == (50, True, False)
    monkeypatch.setattr(polling, "ROWS_HIGH", 50)
    assert world.instance.polling._wants(TopicPartition("s", 0)) is True
    assert (full.attached, starving.attached) == (False, True)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.usefixtures("small_buffers")
def test_the_head_goes_back_to_those_that_stay_when_the_front_query_is_removed(seed: int) -> None:
    """Batches fetched for the front query were handed to the ones behind it, which lost what lies between."""
    world = InstanceHarness(SOURCE.format(n=2) + COPY + GOOD, seed=seed, rows_per_run=20)
    world.instance.manager.hold("CTAS_GOOD")
    for i in range(10):
        world.send("s", rows(50 * i, 50))
        world.driver.round()  # type: ignore[union-attr]
    world.instance.manager.resume("CTAS_GOOD")
    world.deploy(SOURCE.format(n=2) + GOOD)
    for i in range(10, 14):
        world.send("s", rows(50 * i, 50))
        world.driver.round()  # type: ignore[union-attr]
    world.settle()
    assert world.table("GOOD") == sums(700)


def test_what_was_fetched_from_an_old_position_is_never_handed_out() -> None:
    """The consumer's thread may be anywhere between two fetches when the polling thread moves a position."""
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    for i in range(4):
        world.send("s", rows(10 * i, 10))
    tp = TopicPartition("s", 0)
    facade = ConsumerFacade(world.log, "test", 1 << 20)
    taken: list[RawBatch] = []

    def take() -> list[int]:
        batches = facade.poll(lambda tp: True)
        taken.extend(batches)
        return [b.first_offset for b in batches]

    facade.assign({tp: 20})
    facade.loop.run_once(0)
    assert take() == [20]
    world.send("s", rows(40, 10))
    facade.loop.run_once(0)  # fetched, not handed out
    facade.seek(tp, 0)
    assert take() == [], "from the old position"
    facade.loop.run_once(0)
    assert take() == [0]
    facade.assign({})
    facade.assign({tp: EARLIEST})
    assert take() == []
    facade.loop.run_once(0)
    assert take() == [0]


def test_a_batch_from_before_the_head_moves_it_back_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fetch buffer refuses such batches. Were one handed out all the same, a query that catches up would join the head too early."""
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    for i in range(4):
        world.send("s", rows(10 * i, 10))
    world.settle()
    tp, step = TopicPartition("s", 0), world.instance.polling
    head, fetched = step._heads[tp], world.instance.metrics.fetched["s"]
    old = world.log.reader(tp, 10).read(10, 1 << 20)
    assert old is not None
    monkeypatch.setattr(step._main, "poll", lambda _wanted: [old])
    step._distribute()
    assert step._heads[tp] == head
    assert world.instance.metrics.fetched["s"] == fetched


class Forbidding(MemoryLog):
    """Whether old records of `s` may be read is told by `below`."""

    below = 0

    def stored(self, tp: TopicPartition, offset: int) -> pa.RecordBatch | None:
        if tp.topic == "s" and offset < self.below:
            raise LogDenied("not allowed any more")
        return super().stored(tp, offset)


@pytest.mark.usefixtures("small_buffers")
def test_a_reader_that_may_not_read_stops_all_of_its_partition_also_one_with_a_full_buffer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The full one has no read under way, and is not looked for where the partition is known no more."""
    read_chunk = ConsumerFacade.read_chunk
    monkeypatch.setattr(ConsumerFacade, "read_chunk", lambda *asked: read_chunk(*asked, 100))
    log = Forbidding()
    world = InstanceHarness(SOURCE.format(n=1) + COPY, log=log, rows_per_run=20)
    for i in range(10):
        world.send("s", rows(100 * i, 100))
    world.settle()
    world.deploy(SOURCE.format(n=1) + COPY + LATE + GOOD)
    late = ("CTAS_LATE", "CTAS_GOOD")
    for query in late:
        world.instance.manager.hold(query)
    for _ in range(20):
        world.driver.round()  # type: ignore[union-attr]
    assert [i.rows >= 60 and not i.attached for q in late for i in inputs(world, q)] == [True, True]
    log.below = 1_000
    world.instance.manager.resume("CTAS_LATE")
    for _ in range(20):
        world.driver.round()  # type: ignore[union-attr]
    states = world.instance.query_states
    assert {states.of(q).state for q in (*late, "CSAS_COPY")} == {FAILED}
    world.instance.manager.resume("CTAS_GOOD")
    log.below = 0
    world.clock.advance(BACKOFF_MS_MAX)
    world.settle()
    assert world.table("LATE") == world.table("GOOD") == sums(1_000)
