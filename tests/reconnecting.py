"""A client of changes that connects again and again while the instance is killed and deployments change what it reads.

    python -m tests.reconnecting [--times 100] [--seed 7] [--over events|websocket]

It follows a stream and a table. Of the stream it must see each row once and in order, and of the table each change of a key in order, from one `reset` to
the next. After a `reset` it begins with nothing. At the end both must have what the instance has.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx

from flowql.deploy.settings import Settings
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.spawn import spawn
from tests.flowql.query.harness import plan_of
from tests.web_socket import Closed, WebSocket, connected

SQL = """
CREATE STREAM S (K STRING KEY, N INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM COPIED AS SELECT K, N, {version} AS VERSION FROM S WHERE N >= 0;
CREATE TABLE LAST AS SELECT K, COUNT(*) AS ROWS, MAX(N) AS N FROM S GROUP BY K;
"""
KEYS, WAIT_S, LOOK_S = 5, 60.0, 30.0


class Lost(Exception):
    """The connection is gone."""


Told = tuple[str, str, Any]  # event, id and data
Over = Callable[[Client, dict[str, str], str], AbstractContextManager[Iterator[Told]]]


@contextmanager
def over_events(client: Client, given: dict[str, str], last: str) -> Iterator[Iterator[Told]]:
    """Server-sent events. Raises Lost."""
    url = f"http://127.0.0.1:{client.address.port}/v1/subscribe"
    headers = {"Authorization": f"Bearer {client.address.token}", **({"Last-Event-ID": last} if last else {})}
    try:
        with httpx.stream("GET", url, params=given, headers=headers, timeout=LOOK_S, trust_env=False) as said:
            yield _events(said.iter_lines(), time.monotonic() + WAIT_S)
    except httpx.TransportError as error:
        raise Lost from error


@contextmanager
def over_websocket(client: Client, given: dict[str, str], last: str) -> Iterator[Iterator[Told]]:
    """Messages of a WebSocket. Raises Lost."""
    path = f"/v1/subscribe?{urlencode({**given, 'last-event-id': last})}"
    headers = {"Authorization": f"Bearer {client.address.token}"}
    try:
        with connected(client.address.port, path, headers, LOOK_S) as socket:
            yield _messages(socket, time.monotonic() + WAIT_S)
    except Closed as error:
        raise Lost from error


def _messages(socket: WebSocket, limit: float) -> Iterator[Told]:
    while True:
        said = json.loads(socket.receive())
        assert time.monotonic() < limit, "no event that was waited for"
        if said["event"] != "alive":
            yield said["event"], said.get("id", ""), said["data"]


def _events(lines: Iterator[str], limit: float) -> Iterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    for line in lines:
        assert time.monotonic() < limit, "no event that was waited for"
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and "event" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields = {}


@dataclass(slots=True)
class Follower:
    """A client that remembers where it was. rows: of the stream, by key, or the row of the table."""

    sql: str
    is_table: bool
    over: Over
    last: str = ""
    connections: int = 0
    resets: Counter[str] = field(default_factory=Counter)
    rows: dict[str, list[int]] = field(default_factory=dict)

    def take(
        self,
        client: Client,
        wanted: dict[str, list[int]] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        """Connects and takes one event with changes, or all events until it has what is wanted. meanwhile: is done after that event; it then takes another
        one. Ends early if the instance does.
        """
        events = 1
        self.connections += 1
        with self.over(client, {"sql": self.sql, "start": "earliest"}, self.last) as said:
            for kind, place, data in said:
                if kind == "error":
                    return
                self._apply(kind, data)
                self.last = place or self.last
                events -= kind == "changes"
                if wanted is None and events <= 0 and meanwhile is not None:
                    meanwhile()
                    events, meanwhile = 1, None
                if self._has(wanted) if wanted is not None else events <= 0:
                    return

    def _apply(self, kind: str, data: Any) -> None:
        if kind == "reset":
            self.resets[re.sub(r"\d+", "n", data["reason"])] += 1
            self.rows = {}
        for change in data if kind == "changes" else ():
            key, n = change["row"]["K"], change["row"]["N"]
            seen = self.rows.setdefault(key, [])
            assert not seen or n > seen[-1], f"{self.sql}: {key} went from {seen[-1]} to {n}"
            assert change["op"] in ("put", "insert", "append"), change
            if self.is_table:
                seen.clear()
            seen.append(n)

    def _has(self, wanted: dict[str, list[int]]) -> bool:
        return self.rows == ({k: v[-1:] for k, v in wanted.items()} if self.is_table else wanted)


@dataclass(slots=True)
class Site:
    """The instance in a folder, and what was written to it."""

    folder: Path
    rng: random.Random
    client: Client = field(init=False)
    written: dict[str, list[int]] = field(default_factory=dict)
    kills: int = 0
    deployments: int = 0
    _number: int = 0

    def start(self) -> None:
        self.client = spawn(Settings(self.folder, "reconnecting", 1, 128 << 20))

    def deploy(self) -> None:
        self.deployments += 1
        self.client.deploy(plan_of(SQL.format(version=self.deployments)))

    def deploy_and_write(self) -> None:
        self.deploy()
        self.write(1)

    def kill(self) -> None:
        self.kills += 1
        os.kill(self.client.status()["instance"]["pid"], signal.SIGKILL)

    def write(self, count: int) -> None:
        rows = []
        for _ in range(count):
            key, self._number = f"k{self.rng.randrange(KEYS)}", self._number + 1
            self.written.setdefault(key, []).append(self._number)
            rows.append({"K": key, "N": self._number})
        url = f"http://127.0.0.1:{self.client.address.port}/v1/streams/S/rows"
        headers = {"Authorization": f"Bearer {self.client.address.token}"}
        assert httpx.post(url, json=rows, headers=headers, trust_env=False, timeout=LOOK_S).status_code == 200


def run(
    folder: Path, times: int, seed: int = 7, report: Callable[[int], None] = lambda done: None, over: Over = over_events
) -> tuple[Site, list[Follower]]:
    """times: how often each client connects, at least. In a third of the times the instance is killed, and in a third there is a deployment, while one
    of the clients is connected.
    """
    site = Site(folder, random.Random(seed))
    followers = [Follower("SELECT K, N FROM COPIED EMIT CHANGES", False, over), Follower("LAST", True, over)]
    site.start()
    try:
        site.deploy()
        for n in range(times):
            site.write(1 + site.rng.randrange(20))
            connected, other = followers[n // 3 % 2], followers[1 - n // 3 % 2]
            if n % 3 == 1:
                with suppress(Lost):
                    connected.take(site.client, meanwhile=site.kill)
                site.client.close()
                site.start()
                site.write(1)
                connected.take(site.client)
            else:
                connected.take(site.client, meanwhile=site.deploy_and_write if n % 3 == 2 else None)
            other.take(site.client)
            report(n + 1)
        for follower in followers:
            follower.take(site.client, site.written)
    finally:
        site.client.close()
        end_instance(folder)
    return site, followers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--over", choices=["events", "websocket"], default="events")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flowql-reconnecting-") as name:
        over = over_events if options.over == "events" else over_websocket
        site, followers = run(Path(name), options.times, options.seed, lambda done: print(done, flush=True), over)
    print(f"{sum(map(len, site.written.values())):,} rows, {site.kills} kills, {site.deployments} deployments")
    for f in followers:
        print(f"{f.sql}: {f.connections} connections, {sum(f.resets.values())} resets {dict(f.resets)}")


if __name__ == "__main__":
    main()
