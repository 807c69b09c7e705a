"""Notes in the beat file which micro-batch a processing thread begins, so that another process can tell which one does not end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from weakref import WeakKeyDictionary

from flowql.compiler.plan.generations import user_id
from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app.beat_file import BeatFile, Slot, Text
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.task import Task


def slots_of(beats: BeatFile, steps: Iterable[str]) -> dict[str, Slot]:
    """By step, its slot, as long as there are any."""
    found = {step: beats.slot(step) for step in steps}
    return {step: slot for step, slot in found.items() if slot is not None}


class MicroBatchNotes:
    """The notes of one thread, which calls this before each micro-batch.

    plan_of: the plan of a task's query; None if it is no longer deployed.
    """

    def __init__(self, slot: Slot, plan_of: Callable[[TaskId], QueryPlan | None]) -> None:
        self._slot, self._plan_of = slot, plan_of
        self._texts: WeakKeyDictionary[Task, Text] = WeakKeyDictionary()

    def __call__(self, tasks: Sequence[Task]) -> None:
        task = tasks[0]
        text = self._texts.get(task) if len(tasks) == 1 else self._text(tasks)
        if text is None:
            text = self._texts[task] = self._text(tasks)
        self._slot.begin_micro_batch(text, [i.position for t in tasks for i in t.logs.values()])

    def _text(self, tasks: Sequence[Task]) -> Text:
        task = tasks[0]
        plan = self._plan_of(task.id)
        return Text.of(
            query=task.id.query,
            id=task.id.query if plan is None else user_id(plan.id, plan.generation),
            definition="" if plan is None else plan.definition,
            task=str(task.id),
            others=[t.id.partition for t in tasks[1:]],
            inputs=[f"{i.tp.topic}-{i.tp.partition}" for t in tasks for i in t.logs.values()],
        )
