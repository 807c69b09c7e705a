"""Whether an instance stays within its memory budget while a query with many keys always has work, with and without interactive queries.

    python -m benchmarks.saturation [--keys 10000000] [--minutes 60] [--memory MB] [--clients 20] [--threads 2] [--plot FILE]

The instance is a separate process, as `flowql deploy` starts it. Another process keeps a million unread records in its input: first each key
once, then keys drawn at random. When every key has been read and updated once on average (the files of the state are few before, and throughput
is up to twice as high), time is divided into windows: one without interactive queries, one in which the given number of clients
repeat heavy interactive queries, and so on in turn. A window without interactive queries starts when the last one has ended, and lasts as long as the one before.
Resident memory of the instance and what its child processes have for themselves, memory used by DuckDB, and records read are sampled each
second; each window is printed when it ends. Only figures of one run on one machine are comparable, because the feed uses a processor as well.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa

from benchmarks.feeding import feeding
from benchmarks.plots import plotted
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark import kafka_bigint
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.budget import MIB
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, Producer, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.running import connect
from flowql.server.spawn import spawn

APPLICATION, TOPIC, QUERY, PARTITIONS = "saturation", "s", "CTAS_C", 4
SQL = f"""CREATE STREAM S (K BIGINT KEY, V BIGINT)
  WITH (KAFKA_TOPIC='{TOPIC}', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C AS SELECT K, COUNT(*) AS N, SUM(V) AS T, MAX(V) AS M FROM S GROUP BY K EMIT CHANGES;"""
KEPT = {"retention.bytes": str(256 * MIB), "segment.bytes": str(32 * MIB)}  # per partition: old input is not needed
AHEAD, CHUNK = 1_000_000, 100_000  # unread records of the instance; records of one append
SAMPLE_S, SETTLE_S, WINDOW_S = 1.0, 5.0, 120.0
WARM_UP_RECORDS = 2  # per key: measuring starts after them
HEAVY = (
    "SELECT * FROM C ORDER BY T DESC, K",
    "SELECT N, LIST(K) FROM C GROUP BY N",
    "SELECT COUNT(DISTINCT T * 7919 + K) FROM C",
    "SELECT COUNT(*) FROM C a JOIN C b ON a.K = b.T % 1000003",
    "SELECT STRING_AGG(K::VARCHAR, ',') FROM C",
)
ENDED_S = 1.0  # for a client to end; its interactive query ends with the instance
OVER_MAX = 1.1  # of the budget
CHANGED_MAX = 0.1  # of the throughput


@dataclass(frozen=True, slots=True)
class Sample:
    """At `seconds` after the start: resident bytes, DuckDB's bytes, records read so far. queried: clients sent interactive queries. warm: every key was read."""

    seconds: float
    rss: int
    duckdb: int
    records: int
    queried: bool
    warm: bool


@dataclass(slots=True)
class Answers:
    """Number of interactive queries by error code; "" for answered. Any thread adds."""

    ends: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, code: str) -> None:
        with self.lock:
            self.ends[code] = self.ends.get(code, 0) + 1


