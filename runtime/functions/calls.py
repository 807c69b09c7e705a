"""Calls of user-defined functions, counted: in processes of their own, or in the thread that calls.

A scalar function that takes and gives values which have columns is called over columns, by DuckDB, with one message for each of its chunks. Rows that
it fails for are NULL there, and the statement declines them, so that they go through the row kernel, which says why: `Failures`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.registry import FAILED, AggregateFunction, ArrowCall, Function
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import UserDefined, UserFunction
from flowql.compiler.functions.user_aggregates import UserAggregate
from flowql.compiler.functions.user_rows import naming
from flowql.compiler.functions.user_vectorized import COLUMN_KINDS, UserVectorFunction
from flowql.compiler.plan.types import SqlType
from flowql.runtime.batch import to_python
from flowql.runtime.functions.metrics import FunctionMetrics, metrics_of
from flowql.runtime.functions.runs import gives_way, is_of_several, run_too_long
from flowql.runtime.functions.workers import (
    AggregatePart,
    Code,
    ProcessLost,
    Request,
    Workers,
    from_ipc,
    to_ipc,
    workers_of,
)

# After a call that failed, of a query of class `batch`: rows that fail are called one at a time, and thousands of them a second, in which two processes
# wake each other, made the p99 of a critical query 1.37 of that alone, and 1.1 to 1.2 with pauses.
PAUSE_SHARE, PAUSE_S_MAX = 0.5, 0.001
SAMPLED = 64  # of the calls for one row in the engine's threads, one of so many is timed


class Failures:
    """Arguments for which a function failed, in the statement that this thread executes."""

    def __init__(self) -> None:
        self._local = threading.local()

    def begin(self) -> None:
        """Forgets the failures of the statement before."""
        self._local.found, self._local.declined = set(), set()

    def add(self, arguments: Sequence[tuple[Any, ...]]) -> None:
        self._local.found.update(map(repr, arguments))  # NaN equals itself, and 0.0 not -0.0

    def of(self, columns: Sequence[pa.Array], types: Sequence[SqlType]) -> pa.Array:
        """Which rows failed (BOOLEAN). Call it after the rows were computed."""
        if not self._local.found:
            return pa.array(np.zeros(len(columns[0]), bool))
        rows = [repr(args) for args in _rows(columns, types)]
        self._local.declined.update(self._local.found.intersection(rows))
        return pa.array([row in self._local.found for row in rows])

    def all_declined(self) -> bool:
        """Whether `of` has reported every failure. If not, the statement contains NULLs of failed calls without a dead letter."""
        return self._local.found == self._local.declined


class _Remote:
    """A function of the user whose calls go to processes."""

    def __init__(self, user: UserDefined, workers: Workers, metrics: FunctionMetrics) -> None:
        assert not user.limits.inline
        self._name, self._timeout_s, self._workers, self._metrics = user.name, user.limits.timeout_s, workers, metrics

    def value(self, *args: Any, part: AggregatePart | None = None) -> Any:
        start = time.perf_counter()
        try:
            found = self._workers.ask(Request(self._name, args, part), self._timeout_s)
        except Exception as error:
            lost = isinstance(error, ProcessLost)
            if lost and is_of_several():
                self._metrics.here().add(0, time.perf_counter() - start, lost=1)
                raise run_too_long(str(error)) from error
            took_s = time.perf_counter() - start
            self._metrics.here().add(1, took_s, failures=1, lost=lost)
            if not lost and gives_way():
                time.sleep(min(took_s * PAUSE_SHARE, PAUSE_S_MAX))
            raise
        self._metrics.here().add(1, time.perf_counter() - start)
        return found

    def checked(self, nullable: Sequence[bool]) -> Callable[..., Any]:
        """`value`, but NULL without a call where an argument is that may not be."""
        required = [i for i, may_be in enumerate(nullable) if not may_be]
        return lambda *args: None if any(args[i] is None for i in required) else self.value(*args)

    def step(self, part: Literal["add", "undo"], nullable: Sequence[bool]) -> Callable[..., Any]:
        """A step of an aggregate: (accumulator, arguments) -> accumulator; the same one where an argument is NULL that may not be."""
        required, call = [i for i, may_be in enumerate(nullable) if not may_be], partial(self.value, part=part)
        return lambda acc, *args: acc if any(args[i] is None for i in required) else call(acc, *args)

    def add_many(
        self, groups: Sequence[tuple[Any, Sequence[tuple[Any, ...]]]]
    ) -> Sequence[tuple[Any, Sequence[tuple[int, str]]]]:
        calls = sum(len(rows) for _, rows in groups)
        made: Sequence[tuple[Any, Sequence[tuple[int, str]]]] = self._many("add_many", (groups,), calls)
        self._metrics.here().failures += sum(len(failed) for _, failed in made)
        return made

    def add_runs(
        self, accumulators: Sequence[Any], offsets: Sequence[int], columns: Sequence[Sequence[Any]]
    ) -> list[Any]:
        made: list[Any] = self._many("add_runs", (accumulators, offsets, columns), offsets[-1] - offsets[0])
        return made

    def result_many(self, accumulators: Sequence[Any]) -> Sequence[tuple[Any, str]]:
        made: Sequence[tuple[Any, str]] = self._many("result_many", (accumulators,), len(accumulators))
        self._metrics.here().failures += sum(1 for _, failed in made if failed)
        return made

    def _many(self, part: AggregatePart, given: tuple[Any, ...], calls: int) -> Any:
        return self._asked(Request(self._name, given, part), lambda _: calls)

    def _asked(self, request: Request, calls: Callable[[Any], int]) -> Any:
        """The reply of a process. calls: how many calls were made, from the reply."""
        start = time.perf_counter()
        try:
            made = self._workers.ask(request, self._timeout_s)
        except Exception as error:
            lost = isinstance(error, ProcessLost)
            self._metrics.here().add(0, time.perf_counter() - start, lost=lost)
            if lost and is_of_several():
                raise run_too_long(str(error)) from error
            raise
        self._metrics.here().add(calls(made), time.perf_counter() - start)
        return made

    def of_rows(self, rows: Iterable[tuple[Any, ...]]) -> Any:
        """The value of an aggregate over all rows of a group."""
        return self.value(list(rows), part="of_rows")

    def columns(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The column of a vectorised function."""
        return self._column(columns)[0]

    def rows(self, columns: Sequence[pa.Array], types: Sequence[SqlType], failures: Failures) -> pa.Array:
        """The values of a function that takes one row at a time."""
        column, failed = self._column(columns)
        if failed:
            failures.add(list(_rows([c.take(pa.array(failed)) for c in columns], types)))
        return column

    def _column(self, columns: Sequence[pa.Array]) -> tuple[pa.Array, list[int]]:
        """Rows that fail are called once more alone, and counted there."""
        request = Request(self._name, to_ipc(columns))
        data, failed = self._asked(request, lambda made: len(columns[0]) - len(made[1]))
        return from_ipc(data)[0], failed


