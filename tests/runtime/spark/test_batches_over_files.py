"""`flowql run -t spark --bounded` over files: history is complete, and results in files are whole. DuckDB reads the same files."""

from __future__ import annotations

import io
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from flowql.cli import main
from flowql.runtime.spark import session
from flowql.runtime.spark.errors import CheckpointOfOtherQuery, FilesUnfit, FrameUnfit, SessionInUse, SparkUnsupported
from flowql.runtime.spark.settings import SparkSettings
from flowql.runtime.task.dead_letters import IN_FILES
from flowql.spark import run, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]
DAY_MS = 86_400_000
PROJECT = """\
name: lake
sql: [lake.sql]
targets:
  default: {engine: runtime}
  spark:
    engine: spark
    spark:
      master: 'local[2]'
      shuffle_partitions: 2
      files:
        orders: {format: parquet, path: lake/orders}
        customers: {format: json, path: lake/customers}
        prices: {format: parquet, path: lake/prices, sequence_by: seq, delete_when: op = 'D'}
        DAYS: {format: parquet, path: out/days, partition_by: WINDOWSTART}
        NAMED: {format: json, path: out/named, partition_by: [CUSTOMER]}
        PRICED: {format: csv, path: out/priced}
"""
SQL = """\
CREATE STREAM ORDERS (ID BIGINT KEY, CUSTOMER BIGINT, AT BIGINT)
  WITH (KAFKA_TOPIC='orders', PARTITIONS=4, VALUE_FORMAT='JSON', TIMESTAMP='AT');
CREATE TABLE CUSTOMERS (ID BIGINT PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC='customers', PARTITIONS=4, VALUE_FORMAT='JSON');
CREATE TABLE PRICES (ID BIGINT PRIMARY KEY, PRICE BIGINT) WITH (KAFKA_TOPIC='prices', PARTITIONS=4, VALUE_FORMAT='JSON');
CREATE TABLE DAYS AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS
  WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD 6 HOURS) GROUP BY CUSTOMER;
CREATE STREAM NAMED AS SELECT O.CUSTOMER AS CUSTOMER, O.ID AS ID, NAME, 12 / (O.ID - 7) AS Q
  FROM ORDERS O LEFT JOIN CUSTOMERS C ON O.CUSTOMER = C.ID;
CREATE TABLE PRICED AS SELECT ID, PRICE + 1 AS PRICE FROM PRICES;
CREATE TABLE PER_NAME AS SELECT NAME, COUNT(*) AS N FROM NAMED GROUP BY NAME;
"""


