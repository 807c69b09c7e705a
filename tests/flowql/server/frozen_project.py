"""A project whose function freezes the interpreter for one value, and the instance that runs it in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import flowql
from flowql.runtime.app.beat_file import RUNNING, Snapshot, read

WAIT_S = 90.0
YAML = """
name: demo
sql: demo.sql
functions: [functions]
targets: {default: {threads: 2, memory: 128 MB}}
"""
# A power of a large number is one call, with the lock held; PyDLL keeps the lock while it sleeps.
FUNCTIONS = """
import ctypes
from flowql import udf

@udf(isolation="inline")
def careless(a: int) -> int:
    if a == 13:
        pow(7, 10**9)
    if a == 14:
        ctypes.PyDLL(None).sleep(1000)
    return a
"""
PRUNED = "CREATE TABLE poisoned AS SELECT k, COUNT(*) AS n FROM s WHERE careless(v) >= 0 GROUP BY k;\n"
SQL = f"""
CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM u (k STRING KEY, v INT) WITH (KAFKA_TOPIC = 'u', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
{PRUNED}CREATE TABLE critical AS SELECT k, COUNT(*) AS n FROM u GROUP BY k;
"""
FREEZE, BLOCK = 13, 14
POISONED, CRITICAL = "CTAS_POISONED", "CTAS_CRITICAL"


class FrozenProject:
    def __init__(self, folder: Path) -> None:
        self.folder, self.data_dir = folder, folder / ".flowql" / "default"
        (folder / "flowql.yaml").write_text(YAML)
        (folder / "functions.py").write_text(FUNCTIONS)
        self.write(SQL)
        self.connection = flowql.connect(folder)

    def write(self, sql: str) -> None:
        (self.folder / "demo.sql").write_text(sql)

    def send(self, stream: str, *values: int) -> None:
        self.connection.produce(stream, [{"K": "k", "V": v} for v in values])

    def query(self, name: str) -> dict[str, Any]:
        found: list[dict[str, Any]] = self.connection.status()["queries"]
        return next(q for q in found if q["id"] == name)

    def until(self, holds: Callable[[Snapshot], bool]) -> Snapshot:
        """The first content of the beat file that is as wanted."""
        limit = time.monotonic() + WAIT_S
        while (found := read(self.data_dir)) is None or not holds(found):
            assert time.monotonic() < limit, found
            time.sleep(0.02)
        return found

    def running(self, *, after: int = 0) -> int:
        """The process of the instance once it answers. after: another one than this."""
        pid = self.until(lambda s: s.is_alive and s.pid != after and s.state == RUNNING).pid
        self.connection.close()
        self.connection = flowql.connect(self.folder)
        return pid

    def await_rows(self, table: str, n: int) -> None:
        """The key has so many rows."""
        limit, found = time.monotonic() + WAIT_S, None
        while found != [n]:
            assert time.monotonic() < limit, found
            found = [row["N"] for row in self.connection.sql(f"SELECT n FROM {table}").arrow().to_pylist()]
            time.sleep(0.05)

    def end(self) -> None:
        self.connection.close()
        found = read(self.data_dir)
        if found is not None and found.is_alive:
            with suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGCONT)
                os.kill(found.pid, signal.SIGKILL)
