"""Milliseconds, processor time and rate of look-ups by key: by HTTP and PostgreSQL's protocol, from one client and from four, at an idle instance.

    python -m benchmarks.look_ups [--dialect standard|ksql] [--requests 500] [--clients 4] [--seconds 5] [--only PostgreSQL] [--json FILE]

The instance is a process with a table of 20,000 rows. Clients are processes that send prepared bytes and read answers, so they need little
processor time. The last two columns are processor time for each look-up: of the instance, and of its process for PostgreSQL.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from flowql.bench.measuring import BenchFailed
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import DialectName, compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.pg import PgSettings
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.settings import Settings
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.murmur2 import partition_for
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.spawn import spawn

SQL = {
    "ksql": """
CREATE STREAM BID (ID STRING KEY, PRICE BIGINT) WITH (KAFKA_TOPIC='bid', PARTITIONS=4, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE SPENT AS SELECT ID, COUNT(*) AS N, SUM(PRICE) AS TOTAL FROM BID GROUP BY ID;
""",
    "standard": """
CREATE TABLE bid (number BIGINT PRIMARY KEY, id TEXT, price BIGINT);
CREATE MATERIALIZED VIEW spent AS SELECT id, COUNT(*) AS n, SUM(price) AS total FROM bid GROUP BY id;
""",
}
ROWS = 20_000
WARM_UP = 20
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One way of asking. rate: answers a second of all clients together."""

    way: str
    clients: int
    p50_ms: float
    p99_ms: float
    rate: float
    instance_ms: float
    pg_ms: float


@dataclass(frozen=True, slots=True)
class Way:
    """How a client asks. ask: the bytes of the request for a key; is_whole: whether bytes are a whole answer; holds: what a right answer has."""

    name: str
    port: int
    opening: bytes
    ask: Callable[[str], bytes]
    is_whole: Callable[[bytes], bool]
    holds: Callable[[str], bytes]


def _http(name: str, port: int, token: str, line: str, body: Callable[[str], bytes]) -> Way:
    def ask(key: str) -> bytes:
        made = body(key)
        head = f"{line.format(key=key)} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(made)}\r\n\r\n"
        return head.encode() + made

    return Way(name, port, b"", ask, _is_response, lambda key: f'"{key}"'.encode())


def _is_response(said: bytes) -> bool:
    head, _, body = said.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200") and head:
        raise BenchFailed(said[:400].decode())
    _, _, length = head.lower().partition(b"content-length: ")
    return bool(length) and len(body) >= int(length.split(b"\r\n", 1)[0])


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _pg(name: str, port: int, ask: Callable[[str], bytes], prepare: bytes = b"") -> Way:
    given = b"user\0bench\0database\0x\0\0"
    opening = struct.pack("!ii", len(given) + 8, 196_608) + given
    return Way(name, port, opening + prepare, ask, _is_ready, str.encode)


def _is_ready(said: bytes) -> bool:
    if b"SERROR" in said:
        raise BenchFailed(said[:400].decode(errors="replace"))
    return said[-6:-1] == b"Z\0\0\0\5"


def ways(http_port: int, token: str, pg_port: int) -> list[Way]:
    text = "SELECT * FROM spent WHERE id = {!r}"
    prepare = _message(b"P", b"s\0SELECT * FROM spent WHERE id = $1\0\0\0") + _message(b"S", b"")

    def bound(key: str) -> bytes:
        bind = b"\0s\0" + struct.pack("!hhi", 0, 1, len(key)) + key.encode() + struct.pack("!h", 0)
        return _message(b"B", bind) + _message(b"E", b"\0\0\0\0\0") + _message(b"S", b"")

    sql = "SELECT * FROM spent WHERE id = $1"
    return [
        _http("HTTP, by key", http_port, token, "GET /v1/tables/spent/rows?id={key}", lambda _: b""),
        _http("HTTP, SQL", http_port, token, "POST /v1/query", lambda k: json.dumps({"sql": text.format(k)}).encode()),
        _http("HTTP, parameters", http_port, token, "POST /v1/query", lambda k: json.dumps({"sql": sql, "parameters": [k]}).encode()),
        _pg("PostgreSQL, simple", pg_port, lambda k: _message(b"Q", text.format(k).encode() + b"\0")),
        _pg("PostgreSQL, prepared", pg_port, bound, prepare),
    ]  # fmt: skip


def _asked(way: Way, count: int, seconds: float, seed: int) -> list[float]:
    """Times of answers in ms. count: how many; 0: as many as fit in the time."""
    times, keys = list[float](), np.random.default_rng(seed).integers(0, ROWS, 1 << 16)
    with socket.create_connection(("127.0.0.1", way.port), 30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way.opening:
            connection.sendall(way.opening)
            _read(connection, _is_ready, 2 if b"$1" in way.opening else 1)
        end = 0.0
        while len(times) < WARM_UP + count or (not count and time.perf_counter() < end):
            if len(times) == WARM_UP - 1 or (not end and not count):
                end = time.perf_counter() + seconds
            key = f"k{keys[len(times) % len(keys)]}"
            began = time.perf_counter()
            connection.sendall(way.ask(key))
            said = _read(connection, way.is_whole)
            times.append((time.perf_counter() - began) * 1000)
            if way.holds(key) not in said:
                raise BenchFailed(f"{way.name}: {key} is not in {said[:300]!r}")
    return times[WARM_UP:]


def _read(connection: socket.socket, is_whole: Callable[[bytes], bool], answers: int = 1) -> bytes:
    said = b""
    while not is_whole(said) or said.count(b"Z\0\0\0\5") < answers * (is_whole is _is_ready):
        part = connection.recv(1 << 16)
        if not part:
            raise BenchFailed(f"the connection has ended after {said[:300]!r}")
        said += part
    return said


def _cpu_s(pid: int) -> np.ndarray:
    """Processor time of the instance, and of its child processes."""
    instance = psutil.Process(pid)
    used = [sum(p.cpu_times()[:2]) for p in (instance, *instance.children(recursive=True))]
    return np.array([used[0], sum(used[1:])])


def _together(way: Way, clients: int, seconds: float) -> list[list[float]]:
    """The times of clients that ask at the same time, each in a process."""
    with multiprocessing.get_context("fork").Pool(clients, _remember, (way,)) as pool:
        return pool.starmap(_of_client, [(seconds, n) for n in range(clients)], 1)


_way: list[Way] = []


def _remember(way: Way) -> None:
    _way.append(way)


def _of_client(seconds: float, seed: int) -> list[float]:
    return _asked(_way[0], 0, seconds, seed)


def measured(way: Way, pid: int, requests: int, clients: int, seconds: float) -> Iterator[Figures]:
    for number in (1, clients):
        cpu, began = _cpu_s(pid), time.perf_counter()
        found = [_asked(way, requests, 0, 0)] if number == 1 else _together(way, number, seconds)
        took, used = time.perf_counter() - began, _cpu_s(pid) - cpu
        times = [t for of in found for t in of]
        rate = len(times) / (took if number == 1 else seconds)
        p50, p99 = np.percentile(times, [50, 99])
        instance, pg = used / (len(times) + WARM_UP * number) * 1000
        yield Figures(way.name, number, *(round(float(n), 2) for n in (p50, p99, rate, instance, pg)))


def _plan(dialect: DialectName) -> Plan:
    compiled = compile_project([SourceText("look_ups.sql", SQL[dialect])], dialect=dialect, topic_partitions={"bid": 4})
    if not compiled.ok:
        raise BenchFailed("; ".join(d.title for d in compiled.diagnostics))
    return compiled.plan


def _fill(client: Client, folder: Path, dialect: DialectName) -> None:
    """Writes the rows, and waits until all of them are in the table."""
    if dialect == "standard":
        for first in range(0, ROWS, 5_000):
            rows = ", ".join(f"({n}, 'k{n}', {n % 977})" for n in range(first, first + 5_000))
            client.statements(f"INSERT INTO bid VALUES {rows}", {})
    else:
        with closing(EmbeddedLog(folder / "log")) as log, closing(log.producer("feed")) as producer:
            records = [
                {"timestamp": 1_000, "key": b"k%d" % n, "value": b'{"PRICE": %d}' % (n % 977), "headers": None}
                for n in range(ROWS)
            ]
            producer.begin()
            for n in range(4):
                mine = [r for r in records if partition_for(r["key"], 4) == n]  # type: ignore[arg-type]
                producer.send(TopicPartition("bid", n), pa.RecordBatch.from_pylist(mine, PRODUCE_SCHEMA))
            producer.commit()
    limit = time.monotonic() + READY_S
    while client.query("SELECT COUNT(*) AS n FROM spent")["n"][0].as_py() < ROWS:
        if time.monotonic() > limit:
            raise BenchFailed(f"the table has not its {ROWS:,} rows after {READY_S:.0f} s")
        time.sleep(0.2)


def measure(
    folder: Path, dialect: DialectName, requests: int, clients: int, seconds: float, only: str
) -> Iterator[Figures]:
    """Starts an instance in `folder`, fills its table, and ends it."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = InteractiveQuerySettings(dialect=dialect)
    client = spawn(Settings(folder, "lookups", 1, 512 << 20, interactive_queries=asked, pg=PgSettings(port)))
    try:
        client.deploy(_plan(dialect))
        _fill(client, folder, dialect)
        pid = client.status()["instance"]["pid"]
        for way in (w for w in ways(client.address.port, client.address.token, port) if only in w.name):
            yield from measured(way, pid, requests, clients, seconds)
    finally:
        client.close()
        end_instance(folder)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dialect", choices=["standard", "ksql"], default="standard")
    parser.add_argument("--requests", type=int, default=500, help="of one client")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", default="", help="ways whose names have this")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    found = list[Figures]()
    print(f"{'way':<24}{'clients':>8}{'p50 ms':>10}{'p99 ms':>10}{'a second':>10}{'instance ms':>13}{'pg ms':>8}")
    with tempfile.TemporaryDirectory(prefix="flowql-look-ups-") as name:
        for f in measure(Path(name), options.dialect, options.requests, options.clients, options.seconds, options.only):
            print(
                f"{f.way:<24}{f.clients:>8}{f.p50_ms:>10.2f}{f.p99_ms:>10.2f}{f.rate:>10,.0f}{f.instance_ms:>13.2f}{f.pg_ms:>8.2f}",
                flush=True,
            )
            found.append(f)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
