"""One Nexmark query at a time on one engine, from its input topics to its output topic: time, processor time and memory, with a checked result.

An engine is a function of a `Job` and of a callback for progress messages. It returns figures only for a result that `results.wrong` accepts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowql.bench import results
from flowql.bench.measuring import BenchFailed, Figure, Stopwatch, touched_memory
from flowql.bench.nexmark_input import PARTITIONS
from flowql.bench.nexmark_people import counts
from flowql.bench.oracle import EXPECTED
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.deploy.selection import select
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Log
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.log_address import KafkaAddress
from flowql.runtime.spark.settings import SparkSettings

NEXMARK = Path(__file__).parent / "queries"  # a project
TICK_S = 0.01  # each look takes the interpreter lock from the threads that are measured
TICKS_PER_SAMPLE = 50  # a sample reads all of /proc: 20 a second were in the way of what is measured
SPARK_MEMORY_BYTES = 3 << 29  # of the driver
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """folder: holds state, and the input in `log` unless that is on kafka (a bootstrap address). events: bids of the input.

    threads: processing threads. touch_gb: GB of memory that is allocated before the run and freed when the measurement starts.
    partitions: of each topic.
    """

    folder: Path
    project: Path
    query: str
    events: int
    threads: int
    kafka: str = ""
    touch_gb: float = 0.0
    partitions: int = PARTITIONS

    @property
    def application_id(self) -> str:
        return f"bench-{self.query}"

    @property
    def log_kind(self) -> str:
        return "kafka" if self.kafka else "embedded"

    @property
    def kafka_settings(self) -> KafkaSettings | None:
        return KafkaSettings(self.kafka) if self.kafka else None

    @property
    def records(self) -> int:
        """How many records the query reads."""
        return sum(counts(self.events)[topic] for topic in EXPECTED[self.query].reads)

    def plan(self) -> Plan:
        """The project with this query alone."""
        compiled = compile_sources(load_project(self.project, variables={"partitions": str(self.partitions)}))
        if not compiled.ok:
            raise BenchFailed("; ".join(d.title for d in compiled.diagnostics))
        return select(compiled.plan, [self.query])

    def check(self, log: Log) -> None:
        message = results.wrong(log, self.query, self.events)
        if message:
            raise BenchFailed(message)


def on_runtime(job: Job, report: Report) -> Figure:
    """In this process, from the first batch fetched to the last durable commit."""
    leave_pandas_out()
    config = InstanceConfig(job.application_id, threads=job.threads, changelogs=bool(job.kafka))
    log = log_at(job.folder / "log", job.kafka_settings, job.application_id)
    instance = open_on(log, job.folder / f"state-{job.query}", config)
    instance.start()
    watch, ticks, kept = Stopwatch(), 0, touched_memory(job.touch_gb)
    instance.deploy(job.plan())
    ends = source_ends(instance)
    while not caught_up(instance, ends):
        if instance.fatal is not None:
            raise BenchFailed(f"{job.query}: {instance.fatal}")
        broken = next((m.last_error for m in instance.metrics.queries.values() if m.errors), None)
        if broken is not None:
            raise BenchFailed(f"{job.query}: {broken}")
        if not watch.runs and instance.metrics.fetched:
            del kept
            watch.start()
        if watch.runs:
            if ticks % TICKS_PER_SAMPLE == 0:
                watch.sample()
            ticks += 1
        time.sleep(TICK_S)
    figure = watch.stop(job.query, "runtime", job.records, job.log_kind)
    report("comparing with the oracle")
    job.check(instance.log)
    instance.stop()
    return figure


def on_spark(job: Job, report: Report) -> Figure:
    """As one bounded run in an existing session, from its start to the last commit."""
    from flowql.runtime.spark.engine.instance import SparkInstance  # the extra may be missing

    settings = SparkSettings(master=f"local[{job.threads}]", memory_bytes=SPARK_MEMORY_BYTES)
    state = job.folder / f"spark-{job.query}"
    kafka, app = job.kafka_settings, job.application_id
    address = KafkaAddress(kafka, app) if kafka is not None else job.folder / "log"
    instance = SparkInstance(address, state, settings, app, mode="bounded")
    instance.start()
    try:
        instance.deploy(job.plan())
        watch, kept = Stopwatch(), touched_memory(job.touch_gb)
        del kept
        watch.start()

        said: dict[str, str] = {}

        def progress(status: dict[str, Any]) -> None:
            watch.sample()
            for query in status["queries"]:
                state = query["last_error"] or ("begun" if query["batch"] is None else "committed")
                if said.get(query["id"]) != state:
                    said[query["id"]] = state
                    report(f"{query['id']} {state}")

        instance.run_until_caught_up(progress)
        figure = watch.stop(job.query, "spark", job.records, job.log_kind)
        report("comparing with the oracle")
        job.check(instance.site.log)
    finally:
        instance.stop()
    return figure


ENGINES: Mapping[str, Callable[[Job, Report], Figure]] = {"runtime": on_runtime, "spark": on_spark}
