"""`flowql bench nexmark`: one query at a time over the same events on one log, each checked before a speed is printed.

Input is written first; each query runs in a separate process; the oracle runs after it. The failure of a query is reported at once, the others
still run, and the whole run fails at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import psutil
import pyarrow as pa

from flowql.bench.engines import ENGINES, Job
from flowql.bench.measuring import BenchFailed, Figure
from flowql.bench.nexmark_input import PARTITIONS, write_topics
from flowql.bench.nexmark_people import SCHEMAS, counts
from flowql.bench.oracle import EXPECTED
from flowql.config.storage import log_at
from flowql.kafka.broker import Broker
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.kafka.settings import KafkaSettings


def run(
    project: Path,
    queries: list[str],
    events: int,
    threads: int,
    report: Callable[[str], None],
    *,
    engine: str = "runtime",
    log: str = "embedded",
    bare: bool = False,
    touch_gb: float = 0.0,
    partitions: int = PARTITIONS,
) -> list[Figure]:
    """Measure each query over input written once. BenchFailed at the end.

    log: `kafka` starts a separate broker. bare: also measure a DuckDB loop over the same files of an embedded log.
    touch_gb: GB of memory that is allocated before each query and freed when its measurement starts.
    """
    figures, failed = [], []
    with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        bootstrap = stack.enter_context(broker_in(folder / "broker")) if log == "kafka" else ""
        topics = [t for t in SCHEMAS if any(t in EXPECTED[q].reads for q in queries)]
        report(f"writing {sum(counts(events)[t] for t in topics):,} events")
        with closing(log_at(folder / "log", KafkaSettings(bootstrap) if bootstrap else None, "bench-input")) as to:
            write_topics(to, events, topics, partitions=partitions)
        for query in queries:
            report(f"{query}: running")
            try:
                job = Job(folder, project, query, events, threads, bootstrap, touch_gb, partitions)
                figure = _measured(engine, job, report)
            except BenchFailed as error:
                failed.append(str(error))
                report(f"{query}: failed: {error}")
                continue
            figures.append(figure)
            report(f"{query}: equal to the oracle, {figure.events:,} events in {figure.seconds:.1f} s")
            if bare and query in STATEMENTS:
                seconds, cpu_s = bare_loop(folder, "bid", partitions, query, threads)
                rate = int(events / seconds)
                figures.append(
                    Figure(query, "duckdb loop", "embedded", events, round(seconds, 3), rate, round(cpu_s, 2), 0)
                )
    if failed:
        raise BenchFailed("; ".join(failed))
    return figures


@contextmanager
def broker_in(folder: Path) -> Iterator[str]:
    """Where a new broker listens, until the end of the block."""
    broker = Broker(folder)
    try:
        yield broker.start(port=0).bootstrap
    finally:
        broker.kill()  # nobody wants its records back


def _measured(engine: str, job: Job, report: Callable[[str], None]) -> Figure:
    """In a process of its own."""
    command = [sys.executable, "-m", "flowql.bench.run", engine, json.dumps(asdict(job), default=str)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as child,
    ):
        assert child.stdout is not None
        outcome = _outcome(job.query, child.stdout, report)
        code = child.wait()
        if outcome is None:
            said.seek(0)
            raise BenchFailed(f"{job.query}: the measuring process ended with {code}: {said.read()[-2000:]}")
    if "failed" in outcome:
        raise BenchFailed(outcome["failed"])
    return Figure(**outcome)


def _outcome(query: str, lines: Iterable[str], report: Callable[[str], None]) -> dict[str, Any] | None:
    """The last JSON document that a child printed; earlier ones are progress, and other lines (of libraries) are ignored."""
    found = None
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and "progress" in data:
            report(f"{query}: {data['progress']}")
        elif isinstance(data, dict):
            found = data
    return found


def _progress(text: str) -> None:
    print(json.dumps({"progress": text}), flush=True)


def _main() -> None:
    engine, text = sys.argv[1:]
    job = msgspec.json.decode(text, type=Job, dec_hook=lambda path, name: path(name))
    try:
        outcome = asdict(ENGINES[engine](job, _progress))
    except Exception as error:  # the process that measures ends here: whatever it was, the parent is to say it
        text = str(error) if isinstance(error, BenchFailed) else f"{job.query}: {type(error).__name__}: {error}"
        print(json.dumps({"failed": text}))
        raise
    print(json.dumps(outcome))


# How fast a plain DuckDB loop reads the same segment files: a baseline for a benchmark, not a stream processor.
#
# One statement per stored batch, two threads as two connections over alternate partitions; results are built as Arrow and dropped; nothing
# is written or committed. For `qc` the last statement groups the rows that the others decoded.

ROWS, BYTES = 20_000, 1 << 24
_ALL = (
    '{"auction":"BIGINT","bidder":"BIGINT","price":"BIGINT","channel":"VARCHAR","url":"VARCHAR",'
    '"dateTime":"BIGINT","extra":"VARCHAR"}'
)
_Q0 = "{auction: s.auction, bidder: s.bidder, price: s.price, channel: s.channel, url: s.url, dateTime: s.dateTime, extra: s.extra}"
STATEMENTS = {
    "q0": f"SELECT to_json({_Q0}) FROM (SELECT from_json(v, '{_ALL}') AS s FROM batch)",
    "q1": f"SELECT to_json({_Q0.replace('s.price', 'CAST(s.price AS DOUBLE) * 0.908')}) FROM (SELECT from_json(v, '{_ALL}') AS s FROM batch)",
    "q2": (
        "SELECT to_json({auction: s.auction, price: s.price}) FROM "
        '(SELECT from_json(v, \'{"auction":"BIGINT","price":"BIGINT"}\') AS s FROM batch) WHERE s.auction % 123 = 0'
    ),
    "qc": (
        "SELECT s.bidder, count(*) AS bids, sum(s.price) AS total, max(s.price) AS highest FROM "
        '(SELECT from_json(v, \'{"bidder":"BIGINT","price":"BIGINT"}\') AS s FROM batch) GROUP BY ALL'
    ),
}


def bare_loop(folder: Path, topic: str, partitions: int, query: str, threads: int) -> tuple[float, float]:
    """Wall and processor seconds of the loop."""
    log = EmbeddedLog(folder / "log")
    process = psutil.Process()
    cpu, start = sum(process.cpu_times()[:2]), time.perf_counter()
    workers = [
        threading.Thread(target=_work, args=(log, topic, range(n, partitions, threads), query)) for n in range(threads)
    ]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    seconds = time.perf_counter() - start
    cpu_s = sum(process.cpu_times()[:2]) - cpu
    log.close()
    return seconds, cpu_s


def _work(log: EmbeddedLog, topic: str, partitions: range, query: str) -> None:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    partial: list[pa.Table] = []
    for partition in partitions:
        reader = log.reader(TopicPartition(topic, partition), EARLIEST)
        while (batch := reader.read(ROWS, BYTES)) is not None:
            connection.register("batch", pa.table({"v": batch.records.column("value").cast(pa.string())}))
            found = connection.sql(STATEMENTS[query]).to_arrow_table()
            if query == "qc":
                partial.append(found)
    if partial:
        connection.register("partial", pa.concat_tables(partial))
        connection.sql("SELECT bidder, sum(bids), sum(total), max(highest) FROM partial GROUP BY ALL").to_arrow_table()
    connection.close()


if __name__ == "__main__":
    _main()
