"""INSERT and UPDATE of one row by its key over HTTP and PostgreSQL's protocol: milliseconds, statements a second, and processor time of the processes.

    python -m benchmarks.statements [--rows 1000] [--clients 1 4 32] [--statements 1000] [--json FILE]

The instance is a process of its own. Clients are threads of this process; each sends the text of a statement and waits until it is durable.
`processes` is the processor time of the instance and its child process for one statement. It depends less than the others on what else runs here.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import psutil

from benchmarks.rows import SQL, STATEMENTS, fsync_ms
from flowql.bench.measuring import BenchFailed
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.pg import PgSettings
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.settings import Settings
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.http import Http
from flowql.server.spawn import spawn

KINDS = ("UPDATE", "INSERT")
WARM_UP, LOADED_AT_ONCE = 50, 1_000
ANSWER_S = 60.0


class Door(Protocol):
    """A connection of one client."""

    def execute(self, sql: str) -> None:
        """Raises BenchFailed."""
        ...

    def close(self) -> None: ...


class OverHttp:
    """POST /v1/execute on a connection that stays open."""

    def __init__(self, client: Client) -> None:
        headers = {"Authorization": f"Bearer {client.address.token}"}
        self._http = Http(client.address.port, headers, connect_s=ANSWER_S, answer_s=ANSWER_S)

    def execute(self, sql: str) -> None:
        with self._http.request("POST", "/v1/execute", json.dumps({"statements": sql}).encode()) as reply:
            said = reply.read()
            if not reply.is_success:
                raise BenchFailed(said.decode())

    def close(self) -> None:
        self._http.close()


class OverPg:
    """The simple protocol of PostgreSQL."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        body = struct.pack("!i", 196_608) + b"user\0bench\0database\0main\0\0"
        self._socket.sendall(struct.pack("!i", len(body) + 4) + body)
        self._until_ready()

    def execute(self, sql: str) -> None:
        body = sql.encode() + b"\0"
        self._socket.sendall(b"Q" + struct.pack("!i", len(body) + 4) + body)
        self._until_ready()

    def _until_ready(self) -> None:
        kind = b""
        while kind != b"Z":
            head = self._stream.read(5)
            kind, body = head[:1], self._stream.read(int.from_bytes(head[1:], "big") - 4)
            if kind in (b"E", b""):
                raise BenchFailed(body.decode())

    def close(self) -> None:
        self._stream.close()
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one kind of statement. per_s: of all clients. processes_ms: processor time of the instance's processes for one statement."""

    door: str
    rows: int
    clients: int
    statement: str
    p50_ms: float
    p99_ms: float
    per_s: float
    processes_ms: float


def measure(folder: Path, rows: int, clients: Sequence[int], count: int) -> Iterator[Figures]:
    """Starts an instance in `folder`, fills its table, and ends it."""
    with _free_port() as port:
        queries = InteractiveQuerySettings(dialect="standard")
        settings = Settings(folder, "statements", 1, 512 << 20, pg=PgSettings(port), interactive_queries=queries)
    instance = spawn(settings)
    try:
        instance.deploy(compile_project([SourceText("rows.sql", SQL)], dialect="standard").plan)
        _await_gateway(port)  # or its start is measured
        process = psutil.Process(instance.address.pid)
        processes = [process, *process.children(recursive=True)]
        doors: dict[str, Callable[[], Door]] = {"http": lambda: OverHttp(instance), "pg": lambda: OverPg(port)}
        with closing(doors["http"]()) as door:
            for first in range(0, rows, LOADED_AT_ONCE):
                made = (f"({n}, 'name {n}', {n}, NULL)" for n in range(first, min(rows, first + LOADED_AT_ONCE)))
                door.execute(f"INSERT INTO accounts VALUES {', '.join(made)}")
        new = iter(range(rows, 1 << 31))
        for name, opened in doors.items():
            for kind in KINDS:
                for n in clients:
                    yield _measured(name, opened, kind, n, count, rows, new, processes)
    finally:
        instance.close()
        end_instance(folder)


def _await_gateway(port: int) -> None:
    limit = time.monotonic() + ANSWER_S
    while True:
        try:
            OverPg(port).close()
            return
        except (OSError, BenchFailed):
            if time.monotonic() > limit:
                raise
            time.sleep(0.1)


def _measured(
    name: str,
    opened: Callable[[], Door],
    kind: str,
    clients: int,
    count: int,
    rows: int,
    new: Iterator[int],
    processes: Sequence[psutil.Process],
) -> Figures:
    found: list[float] = []
    lock = threading.Lock()  # guards the number of the next row

    def text() -> str:
        with lock:
            return STATEMENTS[kind](random.randrange(rows), next(new))

    def run(door: Door) -> None:
        for _ in range(count // clients):
            sql, begun = text(), time.perf_counter()
            door.execute(sql)
            found.append((time.perf_counter() - begun) * 1e3)

    doors = [opened() for _ in range(clients)]
    for _ in range(WARM_UP):
        doors[0].execute(text())
    threads = [threading.Thread(target=run, args=(door,)) for door in doors]
    begun, cpu = time.perf_counter(), _cpu_s(processes)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.perf_counter() - begun, _cpu_s(processes) - cpu
    for door in doors:
        door.close()
    p50, p99 = (round(float(q), 2) for q in np.quantile(found, [0.5, 0.99]))
    return Figures(name, rows, clients, kind, p50, p99, round(len(found) / took), round(used * 1e3 / len(found), 2))


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(p.cpu_times()[:2]) for p in processes)


@contextmanager
def _free_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken.getsockname()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 32])
    parser.add_argument("--statements", type=int, default=1_000, help="of each kind")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    all_figures: list[Figures] = []
    for rows in chosen.rows:
        with tempfile.TemporaryDirectory(prefix="flowql-statements-") as name:
            p50, p99 = fsync_ms(Path(name))
            print(f"{rows:,} rows: fsync p50 {p50} ms, p99 {p99} ms")
            for f in measure(Path(name), rows, chosen.clients, chosen.statements):
                all_figures.append(f)
                shown = f"p50 {f.p50_ms:7.2f} ms  p99 {f.p99_ms:7.2f} ms  {f.per_s:6,}/s  processes {f.processes_ms} ms"
                print(f"  {f.door:5}{f.statement:8}{f.clients:3} clients  {shown}", flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(f) for f in all_figures], indent=1))


if __name__ == "__main__":
    main()
