"""Asynchronous calls as an operator: whatever runs are dropped, epochs aborted and tasks made anew, each row goes on once."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.compiler.functions.asynchronous import ORDERS, AsyncOptions, Order, Retry
from flowql.compiler.functions.registry import AsyncFunction, Function, register_of_project
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.physical.stores import with_stores
from flowql.compiler.plan.asynchronous import AsyncCall, AsyncMap
from flowql.compiler.plan.logical import Union
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BIGINT, STRING
from flowql.runtime.batch import DELETE, INSERT, from_rows
from flowql.runtime.functions.call_results import CallResult, Done
from flowql.runtime.operators.asynchronous.operator import AsyncMapOperator
from flowql.runtime.operators.base import MicroBatchContext
from tests.registries import forget_projects
from tests.runtime.operators.world import DictState

NAME = "ASK@m:1"
SOURCE = Schema((Field("K", STRING, "key"), Field("ID", BIGINT)))
RESULT = Schema((*SOURCE.fields, Field("GOT", BIGINT)))


class HeldCalls:
    """Implements `Calls`: calls end when a test says so."""

    def __init__(self) -> None:
        self.open: list[tuple[tuple[Any, ...], Done]] = []

    def begin(self, args: tuple[Any, ...], done: Done) -> Callable[[], None]:
        call = (args, done)
        self.open.append(call)
        return lambda: self.open.remove(call) if call in self.open else None

    def end(self, n: int, outcome: Callable[[int], CallResult] = lambda id_: CallResult(id_ * 10)) -> None:
        if self.open:
            args, done = self.open.pop(n % len(self.open))
            done(outcome(args[0]))


@pytest.fixture(name="calls")
def _calls() -> Iterator[HeldCalls]:
    with_calls = HeldCalls()
    options = AsyncOptions(3, 30.0, Retry(2, 0.1, 1.0, 0.1), "key")
    function = AsyncFunction(options, lambda id_: id_, False, (0,), NAME, with_calls)
    resolution = Resolution((BIGINT,), BIGINT)
    register_of_project(Function(NAME, lambda _: resolution, lambda _: lambda id_: id_, asynchronous=function))
    yield with_calls
    forget_projects()


class Driven:
    """The operator of a task, with state that is published, committed and aborted as a task's is."""

    def __init__(self, order: Order, *, coalesce: bool = False) -> None:
        spec = AsyncMap((AsyncCall("GOT", NAME, ("ID",), BIGINT),), order)
        scan = Operator("scan-1", Union(), (), SOURCE, "append")
        _, self.plan = with_stores([scan, Operator("asyncmap-1", spec, ("scan-1",), RESULT, "append")], "q")
        self._scan = scan
        self.operator = AsyncMapOperator(self.plan, [scan])
        self.state, self.coalesce, self.now_ms = DictState(self.plan.stores), coalesce, 0
        self.timers: dict[str, Any] = {}
        self.out: list[tuple[str, int, int | None]] = []
        self.letters: list[str] = []
        self.commit()

    def run(self, rows: list[tuple[str | None, int]] | None = None, *, publish: bool = True, op: int = INSERT) -> None:
        """One run: of input, or without (a tick)."""
        run = MicroBatchContext(
            state=self.state,
            timers=dict(self.timers),
            wall_ms=self.now_ms,
            coalesce=self.coalesce,
            retire_max=100,  # type: ignore[arg-type]
        )
        batch = None
        if rows is None:
            run.is_tick = True
        else:
            n = len(rows)
            batch = from_rows(SOURCE, list(rows), [0] * n, [op] * n, list(range(n)))
        made = self.operator.process([batch], run)
        if not publish:
            self.state.discard()
            return
        self.state.publish({})
        self.timers = run.timers
        self.out += [] if made is None else [tuple(r) for r in made.rows()]  # type: ignore[misc]
        self.letters += [d.message for d in run.dead_letters]

    def commit(self) -> None:
        self._committed = copy.deepcopy((self.state.stores, self.timers, self.out))

    def abort(self, *, anew: bool) -> None:
        """All since the last commit is dropped. anew: with a task that is made anew."""
        self.state.stores, self.timers, self.out = copy.deepcopy(self._committed)
        if anew:
            self.operator.close()
            self.operator = AsyncMapOperator(self.plan, [self._scan])

    def drained(self, calls: HeldCalls) -> None:
        for _ in range(1_000):
            self.run()
            self.now_ms += 1_000
            if calls.open:
                calls.end(0)
            elif not self.operator.facts.rows:
                return
        raise AssertionError("it never ends")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["issue", "tick", "end", "drop-issue", "drop-tick", "commit", "abort", "anew"]),
        st.integers(0, 5),
    ),
    max_size=40,
)


@pytest.mark.parametrize("order", ORDERS)
@given(steps=STEPS)
def test_each_row_goes_on_once_whatever_is_dropped(order: Order, steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context():
        calls = next(made := _calls.__wrapped__())  # type: ignore[attr-defined]
        driven, given_ids = Driven(order), 0
        committed = 0
        for what, n in steps:
            if what in ("issue", "drop-issue"):
                rows = [(None if i % 5 == 4 else "ab"[i % 2], i) for i in range(given_ids, given_ids + n)]
                driven.run(rows, publish=what == "issue")
                given_ids += n if what == "issue" else 0
            elif what in ("tick", "drop-tick"):
                driven.run(publish=what == "tick")
            elif what == "end":
                calls.end(n)
            elif what == "commit":
                driven.commit()
                committed = given_ids
            else:
                driven.abort(anew=what == "anew")
                given_ids = committed
        driven.drained(calls)
        assert sorted(id_ for _, id_, _ in driven.out) == list(range(given_ids))
        assert all(got == 10 * id_ for _, id_, got in driven.out)
        for key in "ab" if order == "key" else ():
            ids = [id_ for k, id_, _ in driven.out if k == key]
            assert ids == sorted(ids)
        if order == "input":
            assert driven.out == sorted(driven.out, key=lambda row: row[1])
        assert not driven.state.stores["q-asyncmap-1"].published
        next(made, None)


def test_a_row_that_replaces_another_cancels_its_call_where_the_last_one_counts(calls: HeldCalls) -> None:
    driven = Driven("key", coalesce=True)
    driven.run([("a", 1), ("b", 2)])
    driven.run()
    assert [args for args, _ in calls.open] == [(1,), (2,)]
    driven.run([("a", 3), ("a", 4)])
    driven.run()
    assert sorted(args for args, _ in calls.open) == [(2,), (4,)]
    driven.drained(calls)
    assert sorted(driven.out) == [("a", 4, 40), ("b", 2, 20)]


def test_a_deletion_needs_no_call_and_waits_for_its_key(calls: HeldCalls) -> None:
    driven = Driven("key")
    driven.run([("a", 1)])
    driven.run([("a", 0)], op=DELETE)
    driven.run()
    driven.run()
    assert (driven.out, [args for args, _ in calls.open]) == ([], [(1,)])
    driven.drained(calls)
    assert driven.out == [("a", 1, 10), ("a", 0, None)]


def test_the_last_failure_is_a_dead_letter_and_null(calls: HeldCalls) -> None:
    driven = Driven("key")
    driven.run([("a", 7)])
    driven.run()
    for _ in range(2):
        calls.end(0, lambda id_: CallResult(error=f"ValueError: no {id_}"))
        driven.run()
        driven.now_ms += 200
        driven.run()
    driven.run()
    assert (driven.out, driven.letters) == ([("a", 7, None)], ["ASK(7): ValueError: no 7"])
