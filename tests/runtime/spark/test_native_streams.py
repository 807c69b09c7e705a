"""Streams whose state is Spark's own: the results of the runtime, dead letters told once, and what cannot go on from them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from flowql.compiler.plan.event_times import LATEST_MS
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.types import spark_type
from flowql.deploy.selection import select
from flowql.query.spark import SparkCommit
from flowql.runtime.log.base import RECORD_SCHEMA, RawBatch, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.spark.engine.instance import SparkInstance
from flowql.runtime.spark.errors import CheckpointOfOtherQuery
from flowql.runtime.spark.log_letters import FolderLetters, put_letters
from flowql.runtime.spark.native.frames import HEADERS, NO_VALUE, PARTITION
from flowql.runtime.spark.native.topics import encode
from flowql.runtime.spark.settings import SparkSettings
from tests.crash.contents import DEAD_LETTERS, differences, records_of
from tests.crash.kills import prepare
from tests.crash.project import append, compiled
from tests.crash.spark import expected_of, feed, outcome_of, portions_of
from tests.runtime.spark.conftest import TEST_SETTINGS
from tests.runtime.spark.logs import records
from tests.runtime.spark.test_engine_order import plan_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NATIVE = replace(TEST_SETTINGS, streams=SparkSettings().streams)
QUERIES = ["ITEMS"]
Open = Callable[[SparkSettings], SparkInstance]


@pytest.fixture
def opened(spark: SparkSession, tmp_path: Path) -> Iterator[Open]:
    left: list[SparkInstance] = []

    def make(settings: SparkSettings) -> SparkInstance:
        folder = tmp_path / "spark"
        instance = SparkInstance(folder / "log", folder / "state", settings, "flowql", mode="caught up")
        left.append(instance)
        instance.start()
        return instance

    yield make
    for instance in left:
        instance.stop()


def once(opened: Open, settings: SparkSettings, plan: Plan, *, rebuild: bool = False) -> dict[str, Any]:
    """The plan until it has caught up; the status of its first query."""
    instance = opened(settings)
    try:
        instance.deploy(plan, rebuild=rebuild)
        instance.run_until_caught_up()
        first: dict[str, Any] = instance.status()["queries"][0]
        commit = SparkCommit(plan, instance.snapshot(), instance.site.log, "flowql")
        assert any("aggregate" in name for name in commit.relations()) == (first["how"] == "exact")
        return first
    finally:
        instance.stop()


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_portions_give_what_the_runtime_gives(opened: Open, tmp_path: Path) -> None:
    seed = 11
    portions = portions_of(300, seed)
    expected = expected_of(tmp_path / "runtime", QUERIES, portions)
    letters = expected.appended[DEAD_LETTERS].total()
    assert letters
    folder = tmp_path / "spark"
    folder.mkdir()
    prepare(folder)
    plan, read = select(compiled(), QUERIES), 0
    for portion in portions:
        feed(folder / "log", portion)
        read += sum(batch.num_rows for part in portion for tp, batch in part if tp.topic == "orders")
        status = once(opened, NATIVE, plan)
        assert {k: status[k] for k in ("how", "form", "records_in", "lag", "errors")} == {
            "how": "native", "form": "stream", "records_in": read, "lag": 0, "errors": 0,
        }  # fmt: skip
    assert not differences(expected, outcome_of(folder / "log", QUERIES)), f"seed {seed}"
    assert status["dead_letters"] == letters
    assert not list((folder / "state" / "staged").rglob("*.letters"))


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_whoever_reads_every_update_needs_the_runtimes_way(opened: Open, tmp_path: Path) -> None:
    sql = """
    CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, VALUE_FORMAT='JSON');
    CREATE TABLE N AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
    INSERT INTO S (K, V) VALUES ('a', 5);
    """
    assert once(opened, NATIVE, plan_of(sql))["how"] == "native"
    updates = plan_of(sql + "CREATE STREAM U (K STRING KEY, N BIGINT) WITH (KAFKA_TOPIC='N', VALUE_FORMAT='JSON');")
    with pytest.raises(CheckpointOfOtherQuery, match="CTAS_N keeps its state as Spark does"):
        once(opened, NATIVE, updates)
    assert once(opened, NATIVE, updates, rebuild=True)["how"] == "exact"
    log = EmbeddedLog(tmp_path / "spark" / "log")
    assert [r["value"] for _, r in records_of(log, "N")] == [None, b'{"N":1}'], (
        "the old row is gone for who follows the table"
    )
    append(log, [(TopicPartition("s", 0), records([b'{"V":1}'], [b"a"]))])
    log.close()
    assert once(opened, NATIVE, plan_of(sql))["how"] == "exact", "what one way keeps the other cannot read"


STATELESS = """
    CREATE STREAM S (K STRING KEY, V INT, L ARRAY<INT>, H BYTES HEADER('h')) WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON');
    CREATE STREAM PASSED AS SELECT K, V, 1 AS ONE, ROWPARTITION AS P, ROWOFFSET AS O FROM S;
    CREATE STREAM KEYED AS SELECT V, K FROM S WHERE V > 2 OR V IS NULL PARTITION BY V;
    CREATE STREAM EACH AS SELECT K, EXPLODE(L) AS E FROM S;
