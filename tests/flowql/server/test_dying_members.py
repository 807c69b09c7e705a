"""Three members of a group and a record whose function ends the process: two of them die of it at most, and the other queries go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.runtime.app.beat_file import RUNNING, read
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.kafka, pytest.mark.turns("processes")]
WAIT_S, MEMBERS, DEADLY = 90.0, ("one", "two", "three"), 13
POISONED, CRITICAL = "CTAS_POISONED", "CTAS_CRITICAL"
FUNCTIONS = f"""
import os
from flowql import udf

@udf(isolation="inline")
def careless(a: int) -> int:
    if a == {DEADLY}:
        os._exit(9)
    return a
"""
SQL = """
CREATE STREAM s (k STRING KEY, v INT) WITH (KAFKA_TOPIC = '{app}-s', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE poisoned WITH (KAFKA_TOPIC = '{app}-poisoned') AS SELECT k, COUNT(*) AS n FROM s WHERE careless({of}) >= 0 GROUP BY k;
CREATE TABLE critical WITH (KAFKA_TOPIC = '{app}-critical') AS SELECT k, SUM(v) AS n FROM s GROUP BY k;
"""


class Group:
    """An application with three instances, each started by `flowql serve` in a data directory of its own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.app = folder, f"d{uuid.uuid4().hex[:8]}"
        kafka = f"{{bootstrap: '{bootstrap}', app_id: {self.app}, instances: many}}"
        targets = "".join(f"  {m}: {{log: kafka, threads: 1, memory: 128 MB, kafka: {kafka}}}\n" for m in MEMBERS)
        (folder / "flowql.yaml").write_text(f"name: p\nsql: p.sql\nfunctions: [functions]\ntargets:\n{targets}")
        (folder / "functions.py").write_text(FUNCTIONS)
        self.write("v")
        self.processes = {m: self._serve(m) for m in MEMBERS}
        for m in MEMBERS:
            self.until(lambda m=m: (seen := read(self.data(m))) is not None and seen.state == RUNNING)

    def write(self, of: str) -> None:
        (self.folder / "p.sql").write_text(SQL.format(app=self.app, of=of))

    def data(self, member: str) -> Path:
        return self.folder / ".flowql" / member

    def _serve(self, member: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "flowql", "serve", "-p", str(self.folder), "-t", member]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def until(self, done: Callable[[], Any]) -> Any:
        limit = time.monotonic() + WAIT_S
        while not (found := done()):
            assert time.monotonic() < limit
            time.sleep(0.1)
        return found

    def do(self, what: Callable[[flowql.Connection], Any]) -> Any:
        """By a member that answers."""
        for member in MEMBERS:
            try:
                with flowql.connect(self.folder, target=member) as connection:
                    return what(connection)
            except (flowql.CommandError, flowql.RuntimeFailure):  # it has ended, or is starting
                continue
        return None

    def rows(self, table: str) -> int:
        def ask(connection: flowql.Connection) -> list[int]:
            return [row["N"] for row in connection.sql(f"SELECT n FROM {table}").arrow().to_pylist()]

        return next(iter(self.do(ask) or ()), 0)

    def query(self, name: str) -> dict[str, Any]:
        status = self.do(lambda c: c.status())
        return next((q for q in status["queries"] if q["id"] == name), {}) if status else {}

    def send(self, *values: int) -> None:
        self.do(lambda c: c.produce("s", [{"K": "k", "V": v} for v in values]))

    def deaths(self) -> set[int]:
        """Processes that died inside a micro-batch, as the instances that followed them say."""
        lines = [line for m in MEMBERS for line in (self.data(m) / "instance.log").read_text().splitlines()]
        return {event["process"] for line in lines if (event := json.loads(line))["event"] == "instance.died"}

    def end(self) -> None:
        for m, process in self.processes.items():
            seen = read(self.data(m))
            process.kill()
            process.wait()
            if seen is not None and seen.is_alive:
                os.kill(seen.pid, signal.SIGKILL)


@pytest.fixture
def group(tmp_path: Path, kafka: str) -> Iterator[Group]:
    made = Group(tmp_path, kafka)
    try:
        yield made
    finally:
        made.end()


def test_a_record_that_ends_its_process_ends_two_members_at_most(group: Group) -> None:
    group.do(lambda c: c.deploy())
    group.send(1, 2)
    group.until(lambda: group.rows("poisoned") == 2)
    group.send(DEADLY, 3)
    found = group.until(lambda: (q := group.query(POISONED)).get("state") == "hung" and q)
    assert len(group.deaths()) == 2
    for part in ("2 instances in a row died", f"task {POISONED}/0_0", f"{group.app}-s-0 offset 2", "flowql resume"):
        assert part in found["last_error"]
    group.until(lambda: group.rows("critical") == 1 + 2 + DEADLY + 3)
    group.send(4)
    group.until(lambda: group.rows("critical") == 1 + 2 + DEADLY + 3 + 4)
    assert group.query(CRITICAL)["state"] == "running"

    group.write(f"CASE WHEN v = {DEADLY} THEN 0 ELSE v END")
    group.until(lambda: group.do(lambda c: c.deploy()))
    group.until(lambda: group.rows("poisoned") == 5)
    assert group.query(POISONED)["state"] == "running"
    assert len(group.deaths()) == 2
