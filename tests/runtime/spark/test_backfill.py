"""`flowql backfill`: history by Spark and live records by the runtime, against a run of the runtime over everything."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from flowql.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Call = Callable[..., str]

PROJECT = """\
name: shop
sql: [shop.sql]
targets:
  default: {engine: runtime}
  whole: {engine: runtime}
  spark: {engine: spark, spark: {master: 'local[2]'}}
"""
SQL = """\
CREATE STREAM ORDERS (CUSTOMER STRING KEY, AMOUNT BIGINT, AT BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 2, VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT');
CREATE STREAM RETURNS (CUSTOMER STRING KEY, WHY STRING, AT BIGINT)
  WITH (KAFKA_TOPIC = 'returns', PARTITIONS = 2, VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT');
CREATE TABLE PEOPLE (CUSTOMER STRING PRIMARY KEY, NAME STRING)
  WITH (KAFKA_TOPIC = 'people', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE LAST_RETURN (CUSTOMER STRING PRIMARY KEY, WHY STRING)
  WITH (KAFKA_TOPIC = 'returns', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE SPENT AS SELECT CUSTOMER, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER;
CREATE TABLE BY_AMOUNT AS SELECT AMOUNT, COUNT(*) AS N FROM ORDERS
  WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY AMOUNT;
CREATE TABLE VISITS AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS
  WINDOW SESSION (3 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY CUSTOMER;
CREATE STREAM NAMED AS SELECT O.CUSTOMER, AMOUNT, NAME FROM ORDERS O LEFT JOIN PEOPLE P ON O.CUSTOMER = P.CUSTOMER;
CREATE STREAM REGRET AS SELECT O.CUSTOMER, AMOUNT, WHY FROM ORDERS O
  LEFT JOIN RETURNS R WITHIN 4 SECONDS GRACE PERIOD 2 SECONDS ON O.CUSTOMER = R.CUSTOMER;
CREATE TABLE REASONS AS SELECT P.CUSTOMER, NAME, WHY FROM PEOPLE P LEFT JOIN LAST_RETURN L ON P.CUSTOMER = L.CUSTOMER;
CREATE TABLE KNOWN AS SELECT P.CUSTOMER, NAME, TOTAL FROM PEOPLE P LEFT JOIN SPENT S ON P.CUSTOMER = S.CUSTOMER;
"""
KINDS = ["SPENT", "BY_AMOUNT", "VISITS", "NAMED", "REGRET", "REASONS"]
RESULTS = [*KINDS, "KNOWN"]


@pytest.fixture
def call(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Call]:
    monkeypatch.chdir(tmp_path)
    Path("flowql.yaml").write_text(PROJECT)
    Path("shop.sql").write_text(SQL)

    def called(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        out, err = capsys.readouterr()
        assert ended.value.code == code, out + err
        return out + err

    yield called
    with pytest.raises(SystemExit):
        main(["stop"])


def write(folder: Path, seed: int, first: int, n: int) -> None:
    """Records of the three topics with times from `first` seconds on, some of them late."""
    rnd = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {"orders": [], "returns": [], "people": []}
    for i in range(n):
        at, who = 1000 * max(0, first + i - rnd.choice([0, 0, 0, 2, 14])), f"c{rnd.randrange(6)}"
        rows["orders"].append({"CUSTOMER": who, "AMOUNT": rnd.randrange(4), "AT": at})
        if rnd.random() < 0.5:
            rows["returns"].append({"CUSTOMER": f"c{rnd.randrange(6)}", "WHY": f"w{i}", "AT": at + 1000})
    rows["people"] = [{"CUSTOMER": f"c{c}", "NAME": f"n{rnd.randrange(99)}"} for c in range(5)]
    for topic, found in rows.items():
        (folder / f"{topic}-{seed}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in found))


def load(call: Call, seed: int) -> None:
    for target in ("default", "whole"):
        for topic, time in (("people", ()), ("orders", ("--timestamp", "AT")), ("returns", ("--timestamp", "AT"))):
            call("topic", "import", topic, f"{topic}-{seed}.jsonl", "--key", "CUSTOMER", *time, "-t", target)


@pytest.mark.turns("spark")
def test_history_by_spark_then_live_records_equal_one_run(call: Call, tmp_path: Path) -> None:
    seed = 7
    write(tmp_path, seed, 0, 120)
    write(tmp_path, seed + 1, 120, 60)
    load(call, seed)
    call("run", "-t", "whole", "--until-caught-up")
    said = call("backfill", *KINDS, "-t", "spark", "--then", "default")
    assert "CTAS_SPENT: 120 records in" in said
    call("deploy")  # KNOWN reads what was backfilled
    call("stop")  # both targets find the same records waiting, so that joins see them in the same order
    load(call, seed + 1)
    call("run", "-t", "whole", "--until-caught-up")
    call("run", "--until-caught-up")
    shown = call("verify", "--held", "--targets", "whole,default")
    assert all(name in shown for name in RESULTS)
    assert not (tmp_path / ".flowql" / "default" / "backfill").exists()
