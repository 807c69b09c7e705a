"""Nexmark from Kafka to Kafka on Spark, as batches: `flowql run --bounded` against jobs by hand with Spark's connector, in turns.

    python -m benchmarks.spark_kafka_batch --jars A.jar,B.jar [--queries q0,q1,q7] [--events 500000] [--rounds 1] [--guarded]
                                             [--master local[2]] [--json FILE]

Both sides read JSON from topics of 4 partitions and write JSON into one. Time and processor time are of whole processes, with the start of Spark; every result
is compared with the oracle.

FlowQL writes the results of a batch in one transaction. Spark's sink for Kafka has none, so the jobs by hand write at least once. --guarded: they give the
same guarantees: what `spark_jobs.GUARDED` says, and one transaction, as in `spark_transactions`.
--jars: those of `spark_kafka`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.spark_exact import MEMORY_MB, Pair, Side, in_turns
from benchmarks.spark_jobs import over_columns
from benchmarks.spark_kafka import command_line, compare_all
from benchmarks.spark_transactions import Transactions
from flowql.bench.engines import NEXMARK
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import PARTITIONS
from flowql.bench.nexmark_people import SCHEMAS
from flowql.bench.oracle import EXPECTED
from flowql.bench.results import wrong
from flowql.config.storage import log_at
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings

# Of a result that is a table: one record of each key is left.
KEYS: Mapping[str, str] = {
    "q5": "window_start",
    "q7": "window_start",
    "q8": "id, window_start",
    "q11": "bidder, starttime",
    "qc": "bidder",
}
TRANSACTION_MS = 900_000  # brokers grant no longer one by default
TYPES = {pa.int64(): "BIGINT", pa.string(): "STRING"}


def compare(bootstrap: str, folder: Path, query: str, options: argparse.Namespace) -> Pair:
    """Both sides in turns; results of the side before are deleted."""

    def sides(n: int) -> Sequence[Side]:
        place = folder / f"{query}-{n}"
        place.mkdir()
        return [make(bootstrap, place, query, n, options) for make in (_flowql, _by_hand)]

    return in_turns(options.events, PARTITIONS, options.rounds, sides)


def _flowql(bootstrap: str, folder: Path, query: str, n: int, options: argparse.Namespace) -> Side:
    for name in ("sources.sql", f"{query}.sql"):
        shutil.copy(NEXMARK / name, folder)
    target = {
        "engine": "spark",
        "log": "kafka",
        "memory": f"{MEMORY_MB} MiB",
        "kafka": {"bootstrap": bootstrap, "app_id": f"{query}-{n}"},
        "spark": {"master": options.master},
    }
    said = {
        "name": "nexmark",
        "dialect": "ksql",
        "sql": ["sources.sql", f"{query}.sql"],
        "defaults": {"partitions": PARTITIONS},
        "targets": {"spark": target},
    }
    (folder / "flowql.yaml").write_text(json.dumps(said))
    command = (sys.executable, "-m", "flowql", "run", "-t", "spark", "--bounded")
    return Side("flowql", command, folder, partial(_check, bootstrap, query, options.events))


def _by_hand(bootstrap: str, folder: Path, query: str, n: int, options: argparse.Namespace) -> Side:
    told = {"bootstrap": bootstrap, "query": query, "writer": f"by-hand-{query}-{n}"}
    told |= {"master": options.master, "jars": options.jars, "guarded": options.guarded}
    command = (sys.executable, "-m", "benchmarks.spark_kafka_batch", "--by-hand", json.dumps(told))
    return Side("by hand", command, folder, partial(_check, bootstrap, query, options.events))


def _check(bootstrap: str, query: str, events: int) -> None:
    """Raises BenchFailed for a wrong result; deletes it."""
    with closing(log_at(Path(), KafkaSettings(bootstrap), "bench-check")) as log:
        difference = wrong(log, query, events)
        log.admin().delete_topic(query)
    if difference:
        raise BenchFailed(difference)


# -- the jobs by hand


def run_by_hand(told: Mapping[str, Any]) -> None:
    """In a session of the settings that the other side has."""
    query, here = told["query"], Path.cwd()
    settings = SparkSettings(
        told["master"], {"spark.jars": told["jars"]}, shuffle_partitions=PARTITIONS, memory_bytes=MEMORY_MB << 20
    )
    spark = open_session(settings, "by-hand", here / "spark")
    broker = {"kafka.bootstrap.servers": told["bootstrap"]}
    frames = {topic: _rows(spark, broker, topic) for topic in EXPECTED[query].reads}
    rows = over_columns(query, frames, guarded=told["guarded"])
    key = f"CAST(to_json(struct({KEYS[query]})) AS BINARY)" if query in KEYS else "CAST(NULL AS BINARY)"
    made = rows.selectExpr(f"{key} AS key", "CAST(to_json(struct(*)) AS BINARY) AS value")
    with closing(log_at(here, KafkaSettings(told["bootstrap"]), told["writer"])) as log:
        log.admin().create_topic(query, PARTITIONS)
    if told["guarded"]:
        producer = Connection(told["bootstrap"]).producer(told["writer"])
        producer["transaction.timeout.ms"] = TRANSACTION_MS
        with closing(Transactions(producer, query, here / "staged")) as into:
            into(made.selectExpr("-1 AS partition", "key", "value", "0L AS time"), 0)
    else:
        made.write.format("kafka").options(**broker, topic=query).save()
    close_session(spark)


def _rows(spark: Any, broker: Mapping[str, str], topic: str) -> Any:
    read = {"subscribe": topic, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    ddl = ", ".join(f"{f.name} {TYPES[f.type]}" for f in SCHEMAS[topic])
    records = spark.read.format("kafka").options(**broker, **read).load()
    return records.selectExpr(f"from_json(CAST(value AS STRING), '{ddl}') AS row").select("row.*")


def main(words: Sequence[str]) -> int:
    options = command_line(__doc__ or "", ",".join(EXPECTED)).parse_args(words)
    if options.by_hand:
        run_by_hand(json.loads(options.by_hand))
    else:
        compare_all(options, SCHEMAS, compare)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
