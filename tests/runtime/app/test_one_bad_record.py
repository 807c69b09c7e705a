"""A sample of `python -m tests.one_bad_record`; and numbers that are too large for their column."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.runtime.app.careful import CarefulQueries
from tests.one_bad_record import CASES, compare
from tests.runtime.app.harness import InstanceHarness

RECORDS = 6_000


@pytest.mark.parametrize("name", CASES)
def test_one_bad_record_of_an_epoch_makes_one_letter(name):
    """And is found by halving: the runs that are looked at are those of the epoch and a few per halving, not one per record."""
    looks = []
    look = CarefulQueries._check

    def counted(self, task, outputs):
        looks.append(task.id)
        look(self, task, outputs)

    with patch.object(CarefulQueries, "_check", counted):
        compare(CASES[name], RECORDS)
    assert 0 < len(looks) < 80, "halving 6,000 rows takes 13 attempts, and as many successes until runs are whole again"


@pytest.mark.parametrize("rows_per_run", [None, 1])
def test_a_number_that_an_integer_cannot_hold_is_a_dead_letter_in_standard_sql(rows_per_run):
    """It was wrapped, 99999999999 to 1215752191, and a fraction cut, as ksqlDB does."""
    sql = """CREATE STREAM s (k BIGINT KEY, a INT) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON', PARTITIONS=1);
        CREATE STREAM o WITH (KAFKA_TOPIC='o') AS SELECT k, a FROM s;"""
    compiled = compile_project([SourceText("s.sql", sql)], dialect="standard")
    assert compiled.ok, compiled.diagnostics
    world = InstanceHarness("", rows_per_run=rows_per_run)
    world.instance.deploy(compiled.plan)
    bad = {7: 99999999999, 20: 1.5, 33: -(2**31) - 1}
    world.send("s", [(1, {"A": bad.get(at, at)}, at) for at in range(100)])
    world.settle()
    assert [x["OFFSET"] for x in world.dead_letters(compiled.plan.queries[0].id)] == list(bad)
    assert [v["a"] for *_, v, _ in world.records("o")] == [at for at in range(100) if at not in bad]
