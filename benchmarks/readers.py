"""What readers over HTTP cost a saturated instance: throughput, answers and the critical query with and without them, in turns within one run.

    python -m benchmarks.readers [--minutes 5] [--readers 20] [--rate 6] [--aggregate-every 5] [--connections 1000] [--subscriptions 50]
        [--events 4000000] [--json FILE]

The instance is a process over an embedded log with `--events` bids, which three batch queries read for the whole run, and a critical query that gets
1,000 records a second (`benchmarks.isolation`). Each reader asks `--rate` times a second, and never two questions at once: four rows by key and then
an aggregate over the 10,000 rows of a table; with `--aggregate-every 0` rows by key alone. In half of the turns they ask. loss: of the records a
second that the batch queries read. Processor time is that of the instance.

Then the batch queries pause, and `--connections` idle connections of HTTP, as many of PostgreSQL's protocol, and `--subscriptions` of server-sent
events are opened: memory of the instance with its processes before and with them. The private memory of each process is printed after the turns.
Figures of one machine and one run compare with each other only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import psutil

from benchmarks.feeding import feeding
from benchmarks.isolation import BATCH, BATCH_QUERIES, SOURCES, plan_of
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import write_log
from flowql.config.api import CONNECTIONS_MAX, SUBSCRIPTIONS_MAX, ApiSettings
from flowql.config.pg import PgSettings
from flowql.deploy.settings import Settings
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.spawn import spawn

TOKEN, TOPIC = "a-token-of-the-benchmark", "pulse-readers"
TURN_S, WARM_UP_S, REST_S, POLL_S, READY_S = 15.0, 10.0, 2.0, 0.01, 60.0
AGGREGATE = json.dumps({"sql": "SELECT CHANNEL, N FROM CHANNELS WHERE N > 1 ORDER BY N DESC LIMIT 3"}).encode()
ANSWER_S = 120.0  # for an answer: large queries run in a process of low priority
MIB = 1 << 20


@dataclass(slots=True)
class Turn:
    """records_s: of the batch queries. cpu: processors in use. times_ms: of answers, by reader; empty without readers."""

    with_readers: bool
    records_s: float
    critical_p99_ms: float
    cpu: float
    times_ms: list[list[float]] = field(default_factory=list)
    aggregates_ms: list[float] = field(default_factory=list)  # those of `times_ms` that are aggregates

    @property
    def answers_s(self) -> list[float]:
        """Answers a second, by reader; the slowest reader first."""
        return sorted(len(of) / (TURN_S + REST_S) for of in self.times_ms)


class Readers:
    """Threads that ask at a pace while they may. This process does little else, so that it measures answers and not itself."""

    def __init__(self, port: int, count: int, rate: float, aggregate_every: int, keys: Sequence[int]) -> None:
        self._port, self._rate, self._every, self._keys = port, rate, aggregate_every, keys
        self._asking, self._ended = threading.Event(), threading.Event()
        self.times: list[list[float]] = [[] for _ in range(count)]
        self.aggregates: list[float] = []
        self.refused = 0
        self.failure: BaseException | None = None
        self._threads = [threading.Thread(target=self._read, args=(n,), daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def begin(self) -> None:
        self.times, self.aggregates = [[] for _ in self.times], []
        self._asking.set()

    def pause(self, turn: Turn) -> None:
        """Notes in `turn` what was answered since `begin`."""
        self._asking.clear()
        if self.failure is not None:
            raise self.failure
        turn.times_ms, turn.aggregates_ms = self.times, self.aggregates

    def close(self) -> None:
        self._ended.set()
        self._asking.set()
        for thread in self._threads:
            thread.join()

    def _read(self, number: int) -> None:
        asked = number
        try:
            while not self._ended.is_set():
                try:
                    with socket.create_connection(("127.0.0.1", self._port), ANSWER_S) as connection:
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        while not self._ended.is_set():
                            asked += self._ask(connection, number, asked)
                except Busy:
                    self.refused += 1
                    time.sleep(1.0)  # as Retry-After says
        except BaseException as error:
            self.failure = error

    def _ask(self, connection: socket.socket, number: int, asked: int) -> int:
        """One question, and the time until the next one. How many questions it was."""
        if not self._asking.wait(1.0):
            answered(connection, request("GET /health"))  # it stays open
            return 0
        began = time.perf_counter()
        key = self._keys[asked * 7919 % len(self._keys)]
        point = request(f"GET /v1/tables/SPENT/rows?AUCTION={key}")
        is_point = not self._every or asked % self._every
        answered(connection, point if is_point else request("POST /v1/query", AGGREGATE))
        took = time.perf_counter() - began
        self.times[number].append(took * 1000)
        if not is_point:
            self.aggregates.append(took * 1000)
        time.sleep(max(0.0, 1 / self._rate - took))
        return 1


def request(line: str, body: bytes = b"") -> bytes:
    head = f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def answered(connection: socket.socket, asked: bytes) -> bytes:
    connection.sendall(asked)
    said = b""
    while True:
        head, _, body = said.partition(b"\r\n\r\n")
        _, _, length = head.lower().partition(b"content-length: ")
        if length and len(body) >= int(length.split(b"\r\n", 1)[0]):
            break
        part = connection.recv(1 << 16)
        if not part:
            raise BenchFailed(f"the connection has ended after {said[:300]!r}")
        said += part
    if said.startswith(b"HTTP/1.1 503"):
        raise Busy(said[-300:].decode())
    if not said.startswith(b"HTTP/1.1 200"):
        raise BenchFailed(said[:400].decode())
    return body


class Busy(BenchFailed):
    """The instance answers as many questions as it may; the connection has ended."""


class Critical:
    """Follows the result of the critical query, from its newest record on: how long each record has taken since its creation, in ms."""

    def __init__(self, folder: Path) -> None:
        self._log, self._tp = EmbeddedLog(folder / "log"), TopicPartition("ANSWERS", 0)
        self._taken: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def taken(self) -> list[float]:
        """Those since the last call."""
        found, self._taken = self._taken, []
        return found

    def wait(self) -> None:
        """Until the first record. Raises BenchFailed."""
        limit = time.monotonic() + READY_S
        while not self._taken:
            if time.monotonic() > limit:
                raise BenchFailed("no critical record arrives")
            time.sleep(POLL_S)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._log.close()

    def _follow(self) -> None:
        admin = self._log.admin()
        at = admin.end_offsets([self._tp])[self._tp]
        while not self._ended.wait(POLL_S):
            end = admin.end_offsets([self._tp])[self._tp]
            if end <= at:
                continue
            reader, now = self._log.reader(self._tp, at), time.time_ns()
            while (raw := reader.read(10_000, 1 << 24)) is not None and raw.records.num_rows:
                values = raw.records.column("value").to_pylist()
                self._taken += [(now - orjson.loads(v)["CREATED"]) / 1e6 for v in values if v is not None]
            at = end


class Measured:
    """The instance, as its status tells."""

    def __init__(self, client: Client, critical: Critical) -> None:
        self._client, self._critical = client, critical
        self._process = psutil.Process(client.status()["instance"]["pid"])

    def processes(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    def cpu_s(self) -> float:
        used = [p.cpu_times() for p in self.processes()]
        return sum(u.user + u.system for u in used)

    def private_mib(self) -> dict[str, float]:
        """The private memory of each process, by what it is and its number: pages that processes share count once."""
        return {f"{_name(p)} {p.pid}": p.memory_full_info().uss / MIB for p in self.processes()}

    def rss_mib(self) -> float:
        """The private memory of all processes."""
        return sum(self.private_mib().values())

    def queries(self) -> dict[str, dict[str, Any]]:
        return {q["id"]: q for q in self._client.status()["queries"]}

    def turn(self, *, with_readers: bool) -> Turn:
        before, cpu, began = self.queries(), self.cpu_s(), time.monotonic()
        self._critical.taken()
        time.sleep(TURN_S)
        p99 = float(np.percentile(self._critical.taken() or [float("nan")], 99))
        after, took = self.queries(), time.monotonic() - began
        if idle := [q for q in BATCH_QUERIES if not after[q]["lag"]]:
            raise BenchFailed(f"{idle} have no work left: more --events")
        records = sum(after[q]["records_in"] - before[q]["records_in"] for q in BATCH_QUERIES)
        return Turn(with_readers, records / took, p99, (self.cpu_s() - cpu) / took)


def turns(measured: Measured, readers: Readers, minutes: float) -> Iterator[Turn]:
    for n in range(max(2, round(minutes * 60 / (TURN_S + REST_S)))):
        with_readers = n % 2 == 1
        if with_readers:
            readers.begin()
        time.sleep(REST_S)
        made = measured.turn(with_readers=with_readers)
        if with_readers:
            readers.pause(made)
        yield made


@dataclass(frozen=True, slots=True)
class Idle:
    """Connections that were opened, and the memory with them."""

    kind: str
    count: int
    before_mib: float
    with_mib: float

    @property
    def each_kib(self) -> float:
        return (self.with_mib - self.before_mib) * 1024 / max(1, self.count)


def _http(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 30)
    answered(made, request("GET /health"))
    return made


def _events(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 30)
    made.sendall(request("GET /v1/subscribe?sql=ANSWERS&start=latest"))
    if not made.recv(1 << 12).startswith(b"HTTP/1.1 200"):
        raise BenchFailed("a subscription is refused")
    threading.Thread(target=_drain, args=(made,), daemon=True).start()
    return made


def _pg(port: int) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 30)
    given = b"user\0bench\0database\0x\0\0"
    made.sendall(struct.pack("!ii", len(given) + 8, 196_608) + given)
    said = b""
    while said[-6:-1] != b"Z\0\0\0\5":
        part = made.recv(1 << 16)
        if not part or b"SFATAL" in part:
            raise BenchFailed(repr(part))
        said += part
    return made


def _drain(connection: socket.socket) -> None:
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        return


def idle(measured: Measured, kind: str, open_: Callable[[int], socket.socket], port: int, count: int) -> Idle:
    """Opens so many, or as many as are taken."""
    before = measured.rss_mib()
    with ExitStack() as stack:
        opened = 0
        try:
            for _ in range(count):
                stack.enter_context(open_(port))
                opened += 1
        except (BenchFailed, OSError) as error:
            print(f"{kind}: {opened} of {count}, then {str(error)[:120]}", flush=True)
        time.sleep(REST_S)
        return Idle(kind, opened, before, measured.rss_mib())


def _name(process: psutil.Process) -> str:
    """The program that a process runs: the last part of its module."""
    words = process.cmdline()
    module = words[words.index("-m") + 1] if "-m" in words[:-1] else process.name()
    return module.removeprefix("flowql.")


def more_files() -> None:
    """Lets this process and its children open a few thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8_192)), hard))


