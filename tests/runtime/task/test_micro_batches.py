"""What a task publishes of a micro-batch, and that nothing is left of one that fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, cast

import pytest

from flowql.compiler.functions.registry import RunTooLong
from flowql.runtime.batch import Batch, from_rows
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import RawBatch
from flowql.runtime.operators.base import Looks, MicroBatchContext
from flowql.runtime.state.task_state import BatchRevoked
from flowql.runtime.task.channels import ConsumerChannels
from flowql.runtime.task.delivery import Delivery, DeliveryResult
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.lost import with_micro_batch
from flowql.runtime.task.program import Output
from flowql.runtime.task.publisher import MicroBatchResult
from flowql.runtime.task.task import STARTED, TIMERS, Task
from tests.runtime.state.support import table
from tests.runtime.task.test_gathering import TP, fetched
from tests.runtime.task.test_task import SCHEMA, SLICE_NS, Program, made, push


class Scripted(Program):
    """Each run is one of `script`, in order; after that rows are only noted."""

    def __init__(self, *script: Callable[[MicroBatchContext], list[Output]]) -> None:
        super().__init__()
        self.script, self.contexts = list(script), list[MicroBatchContext]()

    def execute(self, batches: Mapping[str, Batch], run: MicroBatchContext) -> list[Output]:
        super().execute(batches, run)
        self.contexts.append(run)
        return self.script.pop(0)(run) if self.script else []

    def tick(self, run: MicroBatchContext) -> list[Output]:
        self.contexts.append(run)
        return self.script.pop(0)(run) if self.script else []


def outputs(*names: str) -> list[Output]:
    return cast(list[Output], list(names))


def late(run: MicroBatchContext) -> list[Output]:
    run.stream_times["op"] = 9
    run.late["op"] = 2
    run.wants_commit = True
    return outputs("made")


def failing(error: Exception) -> Callable[[MicroBatchContext], list[Output]]:
    def run(_: MicroBatchContext) -> list[Output]:
        raise error

    return run


def rows(*times: int) -> Batch:
    n = len(times)
    return from_rows(SCHEMA, [(ms,) for ms in times], list(times), [0] * n, list(range(n)))


def delivery(*times: int, mark: Callable[[], None] = lambda: None) -> Delivery:
    return Delivery("a", rows(*times), mark)


def published(task: Task) -> dict[str, Any]:
    return task.state.metadata


def result_of(done: Future[DeliveryResult]) -> DeliveryResult:
    return done.result(0)


def test_rows_that_are_delivered_are_published_with_times_lost_rows_and_their_mark() -> None:
    """Positions stay; older: rows before the stream time that the task had."""
    program, marked = Scripted(late, lambda run: outputs("more")), list[bool]()
    task, publisher = made(program)
    push(task, "a", 1)
    task.process(SLICE_NS)
    given = delivery(3, 8, 9, 12, mark=lambda: marked.append(task.is_delivering))
    task.deliver(given)
    assert task.process(SLICE_NS) == 4
    assert (marked, task.is_delivering) == ([True], False)
    assert result_of(given.done) == DeliveryResult(4, 0, 2)
    assert publisher.published[-1] == MicroBatchResult(outputs("more"), [], 0, {}, wants_commit=False)
    assert published(task)["stream_times"] == {"op": 9}
    again = delivery(1)
    program.script = [late]
    task.deliver(again)
    task.process(SLICE_NS)
    assert result_of(again.done) == DeliveryResult(1, 2, 1)
    assert (publisher.published[-1].late, publisher.published[-1].wants_commit) == ({"op": 2}, True)
    assert task.losses["late"]["op"][0] == 4


def test_nothing_is_left_of_a_delivery_that_fails_and_one_that_was_taken_back_is_not_begun() -> None:
    def bad(run: MicroBatchContext) -> list[Output]:
        run.fail_row(0, "BAD_VALUE", "no number")
        return outputs("never")

    program, marked = Scripted(bad, failing(ValueError("a mistake"))), list[int]()
    task, publisher = made(program)
    for error, message in ((RuntimeFailure, "q: no number"), (ValueError, "a mistake")):
        given = delivery(1, 2, mark=lambda: marked.append(1))
        task.deliver(given)
        assert task.process(SLICE_NS) == 2
        assert isinstance(given.done.exception(0), error)
        assert message in str(given.done.exception(0))
    taken_back = delivery(1)
    taken_back.done.cancel()
    task.deliver(taken_back)
    task.process(SLICE_NS)
    assert (publisher.published, marked, len(program.runs)) == ([], [], 2)
    push(task, "a", 5)
    task.process(SLICE_NS)
    assert len(publisher.published) == 1


class Ticking(Scripted):
    due_ms = 0  # type: ignore[assignment]


def tick(task: Task) -> None:
    task._tick()


@pytest.mark.parametrize(
    ("changes", "publishes"),
    [
        (lambda run: [], False),
        (lambda run: outputs("made"), True),
        (lambda run: setattr(run, "wants_commit", True) or [], True),
        (lambda run: run.timers.update(op=5) or [], True),
        (lambda run: run.fail_row(0, "BAD_VALUE", "no") or [], True),
    ],
)
def test_a_tick_is_published_where_something_has_changed(
    changes: Callable[[MicroBatchContext], list[Output]],
    publishes: bool,
) -> None:
    task, publisher = made(Ticking(changes))
    tick(task)
    assert bool(publisher.published) is publishes


def test_a_tick_publishes_timers_and_stream_times_and_its_results_are_checked() -> None:
    def changes(run: MicroBatchContext) -> list[Output]:
        run.timers["op"], run.stream_times["op"] = 5, 7
        return outputs("made")

    checked: list[object] = []
    task, publisher = made(Ticking(changes, lambda run: outputs("refused")))
    task.check = lambda of, made: checked.append((of is task, list(made)))
    tick(task)
    assert (published(task)[TIMERS], published(task)["stream_times"]) == ({"op": 5}, {"op": 7})
    assert checked == [(True, outputs("made"))]
    assert publisher.published[0].source_rows == 0, "it has taken none"

    def refuses(of: Task, made: object) -> None:
        raise OverflowError("too large")

    task.check = refuses
    with pytest.raises(OverflowError):
        tick(task)
    assert len(publisher.published) == 1


def test_a_tick_counts_as_one_row_or_as_the_rows_that_have_waited() -> None:
    task, _ = made(Ticking(lambda run: outputs("made"), lambda run: run.retired.extend(range(3)) or outputs("waited")))
    assert [task._tick() for _ in range(3)] == [1, 3, 1]


class Fused(Scripted):
    """Takes raw records of one input."""

    fused = True

    def execute_raw(self, raw: RawBatch, run: MicroBatchContext) -> list[Output]:
        self.contexts.append(run)
        return self.script.pop(0)(run)


def test_results_of_raw_records_are_checked_before_they_are_published() -> None:
    task, publisher = made(Fused(*[lambda run: outputs("made")] * 9))
    task.exchanges, task.channels = {}, ConsumerChannels()
    source = LogInput("op", TP, 0)
    task.logs = {"op": source}
    source.add(fetched(0, 2))
    checked: list[object] = []

    def refuses_once(of: Task, made: object) -> None:
        checked.append(made)
        if len(checked) == 1:
            raise OverflowError("too large")

    task.check = refuses_once
    task.process(0)
    assert checked == [outputs("made")] * 2, "both records, then the first one alone"
    assert [(r.outputs, r.source_rows) for r in publisher.published] == [(outputs("made"), 1)]
    assert source.position == 1
    assert not publisher.published[0].wants_commit


def writing(row: str, error: Exception | None = None) -> Callable[[MicroBatchContext], list[Output]]:
    def run(run: MicroBatchContext) -> list[Output]:
        run.state.store("T").put((row,), (1,))
        if error is not None:
            run.retired.extend(range(2))
            raise error
        return outputs("made")

    return run


def rows_come(task: Task) -> None:
    push(task, "a", 1, 2)
    task.process(0)


def rows_are_delivered(task: Task) -> None:
    task.deliver(delivery(1, 2))
    task.process(0)


@pytest.mark.parametrize("error", [ValueError("no number"), RunTooLong("it took long"), KeyError("a mistake")])
@pytest.mark.parametrize("begun", [rows_come, rows_are_delivered, tick])
def test_nothing_that_a_failed_run_wrote_to_state_is_published(begun: Callable[[Task], None], error: Exception) -> None:
    program = Scripted(writing("failed", error), writing("made"), writing("made"))
    task, publisher = made(program, stores=[table()])
    with suppress(KeyError, RunTooLong):
        begun(task)
    while not publisher.published:
        begun(task)
    store = task.state.store("T")
    assert (store.get(("failed",)), store.get(("made",))) == (None, (1,))


def test_nothing_that_a_failed_start_wrote_to_state_is_published() -> None:
    class Starting(Program):
        starts, attempts = True, 0  # type: ignore[assignment]

        def start(self, run: MicroBatchContext) -> list[Output]:
            self.attempts += 1
            return writing("failed", KeyError("a mistake") if self.attempts == 1 else None)(run)

    task, _ = made(Starting(), stores=[table()])
    with pytest.raises(KeyError):
        task.process(0)
    assert task.state.store("T").get(("failed",)) is None
    task.process(0)
    assert task.state.store("T").get(("failed",)) == (1,)


def test_a_batch_that_fails_because_its_state_was_dropped_is_not_taken_for_a_bad_record() -> None:
    """It would leave records out that are good."""
    for error in (ValueError("no number"), RunTooLong("it took long"), RuntimeFailure("none of the values")):
        task, publisher = made(Scripted())

        def dropped(run: MicroBatchContext, error: Exception = error, task: Task = task) -> list[Output]:
            task.state._generation.number += 1  # type: ignore[attr-defined]
            raise error

        cast(Scripted, task.program).script = [dropped]
        push(task, "a", 1, 2)
        with pytest.raises(RuntimeFailure if isinstance(error, RuntimeFailure) else BatchRevoked):
            task.process(SLICE_NS)
        assert publisher.published == []
        assert len(cast(Scripted, task.program).runs) == 1, "it is not tried once more"


def test_a_record_that_fails_alone_is_left_out_and_its_neighbours_are_processed() -> None:
    def unless_alone(run: MicroBatchContext) -> list[Output]:
        if 2 in program.runs[-1]:
            raise ValueError("two")
        return []

    program = Scripted(*[unless_alone] * 10)
    task, publisher = made(program)
    push(task, "a", 0, 1, 2, 3, 4)
    while task.runnable:
        task.process(SLICE_NS)
    assert next(run for run in program.runs if 2 not in run) == [0, 1]
    assert sorted(ms for run in program.runs if 2 not in run for ms in run) == [0, 1, 3, 4]
    assert sum(len(result.dead_letters) for result in publisher.published) == 1
    assert sum(result.source_rows for result in publisher.published) == 0, (
        "rows of repartitions are counted where they are read"
    )


def test_a_batch_that_cannot_be_decoded_is_not_tried_with_fewer_rows() -> None:
    """How many it has is not known, and those of the run before say nothing of it."""
    program, asked = Scripted(), list[object]()

    def decode(*of: object) -> None:
        asked.append(of)
        raise ValueError("no batch")

    program.decode = decode  # type: ignore[attr-defined]
    task, _ = made(program)
    push(task, "a", 1, 2, 3)
    assert task.process(SLICE_NS) == 3
    task.logs = {"op": LogInput("op", TP, 0)}
    task.logs["op"].add(fetched(0, 2))
    with pytest.raises(ValueError, match="no batch"):
        task.process(SLICE_NS)
    assert len(asked) == 2, "and once more as one record"


def test_rows_of_a_run_that_took_long_to_fail_are_processed_one_at_a_time() -> None:
    """Thousands of records of which many fail after a timeout would take hours, and stopping the query would wait for them."""
    program = Scripted(failing(RunTooLong("it took long")))
    task, _ = made(program)
    push(task, "a", *range(6))
    while task.runnable:
        task.process(SLICE_NS)
    assert program.runs == [[0, 1, 2, 3, 4, 5], *([n] for n in range(6))]


def test_a_task_that_has_given_its_results_of_no_rows_is_known_to_have_started() -> None:
    program = Scripted()
    program.starts = True
    task, publisher = made(program)
    task.process(SLICE_NS)
    assert published(task)[STARTED] is True
    assert [(result.source_rows, result.wants_commit) for result in publisher.published] == [(0, False)]


def test_rows_that_are_delivered_before_any_time_is_known_are_not_older() -> None:
    task, _ = made(Scripted())
    given = delivery(1, 2)
    task.deliver(given)
    task.process(SLICE_NS)
    assert result_of(given.done) == DeliveryResult(2, 0, 0)


def test_what_the_first_rows_of_a_join_missed_is_kept_with_what_was_lost() -> None:
    first = with_micro_batch({}, {}, {}, {}, 0, {"join-1": Looks(5, 0, 7, 9)})
    assert first == {"looks": {"join-1": (5, 0, 7, 9)}}
    again = with_micro_batch(first, {}, {}, {}, 2, {"join-1": Looks(3, 0, 4, 20), "join-2": Looks(1, 0, 2, 3)})
    assert again == {"dead": 2, "looks": {"join-1": (8, 0, 7, 20), "join-2": (1, 0, 2, 3)}}
