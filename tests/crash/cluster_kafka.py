"""`python -m tests.crash.cluster_kafka --kills 8 --seed N`: as `tests.crash.object_store`, for streams of `flowql run` over Kafka.

Orders come into a topic; streams on two workers, that see neither this checkout nor the folder of the round, write results into Kafka and
into Delta tables of the bucket, with checkpoints in the bucket. Kills are those of `object_store`, and `broker`: it is killed -9 and started again
after some seconds. At the end Kafka and Delta must have what DuckDB makes of all orders: nothing lost, nothing twice. In about half of the seeds each micro-batch waits for its commit
at the address, as large ones do.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import pyarrow as pa

from flowql.config.load import load_project
from flowql.config.storage import log_at
from flowql.deploy.settings import settings_of
from flowql.kafka.broker import Broker
from flowql.runtime.log.base import PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.spark.log_append import Target, committed_epochs
from tests.crash import object_store
from tests.crash.contents import records_of
from tests.crash.lake import EXPECTED, SQL, differences
from tests.kafka_broker import QUICK
from tests.runtime.spark.test_cluster import checkouts
from tests.s3 import BUCKET, S3, s3_server
from tests.spark_cluster import Cluster, cluster

KINDS = ("broker", "driver", "executor", "python", "gone", "slow", "stopped")
APP, TOPIC, PARTITIONS, ROWS = "lake", "orders", 4, 300
QUERIES = ("CSAS_BIG", "CTAS_SPENT", "CTAS_MINUTES")
STAGED = "staged"  # a file
BROKER_S = (1.0, 15.0)  # so long a killed broker is away


class Round(object_store.Round):
    """Orders in a topic in the place of files."""

    module = "tests.crash.cluster_kafka_workload"

    def __init__(self, folder: Path, rng: random.Random, s3: S3, workers: Cluster, broker: Broker) -> None:
        self.broker, self.orders = (
            broker,
            pa.table({n: pa.array([], pa.int64()) for n in ("CUSTOMER", "ID", "QTY", "ROWTIME")}),
        )
        running = broker.running()
        assert running is not None
        self._bootstrap = running.bootstrap
        super().__init__(folder, rng, s3, workers)

    def write_project(self, conf: dict[str, str]) -> None:
        files = {
            name: {"format": "delta", "path": f"s3a://{BUCKET}/results/{name}"} for name in ("BIG", "SPENT", "MINUTES")
        }
        files["MINUTES"]["write"] = "changes"
        master = conf.pop("spark.master")
        spark = {"master": master, "conf": conf, "checkpoint": f"s3a://{BUCKET}/flowql", "files": files}
        kafka = {"bootstrap": self._bootstrap, "app_id": APP}
        target = {"engine": "spark", "log": "kafka", "kafka": kafka, "memory": "1 GB", "spark": spark}
        said = {"name": APP, "sql": ["lake.sql"], "targets": {"s3": target}}
        (self.folder / "flowql.yaml").write_text(json.dumps(said))
        (self.folder / "lake.sql").write_text(SQL.replace("PARTITIONS=2", f"PARTITIONS={PARTITIONS}"))
        if self.rng.random() < 0.5:
            (self.folder / STAGED).touch()
            print("results are staged", flush=True)
        with closing(self.log()) as log:
            log.admin().create_topic(TOPIC, PARTITIONS)

    def log(self) -> Log:
        settings = settings_of(load_project(self.folder, target="s3"))
        return log_at(settings.log_dir, settings.kafka, APP)

    def arrive(self, count: int) -> None:
        """Transactions of orders, each with records in all partitions."""
        for _ in range(count):
            first = self.files * ROWS
            made = pa.table(
                {
                    "CUSTOMER": [self.rng.randrange(20) for _ in range(ROWS)],
                    "ID": list(range(first, first + ROWS)),
                    "QTY": [self.rng.randrange(8) for _ in range(ROWS)],
                    "ROWTIME": [1_700_000_000_000 + self.rng.randrange(600_000) for _ in range(ROWS)],
                }
            )
            self.orders, self.files = pa.concat_tables([self.orders, made]), self.files + 1
            with closing(self.log()) as log:
                producer = log.producer("orders")
                producer.begin()
                for p in range(PARTITIONS):
                    rows = [_record(r) for r in made.to_pylist() if r["CUSTOMER"] % PARTITIONS == p]
                    producer.send(TopicPartition(TOPIC, p), pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
                producer.commit()
                producer.close()

    def commits(self) -> int:
        with closing(self.log()) as log:
            found = [committed_epochs(log, Target(q, application_id=APP)) for q in QUERIES]
        return sum(p.next_epoch for p in found if p is not None)

    def kill(self, kind: str, outage_s: float) -> None:
        if kind != "broker":
            super().kill(kind, outage_s)
            return
        running = self.broker.running()
        assert running is not None
        self.broker.kill()
        time.sleep(self.rng.uniform(*BROKER_S))
        self.broker.start(port=running.port, java_options=QUICK)
        self.go_on()

    def differences(self) -> list[str]:
        with duckdb.connect() as database:
            database.register("orders", self.orders)
            found = [f"Delta: {d}" for d in differences(database, lambda name: object_store.table(self.s3, name))]
            with closing(self.log()) as log:
                return found + self._in_kafka(log, database)

    def _in_kafka(self, log: Log, database: duckdb.DuckDBPyConnection) -> list[str]:
        """Of a stream every record, of a table the last one of each key."""
        found = []
        for name, sql in EXPECTED.items():
            rows = [(json.dumps(p), r["key"], json.loads(r["value"])) for p, r in records_of(log, name)]
            if name != "BIG":
                rows = list({(p, key): (p, key, value) for p, key, value in rows}.values())
            columns = {"BIG": ("ID", "TWICE"), "SPENT": ("N", "QTY"), "MINUTES": ("N",)}[name]
            seen = Counter(tuple(value[c] for c in columns) for _, _, value in rows)
            expected = Counter(row[-len(columns) :] for row in database.sql(sql).fetchall())
            if seen != expected:
                lost, more = expected - seen, seen - expected
                found.append(
                    f"Kafka: {name}: {lost.total()} lost {list(lost)[:3]}, {more.total()} too many {list(more)[:3]}"
                )
        return found


def _record(row: dict[str, int]) -> dict[str, object]:
    value = json.dumps({"ID": row["ID"], "QTY": row["QTY"]}).encode()
    return {"timestamp": row["ROWTIME"], "key": row["CUSTOMER"].to_bytes(8, "big"), "value": value, "headers": None}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.cluster_kafka", description=__doc__)
    object_store.add_options(parser, KINDS)
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="flowql-crash-") as name, s3_server(Path(name) / "s3") as s3:
        folder, broker = Path(name) / "round", Broker(Path(name) / "broker")
        folder.mkdir()
        broker.start(port=0, java_options=QUICK)
        hidden = [folder, *checkouts()]
        try:
            with cluster(Path(name) / "cluster", hidden, {"PYSPARK_PYTHON": sys.executable}) as workers:
                return object_store.kills(Round(folder, random.Random(args.seed), s3, workers, broker), args)
        finally:
            broker.kill()


if __name__ == "__main__":
    sys.exit(main())
