"""Kafka to Kafka on Spark: streams of FlowQL against jobs by hand with Spark's connector, in turns, on a broker of their own.

    python -m benchmarks.spark_kafka --jars A.jar,B.jar [--queries native,exact] [--events 500000] [--rounds 1] [--buckets 4]
                                       [--guarded] [--master local[2]] [--json FILE]

native: prices of bids in euros, a projection. exact: the windows of `spark_exact`, of bids that are JSON in a topic, into a topic. Both sides read
until the topic is consumed. Time and processor time are of whole processes, with the start of Spark; results are compared with DuckDB.

FlowQL writes results and positions of a micro-batch in one transaction. Spark's sink for Kafka has none, so the jobs by hand write at least once.
--guarded: jobs by hand give the same guarantees (`spark_transactions`): each micro-batch once, the time of a row as that of its record, the rows
of a partition in their order, and no row with an unusable time.
--jars: those of Spark's connector, which FlowQL does not need: spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients, commons-pool2.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import spark_transactions
from benchmarks.spark_exact import GRACE_MS, MEMORY_MB, SIZE_MS, Pair, Side, Windows, in_turns
from benchmarks.spark_jobs import BID_DDL, JOBS, USABLE
from benchmarks.spark_transactions import Transactions
from flowql.bench.measuring import BenchFailed
from flowql.bench.nexmark_input import PARTITIONS, rows_of, write_topics
from flowql.bench.results import batches_of
from flowql.bench.run import broker_in
from flowql.config.storage import log_at
from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.settings import KafkaSettings
from flowql.runtime.spark.session import close_session, open_session
from flowql.runtime.spark.settings import SparkSettings

BID = """
CREATE STREAM BID (`auction` BIGINT, `bidder` BIGINT, `price` BIGINT, `channel` STRING, `url` STRING, `dateTime` BIGINT, `extra` STRING)
  WITH (KAFKA_TOPIC='bid', VALUE_FORMAT='JSON', TIMESTAMP='`dateTime`', PARTITIONS={partitions});
"""
QUERIES: Mapping[str, str] = {
    "native": """
CREATE STREAM FOUND WITH (KAFKA_TOPIC='{topic}', PARTITIONS={buckets}) AS
  SELECT `auction`, `bidder`, CAST(`price` AS DOUBLE) * 0.908E0 AS `price`, `dateTime`, `extra` FROM BID;
""",
    "exact": """
CREATE TABLE FOUND WITH (KAFKA_TOPIC='{topic}', PARTITIONS={buckets}) AS
  SELECT `bidder`, COUNT(*) AS `n`, SUM(`price`) AS `total` FROM BID
  WINDOW TUMBLING (SIZE {size} MILLISECONDS, GRACE PERIOD {grace} MILLISECONDS) GROUP BY `bidder` EMIT CHANGES;
""",
}
PROJECT = """name: kafka
sql: [kafka.sql]
targets:
  spark:
    engine: spark
    log: kafka
    memory: {memory} MiB
    kafka: {{bootstrap: '{bootstrap}', app_id: '{topic}'}}
    spark: {{master: '{master}', streams: {query}}}
