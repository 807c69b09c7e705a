"""Measures the cost of subscribers of one result over HTTP: threads, memory, and processor time for each change.

    python -m benchmarks.subscribers [--counts 0 1 50 200] [--changes 400] [--sql S]

The instance is a process. One thread here reads all connections, as server-sent events. Each change is written by itself, and the next one once all
subscribers have it. Processor time is that of the instance and has no noise of this process; that without subscribers is what writing costs.
"""

from __future__ import annotations

import argparse
import http.client
import json
import selectors
import socket
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlencode

import psutil

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.api import ApiSettings
from flowql.deploy.settings import Settings
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.spawn import spawn

TOKEN = "a-token-of-the-benchmark"
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N, MAX(V) AS V FROM S GROUP BY K;
"""
WAIT_S, REST_S = 60.0, 2.0


class Subscribers:
    """Connections that have had their first event. `wait` until each has as many events with changes."""

    def __init__(self, port: int, sql: str, count: int, stack: ExitStack) -> None:
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._seen = dict[socket.socket, int]()
        self._rest = dict[socket.socket, bytes]()
        for _ in range(count):
            made = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_S))
            path = f"/v1/subscribe?{urlencode({'sql': sql})}"
            made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
            said = b""
            while b"event: begin" not in said:
                said += made.recv(1 << 16)
                assert b" 200 " in said.partition(b"\r\n")[0], said
            self._seen[made], self._rest[made] = 0, b""
            self._selector.register(made, selectors.EVENT_READ)

    def wait(self, changes: int) -> None:
        limit = time.monotonic() + WAIT_S
        while any(n < changes for n in self._seen.values()):
            assert time.monotonic() < limit, sorted(self._seen.values())[:3]
            for key, _ in self._selector.select(1.0):
                made = key.fileobj
                assert isinstance(made, socket.socket)
                *whole, self._rest[made] = (self._rest[made] + made.recv(1 << 16)).split(b"\n\n")
                self._seen[made] += sum(e.count(b'"op":') for e in whole)


def measured(folder: Path, count: int, changes: int, sql: str) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    api = ApiSettings(port, TOKEN, connections=count + 16, subscriptions=max(16, count + 1))
    client: Client = spawn(Settings(folder, "demo", 1, 256 << 20, api=api))
    try:
        client.deploy(compile_project([SourceText("subscribers.sql", SQL)]).plan)
        process = psutil.Process(client.status()["instance"]["pid"])
        writer = http.client.HTTPConnection("127.0.0.1", port)
        with ExitStack() as stack:
            time.sleep(REST_S)
            threads, rss = process.num_threads(), process.memory_info().rss
            began_s = _cpu_s(process)
            subscribers = Subscribers(port, sql, count, stack)
            begun_s = _cpu_s(process) - began_s
            time.sleep(REST_S)
            idle_s = _cpu_s(process)
            time.sleep(REST_S)
            idle_s = (_cpu_s(process) - idle_s) / REST_S
            before_s = _cpu_s(process)
            for n in range(changes):
                body = json.dumps([{"K": f"k{n % 50}", "V": n}])
                writer.request("POST", "/v1/streams/S/rows", body, {"Authorization": f"Bearer {TOKEN}"})
                answer = writer.getresponse()
                assert answer.status == 200, answer.read()
                answer.read()
                subscribers.wait(n + 1)
            used_s = _cpu_s(process) - before_s
            print(
                f"{count:>5} subscribers: {process.num_threads() - threads:>4} more threads,"
                f" {(process.memory_info().rss - rss) / (1 << 20):>7.1f} MiB more,"
                f" {begun_s / max(1, count) * 1000:>6.1f} ms to begin each, {idle_s:>6.1%} of a processor at rest,"
                f" {used_s / changes * 1000:>7.2f} ms for a change",
                flush=True,
            )
        writer.close()
    finally:
        client.close()
        end_instance(folder)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[0, 1, 50, 200])
    parser.add_argument("--changes", type=int, default=400)
    parser.add_argument("--sql", default="S")
    options = parser.parse_args()
    for count in options.counts:
        with tempfile.TemporaryDirectory(prefix="flowql-subscribers-") as name:
            measured(Path(name), count, options.changes, options.sql)


if __name__ == "__main__":
    main()
