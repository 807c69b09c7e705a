"""The cost of a changed row of a table by how many rows the state of a view has: microseconds per changed and emitted row.

    python -m benchmarks.state_sizes [--views count-distinct,join] [--rows 10000,100000,1000000] [--changes 5000] [--memory 1024] [--plot costs.png]

Each view runs alone, in a process of its own and in one thread, over a table that grows to each of the sizes. When the files of
its state rest, random rows get new values, again and again, so that files are compacted some times; the first time, which fills
caches, does not count. Time is that of the processor: commits count, and what compacts files in the background. Emitted rows are the
records that the changes add to the view's topic.
The cost may grow by the logarithm of the rows; a view that looks through its state grows by the rows. What does not fit into the
caches of --memory (MiB) is read from files.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.plots import plotted
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.threads import collect_less
from flowql.runtime.batch import Ints
from flowql.runtime.budget import MIB
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.rocks import RocksPhysical, open_rocks

TABLES = "CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, x BIGINT);\nCREATE TABLE u (id BIGINT PRIMARY KEY, g BIGINT, x BIGINT);\n"
GROUPS = 10  # those of a tenth of all rows, so that groups grow with the state
VIEWS = {
    "many groups": "SELECT id / 10 AS a, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY id / 10",
    "few groups": "SELECT g, COUNT(*) AS n, SUM(x) AS s FROM t GROUP BY g",
    "min and max": "SELECT g, MIN(x) AS least, MAX(x) AS most FROM t GROUP BY g",
    "count-distinct": "SELECT g, COUNT(DISTINCT x) AS n FROM t GROUP BY g",
    "join": "SELECT t.id, t.x, u.x AS y FROM t JOIN u ON t.x = u.id",
    "top-n": "SELECT id, g, x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g ORDER BY x DESC, id) AS r FROM t) AS s WHERE r <= 10",
    "over": "SELECT id, SUM(x) OVER (PARTITION BY g ORDER BY id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS s FROM t",
}
BATCH = 50_000
ROUNDS = 20  # the files of joins are compacted after each six or seven of them, which takes as much time as those
REST_S = 0.05
BACKGROUND = tuple(
    f"rocksdb.{p}"
    for p in ("num-running-flushes", "num-running-compactions", "compaction-pending", "mem-table-flush-pending")
)


@dataclass(frozen=True, slots=True)
class Cost:
    """A table of `rows` rows of which `changed` get new values. grown_us: per row that came since the size before."""

    view: str
    rows: int
    changed: int
    emitted: int
    cpu_s: float
    grown_us: float

    @property
    def each_us(self) -> float:
        return self.cpu_s * 1e6 / (self.changed + self.emitted)

    def line(self) -> str:
        return f"{self.view:16}{self.rows:11,}{self.grown_us:12.1f}{self.changed:10,}{self.emitted:10,}{self.each_us:10.1f}"


HEAD = f"{'view':16}{'rows':>11}{'grows, us':>12}{'changed':>10}{'emitted':>10}{'each, us':>10}"


def compiled(view: str) -> Plan:
    found = compile_project(
        [SourceText("sizes.sql", f"{TABLES}CREATE MATERIALIZED VIEW v AS {VIEWS[view]};")], dialect="standard"
    )
    assert found.ok, found.diagnostics
    return found.plan


def records(ids: Ints, rng: np.random.Generator, rows: int) -> pa.RecordBatch:
    """Rows of a table as its records; x is one of `rows` numbers."""
    values = rng.integers(0, rows, len(ids))
    texts = [f'{{"g":{g},"x":{x}}}'.encode() for g, x in zip((ids % GROUPS).tolist(), values.tolist(), strict=True)]
    keys = [str(i).encode() for i in ids.tolist()]
    columns = [
        pa.array(np.zeros(len(ids), np.int64)).cast(PRODUCE_SCHEMA.field(0).type),
        pa.array(keys, pa.binary()),
        pa.array(texts, pa.binary()),
        pa.nulls(len(ids), PRODUCE_SCHEMA.field("headers").type),
    ]
    return pa.record_batch(columns, schema=PRODUCE_SCHEMA)


class Tables:
    """Both tables, as a program that writes them. rows: how many they have."""

    def __init__(self, log: Log, names: Sequence[str]) -> None:
        self.rows, self._names, self._rng = 0, names, np.random.default_rng(1)
        self._producer = log.producer("bench-sizes")

    def grow(self, rows: int) -> None:
        self._write("u", np.arange(self.rows, rows), rows)
        self._write("t", np.arange(self.rows, rows), rows)
        self.rows = rows

    def change(self, count: int) -> None:
        """Rows of t get new values, each at most one."""
        self._write("t", self._rng.choice(self.rows, count, replace=False), self.rows)

    def _write(self, name: str, ids: Ints, rows: int) -> None:
        if name in self._names and len(ids):
            self._producer.begin()
            for start in range(0, len(ids), BATCH):
                self._producer.send(TopicPartition(name, 0), records(ids[start : start + BATCH], self._rng, rows))
            self._producer.commit()


def measure(view: str, sizes: Sequence[int], changes: int, memory_mib: int) -> Iterator[Cost]:
    """In this process and thread."""
    plan = compiled(view)
    read = {t for q in plan.queries for s in q.subtopologies for t in s.topics}
    with (
        tempfile.TemporaryDirectory(prefix="flowql-bench-sizes-") as name,
        closing(EmbeddedLog(Path(name, "log"))) as log,
    ):
        config = InstanceConfig("sizes", memory_bytes=memory_mib * MIB)
        blocks, writes = config.budget.block_cache_bytes, config.budget.write_buffer_bytes
        physical = open_rocks(Path(name, "state"), cache_bytes=blocks, write_buffer_bytes=writes)
        instance = Instance(log, physical, SystemClock(), config)
        driver = Driver(instance)
        instance.deploy(plan)
        driver.run_until_caught_up()
        collect_less()
        tables, out = Tables(log, sorted(read & {"t", "u"})), TopicPartition("v", 0)
        for rows in sizes:
            before = tables.rows
            tables.grow(rows)
            grown_s = _spent(driver, physical)
            spent_s, end = 0.0, 0
            for n in range(ROUNDS):
                if n == 1:
                    spent_s, end = 0.0, log.admin().end_offset(out)
                tables.change(changes)
                spent_s += _spent(driver, physical)
            emitted = log.admin().end_offset(out) - end
            yield Cost(view, rows, changes * (ROUNDS - 1), emitted, spent_s, grown_s * 1e6 / max(rows - before, 1))
        instance.stop()


def _spent(driver: Driver, physical: RocksPhysical) -> float:
    """Until its files rest, which they do not in the background of what is measured next."""
    start = time.process_time()
    driver.run_until_caught_up()
    while any(map(physical.property, BACKGROUND)):
        time.sleep(REST_S)
    return time.process_time() - start


def plot(costs: Sequence[Cost], file: Path) -> None:
    """A line per view."""
    with plotted(file) as axes:
        for view in dict.fromkeys(c.view for c in costs):
            points = [(c.rows, c.each_us) for c in costs if c.view == view]
            axes.plot(*zip(*points, strict=True), marker="o", label=view)
        axes.set(xscale="log", xlabel="rows of the table", ylabel="us per changed and emitted row")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small", ncol=2)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.state_sizes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--views", default=",".join(VIEWS))
    parser.add_argument("--rows", default="10000,100000,1000000")
    parser.add_argument("--changes", type=int, default=5_000)
    parser.add_argument("--memory", type=int, default=1024, help="MiB of an instance")
    parser.add_argument("--plot", type=Path, help="a PNG file; needs matplotlib")
    options = parser.parse_args()
    sizes = [int(n) for n in options.rows.split(",")]
    costs: list[Cost] = []
    print(HEAD)
    for view in options.views.split(","):
        with get_context("spawn").Pool(1) as pool:  # memory of one view does not count for the next
            costs += pool.apply(_measured, (view, sizes, options.changes, options.memory))
        if options.plot is not None:  # also if a later view takes too long
            plot(costs, options.plot)


def _measured(view: str, sizes: Sequence[int], changes: int, memory_mib: int) -> list[Cost]:
    found: list[Cost] = []
    for cost in measure(view, sizes, changes, memory_mib):
        print(cost.line(), flush=True)
        found.append(cost)
    return found


if __name__ == "__main__":
    main()