def free_port() -> int:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Saturated:
    """An instance whose batch queries have more to do than it can, beside a critical query. pg_port: of PostgreSQL's protocol."""

    client: Client
    measured: Measured
    port: int
    pg_port: int


@contextmanager
def saturated(folder: Path, events: int, threads: int, connections: int, subscriptions: int = 1) -> Iterator[Saturated]:
    """events: how many records the batch queries have. connections: how many clients either port takes."""
    write_log(folder, events, ["bid"])
    with closing(EmbeddedLog(folder / "log")) as log:
        log.admin().create_topic(TOPIC, 1)
    os.sync()  # or its pages are written while commits wait for the same disk
    port, pg_port = free_port(), free_port()
    taken = min(CONNECTIONS_MAX, connections)
    api = ApiSettings(port, TOKEN, connections=taken, subscriptions=min(SUBSCRIPTIONS_MAX, subscriptions))
    client = spawn(Settings(folder, "readers", threads, 512 * MIB, api=api, pg=PgSettings(pg_port, connections=taken)))
    try:
        client.deploy(plan_of(SOURCES.format(pulse=TOPIC) + BATCH))
        with feeding("benchmarks.isolation", str(folder), TOPIC), closing(Critical(folder)) as critical:
            critical.wait()
            measured = Measured(client, critical)
            time.sleep(WARM_UP_S)
            yield Saturated(client, measured, port, pg_port)
    finally:
        client.close()
        end_instance(folder)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    connections = options.connections + options.subscriptions + options.readers + 10
    with saturated(folder, options.events, options.threads, connections, options.subscriptions + 1) as on:
        keys = on.client.query("SELECT AUCTION FROM SPENT LIMIT 1000")["AUCTION"].to_pylist()
        made = list[Turn]()
        with closing(Readers(on.port, options.readers, options.rate, options.aggregate_every, keys)) as readers:
            for turn in turns(on.measured, readers, options.minutes):
                print(_line(turn), flush=True)
                made.append(turn)
            memory = on.measured.private_mib()
        for process, mib in memory.items():
            print(f"{process}: {mib:.0f} MiB private", flush=True)
        on.client.pause(BATCH_QUERIES, paused=True)  # their memory goes up and down
        time.sleep(REST_S)
        found = [
            idle(on.measured, kind, open_, at, count)
            for kind, open_, at, count in (
                ("HTTP", _http, on.port, options.connections), ("PostgreSQL", _pg, on.pg_port, options.connections),
                ("server-sent events", _events, on.port, options.subscriptions),
            )
        ]  # fmt: skip
    shown = {"turns": [asdict(t) for t in made], "idle": [asdict(i) for i in found], "private_mib": memory}
    return {**shown, **_summed(made, found)}


