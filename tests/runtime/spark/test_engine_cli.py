"""The verbs of the program on a Spark target, from files to answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from flowql.cli import main
from tests.flowql.cli.test_spark_targets import PROJECT, SQL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Call = Callable[..., Any]


@pytest.fixture
def call(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Call:
    """A verb on the target `spark`; its stdout, or the document of `-o json`."""
    monkeypatch.chdir(tmp_path)
    Path("flowql.yaml").write_text(PROJECT)
    Path("shop.sql").write_text(SQL)

    def called(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "-t", "spark"])
        out, err = capsys.readouterr()
        assert ended.value.code == code, err
        return json.loads(out) if "json" in arguments else out + err

    return called


@pytest.mark.turns("spark")
def test_from_records_to_answers(call: Call) -> None:
    call("topic", "produce", "orders", 'ada:{"AMOUNT": 3}', 'bob:{"AMOUNT": 4}')
    assert "2 records in, 2 out" in call("run", "--until-caught-up")
    call("topic", "produce", "orders", 'ada:{"AMOUNT": 5}', 'eve:{"AMOUNT": "much"}')
    assert [q["lag"] for q in call("status", "-o", "json")["queries"]] == [2]
    assert "  CTAS_SPENT: 4 rows in, 3 out, 0 late, 1 dead\n" in call("run", "--until-caught-up")
    (query,) = call("status", "-o", "json")["queries"]
    assert {k: query[k] for k in ("lag", "records_in", "records_out", "dead_letters", "engine")} == {
        "lag": 0, "records_in": 4, "records_out": 3, "dead_letters": 1, "engine": "spark",
    }  # fmt: skip
    rows = call("query", "-o", "json", "SELECT * FROM spent ORDER BY 1")
    assert rows == [{"CUSTOMER": "ada", "TOTAL": 8}, {"CUSTOMER": "bob", "TOTAL": 4}]
    (letter,) = call("query", "-o", "json", "SELECT * FROM dead_letters")
    assert (letter["QUERIES"], letter["TOPIC"]) == (["CTAS_SPENT"], "orders")
    refused = call("query", 'SELECT CUSTOMER, TOTAL FROM "CTAS_SPENT-aggregate-1"', code=1)
    assert "streams: exact" in refused, "Spark keeps the state of this query"
    assert "error[FQ4115]" in call("run", "--bounded", code=1)
    call("run", "--bounded", "--rebuild")
    assert call("query", "-o", "json", "SELECT * FROM spent ORDER BY 1") == rows


@pytest.mark.turns("spark")
def test_files_stand_for_a_topic(call: Call, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"CUSTOMER": "ada", "AMOUNT": 3}\n{"CUSTOMER": "ada", "AMOUNT": 4}\n')
    files = "files: {orders: {format: json, path: in}, SPENT: {format: json, path: out}}"
    Path("flowql.yaml").write_text(PROJECT.replace("master: 'local[2]'", f"master: 'local[2]', {files}"))
    call("run", "--until-caught-up")
    assert written(tmp_path / "out" / "epoch=0") == [("ada", 7)]
    call("run", "--bounded", "--rebuild")
    for _ in range(2):
        call("run", "--bounded")
        assert call("query", "-o", "json", "SELECT * FROM spent") == [{"CUSTOMER": "ada", "TOTAL": 7}]
        assert written(tmp_path / "out") == [("ada", 7)]


VIEWS = """
CREATE STREAM orders (customer VARCHAR KEY, amount DOUBLE PRECISION) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE TABLE people (name VARCHAR PRIMARY KEY, city VARCHAR) WITH (KAFKA_TOPIC='people', VALUE_FORMAT='JSON', PARTITIONS=2);
CREATE VIEW cities AS SELECT DISTINCT city FROM people;
CREATE VIEW spent AS SELECT p.city, SUM(o.amount) AS total, COUNT(*) AS n FROM orders o JOIN people p ON o.customer = p.name GROUP BY p.city;
"""


@pytest.mark.turns("spark")
def test_views_of_standard_sql_follow_updates_and_deletions(call: Call) -> None:
    """Which were refused: sums of doubles, DISTINCT and joins over rows that change."""
    Path("flowql.yaml").write_text(PROJECT + "dialect: standard\n")
    Path("shop.sql").write_text(VIEWS)
    call("topic", "produce", "people", 'ada:{"city": "Ulm"}', 'bob:{"city": "Ulm"}', 'ada:{"city": "Bonn"}')
    call("topic", "produce", "orders", 'ada:{"amount": 1e16}', 'bob:{"amount": 1}', 'ada:{"amount": 0.1}')
    call("topic", "produce", "orders", 'ada:{"amount": -1e16}', 'bob:{"amount": 0.5}')
    call("run", "--until-caught-up")
    assert call("query", "-o", "json", "SELECT * FROM cities ORDER BY 1") == [{"city": "Bonn"}, {"city": "Ulm"}]
    rows = call("query", "-o", "json", "SELECT * FROM spent ORDER BY 1")
    assert rows == [{"city": "Bonn", "total": 0.1, "n": 3}, {"city": "Ulm", "total": 1.5, "n": 2}]


def written(folder: Path) -> list[tuple[str, int]]:
    lines = [json.loads(line) for f in folder.glob("*.txt") for line in f.read_text().splitlines()]
    return [(row["CUSTOMER"], row["TOTAL"]) for row in lines]
