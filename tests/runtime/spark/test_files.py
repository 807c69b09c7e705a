"""Files in the place of topics: all formats mean the same, bad rows are told, streams read each file once."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

from compiler.plan import types as t
from compiler.plan.expr import ROWTIME
from compiler.plan.logical import Format, TimestampSpec
from compiler.plan.schema import Field, Schema
from compiler.plan.topology import SourceDef
from runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from runtime.spark.errors import FilesUnfit
from runtime.spark.files import BAD, emitted_files, typed_files
from runtime.spark.files_columns import can_stay
from runtime.spark.files_decode import csv_lines
from runtime.spark.files_sink import final_rows, rows_of_topic, stream_files, write_files
from runtime.spark.log_append import Target
from runtime.spark.log_sink import SinkOptions, stream_epochs, write_epoch
from runtime.spark.log_source import ReadOptions, read_log, register, stream_log
from runtime.spark.settings import TopicFiles
from tests.runtime.spark.logs import open_log, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = SourceDef(
    "ORDERS",
    "stream",
    "orders",
    Schema(
        (
            Field("ID", t.STRING, "key"),
            Field("AT", t.BIGINT),
            Field("N", t.INT),
            Field("PRICE", t.decimal(10, 2)),
            Field("OK", t.BOOLEAN),
            Field("DAY", t.DATE),
            Field("SEEN", t.TIMESTAMP),
            Field("RAW", t.BYTES),
            Field("D", t.DOUBLE),
        )
    ),
    Format("KAFKA"),
    Format("JSON"),
    TimestampSpec("AT"),
)
ROWS: list[tuple[Any, ...]] = [
    ("a", 10, 1, Decimal("1.50"), True, dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3, 4, 5, 6000), b"\x00x", 0.5),
    ("b", 20, None, None, None, None, None, None, None),
    ("a", 30, -3, Decimal("0.01"), False, dt.date(1970, 1, 1), dt.datetime(1970, 1, 1), b"", 1e20),
]
NAMES = [n.lower() for n in SOURCE.schema.names]
AS_JSON = [
    {"ID": "a", "AT": 10, "N": 1, "PRICE": 1.5, "OK": True, "DAY": 18263, "SEEN": 1577934245006, "RAW": "AHg=", "D": 0.5},
    {"ID": "b", "AT": 20},
    {"ID": "a", "AT": 30, "N": -3, "PRICE": 0.01, "OK": False, "DAY": 0, "SEEN": 0, "RAW": "", "D": 1e20},
]  # fmt: skip


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def parquet(folder: Path, name: str = "1", rows: list[tuple[Any, ...]] = ROWS) -> None:
    folder.mkdir(exist_ok=True)
    kinds = [pa.string(), pa.timestamp("ms", "UTC"), pa.int16(), pa.decimal128(6, 2), pa.bool_(), pa.date32()]
    kinds += [pa.timestamp("us"), pa.binary(), pa.float64()]
    columns = [pa.array(c, k) for c, k in zip(zip(*rows, strict=True), kinds, strict=True)]
    pq.write_table(pa.table(columns, names=NAMES), folder / f"{name}.parquet")


def lines(folder: Path, *documents: Any, name: str = "1") -> None:
    folder.mkdir(exist_ok=True)
    text = b"\n".join(d if isinstance(d, bytes) else orjson.dumps(d) for d in documents)
    (folder / f"{name}.jsonl").write_bytes(text + b"\n\n")


def csv(folder: Path, *documents: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    columns = [*reversed(SOURCE.schema.names)]
    rows = [",".join("" if d.get(c) in (None, "") else str(d[c]) for c in columns) for d in documents]
    (folder / "1.csv").write_text("\n".join([",".join(c.lower() for c in columns), *rows]) + "\n")


def files(folder: Path, file_format: Any, **options: str) -> TopicFiles:
    return TopicFiles(file_format, str(folder), options)


@pytest.mark.spark
def test_all_formats_give_the_same_rows_and_go_into_the_log(session: SparkSession, tmp_path: Path) -> None:
    parquet(tmp_path / "parquet")
    bad = ({"ID": "x", "AT": 1, "N": "many"}, {"ID": "y"})
    lines(tmp_path / "json", *AS_JSON, b"{nonsense", *bad)
    csv(tmp_path / "csv", *AS_JSON, *bad)
    found: dict[str, Any] = {}
    for file_format in ("parquet", "json", "csv"):
        table = typed_files(session, SOURCE, files(tmp_path / file_format, file_format)).toArrow()
        assert table.column_names == [*SOURCE.schema.names, ROWTIME, BAD]
        good = table.filter(table.column(BAD).is_null()).drop_columns([BAD])
        found[file_format] = sorted(good.to_pylist(), key=lambda r: r["AT"])
        told = sorted(v[:6] for v in table.column(BAD).drop_null().to_pylist())
        assert told == {"parquet": [], "json": ["FQ4020", "FQ4020", "FQ4023"], "csv": ["FQ4020", "FQ4023"]}[file_format]
    assert [tuple(r.values()) for r in found["parquet"]] == [(*row, row[1]) for row in ROWS]
    assert found["json"] == found["parquet"]
    for row in found["parquet"]:  # CSV has no empty values, only NULL
        row["RAW"] = row["RAW"] or None
    assert found["csv"] == found["parquet"]

    log = open_log(tmp_path, "orders")
    rows = emitted_files(session, SOURCE, files(tmp_path / "json", "json"), 2, query="files")
    target = Target("files", application_id="app")
    write_epoch(rows, SinkOptions(str(tmp_path / "log"), tmp_path / "staging", target), 0)
    stored = sorted((orjson.loads(v) for part in values(log, "orders") for v in part if v), key=lambda v: v["AT"])
    assert [(v["AT"], v["N"], v["DAY"]) for v in stored] == [(10, 1, 18263), (20, None, None), (30, -3, 0)]
    assert {len(p) for p in values(log, "orders")} == {2, 1} or [] in values(log, "orders")  # one key, one partition
    letters = [orjson.loads(v or b"") for v in values(log, "app-dead-letters")[0]]
    assert sorted(x["CODE"] for x in letters) == ["FQ4020", "FQ4020", "FQ4023"]
    assert {x["QUERY"] for x in letters} == {"files"}


@pytest.mark.spark
def test_bad_times_in_parquet_are_told_with_and_without_python(session: SparkSession, tmp_path: Path) -> None:
    tmp_path.joinpath("p").mkdir()
    rows = pa.table({"AT": pa.array([5, None, -1], pa.int64()), "V": ["a", "b", "c"]})
    pq.write_table(rows, tmp_path / "p" / "1.parquet")
    plain = Schema((Field("AT", t.BIGINT), Field("V", t.STRING)))
    found = []
    for schema in (plain, Schema((*plain.fields, Field("T", t.array(t.TIMESTAMP))))):
        if len(schema.fields) == 3:  # times inside containers go through Python
            made = rows.append_column("T", pa.array([[]] * 3, pa.list_(pa.timestamp("us"))))
            pq.write_table(made, tmp_path / "p" / "1.parquet")
        source = SourceDef("S", "stream", "s", schema, Format("NONE"), Format("JSON"), TimestampSpec("AT"))
        assert can_stay(source) == (len(schema.fields) == 2)
        given = typed_files(session, source, files(tmp_path / "p", "parquet"))
        found.append(given.select("AT", "V", ROWTIME, BAD).toArrow().to_pylist())
    order = [sorted(rows, key=lambda r: str(r[BAD])) for rows in found]
    assert order[0] == order[1]
    bad = "FQ4023: timestamp column AT cannot be used: "
    assert [tuple(r.values()) for r in order[0]] == [
        (None, None, None, bad + "-1"),
        (None, None, None, bad + "it is NULL"),
        (5, "a", 5, None),
    ]


@pytest.mark.spark
def test_a_stream_of_files_through_the_log_to_files(session: SparkSession, tmp_path: Path) -> None:
    """Each portion by new queries on the same checkpoints."""
    log = open_log(tmp_path, "orders")
    o = SinkOptions(str(tmp_path / "log"), tmp_path / "staging", Target("files"))
    for n, row in enumerate(ROWS[:2]):
        parquet(tmp_path / "in", str(n), [row])
        rows = emitted_files(session, SOURCE, files(tmp_path / "in", "parquet"), 2, query="files", streaming=True)
        into = stream_epochs(rows, o).option("checkpointLocation", str(tmp_path / "c1"))
        assert into.trigger(availableNow=True).start().awaitTermination(120)
        packed = stream_log(session, ReadOptions(str(tmp_path / "log"), ("orders",)))
        out = stream_files(rows_of_topic(packed, SOURCE), SOURCE, files(tmp_path / "out", "json"))
        query = out.option("checkpointLocation", str(tmp_path / "c2")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert sorted(len(p) for p in values(log, "orders")) in ([1, 1], [0, 2])
    written = [orjson.loads(x) for f in (tmp_path / "out").glob("*.txt") for x in f.read_bytes().splitlines()]
    assert sorted((w["ID"], w["AT"], w["ROWTIME"]) for w in written) == [("a", 10, 10), ("b", 20, 20)]


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
def test_the_final_rows_of_a_table_are_written_and_read_again(
    session: SparkSession, tmp_path: Path, file_format: Any
) -> None:
    table = SourceDef("T", "table", "t", SOURCE.schema, Format("KAFKA"), Format("JSON"), TimestampSpec("AT"))
    log = open_log(tmp_path, "t")
    parquet(tmp_path / "in")
    o = SinkOptions(str(tmp_path / "log"), tmp_path / "staging", Target("files"))
    write_epoch(emitted_files(session, table, files(tmp_path / "in", "parquet"), 2, query="files"), o, 0)
    producer = log.producer("test")
    producer.begin()
    key_b = next(p for p in range(2) if any(b'"AT":20' in (v or b"") for v in values(log, "t")[p]))
    tombstone = pa.RecordBatch.from_pylist(
        [{"timestamp": 40, "key": b"b", "value": None, "headers": None}], schema=PRODUCE_SCHEMA
    )
    producer.send(TopicPartition("t", key_b), tombstone)
    producer.commit()
    rows = rows_of_topic(read_log(session, ReadOptions(str(tmp_path / "log"), ("t",))), table)
    to = files(tmp_path / "out", file_format)
    write_files(final_rows(rows, table), table, to)
    again = typed_files(session, table, to).drop(BAD).toArrow().to_pylist()
    last = (*ROWS[2][:-2], ROWS[2][-2] if file_format != "csv" else None, *ROWS[2][-1:], 30)
    assert [tuple(r.values()) for r in again] == [last]


def unfit(act: Callable[[], Any]) -> str:
    with pytest.raises(FilesUnfit) as caught:
        act()
    return str(caught.value)


@pytest.mark.spark
def test_files_that_do_not_fit_are_refused(session: SparkSession, tmp_path: Path) -> None:
    parquet(tmp_path / "p")
    p = files(tmp_path / "p", "parquet")

    def source(*fields: Field) -> SourceDef:
        return SourceDef("S", "stream", "s", Schema(fields), Format("NONE"), Format("JSON"))

    text = unfit(lambda: typed_files(session, source(Field("NOPE", t.INT)), p))
    assert "they have no column NOPE, only id, at" in text
    assert "column D is INT, theirs is double" in unfit(lambda: typed_files(session, source(Field("D", t.INT)), p))
    price = source(Field("PRICE", t.decimal(5, 2)))
    assert "column PRICE is DECIMAL(5, 2), theirs is decimal(6,2)" in unfit(lambda: typed_files(session, price, p))
    header = source(Field("H", t.BYTES, "header", "h"))
    assert "column H is no part of a row" in unfit(lambda: typed_files(session, header, p))
    nothing = files(tmp_path / "none", "csv")
    assert "at least one file" in unfit(lambda: typed_files(session, SOURCE, nothing, streaming=True))
    many = files(tmp_path / "p", "json", multiLine="true")
    assert "one document per line" in unfit(lambda: typed_files(session, SOURCE, many))
    nested = source(Field("A", t.array(t.INT)))
    rows = rows_of_topic(read_log(session, ReadOptions(os.fspath(tmp_path), ("s",))), nested)
    assert "column A is ARRAY<INT>" in unfit(lambda: write_files(rows, nested, files(tmp_path / "o", "csv")))


def test_a_csv_boolean_is_one_in_any_case() -> None:
    batch = pa.record_batch({"B": ["TRUE", " false", "yes", None], "N": ["1", "2", "3", None]})
    texts = csv_lines(batch, ["B", "N"], frozenset({"B"})).to_pylist()
    assert [orjson.loads(x)["B"] for x in texts] == [True, False, "yes", None]
    assert texts[0] == b'{"B":true,"N":"1"}'
