"""Queries as Spark's own operators give what the runtime gives, over the same records: final tables, appended rows, times, dead letters.

Aggregations of one topic by `flowql.runtime.spark.over_topics`, all others over frames of the rows, by `flowql.runtime.spark.frames`.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.operators.projections import EXPRESSION_FAILED
from flowql.runtime.spark.choose import is_native
from flowql.runtime.spark.frames.lower import Lowering
from flowql.runtime.spark.frames.relation import Relation, state_of
from flowql.runtime.spark.frames.source import relation_of
from flowql.runtime.spark.log_letters import FolderLetters
from flowql.runtime.spark.native.topics import Reading, encode, told
from flowql.runtime.spark.over_topics import native_bounded
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.spark.shapes import DEAD, NOTE, to_ipc
from flowql.runtime.task.dead_letters import IN_FILES
from tests.packed_records import reader_of
from tests.runtime.spark.stage_world import FAILS_TWICE, SHAPES, Event, Reference, dead_of, final, packed_table, sink_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]

QUERIES = {
    "project": "CREATE STREAM OUT AS SELECT K, V / 2 AS HALF, UCASE(G) AS G, CAST(V AS DOUBLE) * 1.5E0 AS D FROM A WHERE V <> 3;",
    "failing": "CREATE STREAM OUT AS SELECT K, 12 / V AS Q, COALESCE(12 / (V - 1), 7) AS C FROM A WHERE 10 / (V - 2) < 9;",
    "reference": """CREATE STREAM OUT AS SELECT K, REGEXP_EXTRACT('g(.)', G, 1) AS R, V, CAST(G AS INT) AS BAD FROM A
      WHERE REGEXP_LIKE(G, '[12]');""",
    "rekey": "CREATE STREAM OUT AS SELECT V, K, G FROM A PARTITION BY V;",
    "explode": "CREATE STREAM OUT AS SELECT K, EXPLODE(ARRAY[V, V + 1]) AS X, EXPLODE(ARRAY[G]) AS Y FROM A;",
    "count": "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N, SUM(V) AS S, AVG(V) AS A, MIN(G) AS L, MAX(V) AS H FROM A GROUP BY K;",
    "several keys": """CREATE TABLE OUT WITH (KEY_FORMAT='JSON') AS SELECT G, V % 2 AS ODD, COUNT(*) AS N FROM A
      GROUP BY G, V % 2 HAVING COUNT(*) > 12;""",
    "struct": """CREATE TABLE OUT AS SELECT G, MAX(STRUCT(V := V, K := K))->K AS K, SUM(CASE WHEN V > 2 THEN 1 ELSE 0 END) AS B
      FROM A GROUP BY G;""",
    "failing sum": "CREATE TABLE OUT AS SELECT K, SUM(12 / V) AS S FROM A GROUP BY K;",
    "tumbling": SHAPES["tumbling"],
    "hopping": SHAPES["hopping"],
    "uneven": """CREATE TABLE OUT AS SELECT K, COUNT(*) AS N, WINDOWEND - WINDOWSTART AS W FROM A
      WINDOW HOPPING (SIZE 7 SECONDS, ADVANCE BY 3 SECONDS, GRACE PERIOD 1 DAY) GROUP BY K;""",
    "constant key": """CREATE TABLE OUT AS SELECT 1 AS ONE, COUNT(*) AS N, SUM(V) AS S, WINDOWEND AS E FROM A
      WINDOW TUMBLING (SIZE 5 SECONDS, GRACE PERIOD 1 DAY) GROUP BY 1;""",
    "constant beside a key": """CREATE TABLE OUT WITH (KEY_FORMAT='JSON') AS SELECT K, 'x' AS X, COUNT(*) AS N FROM A
      WINDOW HOPPING (SIZE 4 SECONDS, ADVANCE BY 2 SECONDS, GRACE PERIOD 1 DAY) GROUP BY K, 'x';""",
    "join": """CREATE STREAM OUT AS SELECT A.K, V, W, G FROM A JOIN B WITHIN (4 SECONDS, 1 SECOND) GRACE PERIOD 1 DAY ON A.K = B.K;""",
}
LATEST = "CREATE TABLE OUT AS SELECT K, LATEST_BY_OFFSET(V) AS L, EARLIEST_BY_OFFSET(G) AS E, COUNT(*) AS N FROM A GROUP BY K;"
QUERIES["by offset"] = LATEST
TABLES = {n for n, sql in QUERIES.items() if "CREATE TABLE" in sql}


def in_order(n: int, seed: int) -> list[Event]:
    """No row later than another of its topic."""
    r = random.Random(seed)
    return [
        (r.choice("aab"), r.randrange(5), r.choice([*range(6), -1]) if r.random() < 0.2 else r.randrange(6), i // 3)
        for i in range(n)
    ]


def run(spark: SparkSession, ref: Reference) -> list[Any]:
    """EMITTED rows of the native query."""
    sources = spark.createDataFrame(packed_table(ref.packed())).coalesce(1)
    if is_native(ref.plan, ref.query, SparkSettings(late_rows="none"), "bounded"):
        with tempfile.TemporaryDirectory() as folder:
            letters = FolderLetters(Path(folder), ref.query.id)
            made = native_bounded(ref.plan, ref.query, reader_of(sources), ref.partitions(), letters.place)
            rows = made.emitted.collect()
            ends = {TopicPartition(t, p): 1_000_000 for t, n in ref.partitions().items() for p in range(n)}
            dead = [SimpleNamespace(kind=DEAD, ipc=to_ipc(p.records)) for p in letters.between({}, ends)]
        return [*rows, *dead]
    letters: dict[str, list[DataFrame]] = {}
    relation = Lowering(ref.plan, lambda source: rows_of(sources, source), letters).relation(ref.query)
    frame = relation.frame if relation.form == "rows" else state_of(relation, ref.query.logical.schema).frame
    rows = encode(ref.query, frame, ref.partitions()).emitted.collect()
    return [*rows, *(r for bad in letters.get(ref.query.id, []) for r in told(bad, ref.query.id).collect())]


def rows_of(packed: DataFrame, source: SourceDef) -> Relation:
    """The records of a topic that can be read, as a frame given by the caller."""
    read = reader_of(packed)(Reading(source, source.schema, "Q", ""))
    shown = ", ".join([*source.schema.names, "__rowtime AS ROWTIME"]).split(", ")
    return relation_of(source, read.selectExpr(*shown))


def appended(sink: dict[int, list[Any]]) -> list[Any]:
    """Key, value and time as a multiset."""
    return sorted((record[1:] for records in sink.values() for record in records), key=repr)


def last_times(sink: dict[int, list[Any]]) -> dict[Any, int]:
    return {key: time for records in sink.values() for _, key, _, time in records}


@pytest.mark.parametrize("name", QUERIES)
def test_a_native_query_equals_the_runtime(spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, name, QUERIES[name])
    ref = Reference(name, coalesce=True)
    ref.send(in_order(240, seed=len(name)))
    rows = run(spark, ref)
    given, expected = sink_of(rows), ref.sink()
    assert expected
    if name in TABLES:
        assert final(given) == final(expected)
        assert {k: t for k, t in last_times(expected).items() if k in final(expected)} == last_times(given)
    else:
        assert appended(given) == appended(expected)
    over_topic = is_native(ref.plan, ref.query, SparkSettings(late_rows="none"), "bounded")
    found, told_by_runtime = codes(dead_of(rows)), codes(ref.world.dead_letters(ref.query.id))
    assert found == [c for c in told_by_runtime if over_topic or c == EXPRESSION_FAILED]


def test_a_record_at_which_several_expressions_fail_counts_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are Spark's own or the reference's. Each has a letter of its own, as on the runtime."""
    monkeypatch.setitem(SHAPES, "fails twice", FAILS_TWICE)
    ref = Reference("fails twice")
    ref.send([(topic, key, max(0, value or 0), at) for topic, key, value, at in in_order(60, seed=2)])
    rows, expected = run(spark, ref), ref.world.dead_letters(ref.query.id)
    assert sorted(d["MESSAGE"] for d in dead_of(rows)) == sorted(d["MESSAGE"] + IN_FILES for d in expected)
    dead = sum(orjson.loads(r.ipc)["dead"] for r in rows if r.kind == NOTE)
    assert 0 < dead == ref.world.instance.metrics.query(ref.query.id).dead_letters < len(expected)


