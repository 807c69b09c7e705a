"""What a task does with its inputs, over a program that notes the rows it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import StoreSpec
from flowql.runtime.batch import Batch, from_rows
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import RawBatch, TopicPartition
from flowql.runtime.operators.base import AsyncFacts, MicroBatchContext
from flowql.runtime.task.channels import ENOUGH_MIN, ConsumerChannels, ExchangeInput
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import DecodedRows, LogInput
from flowql.runtime.task.peeked import PeekedRows
from flowql.runtime.task.producer_channels import ProducerChannels
from flowql.runtime.task.program import InputSpec, Output
from flowql.runtime.task.publisher import MicroBatchResult
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task
from tests.runtime.state.support import manager_on
from tests.runtime.task.test_lag import TP, fetched

SCHEMA = Schema((Field("MS", t.BIGINT),))
SLICE_NS = 5_000_000


class Program:
    """Two inputs through repartitions, `a` and `b`."""

    inputs = (InputSpec("a", "a", is_table=False, exchange=True), InputSpec("b", "b", is_table=False, exchange=True))
    coalesce = fused = starts = False
    due_ms = room = None
    waiting: tuple[AsyncFacts, ...] = ()

    def __init__(self) -> None:
        self.runs: list[list[int]] = []

    def start(self, run: MicroBatchContext) -> list[Output]:
        return cast(list[Output], ["of no rows"])

    def decode(self, operator: str, state: Any, raw: RawBatch, fetched: Sequence[RawBatch]) -> DecodedRows:
        """The offset of each record as its time."""
        ms = raw.records.column("offset").to_pylist()
        rows = from_rows(SCHEMA, [(n,) for n in ms], ms, [0] * len(ms), list(range(len(ms))))
        return DecodedRows(rows, np.arange(len(ms)), len(ms), [], raw)

    def execute(self, batches: Mapping[str, Batch], run: MicroBatchContext) -> list[Output]:
        rows = sorted((int(seq), row[0]) for b in batches.values() for seq, row in zip(b.seq, b.rows(), strict=True))
        self.runs.append([ms for _, ms in rows])
        return []


class Publisher:
    def __init__(self, lock: Any) -> None:
        self.published, self.lock = list[MicroBatchResult](), lambda: lock
        self.room = True

    def publish(self, task: Task, result: MicroBatchResult) -> None:
        self.published.append(result)

    def has_room(self, task: Task) -> bool:
        return self.room

    def wake(self) -> None: ...

    def broke(self, task: Task, error: BaseException) -> None:
        raise error


def made(
    program: Program, clock: VirtualClock | None = None, stores: Sequence[StoreSpec] = (), **config: Any
) -> tuple[Task, Publisher]:
    manager = manager_on()
    publisher = Publisher(manager.epoch_lock)
    state = manager.open_task("q/0_0", 0, stores)
    run_config = replace(InstanceConfig(), **config)
    task = Task(TaskId("q", 0, 0), cast(Any, program), state, publisher, clock or VirtualClock(1_000), run_config)
    task.exchanges = {name: ExchangeInput(name, name, 0, 0) for name in ("a", "b")}
    task.channels = ConsumerChannels.joined(list(task.exchanges.values()))
    task.become(TaskStatus.RESTORING)
    task.become(TaskStatus.RUNNING)
    return task, publisher


def push(task: Task, name: str, *times: int) -> None:
    n = len(times)
    task.exchanges[name].push(from_rows(SCHEMA, [(ms,) for ms in times], list(times), [0] * n, list(range(n))))


def test_rows_up_to_the_read_up_to_time_do_not_wait_for_other_inputs() -> None:
    """All that comes later to an input whose next row has a later time is later, too."""
    program = Program()
    task, _ = made(program)
    push(task, "a", 1, 2, 3, 10)
    push(task, "b", 2, 4)
    task.exchanges["a"].upstream_idle = lambda _known: False
    task.read_up_to.ms = 5
    assert task.process(SLICE_NS) == 5
    assert program.runs == [[1, 2, 2, 3, 4]]
    assert not task.runnable
    assert task.idle
    task.read_up_to.ms = None
    assert not task.idle


def test_an_open_input_holds_back_what_may_belong_behind_its_next_row() -> None:
    program = Program()
    task, _ = made(program)
    push(task, "a", 1, 3)
    push(task, "b", 2, 4)
    task.exchanges["a"].upstream_idle = lambda _known: False
    assert task.process(SLICE_NS) == 3
    assert program.runs == [[1, 2, 3]]
    assert not task.runnable, "of `a` nothing is known"
    task.exchanges["a"].upstream_idle = lambda _known: True
    assert task.process(SLICE_NS) == 1
    assert program.runs[1:] == [[4]]


def of_channels(program: Program, rows_per_run: int, *times: Sequence[int]) -> Task:
    """A task with a channel for each of these times, whose rows came one by one."""
    task, _ = made(program, rows_per_run=rows_per_run)
    task.exchanges = {f"a#{n}": ExchangeInput("a", "a", 0, n) for n in range(len(times))}
    task.channels = ConsumerChannels.joined(list(task.exchanges.values()))
    for n, of_one in enumerate(times):
        for ms in of_one:
            push(task, f"a#{n}", ms)
    return task


def test_a_micro_batch_peeks_few_of_the_rows_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a task with many channels full of small batches looks at all of them for each micro-batch."""
    program, peeked, peek = Program(), list[int](), ExchangeInput.peek
    task = of_channels(program, 160, *(range(n, 1_600, 16) for n in range(16)))

    def counted(channel: ExchangeInput, *args: Any) -> PeekedRows:
        found = peek(channel, *args)
        peeked.append(len(found.rowtime))
        return found

    monkeypatch.setattr(ExchangeInput, "peek", counted)
    assert task.process(SLICE_NS) == 1_600
    assert [ms for run in program.runs for ms in run] == list(range(1_600))
    assert {len(run) for run in program.runs} == {160}
    assert max(peeked) <= 2 * 160 // 16 + ENOUGH_MIN


