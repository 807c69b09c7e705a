"""The process that measures: writes 200 records a second to the critical query's topic and reads its committed results.

    python -m tests.attacks.probe LOG_DIR FILE

FILE receives a line for each result: id, when its record was created and when its result was read (ns since the epoch). The process ends
with its standard input, and prints how many records it wrote once all of them were answered, or after a minute.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TextIO

import orjson
import pyarrow as pa

from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog

RATE, TICK_S = 200, 0.05  # records a second, and between two transactions
PAUSE_S = 0.002  # between two looks at the results
LAST_S = 60.0  # for the last results, after the input has ended
INPUT, RESULTS = TopicPartition("pulse", 0), TopicPartition("answers", 0)


class Feed(threading.Thread):
    """Appends records until it is told to end; `written` is their number."""

    def __init__(self, log: EmbeddedLog) -> None:
        super().__init__(daemon=True)
        self.written, self.ends = 0, threading.Event()
        self._producer = log.producer("attacks-probe")

    def run(self) -> None:
        start = time.monotonic()
        while not self.ends.wait(TICK_S):
            due = int((time.monotonic() - start) * RATE) - self.written
            self._append(due)
        self._producer.close()

    def _append(self, n: int) -> None:
        if n < 1:
            return
        now_ns = time.time_ns()
        ids = range(self.written, self.written + n)
        values = [orjson.dumps({"ID": i, "CREATED": now_ns}) for i in ids]
        columns = [[now_ns // 1_000_000] * n, [None] * n, values, [None] * n]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
        self._producer.begin()
        self._producer.send(INPUT, pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA))
        self._producer.commit()
        self.written += n


def read(log: EmbeddedLog, feed: Feed, seen: TextIO) -> None:
    """Notes results until the feed has ended and each of its records has one."""
    consumer, answered, limit = log.consumer("attacks-reader"), 0, float("inf")
    consumer.assign({RESULTS: EARLIEST})
    while feed.is_alive() or answered < feed.written:
        batches = consumer.poll(10_000, 1 << 24)
        now_ns = time.time_ns()
        for value in (v for b in batches for v in b.records.column("value").to_pylist()):
            row = orjson.loads(value)
            seen.write(f"{row['ID']} {row['CREATED']} {now_ns}\n")
            answered += 1
        seen.flush()
        limit = min(limit, time.monotonic() + LAST_S) if not feed.is_alive() else limit
        if time.monotonic() > limit:
            break
        time.sleep(PAUSE_S)
    consumer.close()


def main(log_dir: Path, file: Path) -> None:
    log = EmbeddedLog(log_dir)
    feed = Feed(log)
    feed.start()
    threading.Thread(target=lambda: (sys.stdin.read(), feed.ends.set()), daemon=True).start()
    with file.open("w") as seen:
        read(log, feed, seen)
    print(feed.written, flush=True)
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