@pytest.mark.parametrize("name", ["tumbling", "hopping", "uneven"])
def test_native_windows_before_1970_are_those_of_the_runtime(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, name, QUERIES[name])
    ref = Reference(name, coalesce=True)
    ref.send([(topic, key, value, at - 40) for topic, key, value, at in in_order(240, seed=7)])
    given, expected = final(sink_of(run(spark, ref))), final(ref.sink())
    assert given == expected
    assert len(expected) > 10


def codes(letters: list[dict[str, Any]]) -> list[str]:
    return sorted(d["CODE"] for d in letters)


def test_nothing_but_spark_over_typed_columns(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python, and no cast or guard that a query written by hand would not have."""
    monkeypatch.setitem(
        SHAPES, "plain", "CREATE TABLE OUT AS SELECT G, COUNT(*) AS N, SUM(V) AS S FROM A WHERE V % 123 = 0 GROUP BY G;"
    )
    ref = Reference("plain")
    columns = "K BIGINT, V BIGINT, G STRING, __rowtime BIGINT, __partition INT, __offset BIGINT"
    rows = spark.createDataFrame([(1, 2, "x", 5, 0, 0)], columns)
    made = native_bounded(ref.plan, ref.query, lambda _reading: rows, ref.partitions(), "")
    plan = made.rows._jdf.queryExecution().executedPlan().toString()
    assert "Python" not in plan
    assert "Arrow" not in plan


def test_no_rows_give_no_rows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "nothing", QUERIES["reference"])
    ref = Reference("nothing")
    rows = spark.createDataFrame([], "K BIGINT, V BIGINT, G STRING, ROWTIME BIGINT")
    letters: dict[str, list[DataFrame]] = {}
    work = Lowering(ref.plan, lambda source: relation_of(source, rows), letters)
    assert work.result("OUT").collect() == []
    assert [bad.collect() for bad in letters[ref.query.id]] == [[]] * len(letters[ref.query.id])
    assert letters[ref.query.id]
