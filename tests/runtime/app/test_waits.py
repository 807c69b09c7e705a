"""Why a query does nothing just now, as `flowql status` tells it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app.query_state import QueryRecord
from flowql.runtime.app.status import Wait, wait_of
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.channels import ExchangeInput
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.producer_channels import ProducerChannels
from tests.runtime.task.test_gathering import fetched


def task(**facts: Any) -> Any:
    """A task with rows of one topic, which cannot run."""
    rows = LogInput("scan", TopicPartition("t", 0), 0)
    rows.add(fetched(0, 3))
    known = {
        "runnable": False,
        "buffered_rows": 3,
        "read_up_to": SimpleNamespace(ms=None),
        "downstream": ProducerChannels(),
        "more": {},
    }
    known |= {"logs": {"t": rows}, **facts}
    return SimpleNamespace(**known, inputs={**known["logs"], **known["more"]})


def waits(
    tasks: list[Any],
    *,
    state: str = "running",
    at_work: tuple[str, ...] = (),
    commit: bool = False,
    upstream: str = "",
) -> Wait | None:
    manager = SimpleNamespace(at_work=lambda: list(at_work), awaits_commit=lambda _query: commit)
    states = SimpleNamespace(of=lambda _query: QueryRecord(waits_for=upstream))
    ticks = SimpleNamespace(waits_for=lambda _query: None)
    publisher = SimpleNamespace(has_room=lambda _task: True)
    instance = SimpleNamespace(manager=manager, query_states=states, ticks=ticks, publisher=publisher)
    return wait_of(cast(Any, instance), "q", state, tasks)


def unread(end_offset: int) -> LogInput:
    source = LogInput("scan", TopicPartition("u", 1), 0)
    source.end_offset = end_offset
    return source


def full() -> ExchangeInput:
    return ExchangeInput("op", "x", 0, 0, rows_max=0)


@pytest.mark.parametrize(
    ("tasks", "told"),
    [
        ([], Wait("input")),
        ([task(buffered_rows=0)], Wait("input")),
        ([task()], Wait("processor")),
        ([task(), task(more={"u": unread(4)})], Wait("other input", ("u-1",))),
        ([task(more={"u": unread(0)})], Wait("processor")),
        ([task(more={"u": unread(4)}, downstream=ProducerChannels([full()]))], Wait("repartition", ("x",))),
        ([task(more={"u": unread(4)}, read_up_to=SimpleNamespace(ms=5))], Wait("interactive_query")),
        ([task(buffered_rows=0, read_up_to=SimpleNamespace(ms=5))], Wait("input")),
    ],
)
def test_a_query_with_rows_that_cannot_run_tells_what_it_waits_for(tasks: list[Any], told: Wait) -> None:
    assert waits(tasks) == told


def test_a_query_waits_for_a_barrier_a_processor_a_commit_or_what_its_state_says() -> None:
    stopped = task()
    stopped.logs["t"].stop_at = 0
    assert waits([stopped]) == Wait("interactive_query")
    runnable = [task(runnable=True)]
    assert waits(runnable, at_work=("other",)) == Wait("processor", ("other",))
    assert waits(runnable, at_work=("other",), commit=True) == Wait("commit")
    assert waits(runnable, at_work=("other", "q")) is None
    assert waits(runnable, at_work=("q",), upstream="other") == Wait("upstream", ("other",))
    assert waits(runnable, state="failed", upstream="other") == Wait("restart")
    told = {state: waits(runnable, state=state, at_work=("q",)) for state in ("paused", "failed", "blocked", "error")}
    assert told == {
        "paused": Wait("resume"),
        "failed": Wait("restart"),
        "blocked": Wait("log"),
        "error": Wait("deployment"),
    }
