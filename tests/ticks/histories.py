"""Random views over tables and views, under statements that never wait: each sampled answer is what DuckDB gives for some prefix of the statements.

python -m tests.ticks.histories [--seeds 100] [--first 0]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from random import Random

import duckdb
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.plan.generations import plain
from flowql.compiler.plan.topology import stores_of
from flowql.runtime.app.driver import Driver
from flowql.runtime.clock import VirtualClock
from tests.slt.session import Shape, SqlSession
from tests.standard_views.case import case
from tests.standard_views.check import CaseResult, Judge, Row, difference

ROUNDS_MAX = 60
State = dict[str, list[list[Row]]]  # answers over a view after some statements


class FlowingSession(SqlSession):
    """The clock goes on by itself, so that commits come while statements do."""

    def __init__(self, seed: int, partitions: int) -> None:
        self._rounds = Random(seed)
        super().__init__(Shape(None, partitions))

    def _open(self) -> None:
        super()._open()
        self._driver = Driver(self._instance, seed=self._rounds.randrange(1 << 30), tick=self._pass_time)

    def _pass_time(self) -> None:
        assert isinstance(self._clock, VirtualClock)
        self._clock.advance(3)

    def write(self, sql: str) -> None:
        """A statement that changes rows; nobody waits for the views."""
        for result in self._session.execute(SourceText("case.sql", sql)):
            if result.change is not None:
                self._change(result.change)
            if result.rows:
                self._write(result.rows)

    def round(self) -> None:
        self._driver.round()

    def sampled(self, views: Sequence[str]) -> dict[str, pa.Table] | None:
        """Rows of views as one answer has them; None if it says that they are not of one moment."""
        taken = self._instance.snapshot_of([q.id for q in self._instance.plan.queries if q.sink in views])
        try:
            if taken.reason:
                return None
            stores = {plain(s.name, query.generation): s.name for query, s in stores_of(self._instance.plan)}
            return {v: self._contents(v, [r for _, r in taken.snapshot.scan(stores[v])]) for v in views}
        finally:
            taken.snapshot.close()


def run(seed: int, *, restarts: bool = False) -> tuple[int, int]:
    """How many answers were compared, and how many of them showed neither the first nor the last state. Raises AssertionError."""
    steps, rng = case(seed), Random(f"ticks {seed}")
    world = FlowingSession(seed, rng.choice((1, 2, 3)))
    with duckdb.connect(config={"threads": 1}) as reference:
        judge = Judge(world, reference, CaseResult(), None)
        judge.define([(n, s) for n, s in enumerate(steps) if s.kind == "table"])
        judge.define([(n, s) for n, s in enumerate(steps) if s.kind == "view"])
        if not judge.views:
            return 0, 0
        states = [answers(reference, judge.views)]
        at = dict[frozenset[str], int]()  # what an answer over these views has shown: a later one shows no less
        compared = between = 0
        for step in (s for s in steps if s.kind == "change"):
            reference.execute(step.reference or step.sql)
            states.append(answers(reference, judge.views))
            world.write(step.sql)
            for _ in range(rng.randrange(ROUNDS_MAX)):
                world.round()
                views = rng.sample(judge.views, min(len(judge.views), rng.randint(1, 3)))
                found = world.sampled(views)
                if found is None:
                    continue
                rows = {v: list(zip(*(c.to_pylist() for c in t.columns), strict=True)) for v, t in found.items()}
                since = at.get(frozenset(views), 0)
                number = prefix(states, rows, since)
                assert number is not None, explained(states, rows, since, judge)
                at[frozenset(views)] = number
                compared, between = compared + 1, between + (0 < number < len(states) - 1)
            if restarts and rng.random() < 0.1:
                world.restart()
        judge.compare(len(steps) - 1, asked=True)
    world.close()
    return compared, between


def answers(reference: duckdb.DuckDBPyConnection, views: Sequence[str]) -> State:
    """With and without its optimizer, as each of both has bugs of its own: see `Judge.compare`."""
    found = {v: [reference.execute(f"SELECT * FROM {v}").fetchall()] for v in views}
    reference.execute("PRAGMA disable_optimizer")
    for v in views:
        found[v].append(reference.execute(f"SELECT * FROM {v}").fetchall())
    reference.execute("PRAGMA enable_optimizer")
    return found


def fits(state: State, view: str, rows: list[Row]) -> bool:
    return not all(difference(answer, rows) for answer in state[view])


def prefix(states: Sequence[State], rows: dict[str, list[Row]], since: int) -> int | None:
    """The first number of statements, from `since` on, after which all views have these rows."""
    fit = (n for n in range(since, len(states)) if all(fits(states[n], v, r) for v, r in rows.items()))
    return next(fit, None)


def explained(states: Sequence[State], rows: dict[str, list[Row]], since: int, judge: Judge) -> str:
    lines = [f"{', '.join(rows)} show no prefix of {since} or more statements"]
    for view, found in rows.items():
        alone = [n for n, state in enumerate(states) if fits(state, view, found)]
        lines += [f"{view} alone is of {alone}: {judge.project[view].sql}"]
        if not alone:
            lines += [difference(states[-1][view][0], found)]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    failed, compared, between = 0, 0, 0
    for seed in range(given.first, given.first + given.seeds):
        try:
            looks, inside = run(seed, restarts=seed % 2 == 1)
            compared, between = compared + looks, between + inside
        except AssertionError as error:
            failed += 1
            print(f"seed {seed}: {error}", flush=True)
    print(
        f"{given.seeds} seeds, {compared:,} answers, {between:,} between the first and the last statement, {failed} failed"
    )


if __name__ == "__main__":
    main()