def _line(turn: Turn) -> str:
    said = f"{'with' if turn.with_readers else 'without':<9}{turn.records_s:>12,.0f} records/s{turn.cpu:>7.2f} CPUs, critical p99 {turn.critical_p99_ms:>7.1f} ms"
    if not turn.times_ms:
        return said
    p50, p99 = np.percentile([t for of in turn.times_ms for t in of], [50, 99])
    rates, aggregates = turn.answers_s, np.percentile(turn.aggregates_ms or [float("nan")], 50)
    said += f", answers p50 {p50:.1f} ms, p99 {p99:.1f} ms, aggregates p50 {aggregates:.1f} ms"
    return f"{said}; {sum(rates):.1f} answers a second, each reader {rates[0]:.1f} to {rates[-1]:.1f}"


def _summed(made: Sequence[Turn], found: Sequence[Idle]) -> dict[str, Any]:
    """The figures of the whole run, which are printed as well."""
    pairs = [(a, b) for a, b in zip(made[::2], made[1::2], strict=False)]
    loss = statistics.median(1 - b.records_s / a.records_s for a, b in pairs)
    times = [t for _, b in pairs for of in b.times_ms for t in of]
    p50, p99 = np.percentile(times, [50, 99])
    slowest = min(b.answers_s[0] for _, b in pairs)
    without, beside = (statistics.median(t.critical_p99_ms for t in of) for of in (made[::2], made[1::2]))
    print(f"loss {loss:.1%}; answers p50 {p50:.1f} ms, p99 {p99:.1f} ms, each reader at least {slowest:.1f} a second")
    print(f"critical p99 {without:.1f} ms without and {beside:.1f} ms with readers")
    for i in found:
        print(f"{i.count:,} idle, {i.kind}: {i.before_mib:.0f} to {i.with_mib:.0f} MiB, {i.each_kib:.0f} KiB each")
    figures = {"loss": loss, "p50_ms": float(p50), "p99_ms": float(p99), "answers_s": slowest}
    return {**figures, "critical_p99_ms": [without, beside]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--readers", type=int, default=20)
    parser.add_argument("--rate", type=float, default=6.0, help="questions of a reader in a second")
    parser.add_argument("--aggregate-every", type=int, default=5, help="which of a reader's questions is an aggregate")
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--subscriptions", type=int, default=50)
    parser.add_argument("--events", type=int, default=4_000_000, help="records for the batch queries")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    more_files()
    with tempfile.TemporaryDirectory(prefix="flowql-readers-") as name:
        found = measure(Path(name), options)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
