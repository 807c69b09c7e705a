"""A job as a Spark team runs it: `spark-submit lake_job.py FOLDER`, over Delta and catalogue tables, on the session that spark-submit gives.

Fails where something is not as DuckDB says. The session has ANSI mode, another time zone, and a query of its own, which all stay.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.spark.errors import FilesUnfit
from flowql.runtime.spark.files import file_rows
from flowql.runtime.spark.files_sink import write_epoch_files
from flowql.runtime.spark.lake import Epoch
from flowql.runtime.spark.log_source import register
from flowql.runtime.spark.log_staging import Staging
from flowql.runtime.spark.settings import TopicFiles
from flowql.spark import run, start
from tests.runtime.spark.logs import emitted, records, results

PROJECT = """\
name: lake
sql: [lake.sql]
targets:
  spark:
    engine: spark
    spark:
      late_rows: none
      files:
        orders: {format: delta, path: lake/orders}
        customers: {table: customers}
        DAYS: {format: delta, path: out/days, partition_by: WINDOWSTART}
        NAMED: {format: delta, path: out/named, repartition: 1}
        SPENT: {format: delta, table: spent, repartition: 1}
        CHANGED: {format: delta, path: out/changed, write: changes}
        BIG: {table: big}
"""
SQL = """\
CREATE STREAM ORDERS (ID BIGINT KEY, CUSTOMER BIGINT, PRICE DECIMAL(9, 2), AT TIMESTAMP)
  WITH (KAFKA_TOPIC='orders', PARTITIONS=4, VALUE_FORMAT='JSON', TIMESTAMP='AT');
CREATE TABLE CUSTOMERS (ID BIGINT PRIMARY KEY, NAME STRING) WITH (KAFKA_TOPIC='customers', PARTITIONS=4, VALUE_FORMAT='JSON');
CREATE TABLE DAYS AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS
  WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD 6 HOURS) GROUP BY CUSTOMER;
CREATE STREAM NAMED AS SELECT O.CUSTOMER AS CUSTOMER, O.ID AS ID, NAME FROM ORDERS O LEFT JOIN CUSTOMERS C ON O.CUSTOMER = C.ID;
INSERT INTO NAMED SELECT CUSTOMER, ID, 'again' AS NAME FROM ORDERS WHERE ID < 3 PARTITION BY CUSTOMER;
CREATE TABLE SPENT AS SELECT CUSTOMER, MAX(PRICE) AS S, COUNT(*) AS N FROM ORDERS GROUP BY CUSTOMER;
CREATE TABLE CHANGED AS SELECT CUSTOMER, COUNT(*) AS N FROM ORDERS GROUP BY CUSTOMER;
"""
BATCH = "CREATE TABLE BIG AS SELECT ID, NAME FROM CUSTOMERS WHERE ID > 1;"
DAY_MS = 86_400_000
BY_DELTA = (
    "spark.sql.parquet.fieldId.",
    "spark.databricks.delta.lastCommitVersionInSession",
)  # it sets them when it reads and writes


def order_rows(spark: Any, first: int, after: int) -> Any:
    """Of three customers, ten a day."""
    return (
        spark.range(first, after)
        .selectExpr(
            "id AS ID",
            "id % 3 AS CUSTOMER",
            "CAST(id AS DECIMAL(9, 2)) / 4 AS PRICE0",
            f"timestamp_millis(id * {DAY_MS // 10}L) AS AT",
        )
        .selectExpr("ID", "CUSTOMER", "CAST(PRICE0 AS DECIMAL(9, 2)) AS PRICE", "AT")
    )


def expected(spark: Any, folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Of the orders there are now, by DuckDB."""
    rows = spark.read.format("delta").load(str(folder / "lake/orders"))
    database = duckdb.connect()
    orders = rows.selectExpr("ID", "CUSTOMER", "PRICE", "unix_millis(AT) AS ms").toArrow()
    database.register("orders", orders)
    sql = {
        "days": f"SELECT CUSTOMER, ms - (ms % {DAY_MS} + {DAY_MS}) % {DAY_MS} AS s, s + {DAY_MS}, count(*) FROM orders GROUP BY ALL",
        "named": """SELECT ID, CASE WHEN CUSTOMER < 2 THEN 'c' || CUSTOMER || 'é' END FROM orders
          UNION ALL SELECT ID, 'again' FROM orders WHERE ID < 3""",
        "spent": "SELECT CUSTOMER, max(PRICE), count(*) FROM orders GROUP BY ALL",
        "changed": "SELECT CUSTOMER, count(*) FROM orders GROUP BY ALL",
    }
    return {name: _sorted(database.sql(text).fetchall()) for name, text in sql.items()}


