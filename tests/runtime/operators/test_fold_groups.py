"""Rows folded into their groups: aggregates that get all rows in one call are the same as those called for each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from flowql.compiler.functions.registry import AggregateFunction, register_aggregate
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.logical import Window
from flowql.compiler.plan.types import BIGINT
from flowql.runtime.functions.failures import described
from flowql.runtime.functions.workers import FunctionFailed
from tests.registries import unregister_aggregate
from tests.runtime.operators.world import Task, aggregate, batch, schema

S = schema("k:BIGINT", "v")
CALLS: list[str] = []
LOST: list[bool] = [False]


def add(acc: int, v: int | None) -> int:
    if v is None:
        return acc
    if v % 5 == 1:
        raise ValueError(f"{v} is refused")
    if acc > 25:
        raise OverflowError(f"{v} after {acc}")
    return acc + v


def result(acc: int) -> int:
    if acc % 4 == 3:
        raise ArithmeticError(f"{acc} is not shown")
    return -acc


def attempt(call: Any, *args: Any) -> tuple[Any, str]:
    try:
        return call(*args), ""
    except Exception as error:
        inner = error.__traceback__ and error.__traceback__.tb_next  # without this frame
        return None, described(error.with_traceback(inner))


def add_many(groups: Any) -> Any:
    CALLS.append("add")
    if LOST[0]:
        raise FunctionFailed("lost")
    made = []
    for acc, rows in groups:
        failed = []
        for n, args in enumerate(rows):
            after, failure = attempt(add, acc, *args)
            if failure:
                failed.append((n, failure))
            else:
                acc = after
        made.append((acc, failed))
    return made


def result_many(accumulators: Any) -> Any:
    CALLS.append("result")
    if LOST[0]:
        raise FunctionFailed("lost")
    return [attempt(result, acc) for acc in accumulators]


def ordered(acc: int, v: int | None) -> int:
    return acc if v is None else (add(acc % 25, v) * 31) % 1009


def add_runs(accs: Any, offsets: Any, columns: Any) -> Any:
    CALLS.append("runs")
    (values,) = columns
    made = []
    for acc, start, end in zip(accs, offsets[:-1], offsets[1:], strict=True):
        for v in values[start:end]:
            acc = ordered(acc, v)
        made.append(acc)
    return made


def fussy(acc: int, v: int | None) -> int:
    if v is not None and v % 7 == 3:
        raise KeyError(v)
    return acc + 1


@pytest.fixture(autouse=True)
def aggregates() -> Iterator[None]:
    one = AggregateFunction(
        "EACH",
        lambda types, _: Resolution(types, BIGINT),
        initial=lambda *_: 0,
        add=lambda *_: add,
        result=lambda *_: result,
    )
    register_aggregate(one)
    register_aggregate(replace(one, name="ALL_AT_ONCE", add_many=add_many, result_many=result_many))
    by_row = replace(one, name="BY_ROW", add=lambda *_: ordered)
    register_aggregate(by_row)
    register_aggregate(replace(by_row, name="IN_RUNS", add_runs=lambda _: add_runs))
    register_aggregate(replace(by_row, name="IN_RUNS_AT_ONCE", add_runs=lambda _: add_runs, result_many=result_many))
    register_aggregate(replace(one, name="FUSSY", add=lambda *_: fussy, result=lambda *_: lambda acc: acc))
    yield
    for name in ("EACH", "ALL_AT_ONCE", "BY_ROW", "IN_RUNS", "IN_RUNS_AT_ONCE", "FUSSY"):
        unregister_aggregate(name)


WINDOWS = [
    None,
    Window("tumbling", 10, 10, 5, 9_000),
    Window("hopping", 9, 4, 6, 9_000),
    Window("cumulating", 12, 4, 6, 9_000),
]
RUNS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 30), st.integers(-4, 8)), min_size=1, max_size=12),
    max_size=4,
)


def fed(text: str, runs: Any, *, vector: bool = False, **options: Any) -> tuple[Any, Any, Any]:
    """What comes out, the dead letters, and the table."""
    task = Task(*aggregate(S, text, **options), coalesce=True, vector=vector)
    out, now = [], 1000
    for run in runs:
        rows = []
        for k, v, step in run:
            now += step
            rows.append(((k, v), now))
        out.append(task.run(batch(S, *rows)))
    dead = sorted({(d.seq, d.message.replace("ALL_AT_ONCE", "EACH")) for d in task.dead})
    return out, dead, task.table()


@settings(max_examples=300, deadline=None)
@given(
    RUNS,
    st.sampled_from(WINDOWS),
    st.sampled_from(["upsert", "retract"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["{}:v", "FUSSY:v {}:v", "{}:v COUNT FUSSY:v {}:v"]),
)
def test_in_one_call_as_for_each_row(
    runs: Any, window: Window | None, change: Any, final: bool, lost: bool, text: str
) -> None:
    LOST[0] = lost
    options = {"window": window, "change": "upsert" if window and final else change, "final": bool(window) and final}
    at_once, each = (fed(text.replace("{}", name), runs, **options) for name in ("ALL_AT_ONCE", "EACH"))
    assert at_once[0] == each[0]
    assert at_once[2] == each[2]
    if text == "{}:v":  # of a row that several refuse it need not be the same one that is named
        assert at_once[1] == each[1]
    else:
        assert {seq for seq, _ in at_once[1]} == {seq for seq, _ in each[1]}


@settings(max_examples=400, deadline=None)
@given(
    RUNS,
    st.sampled_from(WINDOWS),
    st.sampled_from(["upsert", "retract"]),
    st.booleans(),
    st.sampled_from(["IN_RUNS", "IN_RUNS_AT_ONCE"]),
    st.sampled_from(["{}:v", "COUNT {}:v SUM:v", "{}:v {}:v", "{}:v {}:k"]),
)
def test_in_columns_as_for_each_row(
    runs: Any, window: Window | None, change: Any, final: bool, name: str, text: str
) -> None:
    LOST[0] = False
    CALLS.clear()
    options = {"window": window, "change": "upsert" if window and final else change, "final": bool(window) and final}
    in_columns = fed(text.replace("{}", name), runs, vector=True, **options)
    by_row = fed(text.replace("{}", "BY_ROW"), runs, **options)
    assert in_columns[0] == by_row[0]
    assert in_columns[2] == by_row[2]
    assert [(seq, text.replace(name, "BY_ROW")) for seq, text in in_columns[1]] == by_row[1]
    if runs and (window is None or window.kind != "cumulating"):
        assert "runs" in CALLS


def test_a_process_that_ends_while_it_makes_results_is_asked_for_each() -> None:
    LOST[0] = True
    runs = [[(k, v + k, 1) for k in range(3) for v in (2, 4, 5)]]
    out, dead, table = fed("IN_RUNS_AT_ONCE:v", runs, vector=True)
    assert (out, [(n, text.replace("IN_RUNS_AT_ONCE", "BY_ROW")) for n, text in dead], table) == fed("BY_ROW:v", runs)
    assert dead


def test_calls_are_as_many_as_runs_and_not_as_rows() -> None:
    LOST[0] = False
    CALLS.clear()
    run = [(k, v, 1) for k in range(3) for v in (2, 4, 4)]
    out, dead, _ = fed("ALL_AT_ONCE:v", [run, run])
    assert (CALLS, dead) == (["add", "result"] * 2, [])
    assert [len(o) for o in out] == [3, 3]
    CALLS.clear()
    fed("ALL_AT_ONCE:v", [[*run, (1, 6, 1), (2, 11, 1)]])
    assert CALLS == ["add", "add", "result"], "groups with a row that is refused are folded again"
