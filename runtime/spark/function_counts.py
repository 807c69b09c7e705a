"""Calls of user-defined functions in Spark's workers: how their counts reach the driver, and stand with the counters of a query.

Tasks of the runtime give them with their notes. Spark's own operators have no notes: their Arrow functions add them to an accumulator, of which
the driver takes what belongs to a query when it commits. Counts are those of calls that were made: Spark may compute rows more than once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.visit import functions_called
from flowql.runtime.functions.metrics import PARTS, metrics_data

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

FUNCTIONS = "functions"  # of a note: {name in SQL: [calls, failures, microseconds, lost processes]}
FUNCTIONS_MAX = 32  # of a query: counters are committed as the metadata of an offset, of which Kafka takes 4 KB
_MARK = "()"

_lock = threading.Lock()  # guards the two below
_counted: tuple[SparkContext, Accumulator[dict[str, list[int]]]] | None = None
_taken: dict[str, list[int]] = {}


def counter() -> Accumulator[dict[str, list[int]]] | None:
    """The accumulator of this process's classic session; None where there is none, as with Spark Connect."""
    from pyspark import AccumulatorParam, SparkContext

    class Sums(AccumulatorParam[dict[str, list[int]]]):
        def zero(self, value: dict[str, list[int]]) -> dict[str, list[int]]:
            return {}

        def addInPlace(self, value1: dict[str, list[int]], value2: dict[str, list[int]]) -> dict[str, list[int]]:
            for name, counts in value2.items():
                value1[name] = [a + b for a, b in zip(value1.get(name, [0] * len(counts)), counts, strict=True)]
            return value1

    global _counted
    context = SparkContext._active_spark_context
    if context is None:
        return None
    with _lock:
        if _counted is None or _counted[0] is not context:
            _counted = context, context.accumulator({}, Sums())
            _taken.clear()
        return _counted[1]


def functions_in(query: QueryPlan) -> frozenset[str]:
    """Names in SQL of the user-defined functions that a query calls."""
    return frozenset(plain_name(name) for name in functions_called(query.logical) if is_users(name))


def taken(functions: Collection[str]) -> dict[str, Any]:
    """A note with what workers have counted of these functions since it was asked last."""
    with _lock:
        if _counted is None:
            return {}
        found, total = {}, _counted[1].value
        for name in functions:
            counts = total.get(name)
            if counts is not None:
                before = _taken.get(name, [0] * len(counts))
                found[name] = [a - b for a, b in zip(counts, before, strict=True)]
                _taken[name] = list(counts)
    return {FUNCTIONS: found} if found else {}


def counters_of(note: Mapping[str, Any]) -> dict[str, int]:
    """The counters of a query in a note."""
    functions = sorted(note.get(FUNCTIONS, {}).items())[:FUNCTIONS_MAX]
    return {f"{name}{_MARK}{part}": n for name, counts in functions for part, n in zip(PARTS, counts, strict=True) if n}


def function_figures(plan: Plan, counters: Iterable[Mapping[str, int]]) -> list[dict[str, Any]]:
    """As `status` shows them. counters: of the queries."""
    sums: Counter[str] = Counter()
    for of_query in counters:
        sums.update({name: n for name, n in of_query.items() if _MARK in name})
    names = sorted({name for q in plan.queries for name in functions_called(q.logical) if is_users(name)})
    found = ((name, [sums[f"{plain_name(name)}{_MARK}{part}"] for part in PARTS]) for name in names)
    return [
        metrics_data(name, calls, failures, micros / 1e6, lost)
        for name, (calls, failures, micros, lost) in found
        if calls
    ]
