"""The reason why a query waits at the moment, and the queries, partitions or topics that it waits for. It only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from flowql.runtime.app.instance import Instance
from flowql.runtime.task.input_buffer import ExchangeInput, LogInput
from flowql.runtime.task.task import Task

Reason = Literal[
    "deployment",  # a topic that it reads is gone: it continues after a new deployment
    "resume",  # it is paused, or its function hung
    "restoration",  # its state is restored from changelogs, or its tasks are being built
    "restart",  # it failed and will be retried
    "log",  # commits fail
    "commit",  # too much output waits for the next commit
    "processor",  # it could run; whom: the queries that do
    "input",  # there is nothing to read
    "upstream",  # it merges what another query writes, which has to read the existing records first; whom: that query
    "trial",  # an instance died in its micro-batch: another suspected query is tried first (`flowql.runtime.app.trials`)
    "other input",  # earlier rows may come from another input; whom: topic partitions
    "repartition",  # what it feeds is full; whom: the repartition
    "interactive_query",  # an interactive query waits for tables that agree
]


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason. whom: the queries, partitions or topics that the query waits for."""

    reason: Reason
    whom: tuple[str, ...] = ()


_STATES: dict[str, Reason] = {
    "error": "deployment",
    "paused": "resume",
    "hung": "resume",
    "restoring": "restoration",
    "failed": "restart",
    "blocked": "log",
}


def wait_of(instance: Instance, query: str, state: str, tasks: Sequence[Task]) -> Wait | None:
    """None while the query is at work. state: of `progress.state_of`. tasks: those of the query."""
    if state in _STATES:
        return Wait(_STATES[state])
    record = instance.query_states.of(query)
    if record.waits_for:
        return Wait("upstream", (record.waits_for,))
    if record.awaits_trial:
        return Wait("trial")
    at_work = instance.manager.at_work()
    if query in at_work:
        return None
    if any(t.runnable for t in tasks):
        return Wait("commit") if instance.manager.awaits_commit(query) else Wait("processor", tuple(at_work))
    waiting = [t for t in tasks if t.buffered_rows]
    return _of_rows(waiting) if waiting else Wait("input")


def _of_rows(tasks: list[Task]) -> Wait:
    """The reason why tasks with rows cannot run."""
    if any(t.read_up_to.ms is not None or any(i.stopped for i in t.logs.values()) for t in tasks):
        return Wait("interactive_query")
    full = {x.topic for t in tasks for x in t.downstream if x.full}
    if full:
        return Wait("repartition", tuple(sorted(full)))
    missing = {_name(i) for t in tasks for i in t.inputs.values() if not i.has_rows and not i.idle}
    return Wait("other input", tuple(sorted(missing))) if missing else Wait("processor")


def _name(source: LogInput | ExchangeInput) -> str:
    return str(source.tp) if isinstance(source, LogInput) else source.topic
