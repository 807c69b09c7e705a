"""The cost of regular expressions and LIKE: a projection of one call, beside the same call by Python's `re`, row by row, as it was once.

    python -m benchmarks.patterns [--rows 1,16,1000,10000] [--rounds 15]

Nanoseconds per row of the processor, the best of the rounds, both in turns. ratio: FlowQL's cost over that of `re`. Only ratios within one run are
meaningful.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.functions.registry import scalar, takes
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.logical import NamedExpr, Project
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import BOOLEAN, STRING, SqlType, array
from flowql.runtime.batch import INSERT, Batch
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.projections import ProjectionChain

SOURCE = Schema((Field("S", STRING),))
BEFORE = "BENCH_RE_"


@dataclass(frozen=True, slots=True)
class Case:
    """subject: index of the string among the arguments. constants: the other ones. by: `re`'s meaning, of all arguments in this order."""

    title: str
    name: str
    subject: int
    constants: tuple[str, ...]
    result: SqlType
    by: Callable[..., Any]


@lru_cache(maxsize=256)
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def _extract(pattern: str, s: str) -> str | None:
    m = _compiled(pattern).search(s)
    return m.group(m.re.groups and 1) if m else None


def _like(s: str, pattern: str) -> bool:
    return _compiled(_of_like(pattern), re.DOTALL).fullmatch(s) is not None


@lru_cache(maxsize=256)
def _of_like(pattern: str) -> str:
    return "".join({"%": ".*", "_": "."}.get(c) or re.escape(c) for c in pattern)


def _split(s: str, pattern: str) -> list[str]:
    parts, start = [], 0
    for m in _compiled(pattern).finditer(s):
        if m.end() > m.start():
            parts.append(s[start : m.start()])
            start = m.end()
    return [*parts, s[start:]]


def _matches(s: str, pattern: str) -> bool:
    return _compiled(pattern).search(s) is not None


def _replace(s: str, pattern: str, by: str) -> str:
    return _compiled(pattern).sub(by, s)


CASES = [
    Case("is in the string", "REGEXP_LIKE", 0, ("timeout",), BOOLEAN, _matches),
    Case("whole format", "REGEXP_LIKE", 0, (r"^[A-Z]+ [a-z0-9.]+@[a-z]+\.[a-z]+ id=\d+ .*$",), BOOLEAN, _matches),
    Case("group of a match", "REGEXP_EXTRACT", 1, (r"id=(\d+)",), STRING, _extract),
    Case("all replaced", "REGEXP_REPLACE", 0, (r"\d+", "#"), STRING, _replace),
    Case("parts between", "REGEXP_SPLIT_TO_ARRAY", 0, (r"\s+",), array(STRING), _split),
    Case("x ~ y", "sql_regexp_like", 0, ("id=[0-9]+ ",), BOOLEAN, _matches),
    Case("LIKE", "like", 0, ("%id=%timeout%",), BOOLEAN, _like),
]


def strings(count: int) -> list[str]:
    """Lines of a log, of some 60 characters."""
    random.seed(1)
    names, ends = ("ann", "bob.miller", "c3po"), ("ok", "timeout after 30 s", "not found")
    return [
        f"{random.choice(('INFO', 'WARN', 'ERROR'))} {random.choice(names)}@example.org id={random.randrange(10**6)} {random.choice(ends)} {i}"
        for i in range(count)
    ]


def chain(case: Case, name: str) -> ProjectionChain:
    args: list[Expr] = [Literal(STRING, c) for c in case.constants]
    args.insert(case.subject, Column(STRING, "S"))
    out = Schema((Field("R", case.result),))
    spec = Project((NamedExpr("R", Call(case.result, name, tuple(args))),))
    return ProjectionChain([Operator("p", spec, ("s",), out, "append")], SOURCE, "append")


def batch(values: list[str]) -> Batch:
    """In columns, as a decoded topic is."""
    arrow = pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["S"])
    n = len(values)
    return Batch(SOURCE, arrow=arrow, rowtime=np.zeros(n, np.int64), op=np.full(n, INSERT, np.int8), seq=np.arange(n))


def registered(case: Case) -> str:
    """The name of the same function by `re`."""
    name = f"{BEFORE}{CASES.index(case)}"
    scalar(name, takes(*(STRING,) * (1 + len(case.constants)), gives=case.result), by=case.by, summary="", example="")
    return name


def measure(works: list[Callable[[], Any]], rounds: int, rows: int) -> list[float]:
    """The best nanoseconds per row of each, in turns."""
    repeats = max(1, 2_000 // rows)
    best = [float("inf")] * len(works)
    for w in works:
        w()
    for _ in range(rounds):
        for i, work in enumerate(works):
            start = time.thread_time_ns()
            for _ in range(repeats):
                work()
            best[i] = min(best[i], (time.thread_time_ns() - start) / repeats / rows)
    return best


def _work(made: ProjectionChain, values: list[str]) -> Callable[[], Any]:
    def work() -> Any:
        found = made.process([batch(values)], MicroBatchContext(NO_STATE))
        assert found is not None
        return found.arrow()

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", default="1,16,1000,10000")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    before = {case.title: registered(case) for case in CASES}
    print(f"{'case':20}{'rows':>8}{'re ns/row':>12}{'FlowQL':>10}{'ratio':>8}")
    for rows in map(int, options.rows.split(",")):
        values = strings(rows)
        for case in CASES:
            old, new = measure(
                [_work(chain(case, before[case.title]), values), _work(chain(case, case.name), values)],
                options.rounds,
                rows,
            )
            print(f"{case.title:20}{rows:>8}{old:>12.0f}{new:>10.0f}{new / old:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
