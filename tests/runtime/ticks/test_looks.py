"""Costs of the ticks of a single instance."""

from __future__ import annotations

from threading import get_ident
from typing import Any

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.channels import Known
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.ticks import numbers
from flowql.runtime.ticks.course import Course
from flowql.runtime.ticks.graph import Stage
from flowql.runtime.ticks.ticks import Ticks
from tests.ticks.bank import Bank


class QuickBank(Bank):
    def _pass_time(self) -> None:
        self.clock.advance(20)  # type: ignore[attr-defined]


def test_a_look_asks_each_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with exchanges asks all tasks upstream, so tasks that were asked apart made a commit of a wide query quadratic."""
    bank, asked, idle_with, mine = QuickBank(1, 16), list[int](), LogInput.idle_with, get_ident()
    bank.transact()
    bank.driver.run_until_caught_up()

    def counted(self: LogInput, known: Known) -> bool:
        asked[-1] += get_ident() == mine  # threads that an earlier test has left ask their own tasks
        return idle_with(self, known)

    def looked(name: str) -> None:
        look = getattr(Ticks, name)

        def alone(self: Ticks, *given: Any) -> Any:
            asked.append(0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(LogInput, "idle_with", counted)
                return look(self, *given)

        monkeypatch.setattr(Ticks, name, alone)

    for name in ("is_ready", "wants_cut", "at_cut", "committed"):
        looked(name)
    for _ in range(3):
        bank.transact()
        bank.driver.run_until_caught_up()
    inputs = sum(len(task.logs) for q in bank.instance.queries.values() for task in q.built.tasks)
    bank.instance.close()
    assert inputs // 2 < max(asked) <= inputs


def test_a_tick_costs_each_of_many_views_as_much_as_each_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends of each view made the course look at all the others, and each kept its own count of ticks worth keeping: 30 idle views took 6 % of a core."""
    own, names, sources = TopicPartition("own", 0), [f"v{n}" for n in range(40)], frozenset({"own"})
    stages = [Stage(n, frozenset({(n, 0)}), frozenset({n}), sources, sources, frozenset()) for n in names]
    course = Course(stages, {(n, 0): {f"{n}/0_0": [own]} for n in names}, 0, dict.fromkeys(names, 1))
    looks, advance, kept, worth_keeping = list[str](), Course._advance, list[int](), numbers.worth_keeping

    def advanced(self: Course, progress: Any) -> None:
        looks.append(progress.stage.topic)
        advance(self, progress)

    def counted(of: Any) -> set[int]:
        kept.append(len(found := list(of)))
        return worth_keeping(found)

    monkeypatch.setattr(Course, "_advance", advanced)
    monkeypatch.setattr(numbers, "worth_keeping", counted)
    numbers._remembered.cache_clear()
    ticks = 200
    for end in range(ticks):
        course.draw({own: end}, end)
        news = course.news()
        assert news is not None
        assert news.stages.keys() == set(names), "each has finished the tick before"
        course.take({f"{n}/0_0": news.stages[n].tick for n in names})
        for name in list(course.to_ask()):
            course.learn(name, {TopicPartition(name, 0): end})
    assert len(looks) <= 3 * ticks * len(names)
    assert len(kept) <= ticks // 10, "old ticks are looked for from time to time"


def test_ticks_of_the_same_tasks_do_not_look_at_the_inputs_of_all_tasks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick made sets of the inputs of 120 idle tasks, although the same tasks went on."""
    bank, fits, fit = QuickBank(1, 2), list[Course](), Course.fit
    ticks = bank.instance.ticks
    assert isinstance(ticks, Ticks)

    def counted(self: Course, *given: Any) -> list[str]:
        fits.append(self)
        return fit(self, *given)

    bank.transact()
    bank.driver.run_until_caught_up()
    monkeypatch.setattr(Course, "fit", counted)
    newest = ticks._course.newest
    for _ in range(3):
        bank.transact()
        bank.driver.run_until_caught_up()
    assert ticks._course.newest >= newest + 3
    assert not fits
    bank.instance.close()


def test_of_old_ticks_those_stay_that_a_reader_behind_takes_next() -> None:
    kept = numbers.ByTick[int]()
    for newest in range(1, 1_000):
        kept[newest] = newest
        kept.trim([{3}])
        assert len(kept) <= numbers.NEWEST_MAX + numbers.SLACK + 24
        assert list(kept) == sorted(kept)
        for done in range(newest % 7, newest, 97 if newest % 10 == 0 else newest):
            found = numbers.aligned(n for n in kept if n > done)
            assert found == numbers.aligned(range(done + 1, newest + 1))
    assert 3 in kept