"""


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_records_pass_as_on_the_runtime(spark: SparkSession, tmp_path: Path) -> None:
    """Headers, records without a value or a key, those that cannot be read; each output partition keeps the order of a source partition."""
    plan = plan_of(STATELESS)
    given = [f'{{"V": {n}, "L": [{n}, null]}}'.encode() for n in range(6)] + [
        None,
        b"{}",
        b"no JSON",
        b'{"V": 9}',
        None,
    ]
    keys = [b"a", b"b", b"c", None, b"a", b"b", b"a", b"b", b"c", None, None]
    headers = [[{"key": "h", "value": b"1"}, {"key": "n", "value": None}], *[None] * 9, [{"key": "x", "value": b""}]]
    found = {}
    for streams in ("native", "exact"):
        folder = tmp_path / streams
        log = EmbeddedLog(folder / "log")
        log.create_topic("s", 2)
        append(log, [(TopicPartition("s", p), records(given[p:], keys[p:], headers[p:])) for p in range(2)])
        log.close()
        settings = replace(TEST_SETTINGS, streams=streams)
        instance = SparkInstance(folder / "log", folder / "state", settings, "flowql", mode="caught up")
        try:
            instance.start()
            instance.deploy(plan)
            instance.run_until_caught_up()
            status = instance.status()["queries"]
            assert {q["how"] for q in status} == {streams}
        finally:
            instance.stop()
        log = EmbeddedLog(folder / "log")
        found[streams] = {q.sink: by_key(log, q.sink) for q in plan.queries}
        found[streams]["dead"] = {"all": Counter((q["id"], q["dead_letters"]) for q in status)}
        offsets = offsets_read(log, "PASSED")
        assert offsets
        assert offsets == {of: sorted(read) for of, read in offsets.items()}
        log.close()
    assert found["native"] == found["exact"]
    assert all(found["native"].values())


@pytest.mark.turns("spark")
@pytest.mark.spark
def test_no_list_of_headers_goes_to_workers(spark: SparkSession) -> None:
    """A list that is NULL in each row of an Arrow batch costs Spark as long as the batch has rows, for each of them."""
    from pyspark.sql.types import ArrayType

    query = plan_of(STATELESS).queries[0]
    columns = ", ".join(f"CAST(NULL AS {t}) AS `{name}`" for name, t in _columns_of(query))
    rows = encode(query, spark.sql(f"SELECT {columns}"), {"PASSED": 2}).rows
    assert {HEADERS, PARTITION, NO_VALUE} < set(rows.columns)
    assert not [f.name for f in rows.schema if isinstance(f.dataType, ArrayType)]


def _columns_of(query: QueryPlan) -> list[tuple[str, str]]:
    headers = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
    beside = [(ROWTIME, "BIGINT"), (PARTITION, "INT"), (HEADERS, headers), (NO_VALUE, "BOOLEAN")]
    return [*((f.name, spark_type(f.type)) for f in query.logical.schema), *beside]


PAIRED = """
    CREATE STREAM S (K STRING KEY, V INT, AT BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=2, VALUE_FORMAT='JSON', TIMESTAMP='AT');
    CREATE STREAM R (K STRING KEY, W INT, AT BIGINT) WITH (KAFKA_TOPIC='r', PARTITIONS=2, VALUE_FORMAT='JSON', TIMESTAMP='AT');
    CREATE STREAM PAIRS AS SELECT S.K AS K, V, W FROM S JOIN R WITHIN 110000 DAYS ON S.K = R.K WHERE V <> 3;