def write_lake(folder: Path) -> None:
    """Orders of twelve days in folders of a day, whose files are named in another order; a row of each kind that cannot be used."""
    r = random.Random(7)
    names = r.sample(range(12), 12)
    for day in range(12):
        place = folder / "orders" / f"day={day:02}"
        place.mkdir(parents=True)
        ids = list(range(day * 50, day * 50 + 50))
        times: list[int | None] = [day * DAY_MS + r.randrange(DAY_MS) for _ in ids]
        if day == 3:
            times[4] = None
        rows = {"id": ids, "customer": [i % 5 for i in ids], "at": pa.array(times, pa.int64())}
        pq.write_table(pa.table(rows), place / f"{names[day]}.parquet")
    (folder / "customers").mkdir()
    lines = [*(json.dumps({"ID": i, "NAME": f"c{i}"}) for i in range(4)), '{"ID": "many"}']
    (folder / "customers" / "c.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "prices").mkdir()
    rows = {"id": [1, 1, 2, 2, 3, 3], "price": [10, 11, 20, 21, 30, 31], "seq": [5, 4, 1, 2, 1, 1]}
    rows["op"] = ["U", "U", "U", "D", "U", "U"]
    pq.write_table(pa.table({**rows, "price": pa.array(rows["price"], pa.int64())}), folder / "prices" / "1.parquet")


@dataclass
class Lake:
    folder: Path
    said: str
    dead: list[dict[str, Any]]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return duckdb.sql(sql.format(lake=self.folder / "lake", out=self.folder / "out")).fetchall()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("project")
    (folder / "flowql.yaml").write_text(PROJECT)
    (folder / "lake.sql").write_text(SQL)
    write_lake(folder / "lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said = called(patch, "run", "--bounded")
        dead = json.loads(called(patch, "query", "-o", "json", "SELECT * FROM dead_letters"))
    return Lake(folder, said, dead)


def called(patch: pytest.MonkeyPatch, *words: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    patch.setattr("sys.stdout", out)
    patch.setattr("sys.stderr", err)
    with pytest.raises(SystemExit) as ended:
        main([*words, "-t", "spark"])
    assert ended.value.code == 0, err.getvalue()
    return out.getvalue() + (err.getvalue() if "json" not in words else "")


def test_over_day_folders_no_row_is_late(lake: Lake) -> None:
    """Though the last day may be read first, and the grace period is six hours."""
    found = lake.rows(
        "SELECT CUSTOMER, WINDOWSTART, WINDOWEND, N FROM read_parquet('{out}/days/*/*.parquet') ORDER BY ALL"
    )
    assert found == lake.rows(
        f"""SELECT customer, "at" // {DAY_MS} * {DAY_MS} AS s, s + {DAY_MS}, count(*)
        FROM read_parquet('{{lake}}/orders/*/*.parquet') WHERE "at" IS NOT NULL GROUP BY ALL ORDER BY ALL"""
    )
    assert sum(n for *_, n in found) == 599


def test_a_windowed_table_in_files_has_its_windows(lake: Lake) -> None:
    folders = sorted(p.name for p in (lake.folder / "out" / "days").iterdir() if p.is_dir())
    assert folders == sorted(f"WINDOWSTART={d * DAY_MS}" for d in range(12))
    (name,) = {tuple(pq.read_schema(p).names) for p in (lake.folder / "out" / "days").glob("*/*.parquet")}
    assert name == ("CUSTOMER", "WINDOWEND", "N", "ROWTIME")


def test_a_dimension_without_a_time_counts_from_the_beginning(lake: Lake) -> None:
    """When its file was changed plays no part: each order of before finds its name."""
    files = list((lake.folder / "out" / "named").glob("CUSTOMER=*/*.txt"))
    found = [(int(p.parent.name[9:]), json.loads(x)) for p in files for x in p.read_text().splitlines()]
    expected = lake.rows(
        """SELECT id, customer FROM read_parquet('{lake}/orders/*/*.parquet') WHERE "at" IS NOT NULL ORDER BY 1"""
    )
    assert sorted((r["ID"], c) for c, r in found) == expected
    assert {(c, r.get("NAME")) for c, r in found} == {(c, f"c{c}" if c < 4 else None) for c in range(5)}


def test_the_last_row_of_a_table_of_files_goes_by_its_sequence(lake: Lake) -> None:
    """A row of `delete_when` removes its key; of two rows of one sequence the greatest counts, which is said."""
    found = lake.rows("SELECT ID, PRICE FROM read_csv('{out}/priced/*.csv') ORDER BY 1")
    assert found == [(1, 11), (3, 32)]
    assert "CTAS_PRICED: 6 rows in, 2 out, 0 late, 0 dead, 1 keys with several values at one time" in lake.said


def test_each_query_of_a_batch_says_what_became_of_its_rows(lake: Lake) -> None:
    lines = [line.strip() for line in lake.said.splitlines() if " rows in" in line]
    assert lines == [
        "CTAS_DAYS: 600 rows in, 60 out, 0 late, 1 dead",
        "CSAS_NAMED: 605 rows in, 599 out, 0 late, 3 dead",
        "CTAS_PRICED: 6 rows in, 2 out, 0 late, 0 dead, 1 keys with several values at one time (the greatest counts)",
        "CTAS_PER_NAME: 599 rows in, 4 out, 0 late, 0 dead",
    ]


def test_sources_in_files_are_queried_where_they_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their topics are empty, as a batch reads files. A table has its last rows, those that cannot be used are left out."""
    monkeypatch.chdir(lake.folder)

    def asked(sql: str) -> Any:
        return json.loads(called(monkeypatch, "query", "-o", "json", sql))

    assert asked("SELECT ID, PRICE, ROWTIME FROM PRICES ORDER BY 1") == [
        {"ID": 1, "PRICE": 10, "ROWTIME": 0},
        {"ID": 3, "PRICE": 31, "ROWTIME": 0},
    ]
    (joined,) = asked(
        "SELECT COUNT(*) AS N, COUNT(NAME) AS NAMES, MAX(O.ROWTIME) AS LAST FROM ORDERS O LEFT JOIN CUSTOMERS C ON O.CUSTOMER = C.ID"
    )
    (last,) = lake.rows("""SELECT max("at") FROM read_parquet('{lake}/orders/*/*.parquet')""")
    assert joined == {"N": 599, "NAMES": 480, "LAST": last[0]}
    assert asked("SELECT COUNT(*) AS N FROM DAYS") == [{"N": 60}]


def test_dead_letters_of_files_name_file_and_row(lake: Lake) -> None:
    texts = "\n".join(sorted(r["MESSAGE"] for r in lake.dead))
    orders = "/lake/orders/day=03/"
    assert orders in texts
    assert ".parquet, row 5: timestamp column AT cannot be used: it is NULL" in texts
    assert "/lake/customers/c.jsonl, row 5: " in texts
    assert "by zero" in texts.lower() or "divi" in texts.lower()
    assert all(text.endswith(IN_FILES) for text in texts.splitlines())


def test_a_project_runs_on_the_session_of_the_caller(spark: SparkSession, lake: Lake) -> None:
    """In a notebook or a job: over the same files, in another time zone and with ANSI mode; the session stays as it is."""
    others = spark.newSession()
    for key, value in {
        "ansi.enabled": "true",
        "session.timeZone": "America/New_York",
        "shuffle.partitions": "2",
    }.items():
        others.conf.set(f"spark.sql.{key}", value)
    before, folder = others.conf.getAll, lake.folder / "lake"
    earlier = lake.rows("SELECT * FROM read_parquet('{out}/days/*/*.parquet') ORDER BY ALL")
    given = others.read.parquet(str(folder / "orders")).selectExpr("id AS ID", "customer AS CUSTOMER", "`at` AS AT")
    done = run(lake.folder, others, {"ORDERS": given}, target="spark")
    assert {q.query: (q.rows_in, q.rows_out, q.late, q.dead, q.ties) for q in done.queries} == {
        "CTAS_DAYS": (600, 60, 0, 1, 0),
        "CSAS_NAMED": (605, 599, 0, 3, 0),
        "CTAS_PRICED": (6, 2, 0, 0, 1),
        "CTAS_PER_NAME": (599, 4, 0, 0, 0),
    }
    assert lake.rows("SELECT * FROM read_parquet('{out}/days/*/*.parquet') ORDER BY ALL") == earlier
    assert sorted(map(tuple, done.results["PER_NAME"].select("NAME", "N").collect())) == [
        (f"c{i}", 120 - (i == 4)) for i in range(4)
    ]
    done.close()
    with pytest.raises(FrameUnfit, match="no stream or table X"):
        run(lake.folder, others, {"X": given}, target="spark")
    bad = lake.folder / "bad"
    bad.mkdir()
    (bad / "flowql.yaml").write_text(PROJECT)
    refused = "CREATE TABLE L AS SELECT CUSTOMER, COLLECT_LIST(ID) AS L FROM ORDERS GROUP BY CUSTOMER;"
    (bad / "lake.sql").write_text(SQL + refused)
    write_lake(bad / "lake")
    with pytest.raises(SparkUnsupported, match="COLLECT_LIST"):
        run(bad, others, {"ORDERS": given}, target="spark")
    assert not (bad / "out").exists()
    (bad / "lake.sql").write_text(SQL)
    (bad / "flowql.yaml").write_text(PROJECT.replace("out/priced", "lake"))
    with pytest.raises(FilesUnfit, match="results of topic PRICED"):
        run(bad, others, {"ORDERS": given}, target="spark")
    assert (bad / "lake" / "customers" / "c.jsonl").exists()
    assert others.conf.getAll == before
    assert others.range(3).count() == 3


def test_the_spark_of_somebody_else_is_left_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target would have to configure it, and to stop it at the end."""
    before = spark.conf.getAll
    monkeypatch.setattr(session, "_running", None)  # as if it had been started by others
    with pytest.raises(SessionInUse, match=r"flowql\.spark\.run"):
        session.open_session(SparkSettings(master="local[2]"), "x", tmp_path)
    assert spark.range(3).count() == 3
    assert spark.conf.getAll == before
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(SessionInUse, match="spark-submit"):
        session.open_session(SparkSettings(master="local[2]"), "x", tmp_path)


STREAMS = (
    SQL
    + """
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS GROUP BY CUSTOMER;
CREATE STREAM EARLY AS SELECT * FROM ORDERS WHERE ID < 100;
INSERT INTO EARLY SELECT * FROM ORDERS WHERE ID >= 550;
"""
)


def test_streams_over_files_give_what_a_batch_gives(spark: SparkSession, tmp_path: Path) -> None:
    """File by file, on a session of the caller; no row is late, as the target promises, so windows are Spark's own, too.

    The checkpoint and the files of a result are named by addresses, as on a file system of Hadoop.
    """
    sql = ";".join(
        x for x in STREAMS.split(";") if "TABLE PRICED" not in x
    )  # of a table that changes there is no stream
    (tmp_path / "flowql.yaml").write_text(
        PROJECT.replace("shuffle_partitions: 2", "shuffle_partitions: 2\n      late_rows: none").replace(
            "path: out/named", f"path: 'file:{tmp_path}/out/named'"
        )
    )
    (tmp_path / "lake.sql").write_text(sql)
    write_lake(tmp_path / "lake")
    found: dict[str, dict[Any, tuple[Any, ...]]] = {"DAYS": {}, "SPENT": {}}
    early: list[int] = []

    def rows_of(name: str, keys: int) -> Any:
        return lambda rows, _epoch: found[name].update({tuple(r)[:keys]: tuple(r) for r in rows.collect()})

    started = start(
        tmp_path,
        spark,
        target="spark",
        checkpoint=(tmp_path / "checkpoints").as_uri(),
        trigger={"availableNow": True},
        into={
            "DAYS": rows_of("DAYS", 3),
            "SPENT": rows_of("SPENT", 1),
            "EARLY": lambda rows, _epoch: early.extend(r["ID"] for r in rows.collect()),
        },
    )
    assert set(started) == {"DAYS", "NAMED", "SPENT", "EARLY"}
    for query in started.values():
        assert query.awaitTermination(300)
    lake = Lake(tmp_path, "", [])
    assert sorted(found["DAYS"].values()) == lake.rows(
        f"""SELECT customer, "at" // {DAY_MS} * {DAY_MS} AS s, s + {DAY_MS}, count(*)
        FROM read_parquet('{{lake}}/orders/*/*.parquet') WHERE "at" IS NOT NULL GROUP BY ALL ORDER BY ALL"""
    )
    assert sorted(found["SPENT"].values()) == [(c, 120 - (c == 4)) for c in range(5)]
    assert sorted(early) == [i for i in (*range(100), *range(550, 600))]
    files = list((tmp_path / "out" / "named").glob("CUSTOMER=*/*.txt"))
    names = [(int(p.parent.name[9:]), json.loads(x).get("NAME")) for p in files for x in p.read_text().splitlines()]
    assert len(names) == 599
    assert set(names) == {(c, f"c{c}" if c < 4 else None) for c in range(5)}


@pytest.mark.turns("files")
def test_a_stream_does_not_go_on_with_the_state_of_another_query(spark: SparkSession, tmp_path: Path) -> None:
    """Spark compares little: a sum of other values would be added to what is kept. The same text goes on, and reads only new files."""
    (tmp_path / "flowql.yaml").write_text(PROJECT)
    (tmp_path / "lake" / "orders").mkdir(parents=True)
    stream = "".join(x + ";" for x in SQL.split(";") if "STREAM ORDERS" in x)
    copy = "CREATE STREAM COPY AS SELECT ID, CUSTOMER {} AS CUSTOMER, AT FROM ORDERS;"
    total = "CREATE TABLE TOTAL AS SELECT ID, SUM(CUSTOMER) AS S FROM COPY GROUP BY ID;"
    found: list[tuple[Any, ...]] = []

    def read(change: str, customer: int) -> None:
        rows = {"id": [1], "customer": [customer], "at": [5]}
        folder = next(tmp_path.glob("*/orders"))
        pq.write_table(pa.table(rows), folder / f"{customer}.parquet")
        (tmp_path / "lake.sql").write_text(stream + copy.format(change) + total)
        into = {"TOTAL": lambda rows, _epoch: found.extend(map(tuple, rows.collect()))}
        options: Any = {"checkpoint": tmp_path / "c", "trigger": {"availableNow": True}, "into": into}
        (query,) = start(tmp_path, spark, target="spark", **options).values()
        assert query.awaitTermination(300)

    read("", 10)
    read("", 20)
    numbered = (
        tmp_path / "out" / "named" / "_spark_metadata"
    )  # as if a stream with another checkpoint had written there
    numbered.mkdir(parents=True)
    (numbered / "0").write_text("v1\n")
    (tmp_path / "lake.sql").write_text(stream + "CREATE STREAM NAMED AS SELECT ID, CUSTOMER FROM ORDERS;")
    with pytest.raises(FilesUnfit, match="results of NAMED that were written with another checkpoint"):
        start(tmp_path, spark, target="spark", checkpoint=tmp_path / "c2")
    shutil.rmtree(numbered.parent)
    again: Any = {"target": "spark", "checkpoint": tmp_path / "c2", "trigger": {"availableNow": True}}
    assert start(tmp_path, spark, **again)["NAMED"].awaitTermination(300)
    shutil.rmtree(numbered.parent)  # with it the rows of the first micro-batch
    with pytest.raises(FilesUnfit, match="out/named does not exist, and earlier micro-batches have written"):
        start(tmp_path, spark, **again)
    with pytest.raises(CheckpointOfOtherQuery, match="TOTAL was made by other queries: CSAS_COPY has changed"):
        read("* 100", 30)
    (tmp_path / "lake").rename(tmp_path / "moved")  # every file would be read once more
    (tmp_path / "flowql.yaml").write_text(PROJECT.replace("lake/orders", "moved/orders"))
    with pytest.raises(CheckpointOfOtherQuery, match=r"ORDERS was parquet \S+/lake/orders and is parquet \S+/moved/"):
        read("", 40)
    assert found == [(1, 10), (1, 30)]
