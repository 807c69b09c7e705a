"""The queries that are simulated, their input from a seed, and what DuckDB makes of the same records.

No timing can change the results: customers are there before the first order, and aggregates do not depend on order.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.murmur2 import partition_for

PARTITIONS = 2
START_MS = 1_700_000_000_000
SQL = f"""
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID BIGINT, ITEM STRING, QTY INT, AT BIGINT)
  WITH (KAFKA_TOPIC='orders', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', TIMESTAMP='AT');
CREATE TABLE CUSTOMERS (CUSTOMER STRING PRIMARY KEY, CITY STRING)
  WITH (KAFKA_TOPIC='customers', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');

CREATE STREAM BIG WITH (KAFKA_TOPIC='big') AS
  SELECT CUSTOMER, ID, QTY FROM ORDERS WHERE QTY > 3 EMIT CHANGES;
CREATE STREAM NAMED WITH (KAFKA_TOPIC='named') AS
  SELECT B.CUSTOMER AS CUSTOMER, B.ID AS ID, C.CITY AS CITY
  FROM BIG B LEFT JOIN CUSTOMERS C ON B.CUSTOMER = C.CUSTOMER EMIT CHANGES;
CREATE TABLE TOTALS WITH (KAFKA_TOPIC='totals') AS
  SELECT CUSTOMER, COUNT(*) AS N, SUM(QTY) AS QTY FROM ORDERS GROUP BY CUSTOMER EMIT CHANGES;
CREATE TABLE ITEMS WITH (KAFKA_TOPIC='items') AS
  SELECT ITEM, COUNT(*) AS N, SUM(QTY) AS QTY FROM ORDERS GROUP BY ITEM EMIT CHANGES;
"""
# Deployed later: one query is gone, another that is like it takes its place, one is new.
LATER = (
    SQL.replace("CUSTOMER, COUNT(*) AS N, SUM(QTY) AS QTY", "CUSTOMER, COUNT(*) AS N, SUM(QTY * 10) AS QTY").replace(
        "TOTALS WITH (KAFKA_TOPIC='totals')", "TENFOLD WITH (KAFKA_TOPIC='tenfold')"
    )
    + """
CREATE TABLE CITIES WITH (KAFKA_TOPIC='cities') AS
  SELECT CITY, COUNT(*) AS N, MAX(ID) AS TOP FROM NAMED GROUP BY CITY EMIT CHANGES;
"""
)
CHANGES = [(over, times) for over in (3, 5, 1) for times in (1, 10)]  # the first is SQL itself
ORACLE = {
    "big": "SELECT customer, id, qty FROM orders WHERE qty > 3",
    "named": "SELECT customer, id, city FROM orders LEFT JOIN customers USING (customer) WHERE qty > 3",
    "totals": "SELECT customer, count(*), sum(qty)::BIGINT FROM orders GROUP BY customer",
    "items": "SELECT item, count(*), sum(qty)::BIGINT FROM orders GROUP BY item",
}
LATER_ORACLE = {
    **{topic: sql for topic, sql in ORACLE.items() if topic != "totals"},
    "tenfold": "SELECT customer, count(*), 10 * sum(qty)::BIGINT FROM orders GROUP BY customer",
    "cities": """SELECT city, count(*), max(id) FROM orders LEFT JOIN customers USING (customer) WHERE qty > 3 AND city IS NOT NULL
                 GROUP BY city""",
}
COLUMNS = {"big": ("ID", "QTY"), "named": ("ID", "CITY"), "totals": ("N", "QTY"), "items": ("N", "QTY")}
COLUMNS |= {"cities": ("N", "TOP"), "tenfold": ("N", "QTY")}
TABLES = ("totals", "items", "cities", "tenfold")

Part = tuple[TopicPartition, pa.RecordBatch]
Rows = Counter[tuple[Any, ...]]


@cache
def plan() -> Plan:
    result = compile_project([SourceText("sim.sql", SQL)])
    assert result.ok, result.diagnostics
    return result.plan


@cache
def later_plan() -> Plan:
    result = compile_project([SourceText("sim.sql", LATER)], previous=plan())
    assert result.ok, result.diagnostics
    return result.plan


def changed_sql(sql: str, change: tuple[int, int]) -> str:
    """Other orders count as big, and totals are multiplied; what is made of big orders follows."""
    over, times = change
    for what, after in (("QTY > 3", f"QTY > {over}"), ("qty > 3", f"qty > {over}")):
        sql = sql.replace(what, after)
    if times != 1:
        sql = sql.replace(
            "CUSTOMER, COUNT(*) AS N, SUM(QTY) AS QTY", f"CUSTOMER, COUNT(*) AS N, SUM(QTY * {times}) AS QTY"
        )
        sql = sql.replace("SELECT customer, count(*), sum(qty)", f"SELECT customer, count(*), {times} * sum(qty)")
    return sql


@cache
def changed_plan(change: tuple[int, int]) -> Plan:
    result = compile_project([SourceText("sim.sql", changed_sql(SQL, change))], previous=plan())
    assert result.ok, result.diagnostics
    return result.plan


def customers() -> list[Part]:
    return _parts("customers", [(START_MS - 1000, f"c{n}", {"CITY": f"city {n % 3}"}) for n in range(6)])


def orders(count: int, rng: random.Random, per_part: int) -> list[list[Part]]:
    """Batches of orders, some out of order, of two unknown customers among them."""
    rows = []
    for n in range(count):
        at = START_MS + n * 40 - rng.choice((0, 0, 0, 500))
        value = {"ID": n, "ITEM": f"i{rng.randrange(5)}", "QTY": rng.randrange(1, 8), "AT": at}
        rows.append((at, f"c{rng.randrange(8)}", value))
    return [_parts("orders", rows[start : start + per_part]) for start in range(0, count, per_part)]


def _parts(topic: str, rows: list[tuple[int, str, dict[str, Any]]]) -> list[Part]:
    by_partition: dict[int, list[dict[str, Any]]] = {}
    for at, key, value in rows:
        record = {"timestamp": at, "key": key.encode(), "value": json.dumps(value).encode(), "headers": None}
        by_partition.setdefault(partition_for(key.encode(), PARTITIONS), []).append(record)
    return [
        (TopicPartition(topic, p), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        for p, records in sorted(by_partition.items())
    ]


def records_of(log: Log, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Committed records as (partition, key, value)."""
    out = []
    for p in range(log.admin().topics()[topic].partitions):
        reader = log.reader(TopicPartition(topic, p), EARLIEST)
        while (batch := reader.read(100_000, 1 << 30)) is not None:
            keys, values = batch.records.column("key").to_pylist(), batch.records.column("value").to_pylist()
            out += [(p, k, v) for k, v in zip(keys, values, strict=True)]
    return out


def expected(log: Log, *, later: bool = False, change: tuple[int, int] = CHANGES[0]) -> dict[str, Rows]:
    """What topics must hold, by one query each over all that was put in. later: of the plan that is deployed later."""
    found = {t: [(k.decode(), json.loads(v)) for _, k, v in records_of(log, t)] for t in ("orders", "customers")}
    orders = [(k, v["ID"], v["ITEM"], v["QTY"]) for k, v in found["orders"]]
    columns = list(zip(*orders, strict=True)) or [(), (), (), ()]
    db = _duckdb()
    db.register("orders", pa.table(dict(zip(("customer", "id", "item", "qty"), map(list, columns), strict=True))))
    keys, cities = [k for k, _ in found["customers"]], [v["CITY"] for _, v in found["customers"]]
    db.register("customers", pa.table({"customer": keys, "city": cities}))
    asked = {topic: changed_sql(sql, change) for topic, sql in (LATER_ORACLE if later else ORACLE).items()}
    return {topic: Counter(db.execute(sql).fetchall()) for topic, sql in asked.items()}


def seen(log: Log) -> dict[str, Rows]:
    """What they hold: of tables the last value of each key."""
    out = {}
    for topic, columns in ((t, c) for t, c in COLUMNS.items() if t in log.admin().topics()):
        records = records_of(log, topic)
        if topic in TABLES:
            records = [(p, k, v) for (p, k), v in {(p, k): v for p, k, v in records}.items() if v is not None]
        values = [(k.decode(), json.loads(v)) for _, k, v in records]
        out[topic] = Counter((k, *(v[c] for c in columns)) for k, v in values)
    return out


def twice(log: Log) -> list[str]:
    """Orders that a stream has more than once, at any moment: of two generations, or appended again."""
    found = []
    for topic in ("big", "named"):
        if topic in log.admin().topics():
            ids = Counter(json.loads(v)["ID"] for _, _, v in records_of(log, topic) if v is not None)
            found += [f"{topic} has {sorted(i for i, n in ids.items() if n > 1)[:5]} twice"] * (
                max(ids.values(), default=0) > 1
            )
    return found


def differences(log: Log, *, later: bool = False, change: tuple[int, int] = CHANGES[0]) -> list[str]:
    """Sentences, none when all is as DuckDB says."""
    out, found = [], seen(log)
    for topic, rows in expected(log, later=later, change=change).items():
        lost, more = rows - found[topic], found[topic] - rows
        if lost or more:
            few = f"{sorted(lost, key=str)[:3]} {sorted(more, key=str)[:3]}"
            out.append(f"{topic}: {lost.total()} of {rows.total()} rows lost, {more.total()} too many: {few}")
    letters = records_of(log, "flowql-dead-letters")
    return [*out, f"{len(letters)} dead letters: {letters[0]}"] if letters else out


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})
