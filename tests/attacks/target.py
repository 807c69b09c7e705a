"""The project that is attacked, and its instance: deployed, measured, and started again where an attack ended it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.address import read_address

import pyarrow as pa  # isort: skip

MEMORY_MB = 1024
YAML = f"name: attacked\nfunctions: [harm]\nsql: [attacked.sql]\ntargets: {{default: {{memory: {MEMORY_MB} MB, threads: 2}}}}\n"
FUNCTIONS = """
import re
from flowql import udf

@udf(isolation="inline")
def freezes(s: str) -> int:
    return 1 if re.match(r"^([a-zA-Z0-9]+\\.?)+@", s) else 0
"""
SQL = r"""
CREATE STREAM PULSE (ID BIGINT, CREATED BIGINT) WITH (KAFKA_TOPIC = 'pulse', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM ANSWERS WITH (KAFKA_TOPIC = 'answers', PRIORITY = 'critical') AS SELECT ID, CREATED FROM PULSE;
CREATE STREAM HOSTILE (S STRING, N INT) WITH (KAFKA_TOPIC = 'hostile', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM MATCHED AS SELECT REGEXP_EXTRACT('^([a-zA-Z0-9]+\.?)+@', S) AS M, REGEXP_REPLACE(S, '(a|a)*b', 'x') AS R FROM HOSTILE;
CREATE STREAM LIKED AS SELECT S FROM HOSTILE WHERE S LIKE '%a%a%a%a%a%a%b';
CREATE STREAM PATTERNS AS SELECT REGEXP_EXTRACT(S, S) AS M FROM HOSTILE;
CREATE STREAM LONG_ONES AS SELECT LPAD(S, N, S) AS A, REPLACE(S, 'a', S) AS B FROM HOSTILE;
CREATE STREAM DOUBLED AS SELECT REDUCE(SPLIT(S, ''), 'x', (A, B) => CONCAT(A, A)) AS A FROM HOSTILE;
CREATE STREAM DEEP AS SELECT EXTRACTJSONFIELD(S, '$.a.a.a') AS A, JSON_ARRAY_LENGTH(S) AS L FROM HOSTILE;
CREATE TABLE SEEN AS SELECT N, COUNT(*) AS C, MAX(LEN(S)) AS LONGEST FROM HOSTILE GROUP BY N;
CREATE STREAM FROZEN (S STRING) WITH (KAFKA_TOPIC = 'frozen', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
CREATE STREAM FREEZES AS SELECT FREEZES(S) AS N FROM FROZEN;
"""


class Target:
    """The instance of a project in a folder, as the command line runs it."""

    def __init__(self, folder: Path, sql: str = SQL) -> None:
        self.folder = folder
        (folder / "flowql.yaml").write_text(YAML)
        (folder / "harm.py").write_text(FUNCTIONS)
        self.write(sql)
        self._log: EmbeddedLog | None = None

    @property
    def data_dir(self) -> Path:
        return self.folder / ".flowql" / "default"

    def write(self, sql: str) -> None:
        """Takes effect with the next `deploy`."""
        (self.folder / "attacked.sql").write_text(sql)

    def call(self, *words: str, timeout_s: float = 120.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "flowql", *words, "-p", str(self.folder)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)

    def deploy(self, *words: str) -> None:
        done = self.call("deploy", *words)
        if done.returncode:
            raise SystemExit(f"the project cannot be deployed: {done.stderr}{done.stdout}")

    def append(self, topic: str, rows: Sequence[dict[str, object]]) -> None:
        if self._log is None:
            self._log = EmbeddedLog(self.data_dir / "log")
        now_ms, n = time.time_ns() // 1_000_000, len(rows)
        columns = [[now_ms] * n, [None] * n, [json.dumps(r).encode() for r in rows], [None] * n]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
        producer = self._log.producer(f"attacks-{topic}")
        producer.begin()
        producer.send(TopicPartition(topic, 0), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA))
        producer.commit()
        producer.close()

    def close(self) -> None:
        """The files that `append` has opened."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def processes(self) -> list[psutil.Process]:
        """The instance and everything that it has started."""
        address = read_address(self.data_dir)
        if address is None:
            return []
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(address.pid)
            return [root, *root.children(recursive=True)]
        return []


def held_mb(process: psutil.Process) -> float:
    """What a process holds for itself, in MB: the pages of mapped log files, which the system takes back when it wants, are not its own."""
    memory = process.memory_info()
    return float(memory.rss - getattr(memory, "shared", 0)) / 1e6


class Memory(threading.Thread):
    """The most that all processes of the instance have held together, in MB, since `take` was last called."""

    def __init__(self, target: Target) -> None:
        super().__init__(daemon=True)
        self._target, self._most = target, 0.0
        self.start()

    def run(self) -> None:
        while True:
            held = 0.0
            for process in self._target.processes():
                with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                    held += held_mb(process)
            self._most = max(self._most, held)
            time.sleep(0.1)

    def take(self) -> float:
        most, self._most = self._most, 0.0
        return most
