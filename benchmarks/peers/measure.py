"""One run: a system as a process, seen from outside until its results are complete, and checked."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.peers.cases import Case
from benchmarks.peers.figures import Figures, Sample, figures
from benchmarks.peers.process import ProcessTree
from benchmarks.peers.systems import COMMIT_MS, THREADS, System
from flowql.bench.measuring import BenchFailed
from flowql.bench.oracle import difference
from flowql.bench.results import result
from flowql.runtime.log.base import Log, TopicPartition

SAMPLE_S = 0.2
SETTLED_S = 2.5  # without a change, when all input is committed: the run is complete
LIMIT_S = 600.0
MARKERS = 2  # offsets at the end of a partition that marks of transactions may take
SHOWN = 2000  # characters of the output of a failed process


@dataclass(frozen=True, slots=True)
class Run:
    """wrong: empty if the results equal those of DuckDB. rss_mb: the most memory of the process and its children."""

    case: Case
    system: str
    records: int
    figures: Figures
    rss_mb: int
    wrong: str


@dataclass(frozen=True, slots=True)
class Bench:
    """log, admin: of the broker at `bootstrap`. folder: for states of systems. events: bids of the timeline."""

    log: Log
    admin: AdminClient
    bootstrap: str
    folder: Path
    events: int

    def run(self, system: System, case: Case, inputs: Mapping[str, pa.Table]) -> Run:
        """Start the system and wait until it has done all. BenchFailed if it fails or takes too long."""
        name = f"peer-{system.name}-{case.query}-{uuid.uuid4().hex[:8]}"
        output = f"{name}.out"
        self.log.admin().create_topic(output, case.partitions)
        work = self.folder / name
        work.mkdir()
        try:
            samples, tree = self._watch(system, case, name, work)
            found = result(self.log, case.query, output, case.query in system.tables)
            wrong = difference(case.query, inputs, found)
        finally:
            for topic in self._topics(name):
                self.log.admin().delete_topic(topic)
            shutil.rmtree(work, ignore_errors=True)
        records = case.records(self.events)
        return Run(case, system.name, records, figures(samples, records), tree.peak_bytes >> 20, wrong)

    def _watch(self, system: System, case: Case, name: str, work: Path) -> tuple[list[Sample], ProcessTree]:
        fields = {
            "query": case.query, "bootstrap": self.bootstrap, "prefix": case.prefix(self.events), "app_id": name,
            "output": f"{name}.out", "partitions": str(case.partitions), "workdir": str(work),
            "threads": str(THREADS), "commit_ms": str(COMMIT_MS),
        }  # fmt: skip
        environment = {**os.environ, **{f"PEER_{key.upper()}": value for key, value in fields.items()}}
        said = work / "output.log"
        with said.open("wb") as out:
            process = subprocess.Popen(
                system.argv(fields), stdout=out, stderr=out, cwd=work, env={**environment, **system.environment}
            )
            tree = ProcessTree(process)
            try:
                return self._samples(process, tree, system, case, name), tree
            except BenchFailed as error:
                raise BenchFailed(f"{error}: {said.read_text(errors='replace')[-SHOWN:]}") from error
            finally:
                tree.stop()

    def _samples(
        self, process: subprocess.Popen[bytes], tree: ProcessTree, system: System, case: Case, name: str
    ) -> list[Sample]:
        """Until the process ends. One that does not end by itself is done when all input is committed and nothing changes."""
        admin, prefix = self.log.admin(), case.prefix(self.events)
        inputs = [TopicPartition(prefix + topic, p) for topic in case.topics for p in range(case.partitions)]
        results = [TopicPartition(f"{name}.out", p) for p in range(case.partitions)]
        ends = admin.end_offsets(inputs)
        samples: list[Sample] = []
        changed, reaped, began = 0.0, _children_s(), time.perf_counter()
        while (now := time.perf_counter() - began) < LIMIT_S:
            code = process.poll()
            positions = self._positions(name)
            read = sum(min(positions.get(tp, 0), end) for tp, end in ends.items())
            written = sum(admin.end_offsets(results).values())
            if not samples or (read, written) != (samples[-1].read, samples[-1].written):
                changed = now
            cpu_s = tree.cpu_s() if code is None else max(tree.cpu_s(), _children_s() - reaped)
            samples.append(Sample(now, cpu_s, read, written))
            if code == 0:
                return samples
            if code is not None:
                raise BenchFailed(f"{name} ended with {code}")
            done = not system.ends and read >= sum(ends.values()) - MARKERS * len(ends)
            if done and now - changed > SETTLED_S and not self._lag(name, positions):
                return samples
            time.sleep(SAMPLE_S)
        raise BenchFailed(f"{name} was not done after {LIMIT_S:.0f} s")

    def _lag(self, name: str, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether topics between the parts of a query have records that are not read."""
        inner = {t: n for t, n in self._topics(name).items() if t != f"{name}.out" and "changelog" not in t}
        ends = self.log.admin().end_offsets([TopicPartition(t, p) for t, n in inner.items() for p in range(n)])
        return any(end - positions.get(tp, 0) > MARKERS for tp, end in ends.items())

    def _positions(self, group: str) -> dict[TopicPartition, int]:
        """Committed offsets. Not by `log`, which reads metadata beside them as text: Kafka Streams' is none."""
        asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        try:
            found = asked.result().topic_partitions
        except KafkaException:  # no member has joined yet
            return {}
        return {TopicPartition(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

    def _topics(self, name: str) -> dict[str, int]:
        return {topic: info.partitions for topic, info in self.log.admin().topics().items() if name in topic}


def _children_s() -> float:
    """Processor time of processes that have ended here."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
