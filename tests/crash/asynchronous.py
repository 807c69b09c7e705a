"""An instance that calls asynchronous functions, and the process that makes the calls, killed with SIGKILL at random moments.

    python -m tests.crash.asynchronous --rounds 30 --seed 1

Calls take up to 1.5 s, fail, and ask to be made again later, so moments fall between completion, parking and commit. In the end each row is in the
results once, rows of a key are in their order, and an aggregate is that of the same rows.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil

import flowql
from flowql.errors import CommandError
from flowql.query.errors import QueryError
from flowql.runtime.functions.async_workers import PROGRAM
from tests.processes import children_that_run

KEYS, ROWS, WAIT_S = 20, 150, 120.0
YAML = "name: shop\nfunctions: [calls]\nsql: [shop.sql]\n"
SQL = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID BIGINT) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM OUT AS SELECT CUSTOMER, SCORE(ID) AS ID FROM ORDERS;
CREATE TABLE SUMS AS SELECT ID % 7 AS REST, COUNT(*) AS N, SUM(SCORE(ID)) AS IDS FROM ORDERS GROUP BY ID % 7;
"""
CALLS = """
import asyncio, random
from flowql import RetryAfter, exponential, udf

@udf(asynchronous=True, max_in_flight=40, retry=exponential(0.02, longest=1.2, attempts=1000))
async def score(id: int) -> int:
    await asyncio.sleep(random.choice((0, 0, 0.01, 0.05, 0.2)) if id % 50 else 1.5)
    chance = random.random()
    if chance < 0.1:
        raise ConnectionError("the service is away")
    if chance < 0.15:
        raise RetryAfter(random.choice((0.05, 1.2)))
    return id
"""


class Story:
    """A project in a folder, its instance, and the rows that it was given."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng, self.given = folder, random.Random(seed), 0
        self.kills: Counter[str] = Counter()
        for name, text in (("flowql.yaml", YAML), ("shop.sql", SQL), ("calls.py", CALLS)):
            (folder / name).write_text(text)
        self.process: subprocess.Popen[bytes] | None = None
        self.errors = folder / "errors.txt"  # what the instances said

    def start(self) -> None:
        command = [sys.executable, "-m", "flowql", "run", "-p", str(self.folder)]
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)

    def feed(self, shop: flowql.Connection) -> None:
        rows = [{"CUSTOMER": f"c{n % KEYS}", "ID": n} for n in range(self.given, self.given + ROWS)]
        shop.produce("ORDERS", rows)
        self.given += ROWS

    def strike(self) -> None:
        """The instance, or the process that makes the calls, is killed."""
        assert self.process is not None
        if self.rng.random() < 0.5:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.kills["instance"] += 1
            self.start()
            return
        with suppress(psutil.Error):
            for child in children_that_run(PROGRAM, self.process.pid):
                child.kill()
                self.kills["worker"] += 1

    def run(self, rounds: int) -> None:
        self.start()
        with flowql.connect(self.folder) as shop:
            self._until(lambda: bool(shop.status()["queries"]))
            for _ in range(rounds):
                self._until(lambda: self._fed(shop))
                time.sleep(self.rng.uniform(0.05, 1.5))
                self.strike()
            self._until(lambda: self._count(shop) >= self.given)
            self._judge(shop)
        assert self.process is not None
        self.process.terminate()
        self.process.wait(30)

    def _fed(self, shop: flowql.Connection) -> bool:
        before = self.given
        with suppress(CommandError):  # it is being started
            self.feed(shop)
        return self.given > before

    def _count(self, shop: flowql.Connection) -> int:
        with suppress(CommandError, QueryError):
            (row,) = shop.sql("SELECT (SELECT COUNT(*) FROM OUT) AS A, (SELECT COALESCE(SUM(N), 0) FROM SUMS) AS B")
            return min(int(row["A"]), int(row["B"]))
        return -1

    def _until(self, done: object) -> None:
        assert callable(done)
        limit = time.monotonic() + WAIT_S
        while not done():
            assert self.process is not None
            assert self.process.poll() is None, f"it ended: {self.errors.read_text()}"
            assert time.monotonic() < limit, (
                f"it never gets there: {self.given} rows were given; {self.errors.read_text()}"
            )
            time.sleep(0.1)

    def _judge(self, shop: flowql.Connection) -> None:
        with shop.subscribe("OUT", start="earliest", limit=self.given) as changes:
            rows = [(c.row["CUSTOMER"], c.row["ID"]) for c in changes]
        assert Counter(i for _, i in rows) == Counter(range(self.given)), "rows are missing, or there twice"
        for key in {k for k, _ in rows}:
            ids = [i for k, i in rows if k == key]
            assert ids == sorted(ids), f"rows of {key} are out of order: {ids}"
        sums = {r["REST"]: (r["N"], r["IDS"]) for r in shop.sql("SELECT * FROM SUMS")}
        for rest in range(7):
            ids = range(rest, self.given, 7)
            assert sums[rest] == (len(ids), sum(ids)), f"{rest}: {sums[rest]}"


def live(rounds: int, seed: int) -> str:
    """A line about what happened. AssertionError for what is wrong."""
    folder = Path(tempfile.mkdtemp(prefix="flowql-asynchronous-"))
    story = Story(folder, seed)
    try:
        story.run(rounds)
    finally:
        if story.process is not None and story.process.poll() is None:
            story.process.kill()
            story.process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return f"seed {seed}: {story.given:,} rows, killed: {dict(story.kills)}; each row once, in the order of its key"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.asynchronous", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(live(given.rounds, given.seed))


if __name__ == "__main__":
    main()
