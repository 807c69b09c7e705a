"""Temporal joins of a live instance: statements follow each other as quickly as they are carried out."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.host import Host
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_exec import Shell

FILE = """
CREATE TABLE orders (id INT PRIMARY KEY, item TEXT) WITH (PARTITIONS={n});
CREATE TABLE prices (id INT PRIMARY KEY, item TEXT, cents INT) WITH (PARTITIONS={n});
CREATE MATERIALIZED VIEW bills AS
  SELECT o.id, p.cents FROM orders o LEFT JOIN prices FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.item = p.item;
"""
STATEMENTS, WAIT_S = 80, 60.0


@pytest.mark.parametrize("partitions", [1, 3])
def test_each_order_meets_the_price_of_its_moment(flowql: Program, tmp_path: Path, partitions: int) -> None:
    (tmp_path / "flowql.yaml").write_text("name: demo\ndialect: standard\nsql: [demo.sql]\n")
    (tmp_path / "demo.sql").write_text(FILE.format(n=partitions))
    rng, cents = random.Random(partitions), 0
    statements = ["INSERT INTO prices VALUES (1, 'pen', 0)"]
    expected: list[list[object]] = []
    for n in range(STATEMENTS):
        if rng.random() < 0.5:
            cents = n
            statements.append(f"UPDATE prices SET cents = {n}")
        else:
            statements.append(f"INSERT INTO orders VALUES ({n}, 'pen')")
            expected.append([n, cents])
    made = Host(settings_of(load_project(tmp_path)))
    made.start()
    try:
        shell = Shell(flowql, tmp_path)
        assert shell("deploy").code == 0
        assert shell("exec", "; ".join(statements)).code == 0
        end = time.monotonic() + WAIT_S
        while len(found := shell.rows("SELECT * FROM bills ORDER BY id")) < len(expected) and time.monotonic() < end:
            time.sleep(0.05)
        assert found == expected
    finally:
        made.close()
