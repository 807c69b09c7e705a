"""Nexmark queries whose input comes in rounds: a process that `benchmarks.guard` starts for each of two commits.

Reads a line for each round from stdin: the name of a query, or `check` and the name. Prints the processor seconds of the round, or the
difference from the oracle's result. Each query runs alone, in one thread, over an embedded log of its own; its start is not counted.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import pyarrow as pa

from benchmarks.peers.cases import JOIN_FACTOR
from benchmarks.views import ProcessorClock, compiled
from flowql.bench.engines import NEXMARK
from flowql.bench.nexmark_input import PARTITIONS, produce
from flowql.bench.nexmark_people import MAKERS, counts
from flowql.bench.oracle import EXPECTED
from flowql.bench.results import wrong
from flowql.compiler.plan.topology import Plan
from flowql.deploy.selection import select
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.threads import collect_less
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import open_rocks


class Rounds:
    """One query. folder: of its log and state. events: bids of a round; a query without bids reads a longer timeline."""

    def __init__(
        self, plan: Plan, query: str, folder: Path, events: int, rounds: int, partitions: int = PARTITIONS
    ) -> None:
        reads, config = EXPECTED[query].reads, InstanceConfig("rounds")
        self._query, self._done, self._partitions = query, 0, partitions
        self._events = events if "bid" in reads else events * JOIN_FACTOR
        self._input = {t: pa.Table.from_batches(MAKERS[t](counts(self._events * rounds)[t])) for t in reads}
        self._log = EmbeddedLog(folder / "log")
        for topic in reads:
            self._log.admin().create_topic(topic, partitions)
        blocks, writes = config.budget.block_cache_bytes, config.budget.write_buffer_bytes
        physical = open_rocks(folder / "state", cache_bytes=blocks, write_buffer_bytes=writes)
        self.instance = instance = Instance(self._log, physical, ProcessorClock(), config)
        self._driver = Driver(instance)
        instance.deploy(select(plan, [f"+{query}"]))
        self._driver.run_until_caught_up()

    def run(self) -> float:
        """Processor seconds of a round, commits and child processes included."""
        start, end = counts(self._done), counts(self._done + self._events)
        for topic, rows in self._input.items():
            new = iter(rows[start[topic] : end[topic]].combine_chunks().to_batches())
            produce(self._log, topic, new, partitions=self._partitions)
        self._done += self._events
        before = _processor_s()
        self._driver.run_until_caught_up()
        return _processor_s() - before

    def check(self) -> str:
        """How the results of all rounds differ from the oracle's; empty if they are equal."""
        return wrong(self._log, self._query, self._done)


def _processor_s() -> float:
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def main() -> None:
    folder, events, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    leave_pandas_out()
    collect_less()
    plan, queries = compiled(NEXMARK), dict[str, Rounds]()
    for line in sys.stdin:
        *check, query = line.split()
        if query not in queries:
            queries[query] = Rounds(plan, query, folder / query, events, rounds)
        print(repr(queries[query].check()) if check else queries[query].run(), flush=True)
    os._exit(0)  # DuckDB's module would print what it has not freed


if __name__ == "__main__":
    main()
