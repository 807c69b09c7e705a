"""Two machines with one checkpoint folder and one Kafka, and each with a data directory of its own."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.choice import at_rest, open_engine
from flowql.server.spark_heartbeat import FILE
from tests.flowql.cli.program import Program
from tests.flowql.cli.test_spark_targets import SQL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
Call = Callable[..., Any]
WAIT_S = 120


@pytest.fixture
def call(
    spark: SparkSession, kafka: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """A verb on a machine; the document of `-o json`, or what it says."""
    flowql, app = Program(capsys), f"shop-{uuid.uuid4().hex[:6]}"
    checkpoint = {"master": "local[2]", "streams": "exact", "checkpoint": str(tmp_path / "shared")}
    target = {"engine": "spark", "log": "kafka", "kafka": {"bootstrap": kafka, "app_id": app}, "spark": checkpoint}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        said = {"name": "shop", "sql": ["shop.sql"], "targets": {"spark": target}}
        (tmp_path / name / "flowql.yaml").write_text(json.dumps(said))
        (tmp_path / name / "shop.sql").write_text(SQL)

    def called(machine: str, *arguments: str) -> Any:
        monkeypatch.chdir(tmp_path / machine)
        done = flowql(*arguments, "-t", "spark")
        assert done.code == 0, done.err
        return json.loads(done.out) if "json" in arguments else done.out + done.err

    return called


@pytest.mark.turns("spark")
def test_another_machine_sees_the_queries_and_goes_on_with_them(call: Call, tmp_path: Path) -> None:
    call("a", "topic", "produce", "orders", 'ada:{"AMOUNT": 3}', 'bob:{"AMOUNT": 4}')
    call("a", "run", "--until-caught-up")
    call("b", "topic", "produce", "orders", 'ada:{"AMOUNT": 5}')
    stopped = call("b", "status", "-o", "json")
    (query,) = stopped["queries"]
    assert (stopped["instance"]["pid"], query["state"], query["records_in"]) == (None, "stopped", 2)
    assert query["lag"] == 2, "a record, and the marker of its transaction"
    assert call("b", "query", "-o", "json", "SELECT TOTAL FROM spent ORDER BY 1") == [{"TOTAL": 3}, {"TOTAL": 4}]
    assert "3 records in, 3 out, 1 commit" in call("b", "run", "--until-caught-up")
    assert call("a", "query", "-o", "json", "SELECT TOTAL FROM spent ORDER BY 1") == [{"TOTAL": 4}, {"TOTAL": 8}]

    here, there = (settings_of(load_project(tmp_path / m, target="spark")) for m in ("a", "b"))
    engine = open_engine(here, "continuous")
    engine.start()
    try:
        call("b", "topic", "produce", "orders", 'eve:{"AMOUNT": 1}')
        limit = time.monotonic() + WAIT_S
        while at_rest(there).status()["queries"][0]["records_in"] < 4:
            assert time.monotonic() < limit
            time.sleep(0.1)
        shown = call("b", "status", "-o", "json")
        assert (shown["instance"]["pid"], shown["queries"][0]["state"]) == (
            engine.status()["instance"]["pid"],
            "running",
        )
        assert shown["instance"]["host"] in call("b", "status")
    finally:
        engine.stop()
    assert at_rest(there).status()["instance"]["pid"] is None
    assert FILE in {f.name for f in (tmp_path / "shared").rglob("*.json")}
