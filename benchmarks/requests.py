"""Milliseconds that a request to an idle instance takes, on a connection that stays open and on a new one for each.

    python -m benchmarks.requests [--requests 300] [--json FILE]

The instance is a process of its own with a table of 20,000 rows. Requests go to its local port, one after the other: `/health`, a row by
its key, the first 20 rows, and a list, which a child process answers. Kept-alive answers of 40 ms mean that a socket delays small packets (Nagle's algorithm, and the delayed
acknowledgement of the other side).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.isolation import plan_of
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark import BID_SCHEMA, bids
from flowql.bench.nexmark_input import PARTITIONS, produce
from flowql.deploy.settings import Settings
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.client import Client
from flowql.server.ending import end_instance
from flowql.server.http import Http
from flowql.server.spawn import spawn

SQL = """
CREATE STREAM BID (ID STRING KEY, PRICE BIGINT) WITH (KAFKA_TOPIC='bid', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE SPENT AS SELECT ID, COUNT(*) AS N, SUM(PRICE) AS TOTAL FROM BID GROUP BY ID;
"""
ROWS, EVENTS = 20_000, 50_000  # different keys, and their records
REQUESTS = (
    ("GET", "/health", ""),
    ("POST", "/v1/query", "SELECT * FROM spent WHERE id = '{n}'"),
    ("POST", "/v1/query", "SELECT * FROM spent LIMIT 20"),
    ("POST", "/v1/query", "SELECT LIST(n) FROM spent WHERE id = '{n}'"),
)
WARM_UP = 20  # requests that are not measured
READY_S, ANSWER_S = 60.0, 30.0


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency of one kind of request, in ms."""

    request: str
    connection: str
    p50_ms: float
    p99_ms: float


def _few_auctions(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        few = pa.array(np.asarray(batch.column(0)) % ROWS)
        yield pa.RecordBatch.from_arrays([few, *batch.columns[1:]], schema=BID_SCHEMA)


def measure(folder: Path, requests: int) -> list[Latency]:
    """Starts an instance in `folder`, fills its table, and ends it. Raises BenchFailed if it does not catch up."""
    with closing(EmbeddedLog(folder / "log")) as log:
        log.admin().create_topic("bid", PARTITIONS)
        produce(log, "bid", _few_auctions(bids(EVENTS)))
    client = spawn(Settings(folder, "requests", 1, 256 << 20))
    try:
        client.deploy(plan_of(SQL))
        _await_rows(client)
        return [_latency(client, request, requests, kept=kept) for request in REQUESTS for kept in (True, False)]
    finally:
        client.close()
        end_instance(folder)


def _await_rows(client: Client) -> None:
    limit = time.monotonic() + READY_S
    while client.status()["queries"][0]["records_in"] < EVENTS:
        if time.monotonic() > limit:
            raise BenchFailed(f"the table has not its {ROWS:,} rows after {READY_S:.0f} s")
        time.sleep(0.1)


def _latency(client: Client, request: tuple[str, str, str], requests: int, *, kept: bool) -> Latency:
    method, path, sql = request
    http = Http(
        client.address.port,
        {"Authorization": f"Bearer {client.address.token}"},
        connect_s=ANSWER_S,
        answer_s=ANSWER_S,
    )

    def ask(n: int) -> None:
        body = json.dumps({"sql": sql.format(n=n % ROWS)}).encode() if sql else b""
        with http.request(method, path, body) as reply:
            if not reply.is_success:
                raise BenchFailed(f"{path} answered {reply.response.status}")
            reply.read()
        if not kept:
            http.close()

    try:
        times = _times_ms(ask, requests)
    finally:
        http.close()
    p50, p99 = np.percentile(times, [50, 99])
    return Latency(sql or path, "kept" if kept else "new", round(float(p50), 2), round(float(p99), 2))


def _times_ms(ask: Callable[[int], None], requests: int) -> list[float]:
    times = list[float]()
    for n in range(WARM_UP + requests):
        start = time.perf_counter()
        ask(n)
        times.append((time.perf_counter() - start) * 1000)
    return times[WARM_UP:]


def report(found: Sequence[Latency]) -> str:
    lines = [f"{'request':<42}{'connection':>12}{'p50 ms':>10}{'p99 ms':>10}"]
    lines += [f"{f.request:<42}{f.connection:>12}{f.p50_ms:>10.2f}{f.p99_ms:>10.2f}" for f in found]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300, help="of each kind")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="flowql-requests-") as name:
        found = measure(Path(name), options.requests)
    print(report(found))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(f) for f in found], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
