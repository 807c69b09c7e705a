"""How fast a plain DuckDB loop reads the same segment files: a baseline for a benchmark, not a stream processor.

One statement per stored batch, two threads as two connections over alternate partitions; results are built as Arrow and dropped; nothing
is written or committed. For `qc` the last statement groups the rows that the others decoded.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import duckdb
import psutil
import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog

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
