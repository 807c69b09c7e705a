"""`python -m tests.crash.lake --rounds 3 --seed N`: files come one by one, streams write them into Delta, and processes of Spark are killed -9.

Of each round the driver is killed twice and a Python worker twice, in the middle of the work. The tables must then hold what DuckDB makes of
all the files: nothing lost, nothing twice, and of each table of changes each micro-batch once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from tests.crash.driver import Driver
from tests.delta_jars import delta_properties

SQL = """
CREATE STREAM ORDERS (CUSTOMER BIGINT KEY, ID BIGINT, QTY BIGINT) WITH (KAFKA_TOPIC='orders', PARTITIONS=2, VALUE_FORMAT='JSON');
CREATE STREAM BIG AS SELECT CUSTOMER, ID, QTY * 2 AS TWICE FROM ORDERS WHERE QTY > 3;
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N, SUM(QTY) AS QTY FROM ORDERS GROUP BY CUSTOMER;
CREATE TABLE MINUTES AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 1 DAY) GROUP BY CUSTOMER;
"""
# DuckDB's queries over the files, and over the tables.
EXPECTED = {
    "BIG": "SELECT CUSTOMER, ID, QTY * 2 FROM orders WHERE QTY > 3",
    "SPENT": "SELECT CUSTOMER, count(*), sum(QTY)::BIGINT FROM orders GROUP BY ALL",
    "MINUTES": "SELECT CUSTOMER, ROWTIME // 60000 * 60000, count(*) FROM orders GROUP BY ALL",
}
FOUND = {
    "BIG": "SELECT CUSTOMER, ID, TWICE FROM rows",
    "SPENT": "SELECT CUSTOMER, N, QTY FROM rows",
    "MINUTES": """SELECT CUSTOMER, WINDOWSTART, N FROM rows
      QUALIFY row_number() OVER (PARTITION BY CUSTOMER, WINDOWSTART ORDER BY EPOCH DESC) = 1""",
}
# Each micro-batch gives the last change of a key once.
ONCE = "SELECT CUSTOMER, WINDOWSTART, EPOCH FROM rows GROUP BY ALL HAVING count(*) > 1"
KILLS = ("driver", "worker", "worker", "driver")
FILES = 3  # that come before each kill


def settings_in(folder: Path) -> SparkSettings:
    conf = {**delta_properties(), "spark.databricks.delta.snapshotPartitions": "1"}
    conf["spark.driver.extraJavaOptions"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    files = {name: TopicFiles("delta", str(folder / "lake" / name)) for name in ("BIG", "SPENT")}
    files["MINUTES"] = TopicFiles("delta", str(folder / "lake" / "MINUTES"), write="changes")
    files["orders"] = TopicFiles("parquet", str(folder / "orders"), {"maxFilesPerTrigger": "1"})
    return SparkSettings(master="local[2]", conf=conf, shuffle_partitions=2, files=files)


def killed(folder: Path, rng: random.Random, kills: tuple[str, ...] = KILLS, rows: int = 300) -> list[str]:
    """What the tables and DuckDB say differently after these kills and an undisturbed end."""
    folder.mkdir()
    (folder / "orders").mkdir()
    numbers = iter(range(1 << 30))
    _arrive(folder, rng, numbers, rows)
    workload = ("tests.crash.lake_workload", str(folder))
    driver = Driver(folder, *workload)
    try:
        for kill in kills:
            before = _versions(folder)
            for _ in range(FILES):
                _arrive(folder, rng, numbers, rows)
            driver.wait_for(lambda before=before: _versions(folder) > before)
            time.sleep(rng.uniform(0.0, 3.0))
            if kill == "worker":
                driver.kill_worker(rng)
            else:
                driver.kill()
                driver = Driver(folder, *workload)
        (folder / "ended").touch()
        driver.ended()
    finally:
        driver.__exit__()
    return _differences(folder)


def _arrive(folder: Path, rng: random.Random, numbers: Any, rows: int) -> None:
    """One more file of orders, at once."""
    first = next(numbers) * rows
    made = {
        "CUSTOMER": [rng.randrange(20) for _ in range(rows)],
        "ID": list(range(first, first + rows)),
        "QTY": [rng.randrange(8) for _ in range(rows)],
        "ROWTIME": [1_700_000_000_000 + rng.randrange(600_000) for _ in range(rows)],
    }
    unready = folder / f"{first}.unready"
    pq.write_table(pa.table(made), unready)
    unready.rename(folder / "orders" / f"{first:09}.parquet")


def _versions(folder: Path) -> int:
    """Of all tables together."""
    return len(list((folder / "lake").glob("*/_delta_log/*.json")))


def _differences(folder: Path) -> list[str]:
    with duckdb.connect() as database:
        database.execute(f"CREATE VIEW orders AS FROM read_parquet('{folder}/orders/*.parquet')")
        return differences(database, lambda name: _table(folder / "lake" / name))


def differences(database: duckdb.DuckDBPyConnection, rows_of: Callable[[str], pa.Table]) -> list[str]:
    """What results lost or hold too often. database: has `orders`. rows_of: of a result, by its name."""
    found = []
    for name, sql in EXPECTED.items():
        database.register("rows", rows_of(name))
        expected, seen = (Counter(database.sql(x).fetchall()) for x in (sql, FOUND[name]))
        if lost := expected - seen:
            found.append(f"{name}: {lost.total()} rows lost: {sorted(lost.elements())[:3]}")
        if more := seen - expected:
            found.append(f"{name}: {more.total()} rows too many: {sorted(more.elements())[:3]}")
        if name == "MINUTES" and (twice := database.sql(ONCE).fetchall()):
            found.append(f"{name}: {len(twice)} changes are there twice: {twice[:3]}")
    return found


def _table(folder: Path) -> pa.Table:
    """The files of the last version of a Delta table, by its log alone: neither Spark nor FlowQL has a part in it."""
    live: set[str] = set()
    for version in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, version.read_text().splitlines()):
            assert "deletionVector" not in action.get("add", {}), "rows of files are hidden"
            live |= {action["add"]["path"]} if "add" in action else set()
            live -= {action["remove"]["path"]} if "remove" in action else set()
    return pa.concat_tables([pq.read_table(folder / p) for p in sorted(live)], promote_options="default")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.lake", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    args = parser.parse_args()
    print(f"seed {args.seed}", flush=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="flowql-crash-") as name:
        for n in range(args.rounds):
            start = time.monotonic()
            found = killed(Path(name) / str(n), random.Random(f"{args.seed} {n}"))
            failed |= bool(found)
            print(f"round {n}: {len(KILLS)} kills, {time.monotonic() - start:.0f} s", flush=True)
            print("\n".join(found) or "  equal to DuckDB", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