def test_a_micro_batch_that_is_cut_short_by_what_was_peeked_peeks_more() -> None:
    """All rows of one channel come before those of the other ones."""
    program = Program()
    task = of_channels(program, 400, range(1_200), *([1_200 + n] for n in range(15)))
    assert task.process(SLICE_NS) == 1_215
    assert [ms for run in program.runs for ms in run] == list(range(1_215))
    assert min(len(run) for run in program.runs[:-1]) >= 200


def test_rows_of_a_later_tick_hold_back_no_other_input() -> None:
    """Input `a` is at its line, and its next rows are fetched already: `b` goes on to its own line."""
    program = Program()
    program.inputs = tuple(InputSpec(n, n, is_table=False, exchange=False) for n in ("a", "b"))
    task, _ = made(program)
    task.exchanges, task.channels = {}, ConsumerChannels.joined([])
    task.logs = {n: LogInput(n, TopicPartition(n, 0), 0) for n in ("a", "b")}
    task.logs["a"].add(fetched([0, 1, 2], 3))
    task.logs["b"].add(fetched([0, 1], 2))
    task.logs["a"].line, task.logs["b"].line = 0, 2
    task.process(SLICE_NS)
    assert program.runs == [[0, 1]]
    task.logs["a"].line = 2
    task.process(SLICE_NS)
    assert program.runs[1:] == [[0, 1]], "the third one is of a later tick"
    assert not task.runnable


def test_results_of_no_rows_are_published_once() -> None:
    program = Program()
    program.starts = True
    task, publisher = made(program)
    assert not task.idle
    assert task.process(SLICE_NS) == 1
    assert [result.outputs for result in publisher.published] == [["of no rows"]]
    assert task.idle
    push(task, "a", 1)
    assert task.process(SLICE_NS) == 1
    assert len(publisher.published) == 2
    assert program.runs == [[1]]