class QueryClients:
    """Clients that send heavy interactive queries, each one after another, while `on` is set. busy: clients that wait for an answer."""

    def __init__(self, folder: Path, clients: int, answers: Answers) -> None:
        self.on, self._ended = threading.Event(), threading.Event()
        self._busy = set[int]()
        self._threads = [
            threading.Thread(target=self._ask, args=(folder, n, answers), daemon=True) for n in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def busy(self) -> int:
        return len(self._busy)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(ENDED_S)

    def _ask(self, folder: Path, client_number: int, answers: Answers) -> None:
        n = client_number
        while not self._ended.is_set():
            self._busy.discard(client_number)
            if not self.on.wait(0.2):
                continue
            self._busy.add(client_number)
            client = connect(folder)
            if client is None:
                return
            try:
                with client.answer(HEAVY[n % len(HEAVY)]) as answer:
                    for _ in answer.batches:
                        pass
                answers.add("")
            except CommandError as error:
                answers.add(error.code)
                time.sleep(0.5)
            finally:
                client.close()
            n += 1


def feed(folder: Path, keys: int) -> None:
    """Appends records for ever: each key once, then random ones; at most AHEAD records ahead of what the instance has committed."""
    log = EmbeddedLog(folder / "log")
    producer, chance = log.producer("feed"), np.random.default_rng(7)
    sent = 0
    while True:
        if sent - sum(p.offset for tp, p in log.committed(APPLICATION).items() if tp.topic == TOPIC) > AHEAD:
            time.sleep(0.01)
            continue
        ids = np.arange(sent, sent + CHUNK) if sent + CHUNK <= keys else chance.integers(0, keys, CHUNK)
        _append(producer, ids, sent)
        sent += CHUNK


def _append(producer: Producer, ids: npt.NDArray[np.int64], time_ms: int) -> None:
    producer.begin()
    for p in range(PARTITIONS):
        mine = ids[ids % PARTITIONS == p]
        values = pa.array([b'{"V":%d}' % k for k in mine.tolist()], pa.binary())
        times = pa.array(np.full(len(mine), time_ms))
        columns = [times, kafka_bigint(pa.array(mine)), values, pa.nulls(len(mine), HEADERS_TYPE)]
        producer.send(TopicPartition(TOPIC, p), pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA))
    producer.commit()


def run(options: argparse.Namespace, folder: Path) -> tuple[list[Sample], Answers]:
    """Fill, then windows without and with interactive queries, until the minutes are over."""
    log = EmbeddedLog(folder / "log")
    log.admin().create_topic(TOPIC, PARTITIONS, KEPT)
    log.close()
    settings = Settings(
        folder, APPLICATION, options.threads, options.memory * MIB, interactive_queries=InteractiveQuerySettings()
    )
    compiled = compile_project([SourceText("saturation.sql", SQL)])
    assert compiled.ok, compiled.diagnostics
    client = spawn(settings)
    try:
        client.deploy(compiled.plan)
        with feeding("benchmarks.saturation", str(folder), "--keys", str(options.keys)):
            answers = Answers()
            clients = QueryClients(folder, options.clients, answers)
            try:
                return list(_told(_watched(client, clients, options))), answers
            finally:
                clients.end()
    finally:
        client.close()
        end_instance(settings.data_dir)


def _watched(client: Client, clients: QueryClients, options: argparse.Namespace) -> Iterator[Sample]:
    process = psutil.Process(client.address.pid)
    start, least = time.monotonic(), min(WINDOW_S, options.minutes * 60 / 6)
    warm, queried, changed = False, False, 0.0  # changed: when this window started
    began, window = 0.0, least  # began: when interactive queries were last begun
    while (now := time.monotonic() - start) < options.minutes * 60:
        if not process.is_running():
            raise BenchFailed("the instance is gone")
        records = next(q["records_in"] for q in client.status()["queries"] if q["id"] == QUERY)
        if not warm or (not queried and clients.busy):
            warm, changed = records >= WARM_UP_RECORDS * options.keys, now
            window = max(least, now - began) if warm and began else least
        elif now - changed > window and options.clients > 0:
            queried, changed, window = not queried, now, least
            (clients.on.set if queried else clients.on.clear)()
            began = now if queried else began
        busy = queried or clients.busy > 0
        yield Sample(now, _resident_bytes(process), _duckdb_bytes(client), records, busy, warm)
        time.sleep(max(0.0, SAMPLE_S - (time.monotonic() - start - now)))


