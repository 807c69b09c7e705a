"""Interactive queries to a live instance over two tables fed by one input: they agree on one commit every time and never go back.

    python -m tests.query_consistency --calls 1000 [--cli 100] [--rate 5000]

Deploys a project in a folder of its own, lets another process append to its input all the time, and asks. Every call is a
connection of its own; of `calls`, `cli` are processes of `flowql query`, spread evenly among the rest, which go over HTTP. The
second table comes through a repartition. At the end the instance is stopped and its directory asked once more.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from flowql.query.errors import APART, SEQUENCE
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.address import is_alive, read_address
from flowql.server.running import connect
from flowql.server.spawn import ERRORS_FILE

PROJECT = "name: consistency\nsql: demo.sql\ntargets: {default: {threads: 2, memory: 128 MB}}\n"
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE A AS SELECT K, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY K;
CREATE TABLE B AS SELECT V, COUNT(*) AS N, SUM(V) AS T FROM S GROUP BY V;
"""
QUERY = (
    "SELECT (SELECT coalesce(sum(n), 0) FROM a) AS a, (SELECT coalesce(sum(n), 0) FROM b) AS b,"
    " (SELECT coalesce(sum(t), 0) FROM a) AS ta, (SELECT coalesce(sum(t), 0) FROM b) AS tb"
)
FLOWQL = [sys.executable, "-c", "from flowql.cli import main; main()"]
PAUSE_S = 0.02


@dataclass(slots=True)
class Report:
    """What was asked and what came.

    advances: answers with more records than the one before. apart: answers that do not agree and say why, as they may where a machine
    is too slow to bring the queries together within a second. failures: those that say nothing, or go back.
    """

    http: int = 0
    cli: int = 0
    advances: int = 0
    apart: int = 0
    seconds: float = 0.0
    records: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.failures and self.records > 0


@contextmanager
def running(folder: Path) -> Iterator[Path]:
    """A deployed project; its data directory. Whatever still runs at the end is killed."""
    (folder / "flowql.yaml").write_text(PROJECT)
    (folder / "demo.sql").write_text(SQL)
    data_dir = folder / ".flowql" / "default"
    subprocess.run([*FLOWQL, "deploy", "-p", str(folder)], check=True, capture_output=True)
    try:
        yield data_dir
    finally:
        address = read_address(data_dir)
        if address is not None and is_alive(address.pid, address.started):
            os.kill(address.pid, signal.SIGKILL)


def feed(data_dir: Path, rate: int) -> None:
    """About `rate` records a second, until the process is ended."""
    log = EmbeddedLog(data_dir / "log")
    producer, sent = log.producer("feed"), 0
    count = max(1, int(rate * PAUSE_S / 2))
    while True:
        producer.begin()
        for partition in range(2):
            rows = [
                {
                    "timestamp": sent + i,
                    "key": b"k%d" % (2 * (i % 7) + partition),
                    "value": b'{"V": %d}' % (i % 10),
                    "headers": None,
                }
                for i in range(count)
            ]
            producer.send(TopicPartition("s", partition), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
        producer.commit()
        sent += count
        time.sleep(PAUSE_S)


def over_http(data_dir: Path) -> tuple[dict[str, int], int, str]:
    """(answer, number of the commit, why it does not agree)."""
    client = connect(data_dir)
    assert client is not None, (
        f"{read_address(data_dir)} does not answer: {(data_dir / ERRORS_FILE).read_text()[-2000:]}"
    )
    try:
        table = client.query(QUERY)
    finally:
        client.close()
    metadata = table.schema.metadata
    return table.to_pylist()[0], int(metadata[SEQUENCE]), metadata.get(APART, b"").decode()


def over_cli(folder: Path) -> tuple[dict[str, int], str]:
    done = subprocess.run(
        [*FLOWQL, "query", "-o", "json", "-p", str(folder), QUERY], check=True, capture_output=True, text=True
    )
    (row,) = json.loads(done.stdout)
    return {k: int(v) for k, v in row.items()}, done.stderr.strip()


def ask_all(folder: Path, data_dir: Path, calls: int, cli: int) -> Report:
    """All calls one after the other, so that no answer may be older than the one before."""
    report, start, last, sequence = Report(), time.monotonic(), 0, 0
    for number in range(calls):
        if (number + 1) * cli // calls > number * cli // calls:
            row, apart = over_cli(folder)
            report.cli += 1
        else:
            row, this, apart = over_http(data_dir)
            report.http += 1
            if this < sequence:
                report.failures.append(f"call {number}: commit {this} after commit {sequence}")
            sequence = this
        agrees = row["a"] == row["b"] and row["ta"] == row["tb"]
        report.apart += bool(not agrees and apart)
        if not (agrees or apart):
            report.failures.append(f"call {number}: {row}")
        if row["a"] < last:
            report.failures.append(f"call {number}: {row} after {last} records")
        report.advances += row["a"] > last
        last = row["a"]
    report.seconds, report.records = time.monotonic() - start, last
    return report


def check(calls: int, cli: int, rate: int, folder: Path) -> Report:
    """The whole course: deploy, load, interactive queries, stop, one more interactive query."""
    with running(folder) as data_dir:
        feeder = subprocess.Popen([sys.executable, "-m", "tests.query_consistency", "--feed", str(data_dir), str(rate)])
        try:
            while over_http(data_dir)[0]["a"] == 0:
                time.sleep(0.05)
            report = ask_all(folder, data_dir, calls, cli)
            subprocess.run([*FLOWQL, "stop", "-p", str(folder)], check=True, capture_output=True)
        finally:
            feeder.terminate()
            feeder.wait()
        row, _ = over_cli(folder)
        if row["a"] != row["b"] or row["ta"] != row["tb"] or row["a"] < report.records:
            report.failures.append(f"after the stop: {row}")
    return report


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.query_consistency")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--cli", type=int, default=100, help="how many of the calls are processes of flowql query")
    parser.add_argument("--rate", type=int, default=5000, help="records a second")
    parser.add_argument("--feed", nargs=2, metavar=("DIR", "RATE"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.feed:
        feed(Path(options.feed[0]), int(options.feed[1]))
    with tempfile.TemporaryDirectory() as folder:
        report = check(options.calls, options.cli, options.rate, Path(folder))
    for failure in report.failures:
        print(failure)
    print(
        f"{report.http} calls over HTTP, {report.cli} of flowql query, in {report.seconds:.1f} s;"
        f" {report.advances} answers moved on, to {report.records} records; {len(report.failures)} wrong, {report.apart} apart"
    )
    return 0 if report.passed and not report.apart else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
