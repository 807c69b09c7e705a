"""Draining: stops queries once no row is in transit between their tasks, so that all results of the records they have read are published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from flowql.runtime.app.consistent_snapshot import StoppedInputs, TaskSet
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.task import Task


def task_set(tasks: dict[str, list[Task]]) -> TaskSet:
    """tasks: by query."""
    readers: dict[TopicPartition, list[tuple[str, LogInput]]] = {}
    for name, its in tasks.items():
        for i in (i for task in its for i in task.logs.values()):
            readers.setdefault(i.tp, []).append((name, i))
    return TaskSet(tasks, readers)


def at_rest(host: QueryHost, names: Iterable[str], check: Callable[[], None]) -> Coroutine:
    """No thread works on these queries, which are held. check: raises when that takes too long."""
    while set(names) & set(host.manager.at_work()):
        check()
        yield None


def drained(
    host: QueryHost,
    names: Sequence[str],
    tasks: Callable[[], TaskSet],
    *,
    running: Callable[[], None],
    held: Callable[[], None],
) -> Coroutine:
    """Readers of a partition come to one position, then the queries are held, with empty exchanges between their tasks.

    running, held: raise when it is not to go on, while queries run and while they are held.
    """
    barrier = StoppedInputs()
    try:
        while True:
            with host.state.epoch_lock:
                found = tasks()
                moved, together = barrier.move(found), found.together
            if together:
                host.query_states.hold_for_swap(names)
                yield from at_rest(host, names, held)
                with host.state.epoch_lock:
                    if tasks().together:
                        return
                host.query_states.release_after_swap(names)  # a run that was under way has ended beyond
            elif moved:
                host.manager.signal()
            running()
            yield None
    finally:
        barrier.lift()
        host.manager.signal()