def _told(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Passes samples on and prints each window when it has ended."""
    window = list[Sample]()
    for sample in samples:
        yield sample
        if window and kind(sample) != kind(window[-1]):
            first, last = window[0], sample
            speed = (last.records - first.records) / (last.seconds - first.seconds)
            peak = max(s.rss for s in window) / MIB
            print(f"{last.seconds:7,.0f} s  {kind(first):15}{speed:>10,.0f} records/s{peak:>8,.0f} MB", flush=True)
            window.clear()
        window.append(sample)


def kind(sample: Sample) -> str:
    return "filling" if not sample.warm else "with interactive queries" if sample.queried else "no interactive queries"


def _resident_bytes(process: psutil.Process) -> int:
    """Its own, and those that only processes have which answer interactive queries: pages of libraries are shared."""
    size = int(process.memory_info().rss)
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            size += int(child.memory_full_info().uss)
    return size


def _duckdb_bytes(client: Client) -> int:
    """0 if the instance rejects the interactive query because too many are in progress."""
    try:
        found = client.query("SELECT SUM(memory_usage_bytes)::BIGINT AS B FROM duckdb_memory()").to_pylist()
    except CommandError:
        return 0
    return int(found[0]["B"] or 0)


def rates(samples: Sequence[Sample], *, queried: bool) -> list[float]:
    """Records a second between two samples of one kind of window, without the first SETTLE_S seconds of each window."""
    found, changed = list[float](), 0.0
    for a, b in pairwise(samples):
        changed = b.seconds if a.queried != b.queried else changed
        if a.warm and a.queried == b.queried == queried and a.seconds - changed > SETTLE_S:
            found.append((b.records - a.records) / (b.seconds - a.seconds))
    return found


def table(samples: Sequence[Sample], answers: Answers, memory: int) -> str:
    """The figures, and whether the targets were met."""
    lines = [f"{'':20}{'samples':>9}{'records/s':>12}{'RSS MB max':>12}{'DuckDB MB max':>15}"]
    speeds = {
        "no interactive queries": rates(samples, queried=False),
        "with interactive queries": rates(samples, queried=True),
    }
    for name in ("filling", "no interactive queries", "with interactive queries"):
        if found := [s for s in samples if kind(s) == name]:
            speed = statistics.mean(speeds.get(name) or [found[-1].records / max(1.0, found[-1].seconds)])
            peaks = f"{max(s.rss for s in found) / MIB:>12,.0f}{max(s.duckdb for s in found) / MIB:>15,.0f}"
            lines.append(f"{name:20}{len(found):>9,}{speed:>12,.0f}{peaks}")
    peak = max(s.rss for s in samples) / MIB
    within = "met" if peak <= OVER_MAX * memory else "missed"
    lines.append(
        f"RSS at most {peak:,.0f} MB of a budget of {memory:,} MB ({peak / memory:.0%}), target 110 %: {within}"
    )
    if all(speeds.values()):
        alone, beside = (statistics.mean(v) for v in speeds.values())
        kept = "met" if beside >= (1 - CHANGED_MAX) * alone else "missed"
        lines.append(
            f"throughput with interactive queries is {beside / alone:.0%} of that without, target 90 %: {kept}"
        )
    ends = ", ".join(f"{n:,} {code or 'answered'}" for code, n in sorted(answers.ends.items())) or "none"
    lines.append(f"interactive queries: {ends}")
    return "\n".join(lines)


def draw(samples: Sequence[Sample], memory: int, file: Path) -> None:
    """Memory and records a second over time; grey where interactive queries were asked."""
    x = [s.seconds for s in samples]
    speed = [(b.records - a.records) / (b.seconds - a.seconds) for a, b in pairwise(samples)]
    with plotted(file, rows=2, size=(7, 6)) as (upper, lower):
        upper.plot(x, [s.rss / MIB for s in samples], label="resident")
        upper.plot(x, [s.duckdb / MIB for s in samples], label="DuckDB's")
        upper.axhline(memory, color="grey", linewidth=0.5)
        upper.set(ylabel="MB", ylim=(0, None))
        upper.legend()
        lower.plot(x[1:], speed)
        lower.set(xlabel="seconds", ylabel="records a second", ylim=(0, None))
        for axes in (upper, lower):
            for a, b in pairwise(samples):
                if a.queried:
                    axes.axvspan(a.seconds, b.seconds, color="0.9", linewidth=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--memory", type=int, default=1024, help="MB, the budget of the instance")
    parser.add_argument(
        "--clients", type=int, default=20, help="that send interactive queries at the same time; 0: none"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--feed", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.feed:
        feed(Path(options.feed), options.keys)
    with tempfile.TemporaryDirectory(prefix="flowql-saturation-") as name:
        samples, answers = run(options, Path(name))
    print(table(samples, answers, options.memory))
    if options.plot is not None:
        draw(samples, options.memory, options.plot)


if __name__ == "__main__":
    main()