def found(spark: Any, folder: Path, *, changes: bool) -> dict[str, list[tuple[Any, ...]]]:
    read = {n: spark.read.format("delta").load(str(folder / "out" / n)) for n in ("days", "named", "changed")}
    changed = read["changed"]
    if changes:
        last = (
            changed.selectExpr("CUSTOMER", "struct(EPOCH, N, ROWDELETED) AS last")
            .groupBy("CUSTOMER")
            .agg({"last": "max"})
        )
        changed = last.selectExpr("CUSTOMER", "`max(last)`.N AS N")
    return {
        "days": _sorted(map(tuple, read["days"].select("CUSTOMER", "WINDOWSTART", "WINDOWEND", "N").collect())),
        "named": _sorted(map(tuple, read["named"].select("ID", "NAME").collect())),
        "spent": _sorted(map(tuple, spark.table("spent").select("CUSTOMER", "S", "N").collect())),
        "changed": _sorted(map(tuple, changed.select("CUSTOMER", "N").collect())),
    }


def _sorted(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in rows), key=repr)


def streamed(spark: Any, folder: Path) -> dict[str, Any]:
    started = start(folder, spark, target="spark", checkpoint=folder / "checkpoints", trigger={"availableNow": True})
    for query in started.values():
        assert query.awaitTermination(300)
        assert query.exception() is None
    return started


def version(spark: Any, table: str) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()[0]["version"])