@pytest.mark.parametrize(
    ("facts", "idle"),
    [((), True), ((AsyncFacts(),), True), ((AsyncFacts(), AsyncFacts(rows=1)), False), ((AsyncFacts(False),), False)],
)
def test_a_task_whose_operators_hold_rows_or_may_do_so_is_not_idle(facts: tuple[AsyncFacts, ...], idle: bool) -> None:
    program = Program()
    program.waiting = facts
    task, _ = made(program)
    assert task.idle is idle
    assert task.holds_rows is not idle


def test_a_run_takes_no_more_rows_than_its_operators_have_room_for() -> None:
    program = Program()
    task, _ = made(program, rows_per_run=3)
    push(task, "a", *range(10))
    for room, size in ((2, 2), (1, 1), (5, 3)):
        program.room = room  # type: ignore[assignment]
        before = len(program.runs)
        task.process(0)
        assert [len(run) for run in program.runs[before:]] == [size]
    program.room = 0  # type: ignore[assignment]
    assert not task.runnable
    assert task.process(SLICE_NS) == 0


def test_a_full_channel_behind_it_stops_a_task_unless_another_one_starves() -> None:
    task, _ = made(Program())
    push(task, "a", 1)
    full, starving = (ExchangeInput("op", "x", 0, n, rows_max=2) for n in range(2))
    task.downstream = ProducerChannels.joined([full])
    ConsumerChannels.joined([full, starving])
    full.push(from_rows(SCHEMA, [(1,), (2,)], [1, 2], [0, 0], [0, 1]))
    assert not task.runnable
    assert task.rows_ahead == 2
    task.downstream = ProducerChannels.joined([full, starving])
    assert task.runnable
    full.consume(1)
    assert task.rows_ahead == 1
    task.downstream = ProducerChannels.joined([full])
    assert task.runnable


def test_a_full_partition_behind_it_stops_a_task() -> None:
    task, publisher = made(Program())
    push(task, "a", 1)
    publisher.room = False
    assert not task.runnable
    assert not task.sleeps, "it goes on after a commit, without new rows"
    publisher.room = True
    assert task.runnable


def test_timers_that_are_always_due_and_rows_take_turns() -> None:
    """Calls that end must not keep others from being begun."""
    clock, turns = VirtualClock(1_000), list[str]()

    class Ticking(Program):
        due_ms = 0  # type: ignore[assignment]

        def tick(self, run: MicroBatchContext) -> list[Output]:
            clock.spend(1_000_000)
            turns.append("tick")
            return []

        def execute(self, batches: Mapping[str, Batch], run: MicroBatchContext) -> list[Output]:
            turns.append("rows")
            return super().execute(batches, run)

    task, _ = made(Ticking(), clock, rows_per_run=1)
    push(task, "a", 1, 2)
    task.process(SLICE_NS)
    assert turns == ["tick", "rows", "tick", "rows", "tick", "tick", "tick"]


def test_a_task_without_rows_sleeps_until_one_of_its_inputs_gets_some() -> None:
    program = Program()
    task, _ = made(program)
    task.logs = {"log": LogInput("log", TP, 0)}
    woken: list[bool] = []
    task.on_rows(lambda: woken.append(task.sleeps))
    assert task.sleeps
    task.logs["log"].add(fetched([], 4))  # markers of transactions
    assert not woken
    push(task, "a", 1)
    task.logs["log"].add(fetched([5, 6], 7))
    task.deliver(cast(Any, "a delivery"))
    assert woken == [False, False, False], "the rows are there before the name is noted"


@pytest.mark.parametrize(
    ("of_program", "status"),
    [
        ({"due_ms": 5}, TaskStatus.RUNNING),
        ({"waiting": (AsyncFacts(rows=1),)}, TaskStatus.RUNNING),
        ({"starts": True}, TaskStatus.RUNNING),
        ({}, TaskStatus.RESTORING),
    ],
)
def test_a_task_that_may_run_without_new_rows_does_not_sleep(of_program: dict[str, Any], status: TaskStatus) -> None:
    program = Program()
    for name, value in of_program.items():
        setattr(program, name, value)
    task, _ = made(program)
    task.status = status
    assert not task.sleeps
