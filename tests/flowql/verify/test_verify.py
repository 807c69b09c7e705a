"""`flowql verify` on whole projects: the input is copied, both targets run, differences come to light."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from flowql.deploy.settings import Settings
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.settings import SparkSettings
from flowql.verify import run
from tests.flowql.cli.program import Program
from tests.flowql.verify.conftest import SQL

pytestmark = pytest.mark.turns("long")


def records(folder: Path, topic: str) -> int:
    log = EmbeddedLog(folder / "log")
    try:
        return sum(log.admin().end_offset(TopicPartition(topic, p)) for p in range(2))
    finally:
        log.close()


def test_two_targets_are_equal(shop: Path, flowql: Program) -> None:
    done = flowql("verify", "--targets", "one,two", "-p", str(shop), "-o", "json", "--keep", str(shop / "kept"))
    assert done.code == 0, done.err
    large, spent = ({"name": n, "missing": 0, "extra": 0, "different": 0} for n in ("LARGE", "SPENT"))
    assert json.loads(done.out) == {"equal": True, "tables": [{**large, "rows": 161}, {**spent, "rows": 8}]}
    for name in ("1-one", "2-two"):  # the row of INSERT VALUES is there once
        assert records(shop / "kept" / name, "orders") == 201
    assert records(shop / ".flowql" / "one", "orders") == 200, "the targets themselves are only read"
    assert not (shop / ".flowql" / "two").exists()


def test_what_a_side_did_not_use_is_said(shop: Path, flowql: Program) -> None:
    bad = '{"key": "c1", "value": {"ID": 1, "AMOUNT": "much"}}'
    assert flowql("topic", "produce", "orders", bad, "-p", str(shop), "-t", "one").code == 0
    done = flowql("verify", "--targets", "one,two", "-p", str(shop))
    assert (done.code, "one and two are equal: 2 results" in done.out) == (0, True), done
    said = [line for line in done.err.splitlines() if line.endswith("1 dead letter")]
    assert said == ["one: CSAS_LARGE: 1 dead letter", "two: CSAS_LARGE: 1 dead letter"]


def test_what_was_inserted_at_deployment_is_not_inserted_again(shop: Path, flowql: Program) -> None:
    assert flowql("run", "--until-caught-up", "-t", "one", "-p", str(shop)).code == 0
    done = flowql("verify", "--targets", "one,two", "-p", str(shop), "--keep", str(shop / "kept"))
    assert done.code == 0, done.err
    assert "one and two are equal: 2 results" in done.out
    assert records(shop / "kept" / "2-two", "orders") == 201
    assert list((shop / ".flowql").glob("verify-*")) == []


DIFFERENCES = """\
result  kind    rows  missing  extra  different
LARGE   stream   160        0      1          0  DIFFERENT
SPENT   table      7        1      0          1  DIFFERENT

LARGE: 1 row only in two; the first of them:
  CUSTOMER='c9'  ROWTIME=5
    one  (no such row)
    two  ID=1  AMOUNT=NULL

SPENT: 1 row only in one, 1 row with other values; the first of them:
  CUSTOMER='c1'
    N      one 23      two 1
    TOTAL  one 6900.0  two 6312.5
  CUSTOMER='c2'
    one  N=23  TOTAL=6957.5
    two  (no such row)

one and two differ in 2 of 2 results
"""


def test_planted_differences_are_found_and_shown(shop: Path, flowql: Program) -> None:
    (shop / "shop.sql").write_text(SQL)
    where = ("-p", str(shop))
    assert flowql("run", "--until-caught-up", "-t", "one", *where).code == 0
    shutil.copytree(shop / ".flowql" / "one", shop / ".flowql" / "two")
    held = ("verify", "--held", "--targets", "one,two", *where)
    assert flowql(*held).code == 0
    for topic, record in (
        ("SPENT", '{"key": "c1", "value": {"N": 1, "TOTAL": 6312.5}}'),
        ("SPENT", '{"key": "c2", "value": null}'),
        ("LARGE", '{"key": "c9", "value": {"ID": 1, "AMOUNT": null}, "timestamp": 5}'),
    ):
        assert flowql("topic", "produce", topic, record, *where, "-t", "two").code == 0
    found = flowql(*held)
    assert (found.code, found.out) == (1, DIFFERENCES)
    document = json.loads(flowql(*held, "-o", "json").out)
    assert document["equal"] is False
    assert document["tables"] == [
        {"name": "LARGE", "rows": 160, "missing": 0, "extra": 1, "different": 0},
        {"name": "SPENT", "rows": 7, "missing": 1, "extra": 0, "different": 1},
    ]


def test_a_target_without_a_log(shop: Path, flowql: Program) -> None:
    done = flowql("verify", "--targets", "two,one", "-p", str(shop))
    assert done.code == 1
    assert "FQ5602" in done.err
    assert flowql("verify", "--held", "--targets", "one,two", "-p", str(shop)).code == 1


@pytest.mark.parametrize("targets", ["one", "one,two,one", ",", "one,"])
def test_targets_that_differ_are_asked_for(shop: Path, flowql: Program, targets: str) -> None:
    assert flowql("verify", "--targets", targets, "-p", str(shop)).code == 2


def test_a_target_that_is_not_there(shop: Path, flowql: Program) -> None:
    done = flowql("verify", "--targets", "one,three", "-p", str(shop))
    assert done.code == 1
    assert "FQ3009" in done.err


def test_what_spark_writes_to_an_address_is_temporary(tmp_path: Path) -> None:
    """A folder stayed there after each comparison."""
    asked = Settings(tmp_path, "shop", 2, 1 << 20, spark=SparkSettings(checkpoint="s3a://lake/flowql/"))
    made = run._fresh(asked, tmp_path / "1-spark").spark
    assert re.fullmatch(r"s3a://lake/flowql/verify-[0-9a-f]{8}", made.checkpoint)
    assert made.temporary
    assert not run._fresh(replace(asked, spark=SparkSettings()), tmp_path / "1-spark").spark.temporary
