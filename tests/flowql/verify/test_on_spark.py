"""The runtime and Spark over the same input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flowql.cli.program import Program
from tests.flowql.verify.conftest import SQL
from tests.spark_here import skip_without_spark

MORE = """
CREATE TABLE VISITS AS SELECT ID % 3 AS SHOP, COUNT(*) AS N, AVG(AMOUNT) AS MEAN
  FROM ORDERS WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY ID % 3;
CREATE STREAM NAMED AS SELECT L.CUSTOMER AS CUSTOMER, L.ID, S.N FROM LARGE L LEFT JOIN SPENT S ON L.CUSTOMER = S.CUSTOMER;
INSERT INTO ORDERS (CUSTOMER, ID, AMOUNT) VALUES ('zoe', 1000, 500.0);
"""


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_both_engines_are_equal(shop: Path, flowql: Program) -> None:
    skip_without_spark()
    (shop / "shop.sql").write_text(SQL + MORE)
    done = flowql(
        "verify", "--targets", "one,spark", "-p", str(shop), "-o", "json", "-s", "LARGE", "-s", "SPENT", "-s", "VISITS"
    )
    assert done.code == 0, done.out + done.err
    document = json.loads(done.out)
    assert document["equal"]
    assert {t["name"]: t["rows"] for t in document["tables"]} == {"LARGE": 161, "SPENT": 8, "VISITS": 3}
