"""Coroutines: what a step does over many rounds without ever waiting. They yield the futures they need, None to be called again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from flowql.runtime.app.hosts import TaskHost
from flowql.runtime.app.polling import PollingStep
from flowql.runtime.events import INFO, say
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.task.status import TaskStatus
from flowql.runtime.task.task import Task

Coroutine = Generator[Future[Any] | None, Any, Any]


def stopped(host: TaskHost, tasks: Sequence[Task]) -> Coroutine:
    """Takes tasks from the restoration step, or from the task manager and its threads, whichever has them."""
    for task in tasks:
        if task.status is TaskStatus.CLOSED:  # by an attempt that failed later
            continue
        taken = task.status is TaskStatus.RESTORING and (yield host.restoration.remove(task))
        if not taken:
            yield in_polling(host.polling, lambda: None)  # a hand-over under way ends before this
            if host.manager.has(task.id):
                yield host.manager.remove(task.id)
        task.become(TaskStatus.CLOSED)
    inputs = [i for task in tasks for i in task.logs.values()]
    yield in_polling(host.polling, lambda: host.polling.remove_inputs(inputs))


def handed_over(host: TaskHost, tasks: Sequence[Task], restoring: Mapping[str, TaskRecord]) -> Coroutine:
    """New tasks to whom they belong: those whose rows are not here to the restoration step, the others to the task manager."""
    for task in tasks:  # all of them first: a task asks those before it whether they are idle
        task.become(TaskStatus.RESTORING if str(task.id) in restoring else TaskStatus.RUNNING)
    whole = [task for task in tasks if task.status is TaskStatus.RUNNING]
    yield in_polling(host.polling, lambda: host.polling.add_inputs([i for t in whole for i in t.logs.values()]))
    for task in whole:
        host.manager.add(task)
    for task in tasks:
        if str(task.id) in restoring:
            say(INFO, "task.restoring", query=task.id.query, task=task.id)
            host.restoration.add(task, restoring[str(task.id)])


def in_polling(polling: PollingStep, action: Callable[[], None]) -> Future[None]:
    """Something in the polling thread."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            action()
            done.set_result(None)
        except Exception as error:  # raised by the coroutine that waits for it
            done.set_exception(error)

    polling.command(run)
    return done