def _rows(columns: Sequence[pa.Array], types: Sequence[SqlType]) -> Iterable[tuple[Any, ...]]:
    return zip(*(to_python(c, t) for c, t in zip(columns, types, strict=True)), strict=True)


def isolated(function: Function, user: UserFunction | UserVectorFunction, code: Code) -> Function:
    """`function`, whose name is that in plans, with the calls of `user` in processes that run `code`."""
    remote = _Remote(user, workers_of(code), metrics_of(function.name))
    if isinstance(user, UserVectorFunction):
        assert function.arrow is not None
        return replace(
            function,
            reference=lambda found: naming(remote.value, found.result),
            arrow=replace(function.arrow, call=remote.columns),
        )
    made = replace(
        function, reference=lambda found: naming(remote.checked(user.nullable), found.result, many=user.table)
    )
    types = [t for t in user.params if isinstance(t, SqlType) and t.kind in COLUMN_KINDS]
    if user.table or not types or len(types) < len(user.params) or user.result.kind not in COLUMN_KINDS:
        return made
    failures = Failures()
    call = partial(remote.rows, types=types, failures=failures)
    return replace(
        made,
        duckdb=lambda args, _: f'"{function.name}"({", ".join(args)})',
        declines=lambda args, _: f'"{function.name}{FAILED}"({", ".join(args)})',
        arrow=ArrowCall(tuple(types), user.result, call, failures),
    )


def isolated_aggregate(function: AggregateFunction, user: UserAggregate, code: Code) -> AggregateFunction:
    """As `isolated`. Rows of a stream, and results, go in one message per batch; others in one message each."""
    remote = _Remote(user, workers_of(code), metrics_of(function.name))
    return replace(
        function,
        add=lambda *_: remote.step("add", user.nullable),
        undo=None if function.undo is None else lambda *_: remote.step("undo", user.nullable),
        merge=None if function.merge is None else lambda *_: partial(remote.value, part="merge"),
        result=lambda *_: partial(remote.value, part="result"),
        of_rows=lambda _: remote.of_rows,
        add_many=remote.add_many,
        add_runs=lambda _: remote.add_runs,
        result_many=remote.result_many,
    )


def inline(function: Function) -> Function:
    """`function`, whose name is that in plans, with its calls counted."""
    metrics = metrics_of(function.name)

    def bind(resolution: Resolution) -> Callable[..., Any]:
        call = function.reference(resolution)

        def reference(*args: Any) -> Any:
            counts = metrics.here()
            counts.calls += 1
            try:
                if counts.calls % SAMPLED != 1:
                    return call(*args)
                start = time.perf_counter()
                value = call(*args)
                counts.seconds += SAMPLED * (time.perf_counter() - start)
                return value
            except Exception:
                counts.failures += 1
                raise

        return reference

    arrow = function.arrow
    if arrow is None:
        return replace(function, reference=bind)

    def over_columns(columns: Sequence[pa.Array]) -> pa.Array:
        start = time.perf_counter()
        found = arrow.call(columns)
        metrics.here().add(len(found), time.perf_counter() - start)
        return found

    return replace(function, reference=bind, arrow=replace(arrow, call=over_columns))
