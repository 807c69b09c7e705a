"""Costs of the ticks of a single instance."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.ticks.ticks import Ticks
from tests.ticks.bank import Bank


class QuickBank(Bank):
    def _pass_time(self) -> None:
        self.clock.advance(20)  # type: ignore[attr-defined]


def test_a_look_asks_each_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task with exchanges asks all tasks upstream, so tasks that were asked apart made a commit of a wide query quadratic."""
    bank, asked, idle_with = QuickBank(1, 16), list[int](), LogInput.idle_with
    bank.transact()
    bank.driver.run_until_caught_up()

    def counted(self: LogInput, known: dict[TaskId, bool]) -> bool:
        asked[-1] += 1
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
