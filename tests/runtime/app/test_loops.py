"""How long loops wait: not at all after progress, and no longer than what they wait for may take."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest

from flowql.runtime.app import restoration
from flowql.runtime.app.polling import ANSWER_MS, END_REFRESH_MS
from flowql.runtime.app.query_rates import SAMPLE_MS, RateSampler
from flowql.runtime.app.restoration import FILES_MS, IDLE_MS, RESTING_MS
from flowql.runtime.app.restore_process import RestoreProcess
from flowql.runtime.app.threads import FRAMES_MAX, GC_THRESHOLD, WAIT_MS_MAX, NamedStep, ThreadGroup, named
from flowql.runtime.app.watchdog import LOOK_MS, Watchdog
from flowql.runtime.clock import SystemClock
from flowql.runtime.errors import StateError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task.status import TaskStatus
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, SOURCE, rows
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo


class Slow(MemoryLog):
    """Answers the question for ends when the test lets it. asked: how often."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.answer: Future[dict[TopicPartition, int]] | None = None

    def ask_end_offsets(self, tps: Sequence[TopicPartition]) -> Future[dict[TopicPartition, int]]:
        self.asked += 1
        return super().ask_end_offsets(tps) if self.answer is None else self.answer


def test_the_polling_thread_looks_soon_where_it_waits_for_an_answer_alone() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY, log=(log := Slow()))
    world.send("s", rows(0, 5))  # it is not at rest yet
    world.settle()
    polling, now = world.instance.polling, world.clock.timer_ms() + END_REFRESH_MS
    assert polling.run_once(now) == END_REFRESH_MS
    asked = log.asked
    assert (polling.run_once(now + END_REFRESH_MS - 1), log.asked) == (END_REFRESH_MS, asked)
    log.answer = Future()
    now += END_REFRESH_MS
    assert (polling.run_once(now), log.asked) == (ANSWER_MS, asked + 1)
    assert (polling.run_once(now + 1), log.asked) == (ANSWER_MS, asked + 1)
    assert (polling.run_once(now + END_REFRESH_MS), log.asked) == (ANSWER_MS, asked + 1), "one question at a time"
    log.answer.set_result({TopicPartition("s", 0): 7})
    assert polling.run_once(now + END_REFRESH_MS) == END_REFRESH_MS
    (task,) = world.instance.queries["CSAS_COPY"].built.tasks
    assert [i.end_offset for i in task.logs.values()] == [7]
    log.answer = None
    assert (polling.run_once(now - 1_000), log.asked) == (END_REFRESH_MS, asked + 2), "the clock was set back"


def test_the_polling_thread_looks_again_at_once_after_it_has_handed_out_rows() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    world.send("s", rows(0, 5))  # it is not at rest yet
    world.settle()
    polling, now, signals = world.instance.polling, world.clock.timer_ms() + 1, list[str]()
    world.instance.manager.signal = lambda: signals.append("work")  # type: ignore[method-assign]
    assert (polling.run_once(now), signals) == (END_REFRESH_MS, [])
    world.send("s", rows(0, 5))
    world.instance.main.loop.run_once(now)
    assert (polling.run_once(now), signals) == (0, ["work"])
    assert (polling.run_once(now), signals) == (END_REFRESH_MS, ["work"])


def test_the_restoration_thread_waits_by_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoration, "CHUNK_RECORDS", 1)
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    step, read = life.instance.restoration, life.instance.restore.loop
    assert step.run_once(0) == 0, "it has asked for chunks"
    assert step.run_once(0) == IDLE_MS
    for _ in range(200):
        read.run_once(0)
        if (wait := step.run_once(0)) == RESTING_MS:
            break
        assert wait == 0
    assert step.run_once(0) == RESTING_MS
    life.settle()
    assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
    assert sum(p.total for p in step.progress().values()) == 0


class Process(RestoreProcess):
    """Another process without one. answers: whether there are any, at each poll."""

    def __init__(self) -> None:
        self.answers, self.lost, self.ended = [True, False], False, False

    @property
    def running(self) -> bool:
        return not self.ended

    def ask(self, tp: TopicPartition, offset: int, max_records: int, store: bytes) -> Future[object]:
        return Future()

    def poll(self) -> bool:
        return self.answers.pop(0) if self.answers else False

    def close(self) -> None:
        self.ended = True