def again(folder: Path, name: str) -> None:
    """As if the driver had been killed behind the write of the last micro-batch, before Spark took note of it."""
    commits = folder / "checkpoints" / name / "commits"
    last = max((p for p in commits.iterdir() if p.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


def check_epochs(spark: Any, folder: Path) -> None:
    """What `flowql run` writes as streams: epochs that are given again are there once, and epoch 0 of another run begins anew."""
    schema = Schema((Field("K", t.STRING, "key"), Field("V", t.INT)))
    table = SourceDef("T", "table", "t", schema, Format("KAFKA"), Format("JSON"))
    of_state = TopicFiles("delta", str(folder / "epochs/state"))
    of_changes = TopicFiles("delta", str(folder / "epochs/changes"), write="changes")

    def epoch(run: str, n: int, *rows: tuple[bytes, bytes | None]) -> None:
        parts = [rows[i : i + 2] for i in range(0, len(rows), 2)]  # a key changes in several of them
        given = [("sink", "t", 0, 0, seq, records([v for _, v in x], [k for k, _ in x])) for seq, x in enumerate(parts)]
        with results(spark, emitted(*given[::-1]), Staging(folder / "staged")) as found:
            for files in (of_state, of_changes):
                write_epoch_files(spark, found, table, files, Epoch(run, n))

    def rows(files: TopicFiles, *columns: str) -> list[tuple[Any, ...]]:
        return _sorted(spark.read.format("delta").load(files.path).select(*columns).collect())

    epoch("a", 0, (b"b", b'{"V":2}'), (b"a", b'{"V":1}'), (b"a", b'{"V":3}'))
    for _ in range(2):
        epoch("a", 1, (b"c", b'{"V":4}'), (b"c", None), (b"b", None), (b"a", b'{"V":5}'))
    epoch("a", 2)
    assert rows(of_state, "K", "V") == [("a", 5)]
    assert rows(of_changes, "EPOCH", "K", "V", "ROWDELETED") == [
        (0, "a", 3, False), (0, "b", 2, False), (1, "a", 5, False), (1, "b", None, True), (1, "c", None, True),
    ]  # fmt: skip
    for writer, files in (("b", of_state), ("c", of_changes)):
        shutil.rmtree(files.path)
        with pytest.raises(FilesUnfit, match="does not exist, and the micro-batches before 3 "):
            epoch("a", 3, (b"d", b'{"V":6}'))  # alone it would be taken for the whole table
        epoch(writer, 0)
    assert rows(of_state, "K", "V") == rows(of_changes, "K", "V") == []
    spark.sql(f"INSERT INTO delta.`{of_state.path}` VALUES ('x', 7, 11), ('y', 8, 12)")
    register(spark)
    fed = file_rows(spark, table, of_state, 1, query="f", streaming=True).emitted
    counts: list[int] = []
    query = fed.writeStream.foreachBatch(lambda batch, _n: counts.append(batch.where("kind = 'sink'").count()))
    options = query.option("checkpointLocation", str(folder / "epochs/c")).trigger(availableNow=True)
    assert options.start().awaitTermination(120)
    assert sum(counts) > 0, counts


def main(folder: Path) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    before = spark.conf.getAll
    other = spark.readStream.format("rate").load().writeStream.format("noop").queryName("other").start()
    (folder / "flowql.yaml").write_text(PROJECT)
    (folder / "lake.sql").write_text(SQL + BATCH)
    orders = str(folder / "lake/orders")
    order_rows(spark, 0, 40).coalesce(1).write.format("delta").save(orders)
    spark.createDataFrame([(0, "c0é"), (1, "c1é"), (None, "x")], "ID BIGINT, NAME STRING").write.saveAsTable(
        "customers"
    )

    done = run(folder, spark, target="spark")
    told = {q.query: (q.rows_in, q.rows_out, q.late, q.dead) for q in done.queries}
    done.close()
    assert told["CTAS_SPENT"] == (40, 3, 0, 0), told
    assert told["CTAS_BIG"] == (3, 0, 0, 1), told
    assert found(spark, folder, changes=False) == expected(spark, folder)
    # Results take the place of those of before, in a table that is there already, too.
    spark.createDataFrame([(2, "c2")], "ID BIGINT, NAME STRING").write.insertInto("customers")
    (folder / "lake.sql").write_text("".join(x + ";" for x in SQL.split(";")[:3]) + BATCH)
    run(folder, spark, target="spark").close()
    assert found(spark, folder, changes=False) == expected(spark, folder)
    assert [tuple(r) for r in spark.table("big").collect()] == [(2, "c2")]

    # As streams, into places of their own.
    (folder / "lake.sql").write_text(SQL)
    with pytest.raises(FilesUnfit, match="written with another checkpoint"):
        streamed(spark, folder)
    assert not (folder / "checkpoints").exists()
    spark.sql("DROP TABLE spent")
    (folder / "flowql.yaml").write_text(PROJECT.replace("out/", "streamed/"))
    (folder / "streamed").mkdir()
    out = folder / "out"
    out.rename(folder / "batches")
    out.symlink_to(folder / "streamed")
    order_rows(spark, 40, 55).coalesce(1).write.format("delta").mode("append").save(orders)
    spark.sql("INSERT OVERWRITE customers VALUES (0, 'c0é'), (1, 'c1é')")
    streamed(spark, folder)
    assert found(spark, folder, changes=True) == expected(spark, folder)
    order_rows(spark, 55, 70).coalesce(1).write.format("delta").mode("append").save(orders)
    streamed(spark, folder)
    assert found(spark, folder, changes=True) == expected(spark, folder)
    versions = {t: version(spark, t) for t in ("spent", f"delta.`{folder}/streamed/named`")}
    for name in ("SPENT", "NAMED", "CHANGED", "DAYS"):
        again(folder, name)
    streamed(spark, folder)
    assert found(spark, folder, changes=True) == expected(spark, folder)
    assert {t: version(spark, t) for t in versions} == versions, "an epoch was written twice"

    assert other.isActive
    other.stop()
    check_epochs(spark, folder)
    after = spark.conf.getAll
    names = {n for n in before.keys() | after.keys() if not n.startswith(BY_DELTA)}
    changed = {n: (before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)}
    assert not changed, changed
    print("the job is done")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
