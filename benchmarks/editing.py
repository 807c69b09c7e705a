"""How long the deployment of one edited query among many takes, without the time to catch up.

    python -m benchmarks.editing [--queries 100] [--rounds 5] [--profile]

A project of streams, filters, tables and joins is deployed to a background instance over a few records. Timed, as whole commands
with the start of their process: `flowql compile`, `deploy` of nothing new, `deploy` of one changed filter until its result serves,
and the same of a query at the root of all. The processor time of the command, and of the
instance meanwhile, is printed as well; it is more reliable on a machine with other load. --profile prints a profile of `plan` and of the deployment
of one change.
"""

from __future__ import annotations

import argparse
import io
import os
import pstats
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from flowql.bench.measuring import BenchFailed
from flowql.config.project import DATA_DIR_DEFAULT
from flowql.server.address import read_address

RECORDS = 200
SHOWN = 30  # functions of a profile
PLAN_S, DEPLOY_S = 3.0, 2.0  # targets, with 100 queries
PROGRAM = "from flowql.cli import main\n\nmain()\n"
CONFIG = "name: editing\nsql: [project.sql]\n"
SOURCES = """
CREATE STREAM ORDERS (ID STRING KEY, CUSTOMER STRING, AMOUNT BIGINT, REGION STRING) WITH (KAFKA_TOPIC='orders', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE CUSTOMERS (NAME STRING PRIMARY KEY, CITY STRING) WITH (KAFKA_TOPIC='customers', PARTITIONS=2, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM BOUGHT AS SELECT ID, CUSTOMER, AMOUNT, REGION FROM ORDERS WHERE AMOUNT > {root};
"""
KINDS = (
    "CREATE STREAM DEAR_{n} AS SELECT ID, AMOUNT * {n} AS AMOUNT FROM BOUGHT WHERE AMOUNT > {over};",
    "CREATE TABLE TOTALS_{n} AS SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM BOUGHT WHERE AMOUNT > {over} GROUP BY CUSTOMER;",
    "CREATE STREAM CITIES_{n} AS SELECT O.CUSTOMER AS CUSTOMER, O.AMOUNT + {over} AS AMOUNT, C.CITY FROM BOUGHT O JOIN CUSTOMERS C ON O.CUSTOMER = C.NAME;",
    "CREATE TABLE HOURS_{n} AS SELECT REGION, MAX(AMOUNT) AS MOST FROM BOUGHT WINDOW TUMBLING (SIZE 1 HOUR) WHERE AMOUNT > {over} GROUP BY REGION;",
)


def project(queries: int, *, over: int = 0, root: int = 0) -> str:
    """So many queries. over, root: in the last and in the first of them."""
    made = [KINDS[n % len(KINDS)].format(n=n, over=0) for n in range(queries - 2)]
    last = KINDS[0].format(n=queries, over=over)
    rows = [
        f"INSERT INTO ORDERS (ID, CUSTOMER, AMOUNT, REGION) VALUES ('{n}', 'c{n % 9}', {n}, 'r{n % 3}');"
        for n in range(RECORDS)
    ]
    return "\n".join([SOURCES.format(root=root), *made, last, *rows]) + "\n"


@dataclass(frozen=True, slots=True)
class Took:
    """The time of a command: seconds, its own processor time, and the instance's processor time meanwhile."""

    seconds: float
    command_s: float
    instance_s: float


class Editing:
    """A project in a folder, and the commands on it."""

    def __init__(self, folder: Path, queries: int) -> None:
        self.folder, self.queries = folder, queries
        (folder / "flowql.yaml").write_text(CONFIG)
        self._program = folder / "program.py"
        self._program.write_text(PROGRAM)
        self.write()

    def write(self, *, over: int = 0, root: int = 0) -> None:
        (self.folder / "project.sql").write_text(project(self.queries, over=over, root=root))

    def timed(self, *arguments: str) -> Took:
        """A command in a process of its own."""
        begin, used_s, served_s = time.perf_counter(), _used_s(), self._served_s()
        self._run([sys.executable, str(self._program)], arguments)
        seconds = time.perf_counter() - begin
        return Took(seconds, _used_s() - used_s, max(0.0, self._served_s() - served_s))

    def profiled(self, *arguments: str) -> str:
        """Where the time of a command goes."""
        file, said = self.folder / "profile", io.StringIO()
        self._run([sys.executable, "-m", "cProfile", "-o", str(file), str(self._program)], arguments)
        pstats.Stats(str(file), stream=said).sort_stats("cumulative").print_stats(SHOWN)
        return said.getvalue()

    def stop(self) -> None:
        if read_address(self.folder / DATA_DIR_DEFAULT) is not None:
            self.timed("stop")

    def _run(self, program: list[str], arguments: Sequence[str]) -> None:
        compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # as an installed program is
        command = [*program, *arguments, "--project", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=compiled)
        if done.returncode:
            raise BenchFailed(f"flowql {arguments[0]}: {done.stderr}")

    def _served_s(self) -> float:
        """Processor time of the instance so far; 0.0 if there is none."""
        address = read_address(self.folder / DATA_DIR_DEFAULT)
        if address is None:
            return 0.0
        times = psutil.Process(address.pid).cpu_times()
        return float(times.user + times.system)


def measure(editing: Editing, rounds: int) -> None:
    show("deploy of all", [editing.timed("deploy")])
    show("plan", [editing.timed("compile") for _ in range(rounds)], PLAN_S)
    show("deploy of nothing new", [editing.timed("deploy") for _ in range(rounds)])
    show("deploy of one change", [_edited(editing, over=n + 1) for n in range(rounds)], DEPLOY_S)
    show("deploy of the root of all", [_edited(editing, over=rounds, root=-n - 1) for n in range(2)])


def _edited(editing: Editing, *, over: int, root: int = 0) -> Took:
    editing.write(over=over, root=root)
    return editing.timed("deploy")


def show(what: str, took: list[Took], target_s: float | None = None) -> None:
    seconds, command_s, instance_s = zip(*((t.seconds, t.command_s, t.instance_s) for t in took), strict=True)
    target = f"   (target: below {target_s:g} s)" if target_s is not None else ""
    busy = f"processor: {statistics.median(command_s):.2f} s command, {statistics.median(instance_s):.2f} s instance"
    print(
        f"{what:27}{statistics.median(seconds):7.2f} s ({min(seconds):.2f} to {max(seconds):.2f})   {busy}{target}",
        flush=True,
    )


def _used_s() -> float:
    """Processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def profile(editing: Editing) -> None:
    print(f"\nplan{editing.profiled('plan')}")
    editing.write(over=1_000)
    print(f"\ndeploy of one change, as its command sees it{editing.profiled('deploy')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flowql-editing-") as name:
        editing = Editing(Path(name), options.queries)
        try:
            measure(editing, options.rounds)
            if options.profile:
                profile(editing)
        finally:
            editing.stop()


if __name__ == "__main__":
    main()
