"""How long a deployment of N queries and a restart of an instance with them take on a broker, and how often the instance asks it.

    python -m benchmarks.start_up [--queries 1,10,100] [--partitions 4] [--many]

Each number of queries has a broker of its own. A query is a keyed aggregate with two changelogs. `deploy` lasts from the call until it returns, `restart`
from the construction of the instance until all tasks run. Requests are those of the admin client, by kind; clients that read and write send others.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from flowql.bench.measuring import BenchFailed
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.kafka.broker import Broker
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import SystemClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.kafka import admin as admins
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.task.status import TaskStatus

APP = "bench"
STREAM = "CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS={n}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
TABLE = "CREATE TABLE T{n} AS SELECT V, COUNT(*) AS N, SUM(K) AS T FROM S GROUP BY V EMIT CHANGES;\n"
KINDS = ("list_topics", "describe_topics", "create_topics", "list_offsets", "describe_configs")
RUNS_S = 120.0
REQUESTS: Counter[str] = Counter()


class CountedClient(AdminClient):
    """Counts its calls, each of which is a request to a broker or more."""

    def __getattribute__(self, name: str) -> Any:
        if name in KINDS:
            REQUESTS[name] += 1
        return super().__getattribute__(name)


@dataclass
class Measured:
    """wall_s, processor_s: of this process, in seconds."""

    wall_s: float = 0.0
    processor_s: float = 0.0
    requests: Counter[str] = field(default_factory=Counter)

    def row(self, queries: int, phase: str) -> str:
        counts = "".join(f"{self.requests[k]:>18}" for k in KINDS)
        return f"{queries:>8}{phase:>9}{self.wall_s:>9.2f}{self.processor_s:>9.2f}{counts}"


@contextmanager
def measuring() -> Iterator[Measured]:
    found, wall, processor = Measured(), time.monotonic(), time.process_time()
    REQUESTS.clear()
    yield found
    found.wall_s, found.processor_s = time.monotonic() - wall, time.process_time() - processor
    found.requests = Counter(REQUESTS)


def plan_of(queries: int, partitions: int) -> Plan:
    sql = STREAM.format(n=partitions) + "".join(TABLE.format(n=n) for n in range(queries))
    compiled = compile_project([SourceText("start_up.sql", sql)])
    if not compiled.ok:
        raise BenchFailed("; ".join(d.title for d in compiled.diagnostics))
    return compiled.plan


def opened(folder: Path, bootstrap: str, many: bool) -> Instance:
    config = InstanceConfig(APP, changelogs=True, shared=many, process_id="one" if many else "")
    log = KafkaLog(Connection(bootstrap, shared=many), APP)
    instance = Instance(log, open_rocks(folder / "state"), SystemClock(), config)
    instance.start()
    instance.resume()
    return instance


def await_tasks(instance: Instance, queries: int) -> None:
    limit = time.monotonic() + RUNS_S
    while time.monotonic() < limit:
        tasks = [list(q.built.tasks) for q in list(instance.queries.values())]
        if len(tasks) == queries and all(of and all(t.status is TaskStatus.RUNNING for t in of) for of in tasks):
            return
        time.sleep(0.02)
    raise BenchFailed(f"not all tasks run after {RUNS_S:.0f} s")


def measure(folder: Path, queries: int, options: argparse.Namespace) -> None:
    broker = Broker(folder / "broker")
    bootstrap, plan = broker.start().bootstrap, plan_of(queries, options.partitions)
    try:
        instance = opened(folder, bootstrap, options.many)
        with measuring() as deployed:
            instance.deploy(plan)
            await_tasks(instance, queries)
        instance.stop()
        print(deployed.row(queries, "deploy"), flush=True)
        with measuring() as restarted:
            instance = opened(folder, bootstrap, options.many)
            await_tasks(instance, queries)
        instance.stop()
        print(restarted.row(queries, "restart"), flush=True)
    finally:
        broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", default="1,10,100", help="how many, in turn")
    parser.add_argument("--partitions", type=int, default=4, help="of the input")
    parser.add_argument("--many", action="store_true", help="the instance is a member of a group")
    options = parser.parse_args()
    setattr(admins, "AdminClient", CountedClient)  # noqa: B010
    print(f"{'queries':>8}{'phase':>9}{'wall s':>9}{'cpu s':>9}" + "".join(f"{k:>18}" for k in KINDS))
    for queries in map(int, options.queries.split(",")):
        with tempfile.TemporaryDirectory(prefix="flowql-start-up-") as name:
            measure(Path(name), queries, options)


if __name__ == "__main__":
    main()
