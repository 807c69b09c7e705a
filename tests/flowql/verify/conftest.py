from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flowql.cli.program import Program

CONFIG = """
name: shop
sql: [shop.sql]
targets:
  one: {threads: 1}
  two: {threads: 2}
  spark: {engine: spark, spark: {master: 'local[2]'}}
"""
SQL = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID INT, AMOUNT DOUBLE)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE STREAM LARGE AS SELECT CUSTOMER, ID, AMOUNT FROM ORDERS WHERE AMOUNT >= 100;
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM LARGE GROUP BY CUSTOMER;
"""
INSERT = "INSERT INTO ORDERS (CUSTOMER, ID, AMOUNT) VALUES ('zoe', 1000, 500.0);\n"


@pytest.fixture
def flowql(capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(capsys)


@pytest.fixture
def shop(tmp_path: Path, flowql: Program) -> Path:
    """A project with 200 orders in the log of target `one`; nothing has run."""
    (tmp_path / "flowql.yaml").write_text(CONFIG)
    (tmp_path / "shop.sql").write_text(SQL + INSERT)
    rows = [{"CUSTOMER": f"c{n % 7}", "ID": n, "AMOUNT": n * 2.5} for n in range(200)]
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = flowql("topic", "import", "orders", str(tmp_path / "orders.jsonl"), "-p", str(tmp_path), "-t", "one")
    assert done.code == 0, done.err
    return tmp_path
