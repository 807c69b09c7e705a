"""`python -m tests.crash.spark --rounds 3 --seed N`: input in three portions, kill -9 of the Spark driver in between, all kinds of queries.

What comes out must be what the runtime makes of the same input.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flowql.deploy.engine import open_instance
from flowql.deploy.stages import select
from runtime.app.progress import caught_up, source_ends
from runtime.config import InstanceConfig
from runtime.log.embedded.log import EmbeddedLog
from runtime.spark.log_append import Target, place_of
from tests.crash.kills import prepare
from tests.crash.outcome import DEAD_LETTERS, Outcome, differences, records_of
from tests.crash.project import APPENDED, UPSERTED, Part, append, compiled, orders

PORTIONS = 3
WAIT_S = 600.0  # a loaded machine starts Spark in minutes


def expected_of(folder: Path, queries: Sequence[str], portions: Sequence[list[list[Part]]]) -> Outcome:
    """The runtime's results over all portions at once."""
    folder.mkdir()
    prepare(folder)
    feed(folder, [part for portion in portions for part in portion])
    instance = open_instance(folder / "log", folder / "state", InstanceConfig())
    instance.start()
    instance.deploy(select(compiled(), queries))
    ends = source_ends(instance)
    while not caught_up(instance, ends):
        assert instance.fatal is None, instance.fatal
        time.sleep(0.01)
    instance.stop()
    return outcome_of(folder, queries)


def killed(
    folder: Path,
    queries: Sequence[str],
    portions: Sequence[list[list[Part]]],
    rng: random.Random,
    kills: int,
    streams: str = "exact",
) -> Outcome:
    """The same on Spark: a portion, a driver, a kill while the next portion is being processed; at last an undisturbed driver.

    Portions that are left after the kills come before the last driver.
    """
    folder.mkdir()
    prepare(folder)
    feed(folder, portions[0])
    for portion in portions[1 : kills + 1]:
        with _Driver(folder, queries, streams) as driver:
            before = _epochs(folder)
            driver.wait_for(lambda before=before: _epochs(folder) > before)
            feed(folder, portion)
            time.sleep(rng.uniform(0.0, 1.5))
            driver.kill()
    feed(folder, [part for portion in portions[kills + 1 :] for part in portion])
    (folder / "ended").touch()
    with _Driver(folder, queries, streams) as driver:
        driver.wait_for(lambda: driver.process.poll() is not None)
        assert driver.process.returncode == 0, driver.said()
    return outcome_of(folder, queries)


def outcome_of(folder: Path, queries: Sequence[str]) -> Outcome:
    """What is in the topics of these queries. Of upserted topics the last value of each key, whatever its record's time."""
    log = EmbeddedLog(folder / "log")
    plan = select(compiled(), queries)
    written = {s.topic for s in plan.sources if s.query is not None}
    found = Outcome()
    for topic in (*APPENDED, DEAD_LETTERS):
        if topic in written or topic == DEAD_LETTERS:
            for p, r in records_of(log, topic):
                found.appended.setdefault(topic, Counter())[p, r["timestamp"], r["key"], r["value"]] += 1
    for topic in (t for t in UPSERTED if t in written):
        last = {(p, r["key"]): (r["timestamp"], r["value"]) for p, r in records_of(log, topic)}
        found.upserted[topic] = {k: v for k, v in last.items() if v[1] is not None}
    log.close()
    return found


def portions_of(count: int, seed: int) -> list[list[list[Part]]]:
    parts = list(orders(count, seed, 50))
    size = -(-len(parts) // PORTIONS)
    return [parts[i : i + size] for i in range(0, len(parts), size)]


class _Driver:
    """A driver process. Its Java goes with it: the pipe it waits on is closed."""

    def __init__(self, folder: Path, queries: Sequence[str], streams: str) -> None:
        self._said = (folder / "driver.log").open("ab")
        command = [sys.executable, "-m", "tests.crash.spark_workload", str(folder), ",".join(queries), streams]
        self.process = subprocess.Popen(command, stdout=self._said, stderr=self._said, start_new_session=True)
        self._folder = folder

    def __enter__(self) -> _Driver:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self._said.close()

    def wait_for(self, condition: Any) -> None:
        limit = time.monotonic() + WAIT_S
        while not condition():
            ended = self.process.poll()
            assert ended in (None, 0), f"the driver ended with {ended}: {self.said()}"
            assert time.monotonic() < limit, self.said()
            time.sleep(0.05)

    def kill(self) -> None:
        """The whole session at once: driver, Java and Python workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]


def _epochs(folder: Path) -> int:
    """How many batches of all queries are in the log."""
    log = EmbeddedLog(folder / "log")
    places = [place_of(log, Target(q.id)) for q in compiled().queries]
    log.close()
    return sum(p.next_epoch for p in places if p is not None)


def feed(folder: Path, parts: Sequence[list[Part]]) -> None:
    """Append parts, each in a transaction of its own."""
    log = EmbeddedLog(folder / "log")
    for part in parts:
        append(log, part)
    log.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--orders", type=int, default=3000)
    parser.add_argument("--queries", default="", help="names of results, with commas; all kinds by default")
    parser.add_argument("--streams", choices=["exact", "native"], default="exact", help="how streams keep their state")
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    queries = [q for q in args.queries.split(",") if q]
    failed = False
    with tempfile.TemporaryDirectory(prefix="flowql-crash-") as name:
        portions = portions_of(args.orders, args.seed)
        expected = expected_of(Path(name) / "runtime", queries, portions)
        for n in range(args.rounds):
            start = time.monotonic()
            rng = random.Random(f"{args.seed} {n}")
            seen = killed(Path(name) / f"spark {n}", queries, portions, rng, PORTIONS - 1, args.streams)
            found = differences(expected, seen)
            failed |= bool(found)
            print(f"round {n}: {PORTIONS - 1} kills, {time.monotonic() - start:.0f} s", flush=True)
            print("\n".join(found) or "  equal to the runtime", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
