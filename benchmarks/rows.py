"""Milliseconds and processor time of INSERT, UPDATE and DELETE of one row by its key, beside an fsync of the same disk.

    python -m benchmarks.rows [--rows 1000 100000 1000000] [--clients 1 4 32] [--statements 1000] [--json FILE]

Clients are threads of one process on an embedded log, and the rows of the table are kept in a database, as in an instance. Each client gives the
text of a statement and waits until it is durable. `first` is the first statement: it reads the table from its topic.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import Plan
from flowql.query.changing import carry_out
from flowql.query.local_tables import LocalTables
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.topology.query import ensure_sources

SQL = "CREATE TABLE accounts (id INT PRIMARY KEY, name TEXT, cents BIGINT, note TEXT);"
STATEMENTS: dict[str, Callable[[int, int], str]] = {
    "UPDATE": lambda id, _: f"UPDATE accounts SET cents = cents + 1 WHERE id = {id}",
    "INSERT": lambda _, new: f"INSERT INTO accounts VALUES ({new}, 'name {new}', 0, NULL)",
    "DELETE": lambda id, _: f"DELETE FROM accounts WHERE id = {id}",
}
WARM_UP = 50  # statements of each kind that are not measured
FSYNCS = 300


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one kind of statement. per_s: of all clients. cpu_ms: of the process, for one statement."""

    rows: int
    clients: int
    statement: str
    p50_ms: float
    p99_ms: float
    per_s: float
    cpu_ms: float


def fsync_ms(folder: Path) -> tuple[float, float]:
    """The median and the 99th percentile of appending 300 bytes to a file and making them durable."""
    fd, found = os.open(folder / "fsync", os.O_RDWR | os.O_CREAT), list[float]()
    try:
        for i in range(FSYNCS):
            begun = time.perf_counter()
            os.pwrite(fd, bytes(300), 300 * i)
            os.fdatasync(fd)
            found.append((time.perf_counter() - begun) * 1e3)
    finally:
        os.close(fd)
    return _quantiles(found)


def _quantiles(ms: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.quantile(ms, [0.5, 0.99])
    return round(float(p50), 2), round(float(p99), 2)


class Table:
    """A table of so many rows on a log in a folder."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.plan: Plan = compile_project([SourceText("rows.sql", SQL)], dialect="standard").plan
        with closing(EmbeddedLog(folder / "log")) as log:
            ensure_sources(self.plan, log.admin())
        self.rows, self._new = rows, rows
        self._lock = threading.Lock()  # guards the number of the next row
        self._opened = lambda: EmbeddedLog(folder / "log")
        self._load()
        self.tables = LocalTables(self._opened, "bench", "bench", folder / "tables")

    def _load(self) -> None:
        """As another process would."""
        source = self.plan.source("accounts")
        assert source is not None
        insert = TableChange("accounts", "insert", ("id", "name", "cents"), select="...")
        with closing(LocalTables(self._opened, "bench", "load")) as tables:
            ids = pa.array(np.arange(self.rows))
            names = pc.binary_join_element_wise("name", ids.cast(pa.string()), " ")
            columns = [ids.cast(pa.int32()), names, ids]
            tables.writers().insert(source, insert, 0, [pa.RecordBatch.from_arrays(columns, names=[*insert.columns])])

    def execute(self, statement: str) -> None:
        """With a key that any row may have, or a new one."""
        with self._lock:
            self._new += 1
            new = self._new
        sql = STATEMENTS[statement](random.randrange(self.rows), new)
        carry_out(
            sql,
            self.plan.sources,
            self.tables.writers(),
            _unasked,
            "bench",
            dialect="standard",
            variables={},
            bound=self.tables.bound,
        )


def _unasked(sql: str) -> NoReturn:
    raise AssertionError(f"no statement has a query: {sql}")


def measure(table: Table, statement: str, clients: int, count: int) -> Figures:
    """count: statements of all clients together."""
    for _ in range(WARM_UP):
        table.execute(statement)
    found: list[float] = []

    def run() -> None:
        for _ in range(count // clients):
            begun = time.perf_counter()
            table.execute(statement)
            found.append((time.perf_counter() - begun) * 1e3)

    threads = [threading.Thread(target=run) for _ in range(clients)]
    begun, cpu = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.perf_counter() - begun, time.process_time() - cpu
    per_s, cpu_ms = round(len(found) / took), round(used * 1e3 / len(found), 2)
    return Figures(table.rows, clients, statement, *_quantiles(found), per_s, cpu_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 32])
    parser.add_argument("--statements", type=int, default=1_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    all_figures: list[Figures] = []
    for rows in chosen.rows:
        with tempfile.TemporaryDirectory() as folder:
            table = Table(Path(folder), rows)
            begun = time.perf_counter()
            table.execute("UPDATE")
            first_s, fsync = time.perf_counter() - begun, fsync_ms(Path(folder))
            print(f"{rows:,} rows: first {first_s:.2f} s, fsync p50 {fsync[0]} ms, p99 {fsync[1]} ms")
            for clients in chosen.clients:
                for statement in STATEMENTS:
                    f = measure(table, statement, clients, chosen.statements)
                    all_figures.append(f)
                    shown = f"p50 {f.p50_ms:7.2f} ms  p99 {f.p99_ms:7.2f} ms  {f.per_s:6,}/s  {f.cpu_ms} ms CPU"
                    print(f"  {statement:8}{clients:3} clients  {shown}", flush=True)
            table.tables.close()
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(f) for f in all_figures], indent=1))


if __name__ == "__main__":
    main()
