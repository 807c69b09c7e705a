"""Undo and redo of a row stay in one run, however short runs are: alone the undo was lost."""

from __future__ import annotations

import random

import pytest

from tests.runtime.app.harness import InstanceHarness

SQL = """
CREATE TABLE D (K BIGINT PRIMARY KEY, V BIGINT) WITH (KAFKA_TOPIC='d', VALUE_FORMAT='JSON', KEY_FORMAT='KAFKA', PARTITIONS=3);
CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM D GROUP BY V;
"""


@pytest.mark.parametrize("rows_per_run", [1, 2, 3, 7])
def test_counts_over_a_table_do_not_depend_on_the_length_of_runs(rows_per_run: int) -> None:
    rnd = random.Random(rows_per_run)
    changes = [(rnd.randrange(5), rnd.randrange(3), at) for at in range(200)]
    world = InstanceHarness(SQL, rows_per_run=rows_per_run)
    world.send("d", [(k, {"V": v}, at) for k, v, at in changes])
    world.settle()
    final = {k: v for k, v, _ in changes}
    want = {v: list(final.values()).count(v) for v in {v for _, v, _ in changes}}
    assert {v: n for v, n in world.table("OUT")} == want