def test_files_of_another_process_are_looked_for_often_and_it_ends_with_the_last_task() -> None:
    life = Life(no_redo(), COUNTS)
    life.feed(0, 50)
    life.settle()
    life = life.again()
    step, process = life.instance.restoration, Process()
    step._process = process
    tasks = life.instance.queries["CTAS_C"].built.tasks
    assert [step.run_once(n) for n in range(3)] == [0, FILES_MS, FILES_MS]
    removed = [step.remove(task) for task in tasks]
    assert step.run_once(3) == 0
    assert all(future.done() for future in removed)
    assert process.ended
    assert step.run_once(4) == RESTING_MS


def test_counters_are_sampled_in_time_however_often_it_is_woken() -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY)
    rates: RateSampler = world.instance.rates
    begun = len(rates._samples)
    waits = [rates.run_once(ms) for ms in (5_000, 5_001, 5_000 + SAMPLE_MS - 1, 5_000 + SAMPLE_MS)]
    assert (waits, len(rates._samples) - begun) == ([SAMPLE_MS, SAMPLE_MS - 1, 1, SAMPLE_MS], 2)


def test_the_watchdog_looks_at_its_times() -> None:
    dog: Watchdog = InstanceHarness(SOURCE.format(n=1) + COPY).instance.watchdog
    assert [dog.run_once(n) for n in (0, 5)] == [LOOK_MS, LOOK_MS]


class Repeated:
    """A step that says how long it waits. An exception is raised."""

    def __init__(self, *said: int | Exception) -> None:
        self.said, self.ran = list(said), threading.Event()

    def run_once(self, now_ms: int) -> int:
        if not self.said:
            self.ran.set()
            return 60_000
        if isinstance(said := self.said.pop(0), Exception):
            raise said
        return said


def run(step: Repeated, wait: Callable[[float], object]) -> tuple[ThreadGroup, list[tuple[str, BaseException]]]:
    died = list[tuple[str, BaseException]]()
    group = ThreadGroup([NamedStep("one", step, wait, step.ran.set)], SystemClock(), lambda *death: died.append(death))
    group.start()
    return group, died


def test_a_thread_waits_as_its_step_says_and_not_for_ever() -> None:
    waited, step = list[float](), Repeated(0, 0, 7, 0, WAIT_MS_MAX - 1, WAIT_MS_MAX + 1)

    def wait(seconds: float) -> None:
        waited.append(seconds)
        time.sleep(0.001)

    group, died = run(step, wait)
    assert step.ran.wait(10)
    assert group.stop(10) == []
    assert waited[:3] == [0.007, (WAIT_MS_MAX - 1) / 1000, WAIT_MS_MAX / 1000]
    assert died == []


def test_what_is_loaded_is_not_looked_through_for_garbage_while_threads_run() -> None:
    before = gc.get_threshold()
    try:
        assert gc.get_freeze_count() == 0
        step = Repeated()
        group, _ = run(step, lambda _seconds: step.ran.wait(0.01))
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] == GC_THRESHOLD
        assert group.stop(10) == []
        assert gc.get_freeze_count() == 0, "native modules complain at exit otherwise"
    finally:
        gc.set_threshold(*before)


def test_a_step_that_raises_ends_its_thread_with_its_name_and_error() -> None:
    bug = StateError("a bug")
    group, died = run(Repeated(0, bug), time.sleep)
    assert group.stop(10) == []
    assert died in ([], [("one", bug)])
    step = Repeated(bug)
    group, died = run(step, time.sleep)
    limit = time.monotonic() + 10
    while not died and time.monotonic() < limit:
        time.sleep(0.001)
    assert (died, group.stop(10)) == ([("one", bug)], [])


def test_a_thread_says_which_code_it_is_in() -> None:
    release, entered = threading.Event(), threading.Event()

    class Deep:
        def run_once(self, now_ms: int) -> int:
            return self.deeper(10)

        def deeper(self, left: int) -> int:
            if left:
                return self.deeper(left - 1)
            entered.set()
            release.wait(60)
            return 60_000

    step = named("deep", Deep())
    group = ThreadGroup([step], SystemClock(), lambda *_: None)
    assert group.where("deep") == "", "it has not begun"
    group.start()
    assert entered.wait(10)
    where = group.where("deep").split(" > ")
    release.set()
    assert group.stop(10) == []
    assert (len(where), "deeper" in where[0], where[-1].endswith(" wait")) == (FRAMES_MAX, True, True)
    assert group.where("another") == ""


def test_a_named_step_waits_on_its_own_event() -> None:
    one, other = named("one", cast(Any, None)), named("other", cast(Any, None))
    other.wake()
    begun = time.monotonic()
    one.wait(0.05)
    assert time.monotonic() - begun >= 0.04
    begun = time.monotonic()
    other.wait(10)
    assert time.monotonic() - begun < 5
