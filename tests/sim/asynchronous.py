"""Worlds whose queries call an asynchronous function: its calls end at random times, fail, time out, or never end.

`python -m tests.sim.asynchronous --seeds 2000`: results are those of the same queries without it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.functions.asynchronous import exponential
from flowql.compiler.functions.registry import Function, Registered
from flowql.compiler.functions.user import udf
from flowql.runtime.functions.call_results import CallResult, Done
from tests.sim.__main__ import live
from tests.sim.cluster import SimulatedCluster
from tests.sim.declared import declared
from tests.sim.faults import Disturbed

LATENCIES_MS = (0, 5, 5, 20, 60, 200, 1_500)
# In order: of a key, by way of a query whose rows overtake each other; of all rows, since an aggregate is behind; of a table.
EDITS = {
    "SELECT CUSTOMER, ID, QTY FROM ORDERS WHERE": "SELECT CUSTOMER, ID, SLOWLY(QTY) AS QTY FROM ORDERS WHERE SLOWLY(QTY + 1) > 1 AND",
    "SELECT ITEM, COUNT(*) AS N, SUM(QTY) AS QTY FROM ORDERS": "SELECT ITEM, COUNT(*) AS N, SUM(SLOWLY(SLOWLY(QTY))) AS QTY FROM ORDERS",
}


@udf(asynchronous=True, version="1", max_in_flight=5, retry=exponential(0.01, longest=0.5, attempts=1_000))
def slowly(qty: int) -> int:
    raise AssertionError("the world makes its calls")


class WorldCalls:
    """Implements `flowql.runtime.functions.call_results.Calls` by the heap of the world that lives."""

    world: SimulatedCluster

    def __init__(self) -> None:
        self.begun = self.failed = 0

    def begin(self, args: tuple[Any, ...], done: Done) -> Callable[[], None]:
        world, self.begun = self.world, self.begun + 1
        ended, abandoned = (lambda: abandoned or done(outcome)), False
        outcome = self._outcome(args)

        def abandon() -> None:
            nonlocal abandoned
            abandoned = True

        world.at(world.now + world.rng.choice(LATENCIES_MS), lambda: ended())
        return abandon

    def _outcome(self, args: tuple[Any, ...]) -> CallResult:
        fate = self.world.rng.random()
        if fate < 0.15:
            self.failed += 1
            return CallResult(error="TimeoutError: it did not return within 30 s")
        if fate < 0.2:
            return CallResult(again_ms=self.world.rng.choice((10, 300, 2_000)))
        return CallResult(args[0])


@contextmanager
def calling(patch: pytest.MonkeyPatch) -> Iterator[WorldCalls]:
    """Within, worlds call the function."""
    calls, init = WorldCalls(), SimulatedCluster.__init__

    def with_home(entry: Registered) -> Registered:
        assert isinstance(entry, Function)
        assert entry.asynchronous is not None
        return replace(entry, asynchronous=replace(entry.asynchronous, home=calls))

    def made(world: SimulatedCluster, *args: Any, **options: Any) -> None:
        init(world, *args, **options)
        calls.world = world

    def execute(program: Disturbed, batches: Mapping[str, Any], run: Any) -> Any:
        found = program.program.execute(batches, run)
        program.link.work()
        return found

    def tick(program: Disturbed, run: Any) -> Any:
        found = program.program.tick(run)
        program.link.work()
        return found

    patch.setattr(SimulatedCluster, "__init__", made)
    # Runs fail when the operator has done its part: what it has done is dropped then.
    patch.setattr(Disturbed, "execute", execute)
    patch.setattr(Disturbed, "tick", tick, raising=False)
    with declared(patch, slowly, EDITS, with_home):
        yield calls


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.asynchronous", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--rebuilds", action="store_true", help="queries are changed, again and again")
    given = parser.parse_args()
    with pytest.MonkeyPatch.context() as patch, calling(patch) as calls:
        for seed in range(given.seed, given.seed + given.seeds):
            world, wrong = live(seed, rebuilds=given.rebuilds)
            if wrong:
                print("\n".join([*world.trace, *wrong, f"seed {seed}"]))
                return 1
    print(
        f"{given.seeds} seeds from {given.seed} on: all as DuckDB says, {calls.begun:,} calls, {calls.failed:,} failed"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
