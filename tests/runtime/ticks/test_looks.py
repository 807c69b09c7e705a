"""Costs of the ticks of a single instance."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.task.id import TaskId
from flowql.runtime.task.task import Task
from flowql.runtime.ticks.ticks import Ticks
from tests.ticks.bank import Bank


class QuickBank(Bank):
    def _pass_time(self) -> None:
        self.clock.advance(20)  # type: ignore[attr-defined]


def test_a_look_asks_each_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with exchanges asks all tasks upstream, so tasks that were asked apart made a commit of a wide query quadratic."""
    bank, asked, idle_with = QuickBank(1, 16), list[int](), Task.idle_with
    bank.transact()
    bank.driver.run_until_caught_up()

    def counted(self: Task, known: dict[TaskId, bool]) -> bool:
        asked[-1] += self.id not in known
        return idle_with(self, known)

    def looked(name: str) -> None:
        look = getattr(Ticks, name)

        def alone(self: Ticks, *given: Any) -> Any:
            asked.append(0)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Task, "idle_with", counted)
                return look(self, *given)

        monkeypatch.setattr(Ticks, name, alone)

    for name in ("is_ready", "wants_cut", "at_cut", "committed"):
        looked(name)
    for _ in range(3):
        bank.transact()
        bank.driver.run_until_caught_up()
    tasks = sum(len(q.built.tasks) for q in bank.instance.queries.values())
    bank.instance.close()
    assert tasks // 2 < max(asked) <= tasks
