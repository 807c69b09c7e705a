"""Cost of a keyed aggregate by number of keys: COUNT, SUM or AVG, and MAX on the embedded log.

    python -m benchmarks.keyed_state [--keys 10000 1000000] [--rows 2000000] [--kind bigint|text|both] [--memory-mb 4096]
      [--window none|tumbling|hopping] [--form changes|final|view|watermark] [--numbers bigint|decimal] [--sum SUM|AVG]

Keys are drawn uniformly, a record a millisecond; the input is written before the clock runs. Windows have a minute, hopping ones begin every 12
seconds. `changes` and `final` are ksqlDB's EMIT, `view` and `watermark` views of standard SQL over a stream without and with a watermark. Reported is processor time of the whole process per record, from the
deployment to the last commit, and the rows per second of wall time. Each number of keys runs in a process of its own, and its result is compared with
numpy's.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from benchmarks.feeding import kafka_bigint
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.config.storage import log_at
from flowql.deploy.engine import open_on
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.progress import caught_up, source_ends
from flowql.runtime.batch import Ints
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition

CHUNK = 100_000
APP = "keyed"
KEYS = {"bigint": ("K BIGINT KEY", "K"), "text": ("K STRING KEY", "K"), "both": ("K BIGINT KEY", "K, T")}
SIZE_MS, ADVANCE_MS, GRACE_MS = 60_000, {"tumbling": 60_000, "hopping": 12_000}, 10_000
CLAUSES = {
    "none": "",
    "tumbling": "WINDOW TUMBLING (SIZE 60 SECONDS, GRACE PERIOD 10 SECONDS)",
    "hopping": "WINDOW HOPPING (SIZE 60 SECONDS, ADVANCE BY 12 SECONDS, GRACE PERIOD 10 SECONDS)",
}
NUMBERS = {"bigint": "BIGINT", "decimal": "DECIMAL(18, 2)"}
SQL = """CREATE STREAM S ({key}, V {number}, T STRING)
  WITH (KAFKA_TOPIC='{app}-s', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE C WITH (KAFKA_TOPIC='{app}-c')
  AS SELECT {by}, COUNT(*) AS N, {sum}(V) AS TOTAL, MAX(V) AS HIGHEST FROM S {window} GROUP BY {by} EMIT {emit};"""
STANDARD_CLAUSES = {
    "tumbling": "TUMBLE(s, ts, INTERVAL '60 seconds')",
    "hopping": "HOP(s, ts, INTERVAL '12 seconds', INTERVAL '60 seconds')",
}
MARKS = {"view": "", "watermark": ", WATERMARK FOR ts AS ts - INTERVAL '10 seconds'"}
STANDARD_SQL = """CREATE STREAM s (k BIGINT KEY, "V" {number}, "T" STRING, ts TIMESTAMP{mark})
  WITH (KAFKA_TOPIC='{app}-s', PARTITIONS={partitions}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', TIMESTAMP='ts');
CREATE VIEW "C" WITH (KAFKA_TOPIC='{app}-c')
  AS SELECT COUNT(*) AS n, {sum}("V") AS total, MAX("V") AS highest, k, window_start FROM {window} GROUP BY k, window_start;"""


def plan_of(options: argparse.Namespace) -> Plan:
    shared = {"app": APP, "partitions": options.partitions, "number": NUMBERS[options.numbers], "sum": options.sum}
    if options.form in MARKS:
        text = STANDARD_SQL.format(mark=MARKS[options.form], window=STANDARD_CLAUSES[options.window], **shared)
        compiled = compile_project([SourceText("keyed.sql", text)], dialect="standard")
    else:
        key, by = KEYS[options.kind]
        text = SQL.format(key=key, by=by, window=CLAUSES[options.window], emit=options.form.upper(), **shared)
        compiled = compile_project([SourceText("keyed.sql", text)])
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


@dataclass(slots=True)
class Rows:
    """What was written: key, time in ms and value of each record."""

    ids: Ints
    times: Ints
    values: Ints

    def expected(self, options: argparse.Namespace) -> dict[str, Ints]:
        """The sorted groups and their results, by name. group: the key and the start of the window in one number."""
        ids, times, values = self.ids, self.times, self.values
        starts = np.zeros(len(ids), np.int64)
        if options.window != "none":
            advance = ADVANCE_MS[options.window]
            backs = range(0, SIZE_MS, advance)
            ids, values = np.tile(ids, len(backs)), np.tile(values, len(backs))
            starts = np.concatenate([times - times % advance - back for back in backs])
            last = np.zeros(options.partitions, np.int64)
            np.maximum.at(last, self.ids % options.partitions, times)
            shown = starts >= 0
            if options.form == "final":
                shown &= starts + SIZE_MS + GRACE_MS <= last[ids % options.partitions]
            ids, values, starts = ids[shown], values[shown], starts[shown]
        groups, at, count = np.unique(group_numbers(ids, starts), return_inverse=True, return_counts=True)
        total, highest = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
        np.add.at(total, at, values)
        np.maximum.at(highest, at, values)
        return {"group": groups, "count": count, "total": total, "highest": highest}


def group_numbers(ids: Ints, starts: Ints) -> Ints:
    return ids << 32 | starts


def write_input(instance: Instance, options: argparse.Namespace, keys: int) -> Rows:
    producer, random = instance.log.producer("keyed-input"), np.random.default_rng(1)
    written: list[tuple[Ints, Ints, Ints]] = []
    for start in range(0, options.rows, CHUNK):
        ids = random.integers(0, keys, min(CHUNK, options.rows - start))
        values, times = random.integers(0, 1_000, len(ids)), np.arange(start, start + len(ids))
        written.append((ids, times, values))
        producer.begin()
        for p in range(options.partitions):
            mine = ids % options.partitions == p
            k, ts = ids[mine], times[mine]
            text = pa.array([b"key-%d" % n for n in k.tolist()], pa.binary())
            key = text if options.kind == "text" else kafka_bigint(pa.array(k))
            fields = zip(values[mine].tolist(), k.tolist(), ts.tolist(), strict=True)
            json = pa.array([b'{"V":%d,"T":"t%d","ts":%d}' % (v, i % 7, t) for v, i, t in fields], pa.binary())
            if options.numbers == "decimal":
                json = pa.compute.replace_substring(json, ',"T"', '.00,"T"')
            columns = [pa.array(ts), key, json, pa.nulls(len(k), HEADERS_TYPE)]
            batch = pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)
            producer.send(TopicPartition(f"{APP}-s", p), batch)
        producer.commit()
    producer.close()
    return Rows(*(np.concatenate(column) for column in zip(*written, strict=True)))


def check(instance: Instance, options: argparse.Namespace, expected: dict[str, Ints]) -> None:
    """The state equals what numpy says."""
    parts: list[list[tuple[int, ...]]] = []
    standard = options.form in MARKS
    with instance.state.snapshot() as snapshot:
        for keys, values in snapshot.chunks("C"):
            ids = [int(str(k[0]).removeprefix("key-")) for k in keys]
            starts: list[Any] = [0] * len(ids)
            if options.window != "none":
                starts = [v[4] for v in values] if standard else [k[-2] for k in keys]
            whole = [
                (n, round(total * n) if options.sum == "AVG" else int(total), int(most))
                for n, total, most, *_ in values
            ]
            parts.append([(i, s, *v) for i, s, v in zip(ids, starts, whole, strict=True)])
    found = np.array([row for part in parts for row in part], np.int64)
    groups = group_numbers(found[:, 0], found[:, 1])
    order = np.argsort(groups)
    assert np.array_equal(groups[order], expected["group"]), "the groups differ"
    for i, name in enumerate(("count", "total", "highest"), 2):
        assert np.array_equal(found[order, i], expected[name]), f"{name} differs"


def measure(options: argparse.Namespace, keys: int) -> None:
    with tempfile.TemporaryDirectory(prefix="flowql-keyed-") as name:
        folder = Path(name)
        config = InstanceConfig(APP, memory_bytes=options.memory_mb << 20)
        instance = open_on(log_at(folder / "log", None, APP), folder / "state", config)
        instance.log.admin().create_topic(f"{APP}-s", options.partitions)
        rows = write_input(instance, options, keys)
        instance.start()
        wall, cpu = time.perf_counter(), time.process_time()
        instance.deploy(plan_of(options))
        ends = source_ends(instance)
        while not caught_up(instance, ends):
            if instance.fatal is not None:
                raise instance.fatal
            time.sleep(0.02)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        check(instance, options, rows.expected(options))
        instance.stop()
        print(
            f"{options.kind:<7} {keys:>11,} {cpu / options.rows * 1e6:>14.2f} {options.rows / wall:>14,.0f} {peak:>10,}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.keyed_state")
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--kind", choices=KEYS, default="bigint")
    parser.add_argument("--memory-mb", type=int, default=4_096)
    parser.add_argument("--window", choices=CLAUSES, default="none")
    parser.add_argument("--form", choices=("changes", "final", *MARKS), default="changes")
    parser.add_argument("--numbers", choices=NUMBERS, default="bigint")
    parser.add_argument("--sum", choices=("SUM", "AVG"), default="SUM")
    options = parser.parse_args()
    if options.form != "changes" and options.window == "none":
        parser.error(f"--form {options.form} needs a --window")
    if len(options.keys) == 1:
        measure(options, options.keys[0])
        return
    print(f"{'key':<7} {'keys':>11} {'CPU us/record':>14} {'records/s':>14} {'peak MiB':>10}", flush=True)
    shared = ["--rows", str(options.rows), "--partitions", str(options.partitions), "--kind", options.kind]
    shared += ["--window", options.window, "--form", options.form, "--numbers", options.numbers, "--sum", options.sum]
    for keys in options.keys:
        words = ["--keys", str(keys), *shared, "--memory-mb", str(options.memory_mb)]
        subprocess.run([sys.executable, "-m", "benchmarks.keyed_state", *words], check=True)


if __name__ == "__main__":
    main()