"""
EXPECTED: Mapping[str, str] = {
    "native": "SELECT count(*), sum(bidder), sum(CAST(price AS BIGINT) * 908) FROM bids",
    "exact": f'SELECT count(*), sum(n), sum(start * n + total) FROM (SELECT bidder, "dateTime" // {SIZE_MS} * {SIZE_MS} AS start, '
    "count(*) AS n, sum(price) AS total FROM bids GROUP BY ALL)",
}

Comparison = Callable[[str, Path, str, argparse.Namespace], Pair]  # bootstrap, folder, query, options


def compare(bootstrap: str, folder: Path, query: str, options: argparse.Namespace) -> Pair:
    """Both sides in turns; each has a topic of its own in each round."""

    def sides(n: int) -> Sequence[Side]:
        return [make(bootstrap, folder, query, n, options) for make in (_flowql, _by_hand)]

    return in_turns(options.events, options.buckets, options.rounds, sides)


def _flowql(bootstrap: str, folder: Path, query: str, n: int, options: argparse.Namespace) -> Side:
    topic = f"flowql-{query}-{n}"
    project = folder / topic
    project.mkdir()
    sql = BID.format(partitions=PARTITIONS) + QUERIES[query].format(
        topic=topic, buckets=options.buckets, size=SIZE_MS, grace=GRACE_MS
    )
    (project / "kafka.sql").write_text(sql)
    (project / "flowql.yaml").write_text(
        PROJECT.format(memory=MEMORY_MB, bootstrap=bootstrap, topic=topic, master=options.master, query=query)
    )
    command = (sys.executable, "-m", "flowql", "run", "-t", "spark", "--until-caught-up")
    return Side("flowql", command, project, partial(_check, bootstrap, topic, query, options.events))


def _by_hand(bootstrap: str, folder: Path, query: str, n: int, options: argparse.Namespace) -> Side:
    topic = f"by-hand-{query}-{n}"
    place = folder / topic
    place.mkdir()
    with closing(log_at(folder, KafkaSettings(bootstrap), "by-hand")) as log:
        log.admin().create_topic(topic, options.buckets)
    told = {"bootstrap": bootstrap, "topic": topic, "query": query, "buckets": options.buckets}
    told |= {"master": options.master, "jars": options.jars, "guarded": options.guarded}
    command = (sys.executable, "-m", "benchmarks.spark_kafka", "--by-hand", json.dumps(told))
    return Side("by hand", command, place, partial(_check, bootstrap, topic, query, options.events))


def _check(bootstrap: str, topic: str, query: str, events: int) -> None:
    with closing(log_at(Path(), KafkaSettings(bootstrap), "bench-check")) as log:
        rows = list(_windows(log, topic) if query == "exact" else _prices(log, topic))
    with duckdb.connect() as db:
        db.register("bids", rows_of("bid", events)())
        (expected,) = db.execute(EXPECTED[query]).fetchall()
    if query == "exact":
        found = (len(rows), sum(r[1] for r in rows), sum(r[0] * r[1] + r[2] for r in rows))
    else:
        found = (len(rows), sum(r[0] for r in rows), sum(round(r[1] * 1_000) for r in rows))
    if found != expected:
        raise BenchFailed(f"{topic}: {found}, expected {expected}")


def _prices(log: Any, topic: str) -> Iterator[tuple[int, float]]:
    for batch in batches_of(log, topic):
        for value in batch.column("value").to_pylist():
            row = json.loads(value)
            yield row["bidder"], row["price"]


def _windows(log: Any, topic: str) -> Iterator[tuple[int, int, int]]:
    """Start, count and sum of each window: the last record of each key, which ends in the start."""
    last: dict[bytes, bytes] = {}
    for batch in batches_of(log, topic):
        last.update(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))
    for key, value in last.items():
        row = json.loads(value)
        yield struct.unpack(">q", key[-8:])[0], row["n"], row["total"]


# -- the jobs by hand


def run_by_hand(told: Mapping[str, Any]) -> None:
    """Until the topic is consumed, in a session of the settings that the other side has."""
    here = Path.cwd()
    conf = {"spark.jars": told["jars"], "spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}
    settings = SparkSettings(told["master"], conf, shuffle_partitions=told["buckets"], memory_bytes=MEMORY_MB << 20)
    spark = open_session(settings, "by-hand", here / "spark")
    broker = {"kafka.bootstrap.servers": told["bootstrap"]}
    read = {"subscribe": "bid", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    broker = {"kafka.bootstrap.servers": told["bootstrap"]}
    read = {"subscribe": "bid", "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    if told["guarded"]:
        read["maxOffsetsPerTrigger"] = str(spark_transactions.ROWS_MAX)
    records = spark.readStream.format("kafka").options(**broker, **read).load()
    parsed = f"from_json(CAST(value AS STRING), '{BID_DDL}') AS b"
    # A result that is put where its record was needs no key, as on the other side.
    key = "CAST(NULL AS BINARY) AS key" if told["guarded"] else "key"
    bids = records.selectExpr(key, "partition", parsed).selectExpr("key", "partition", "b.*")
    if told["guarded"]:
        bids = bids.where(USABLE)
    made = _totals(bids, told["buckets"]) if told["query"] == "exact" else _euros(bids)
    made = made if told["guarded"] else made.select("key", "value")  # the sink takes other columns for what it is to do
    writer = made.writeStream.outputMode("update" if told["query"] == "exact" else "append")
    writer = writer.option("checkpointLocation", f"{here}/checkpoint").trigger(availableNow=True)
    if told["guarded"]:
        producer = Connection(told["bootstrap"]).producer(f"{told['topic']}-writer")
        with closing(Transactions(producer, told["topic"], here / "staged")) as into:
            writer.foreachBatch(into).start().awaitTermination()
    else:
        writer.format("kafka").options(**broker, topic=told["topic"]).start().awaitTermination()
    close_session(spark)


def _euros(bids: Any) -> Any:
    """Records with the key, the partition and the time of the bid."""
    columns = JOBS["q1"].removeprefix("SELECT ").removesuffix(" FROM {bid}")
    made = bids.selectExpr("key", "partition", *_split(columns))
    return made.selectExpr("key", _json("auction, bidder, price, dateTime, extra"), "partition", "dateTime AS time")


def _split(columns: str) -> list[str]:
    return [c.strip() for c in columns.split(",")]


def _totals(bids: Any, buckets: int) -> Any:
    made = (
        bids.selectExpr("bidder", "price", "dateTime", f"pmod(hash(bidder), {buckets}) AS bucket")
        .groupBy("bucket")
        .transformWithStateInPandas(Windows(), "bidder bigint, start bigint, n bigint, total bigint", "update", "none")
    )
    key = "unhex(concat(lpad(hex(bidder), 16, '0'), lpad(hex(start), 16, '0'))) AS key"
    return made.selectExpr(key, _json("n, total"), "-1 AS partition", "start AS time")


def _json(columns: str) -> str:
    return f"CAST(to_json(struct({columns})) AS BINARY) AS value"


def command_line(doc: str, queries: str) -> argparse.ArgumentParser:
    """The options of a comparison on a broker. doc: of its module; queries: the default."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--queries", default=queries)
    parser.add_argument("--events", type=int, default=500_000, help="bids")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--guarded", action="store_true", help="jobs by hand give the same guarantees")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--jars", default="", help="of Spark's connector, with commas between them")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--by-hand", help=argparse.SUPPRESS)
    return parser


def compare_all(options: argparse.Namespace, topics: Iterable[str], compare: Comparison) -> None:
    """Each query on a broker that has these topics, printed and, with --json, written."""
    found: dict[str, Pair] = {}
    with tempfile.TemporaryDirectory(prefix="flowql-bench-") as name, broker_in(Path(name) / "broker") as bootstrap:
        with closing(log_at(Path(name), KafkaSettings(bootstrap), "bench-input")) as log:
            write_topics(log, options.events, topics)
        for query in options.queries.split(","):
            found[query] = compare(bootstrap, Path(name), query, options)
            print(f"{query}: {found[query]}", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps({q: asdict(pair) for q, pair in found.items()}, indent=1) + "\n")


def main(words: Sequence[str]) -> int:
    parser = command_line(__doc__ or "", ",".join(QUERIES))
    parser.add_argument("--buckets", type=int, default=4)
    options = parser.parse_args(words)
    if options.by_hand:
        run_by_hand(json.loads(options.by_hand))
    else:
        compare_all(options, ["bid"], compare)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