"""


@pytest.mark.turns("spark")
@pytest.mark.spark
@pytest.mark.parametrize("streams", ["native", "exact"])
def test_pairs_that_are_kept_for_good_are_all_pairs(opened: Open, tmp_path: Path, streams: str) -> None:
    """Rows of two runs whose times are decades apart in any order, records without a key or a value, and one that cannot be read."""
    chance, rows = Random(7), dict[str, list[tuple[bytes | None, int, int]]](s=[], r=[])
    folder = tmp_path / "spark"
    for run in range(2):
        log = EmbeddedLog(folder / "log")
        for topic, column in (("s", "V"), ("r", "W")):
            if not run:
                log.create_topic(topic, 2)
            new = [(chance.choice([b"a", b"b", b"c", None]), n, chance.randrange(LATEST_MS)) for n in range(12)]
            rows[topic] += new
            for p in range(2):
                mine = [r for r in new if r[0] is None or r[0][0] % 2 == p]
                values = [json.dumps({column: n, "AT": t}).encode() for _, n, t in mine]
                headers = [[{"key": "n", "value": str(n).encode()}] for _, n, _ in mine]
                own = (b"b", b"a")[p]
                more = records(
                    [*values, None, b"no JSON"], [*(k for k, _, _ in mine), own, own], [*headers, None, None]
                )
                append(log, [(TopicPartition(topic, p), more)])
        log.close()
        instance = opened(replace(NATIVE, streams=streams))
        instance.deploy(plan_of(PAIRED))
        instance.run_until_caught_up()
        assert instance.status()["queries"][0]["how"] == streams
        instance.stop()
    expected = Counter(
        (k, max(t, u), f'{{"V":{v},"W":{w}}}'.encode(), str(w if u >= t else v).encode())
        for k, v, t in rows["s"] if v != 3 and k is not None
        for other, w, u in rows["r"] if k == other
    )  # fmt: skip
    log = EmbeddedLog(folder / "log")
    found = Counter(
        (r["key"], r["timestamp"], r["value"], r["headers"][0]["value"]) for _, r in records_of(log, "PAIRS")
    )
    log.close()
    if streams == "exact":  # the headers of the row that was read later
        found, expected = (Counter(r[:3] for r in x.elements()) for x in (found, expected))
    assert found == expected


def by_key(log: EmbeddedLog, topic: str) -> dict[Any, Any]:
    """The records of a topic by partition and key."""
    rows: dict[Any, Any] = {}
    for partition, r in records_of(log, topic):
        kept = (r["timestamp"], r["value"], tuple((h["key"], h["value"]) for h in r["headers"] or ()))
        rows.setdefault((partition, r["key"]), Counter())[kept] += 1
    return rows


def offsets_read(log: EmbeddedLog, topic: str) -> dict[tuple[int, int], list[int]]:
    """Source offsets (column O) of the records of a topic, in its order, by its partition and the source's (column P)."""
    read: dict[tuple[int, int], list[int]] = {}
    for partition, r in records_of(log, topic):
        if r["value"] is not None:
            value = json.loads(r["value"])
            read.setdefault((partition, value["P"]), []).append(value["O"])
    return read


def test_letters_wait_for_the_epoch_of_their_records(tmp_path: Path) -> None:
    tp, other = TopicPartition("a=b/c", 1), TopicPartition("d", 0)
    letters = records([b"letter"])

    def found(of: TopicPartition, first: int, after: int) -> RawBatch:
        rows = [{"offset": first, "timestamp": 0, "key": None, "value": b"", "headers": None}]
        return RawBatch(of, pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA), after, 1)

    for place in ((tp, 0, 10), (tp, 10, 20), (tp, 10, 20), (other, 3, 4)):
        put_letters(str(tmp_path), None, "Q", found(*place), [0], letters)
    kept = FolderLetters(tmp_path, "Q")
    pieces = kept.between({tp: 10}, {tp: 20, other: 4})
    assert [(p.source, p.seq, p.records.num_rows) for p in pieces] == [(1, 10, 1), (0, 3, 1)]
    kept.drop({tp: 20, other: 3})
    assert [p.name for p in tmp_path.iterdir()] == ["d=0=3=4.letters"]
    assert kept.between({}, {tp: 20}) == []


def test_a_task_that_ran_again_leaves_each_letter_once(tmp_path: Path) -> None:
    """It read its records in other portions, so letters of the first attempt stayed beside those of the second."""
    tp, bad = TopicPartition("a", 0), (3, 99, 120, 160, 250)
    for first, after in ((0, 100), (100, 200), (0, 150), (150, 300)):
        rows = [{"offset": o, "timestamp": 0, "key": None, "value": b"", "headers": None} for o in range(first, after)]
        raw = RawBatch(tp, pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA), after, 1)
        found = [o for o in bad if first <= o < after]
        put_letters(str(tmp_path), None, "Q", raw, [o - first for o in found], records([b"%d" % o for o in found]))
    kept = FolderLetters(tmp_path, "Q").between({}, {tp: 300})
    assert [int(v) for p in kept for v in p.records.column("value").to_pylist()] == list(bad)
