"""A query is edited, and edited back: every result is that of the same files in a folder where nothing ran before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine.instance import Mode, SparkInstance
from flowql.runtime.spark.errors import CheckpointOfOtherQuery
from tests.crash.contents import records_of
from tests.crash.project import append
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.logs import records
from tests.runtime.spark.test_engine import insert, stream, table
from tests.runtime.spark.test_engine_order import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SQL = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
CREATE STREAM A AS SELECT * FROM S WHERE V > 1;
CREATE TABLE N AS SELECT V, COUNT(*) AS N FROM A GROUP BY V;
INSERT INTO A (K, V) VALUES ('own', 7);
"""
EDITED = SQL.replace("V > 1", "V > 5")
ROWS = (("a", 5), ("b", 5), ("c", 7), ("d", 0))
Deploy = Callable[..., None]
Results = tuple[Counter[Any], dict[int, Any]]


@pytest.fixture
def deploy(spark: SparkSession, tmp_path: Path) -> Iterator[Deploy]:
    """Deploys a text and processes what there is; a folder that is new gets ROWS. What is left open is stopped."""
    left: list[SparkInstance] = []

    def once(sql: str, mode: Mode, folder: str = "target", *, rebuild: bool = False) -> None:
        at = tmp_path / folder
        instance = SparkInstance(at / "log", at / "state", TEST_SETTINGS, "app", mode=mode)
        left.append(instance)
        try:
            if "s" not in instance.site.log.admin().topics():
                instance.site.log.admin().create_topic("s", 1)
                insert_into(instance, ROWS)
            instance.start()
            instance.deploy(plan_of(sql), rebuild=rebuild)
            instance.run_until_caught_up()
        finally:
            instance.stop()

    yield once
    for instance in left:
        instance.stop()


def results(folder: Path) -> Results:
    """Both topics folded from their beginning."""
    return stream(folder, "A"), table(folder, "N")


def followed(folder: Path, seen: dict[Any, Any]) -> dict[Any, Any]:
    """The table of a reader that has `seen` and reads on: values by key."""
    log = EmbeddedLog(folder / "log")
    seen |= {r["key"]: r["value"] for _, r in records_of(log, "N")}
    log.close()
    return {k: v for k, v in seen.items() if v is not None}


def insert_into(instance: SparkInstance, rows: tuple[tuple[str, int], ...]) -> None:
    keys, values = [k.encode() for k, _ in rows], [f'{{"V": {v}}}'.encode() for _, v in rows]
    append(instance.site.log, [(TopicPartition("s", 0), records(values, keys))])


@pytest.mark.turns("spark")
def test_an_edited_filter_and_its_reader_are_rebuilt_as_streams(deploy: Deploy, tmp_path: Path) -> None:
    target = tmp_path / "target"
    deploy(SQL, "caught up")
    deploy(EDITED, "caught up", "fresh")
    right = {SQL: results(target), EDITED: results(tmp_path / "fresh")}
    assert [n for _, n in right.values()] == [{5: b'{"N":2}', 7: b'{"N":2}'}, {7: b'{"N":2}'}]
    seen: dict[Any, Any] = {}
    assert len(followed(target, seen)) == 2
    with pytest.raises(CheckpointOfOtherQuery) as refused:
        deploy(EDITED, "caught up")
    assert all(said in str(refused.value) for said in ("CSAS_A has changed", "CTAS_N: it reads results of CSAS_A"))
    assert results(target) == right[SQL], "nothing was thrown away"
    for sql in (EDITED, SQL):
        deploy(sql, "caught up", rebuild=True)
        assert results(target) == right[sql]
        assert list(followed(target, seen).values()) == list(right[sql][1].values())
    # Batches over the same edits, where nothing has to be asked for.
    for sql in (SQL, EDITED, SQL):
        deploy(sql, "bounded", "batches")
        assert results(tmp_path / "batches") == right[sql]


@pytest.mark.turns("spark")
def test_a_topic_that_was_made_anew_with_as_many_records_is_not_read_on(deploy: Deploy, tmp_path: Path) -> None:
    """Streams went on at their positions in it: its first records were in no result, without a word."""
    target = tmp_path / "target"
    deploy(SQL, "caught up")
    before = results(target)
    log = EmbeddedLog(target / "log")
    log.delete_topic("s")
    log.create_topic("s", 1)
    append(log, [(TopicPartition("s", 0), records([b'{"V": 9}'] * 6, [b"z"] * 6))])
    log.close()
    with pytest.raises(CheckpointOfOtherQuery) as refused:
        deploy(SQL, "caught up")
    assert "CSAS_A has read another topic s than there is now: it was deleted and created again" in str(refused.value)
    assert results(target) == before
    deploy(SQL, "caught up", rebuild=True)
    assert results(target)[1] == {7: b'{"N":1}', 9: b'{"N":6}'}
    deploy(SQL, "caught up")


@pytest.mark.turns("spark")
def test_a_column_that_no_query_uses_costs_no_state(deploy: Deploy, tmp_path: Path) -> None:
    sql = SQL.replace("SELECT *", "SELECT K, V")
    deploy(sql, "caught up")
    insert(tmp_path / "target", ("e", 7))
    deploy(sql.replace("V INT)", "V INT, MORE STRING)"), "caught up")
    assert results(tmp_path / "target")[1] == {5: b'{"N":2}', 7: b'{"N":3}'}
