"""The attacks. Each is repeated by a client until its time is over, and returns how it was answered: a code, a status, or `ok`."""

from __future__ import annotations

import gzip
import json
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from flowql.errors import CommandError
from flowql.server.address import read_address
from flowql.server.http import Http, Unreachable
from flowql.server.running import connect
from tests.attacks.target import Target

Attack = Callable[[Target, random.Random], str]
IDLE, HELD_S = 300, 8.0
TEXTS = (
    "a" * 36 + "!",
    "a" * 5_000 + "!",
    "ab" * 40_000,
    "[" * 50_000,
    '{"a":' * 20_000,
    "\x00" * 1_000,
    "(a*)*" * 200,
    "a" * 1_000_000,
)
QUERIES = (
    "SELECT len(list_transform(range(10000), lambda x: range(10000)))",
    "SELECT list_reduce(range(40), lambda a, b: a + b) AS n, len(repeat('x', 1000000000))",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r",
    "SELECT sum(a.c * b.c) FROM range(100000000) a(c), range(100000000) b(c)",
    "SELECT list(range) FROM range(1000000000)",
    "SELECT string_agg(repeat('x', 100000), '') FROM range(100000)",
    "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "SELECT " + "+".join(["1"] * 300_000),
    "SELECT regexp_matches('" + "a" * 36 + "!', '^([a-zA-Z0-9]+\\.?)+@')",
    "SELECT * FROM seen",
)


def records(target: Target, rnd: random.Random) -> str:
    """Hostile records for the queries over HOSTILE."""
    rows = [{"S": rnd.choice(TEXTS), "N": rnd.choice([1, 10, 2_000_000_000])} for _ in range(3)]
    target.append("hostile", rows)
    time.sleep(0.2)
    return "ok"


def queries(target: Target, rnd: random.Random) -> str:
    """Interactive queries that grow, recurse or are long."""
    client = connect(target.data_dir)
    if client is None:
        return "no answer"
    try:
        client.query(rnd.choice(QUERIES))
        return "ok"
    except CommandError as error:
        return error.code
    finally:
        client.close()


def connections(target: Target, _: random.Random) -> str:
    """Connections that say nothing."""
    address = read_address(target.data_dir)
    if address is None:
        return "no answer"
    held = []
    try:
        for _ in range(IDLE):
            held.append(socket.create_connection(("127.0.0.1", address.port), timeout=2.0))
    except OSError:
        pass
    time.sleep(HELD_S)
    for one in held:
        one.close()
    return "ok"


def bodies(target: Target, rnd: random.Random) -> str:
    """Requests whose bodies are damaged, endless or packed."""
    address = read_address(target.data_dir)
    if address is None:
        return "no answer"
    path, body, headers = rnd.choice(
        [
            ("/v1/query", b"\xff\xfe" * 1000, {}),
            ("/v1/deployments", b'{"plan": "\\ud800"}', {}),
            ("/v1/pause", b"{}", {}),
            ("/v1/priority", b'{"name": 1e400}', {}),
            ("/v1/dead-letters/append", json.dumps({"records": [["\ud800"]]}).encode(), {}),
            ("/v1/deployments", b"[" * 100_000, {}),
            ("/v1/query", gzip.compress(b"a" * 50_000_000), {"Content-Encoding": "gzip"}),
        ]
    )
    http = Http(address.port, {"Authorization": f"Bearer {address.token}", **headers}, connect_s=2.0, answer_s=60.0)
    try:
        with http.request("POST", path, body) as reply:
            said = reply.read()
    except Unreachable:
        return "closed"
    finally:
        http.close()
    status = reply.response.status
    try:
        return f"{status} {json.loads(said)['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return f"{status}"


def freeze(target: Target, _: random.Random) -> str:
    """One record for a function that runs inline and does not end."""
    target.append("frozen", [{"S": "a" * 40 + "!"}])
    return "ok"


@dataclass(frozen=True, slots=True)
class Kind:
    """An attack by that many clients at once. once: each of them attacks a single time. outage_s_max: of the critical query."""

    name: str
    attack: Attack
    clients: int
    once: bool = False
    outage_s_max: float | None = None


KINDS = (
    Kind("records", records, 1),
    Kind("queries", queries, 8),
    Kind("connections", connections, 1),
    Kind("bodies", bodies, 8),
    Kind("freeze", freeze, 1, once=True, outage_s_max=20.0),
)
