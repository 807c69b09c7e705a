"""The project that is killed and cut off: one query of each kind, and input from a seed whose results no timing can change.

What makes them so: customers are there before the first order; grace periods are longer than all disorder; aggregates do not
depend on order; every order has an id, so that a lost or doubled row shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pyarrow as pa

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.topology import Plan
from flowql.runtime.log.base import PRODUCE_SCHEMA, Admin, Log, TopicPartition
from flowql.runtime.log.murmur2 import partition_for

PARTITIONS = 2
START_MS = 1_700_000_000_000
SQL = f"""
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID BIGINT, ITEM STRING, QTY INT, PRICE BIGINT, AT BIGINT)
  WITH (KAFKA_TOPIC='orders', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', TIMESTAMP='AT');
CREATE TABLE CUSTOMERS (CUSTOMER STRING PRIMARY KEY, CITY STRING)
  WITH (KAFKA_TOPIC='customers', PARTITIONS={PARTITIONS}, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');

CREATE STREAM BIG_ORDERS WITH (KAFKA_TOPIC='big_orders') AS
  SELECT CUSTOMER, ID, ITEM, QTY * PRICE AS TOTAL FROM ORDERS WHERE QTY > 3 EMIT CHANGES;
CREATE TABLE ITEMS WITH (KAFKA_TOPIC='items') AS
  SELECT ITEM, COUNT(*) AS N, SUM(QTY) AS QTY, MAX(PRICE) AS TOP FROM ORDERS GROUP BY ITEM EMIT CHANGES;
CREATE TABLE MINUTES WITH (KAFKA_TOPIC='minutes') AS
  SELECT CUSTOMER, COUNT(*) AS N, SUM(QTY * PRICE) AS TOTAL FROM ORDERS
  WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 10 MINUTES) GROUP BY CUSTOMER EMIT CHANGES;
CREATE TABLE VISITS WITH (KAFKA_TOPIC='visits') AS
  SELECT ITEM, COUNT(*) AS N, SUM(QTY) AS QTY FROM ORDERS
  WINDOW SESSION (2 SECONDS, GRACE PERIOD 10 MINUTES) GROUP BY ITEM EMIT CHANGES;
CREATE STREAM NAMED WITH (KAFKA_TOPIC='named') AS
  SELECT O.CUSTOMER AS CUSTOMER, O.ID AS ID, C.CITY AS CITY, O.QTY AS QTY
  FROM ORDERS O LEFT JOIN CUSTOMERS C ON O.CUSTOMER = C.CUSTOMER EMIT CHANGES;
CREATE TABLE CITIES WITH (KAFKA_TOPIC='cities') AS
  SELECT CITY, COUNT(*) AS N, SUM(QTY) AS QTY FROM NAMED GROUP BY CITY EMIT CHANGES;
CREATE STREAM PAIRS WITH (KAFKA_TOPIC='pairs') AS
  SELECT B.CUSTOMER AS CUSTOMER, B.ID AS BIG, N.ID AS OTHER, N.CITY AS CITY
  FROM BIG_ORDERS B JOIN NAMED N WITHIN 1 SECOND GRACE PERIOD 10 MINUTES ON B.CUSTOMER = N.CUSTOMER EMIT CHANGES;
"""
APPENDED = ("big_orders", "named", "pairs")
UPSERTED = ("items", "minutes", "visits", "cities")

Part = tuple[TopicPartition, pa.RecordBatch]


def compiled() -> Plan:
    result = compile_project([SourceText("crash.sql", SQL)])
    assert result.ok, result.diagnostics
    return result.plan


def create_topics(admin: Admin) -> None:
    for topic in ("orders", "customers"):
        admin.create_topic(topic, PARTITIONS)


def append(log: Log, parts: list[Part], client: str = "source") -> None:
    """One transaction from outside."""
    producer = log.producer(client)
    producer.begin()
    for tp, records in parts:
        producer.send(tp, records)
    producer.commit()
    producer.close()


def customers() -> list[Part]:
    rows = [(START_MS - 1000, f"c{n}", json.dumps({"CITY": f"city {n % 5}"})) for n in range(35)]
    return _parts("customers", rows)


def orders(count: int, seed: int, per_part: int) -> Iterator[list[Part]]:
    """Transactions of `per_part` orders: some out of order, one in fifty malformed, five customers unknown."""
    rng = random.Random(seed)
    rows = []
    for n in range(count):
        at = START_MS + n * 40 - rng.choice((0, 0, 0, 500, 20_000))
        value = {
            "ID": n,
            "ITEM": f"i{rng.randrange(12)}",
            "QTY": rng.randrange(1, 8),
            "PRICE": rng.randrange(100),
            "AT": at,
        }
        text = json.dumps(value)
        if rng.random() < 0.02:
            text = rng.choice((text[:-3], json.dumps({**value, "QTY": "many"})))
        rows.append((at, f"c{rng.randrange(40)}", text))
    for start in range(0, count, per_part):
        yield _parts("orders", rows[start : start + per_part])


def _parts(topic: str, rows: list[tuple[int, str, str]]) -> list[Part]:
    by_partition: dict[int, list[dict[str, object]]] = {}
    for at, key, value in rows:
        record = {"timestamp": at, "key": key.encode(), "value": value.encode(), "headers": None}
        by_partition.setdefault(partition_for(key.encode(), PARTITIONS), []).append(record)
    return [
        (TopicPartition(topic, p), pa.RecordBatch.from_pylist(records, PRODUCE_SCHEMA))
        for p, records in sorted(by_partition.items())
    ]
