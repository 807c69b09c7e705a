"""`python -m tests.crash.spark --rounds 3 --seed N`: input in three portions, kill -9 of the Spark driver in between (of every
second one a Python worker of it first), all kinds of queries.

What comes out must be what the runtime makes of the same input. `--log kafka`: on a broker of its own; the runtime still has its own log. `--outage 30`: the broker is killed before each kill of Spark, and is gone for so many seconds.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from flowql.deploy.engine import open_instance
from flowql.deploy.selection import select
from flowql.kafka.broker import Broker
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.log_address import Address, KafkaAddress, open_log
from flowql.runtime.spark.log_append import Target, committed_epochs
from tests.crash.contents import DEAD_LETTERS, CommittedContents, differences, records_of
from tests.crash.driver import Driver
from tests.crash.project import APPENDED, UPSERTED, Part, append, compiled, create_topics, customers, orders
from tests.kafka_broker import QUICK

APP = "flowql"
PORTIONS = 3
_WHERE = re.compile(rb'"OFFSET":\d+')


def expected_of(folder: Path, queries: Sequence[str], portions: Sequence[list[list[Part]]]) -> CommittedContents:
    """The runtime's results over all portions at once."""
    folder.mkdir()
    start(folder / "log")
    feed(folder / "log", [part for portion in portions for part in portion])
    instance = open_instance(folder / "log", folder / "state", InstanceConfig())
    instance.start()
    instance.deploy(select(compiled(), queries))
    ends = source_ends(instance)
    while not caught_up(instance, ends):
        assert instance.fatal is None, instance.fatal
        time.sleep(0.01)
    instance.stop()
    return outcome_of(folder / "log", queries)


def killed(
    folder: Path,
    queries: Sequence[str],
    portions: Sequence[list[list[Part]]],
    rng: random.Random,
    kills: int,
    streams: str = "exact",
    bootstrap: str = "",
    outage: Callable[[], None] = lambda: None,
) -> CommittedContents:
    """The same on Spark: a portion, a driver, a kill while the next portion is being processed; at last an undisturbed driver.

    Portions that are left after the kills come before the last driver. bootstrap: of an empty Kafka, else the log is in the folder.
    outage: takes the brokers away and brings them back, before each kill.
    """
    folder.mkdir()
    address = address_of(folder, bootstrap)
    workload = ("tests.crash.spark_workload", str(folder), ",".join(queries), streams, bootstrap)
    start(address)
    feed(address, portions[0])
    for portion in portions[1 : kills + 1]:
        with Driver(folder, *workload) as driver:
            before = _epochs(address)
            driver.wait_for(lambda before=before: _epochs(address) > before)
            feed(address, portion)
            time.sleep(rng.uniform(0.0, 1.5))
            outage()
            if rng.random() < 0.5:
                driver.kill_worker(rng)
                time.sleep(rng.uniform(0.0, 3.0))
            driver.kill()
    feed(address, [part for portion in portions[kills + 1 :] for part in portion])
    (folder / "ended").touch()
    with Driver(folder, *workload) as driver:
        driver.ended()
    return outcome_of(address, queries)


def address_of(folder: Path, bootstrap: str) -> Address:
    return KafkaAddress(KafkaSettings(bootstrap), APP) if bootstrap else folder / "log"


def start(address: Address) -> None:
    """The topics of the input, and who is there before it."""
    with closing(open_log(address)) as log:
        create_topics(log.admin())
        append(log, customers())


def outcome_of(address: Address, queries: Sequence[str]) -> CommittedContents:
    """What is in the topics of these queries. Of upserted topics the last value of each key, whatever its record's time.

    Dead letters do not count their offsets: how many there are depends on the log.
    """
    log = open_log(address)
    plan = select(compiled(), queries)
    written = {s.topic for s in plan.sources if s.query is not None}
    found = CommittedContents()
    for topic in (*APPENDED, DEAD_LETTERS):
        if topic in written or topic == DEAD_LETTERS:
            for p, r in records_of(log, topic):
                is_letter = topic == DEAD_LETTERS  # it carries the time at which it was written
                value, time = (_WHERE.sub(b"", r["value"]), 0) if is_letter else (r["value"], r["timestamp"])
                found.appended.setdefault(topic, Counter())[p, time, r["key"], value] += 1
    for topic in (t for t in UPSERTED if t in written):
        last = {(p, r["key"]): (r["timestamp"], r["value"]) for p, r in records_of(log, topic)}
        found.upserted[topic] = {k: v for k, v in last.items() if v[1] is not None}
    log.close()
    return found


def portions_of(count: int, seed: int) -> list[list[list[Part]]]:
    parts = list(orders(count, seed, 50))
    size = -(-len(parts) // PORTIONS)
    return [parts[i : i + size] for i in range(0, len(parts), size)]


def _epochs(address: Address) -> int:
    """How many batches of all queries are in the log."""
    with closing(open_log(address)) as log:
        found = [committed_epochs(log, Target(q.id, application_id=APP)) for q in compiled().queries]
    return sum(p.next_epoch for p in found if p is not None)


def feed(address: Address, parts: Sequence[list[Part]]) -> None:
    """Append parts, each in a transaction of its own."""
    with closing(open_log(address)) as log:
        for part in parts:
            append(log, part)


@contextmanager
def broker(folder: Path) -> Iterator[str]:
    """The bootstrap of a broker of one's own."""
    own = Broker(folder)
    try:
        yield own.start(port=0, java_options=QUICK).bootstrap
    finally:
        own.kill()


def outage(folder: Path, seconds: float) -> None:
    """The broker of a folder is killed, and comes back with what it had written."""
    own = Broker(folder)
    running = own.running()
    assert running is not None, f"there is no broker in {folder}"
    own.kill()
    time.sleep(seconds)
    own.start(port=running.port, java_options=QUICK)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.spark", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--orders", type=int, default=3000)
    parser.add_argument("--queries", default="", help="names of results, with commas; all kinds by default")
    parser.add_argument("--streams", choices=["exact", "native"], default="exact", help="how streams keep their state")
    parser.add_argument("--log", choices=["embedded", "kafka"], default="embedded")
    parser.add_argument(
        "--outage", type=float, default=0.0, help="of Kafka, seconds for which the broker is gone before each kill"
    )
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
            place = Path(name) / f"broker {n}"
            gone = partial(outage, place, args.outage) if args.outage else lambda: None
            with broker(place) if args.log == "kafka" else nullcontext("") as bootstrap:
                kills = PORTIONS - 1
                seen = killed(Path(name) / f"spark {n}", queries, portions, rng, kills, args.streams, bootstrap, gone)
            found = differences(expected, seen)
            failed |= bool(found)
            print(f"round {n}: {PORTIONS - 1} kills, {time.monotonic() - start:.0f} s", flush=True)
            print("\n".join(found) or "  equal to the runtime", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
