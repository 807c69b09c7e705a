"""Files in the place of topics: all formats mean the same, bad rows are told, streams read each file once."""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")


from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan import types as t
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Format, TimestampSpec
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.log.base import PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.spark.errors import FilesUnfit
from flowql.runtime.spark.files import file_rows, source_frame
from flowql.runtime.spark.files_decode import csv_lines
from flowql.runtime.spark.files_sink import final_rows, rows_of_topic, topic_frame, write_epoch_files, write_files
from flowql.runtime.spark.folders import HadoopPath
from flowql.runtime.spark.frames.faults import bad_rows
from flowql.runtime.spark.frames.source import Prepared, prepared, relation_of, relation_of_prepared
from flowql.runtime.spark.lake import Epoch
from flowql.runtime.spark.log_append import Target
from flowql.runtime.spark.log_sink import SinkOptions, write_epoch
from flowql.runtime.spark.log_source import ReadOptions, read_log, register
from flowql.runtime.spark.log_staging import Staging
from flowql.runtime.spark.settings import TopicFiles
from flowql.runtime.spark.shapes import from_ipc
from flowql.runtime.task.dead_letters import IN_FILES
from tests.runtime.spark.logs import emitted, epochs_of, open_log, records, results, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.turns("sessions")

LONG_MAX = 2**63 - 1
FORMATS: tuple[Any, ...] = ("parquet", "json", "csv")
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
            Field("US", t.MICROS),
        )
    ),
    Format("KAFKA"),
    Format("JSON"),
    TimestampSpec("AT"),
)
ROWS: list[tuple[Any, ...]] = [
    (
        "a",
        10,
        1,
        Decimal("1.50"),
        True,
        dt.date(2020, 1, 2),
        dt.datetime(2020, 1, 2, 3, 4, 5, 6000),
        b"\x00x",
        0.5,
        dt.datetime(2020, 1, 2, 3, 4, 5, 6007),
    ),
    ("b", 20, None, None, None, None, None, None, None, None),
    (
        "a",
        30,
        -3,
        Decimal("0.01"),
        False,
        dt.date(1970, 1, 1),
        dt.datetime(1970, 1, 1),
        b"",
        1e20,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    ),
]
NAMES = [n.lower() for n in SOURCE.schema.names]
AS_JSON = [
    {"ID": "a", "AT": 10, "N": 1, "PRICE": 1.5, "OK": True, "DAY": 18263, "SEEN": 1577934245006, "RAW": "AHg=", "D": 0.5, "US": 1577934245006007},
    {"ID": "b", "AT": 20},
    {"ID": "a", "AT": 30, "N": -3, "PRICE": 0.01, "OK": False, "DAY": 0, "SEEN": 0, "RAW": "", "D": 1e20, "US": -1},
]  # fmt: skip


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def parquet(folder: Path, name: str = "1", rows: list[tuple[Any, ...]] = ROWS) -> None:
    folder.mkdir(exist_ok=True)
    kinds = [pa.string(), pa.timestamp("ms", "UTC"), pa.int16(), pa.decimal128(6, 2), pa.bool_(), pa.date32()]
    kinds += [pa.timestamp("us"), pa.binary(), pa.float64(), pa.timestamp("us", "UTC")]
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
@pytest.mark.turns("files")
def test_all_formats_give_the_same_rows_and_go_into_the_log(session: SparkSession, tmp_path: Path) -> None:
    parquet(tmp_path / "parquet")
    bad = ({"ID": "x", "AT": 1, "N": "many"}, {"ID": "y"})
    lines(tmp_path / "json", *AS_JSON, b"{nonsense", *bad)
    csv(tmp_path / "csv", *AS_JSON, *bad)
    framed = {
        kind: prepared(SOURCE, source_frame(session, SOURCE, files(tmp_path / kind, kind), located=True))
        for kind in FORMATS
    }
    told_of = {kind: told_by(made) for kind, made in framed.items()}
    found = {}
    for kind, made in framed.items():
        rows = relation_of_prepared(SOURCE, made).frame
        found[f"{kind} as a frame"] = by_time(rows.select(*SOURCE.schema.names, ROWTIME).toArrow())
    for file_format in FORMATS:
        to = tmp_path / f"of {file_format}"
        log = open_log(to, "orders")
        fed = file_rows(session, SOURCE, files(tmp_path / file_format, file_format), 2, query="files").emitted
        write_epoch(
            fed, SinkOptions(str(to / "log"), Staging(to / "staging"), Target("files", application_id="app")), 0
        )
        rows = rows_of_topic(read_log(session, ReadOptions(str(to / "log"), ("orders",))), SOURCE)
        found[file_format] = by_time(rows.select(*SOURCE.schema.names, ROWTIME).toArrow())
        letters = [orjson.loads(v or b"") for v in values(log, "app-dead-letters")[0]]
        told = {"parquet": [], "json": ["FQ4020", "FQ4020", "FQ4023"], "csv": ["FQ4020", "FQ4023"]}[file_format]
        assert sorted(x["CODE"] for x in letters) == told
        assert {x["QUERY"] for x in letters} <= {"files"}
        assert said_in(letters) == told_of[file_format]
        assert {len(p) for p in values(log, "orders")} == {2, 1} or [] in values(
            log, "orders"
        )  # one key, one partition
    assert [tuple(r.values()) for r in found["parquet as a frame"]] == [(*row, row[1]) for row in ROWS]
    assert found["parquet as a frame"] == found["parquet"] == found["json"] == found["json as a frame"]
    for row in found["parquet"]:  # CSV has no empty values, only NULL
        row["RAW"] = row["RAW"] or None
    assert found["csv"] == found["csv as a frame"] == found["parquet"]
    json = f"file:{tmp_path}/json/1.jsonl"
    assert [m.split(": ")[0] for _, m in told_of["json"]] == [f"{json}, row 4", f"{json}, row 5", f"{json}, row 6"]


def told_by(made: Prepared) -> list[tuple[str, str]]:
    rows = bad_rows(made)
    assert rows is not None
    return sorted((r["code"], message) for r in rows.collect() for message in r["messages"])


def said_in(letters: list[dict[str, str]]) -> list[tuple[str, str]]:
    """Codes and messages of dead letters, which all end with where such a row is."""
    assert all(x["MESSAGE"].endswith(IN_FILES) for x in letters)
    return sorted((x["CODE"], x["MESSAGE"].removesuffix(IN_FILES)) for x in letters)


def by_time(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda r: r["AT"])


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["stream", "table"])
def test_bad_times_and_keys_in_parquet_are_told_with_and_without_python(
    session: SparkSession, tmp_path: Path, kind: Any
) -> None:
    tmp_path.joinpath("p").mkdir()
    columns = {
        "K": ["k", "k", None, None],
        "AT": pa.array([5, None, LONG_MAX, 7], pa.int64()),
        "V": ["a", "b", "c", "d"],
    }
    pq.write_table(pa.table(columns), tmp_path / "p" / "1.parquet")
    schema = Schema((Field("K", t.STRING, "key"), Field("AT", t.BIGINT), Field("V", t.STRING)))
    source = SourceDef("S", kind, "s", schema, Format("KAFKA"), Format("JSON"), TimestampSpec("AT"))
    made = prepared(source, source_frame(session, source, files(tmp_path / "p", "parquet"), located=True))
    assert "Python" not in made.frame._jdf.queryExecution().executedPlan().toString()
    rows = relation_of_prepared(source, made).frame
    good = sorted((tuple(r) for r in rows.select("K", "AT", "V", ROWTIME).collect()), key=repr)
    told = told_by(made)
    log = open_log(tmp_path, "s")
    fed = file_rows(session, source, files(tmp_path / "p", "parquet"), 2, query="files").emitted
    write_epoch(
        fed, SinkOptions(str(tmp_path / "log"), Staging(tmp_path / "staging"), Target("files", application_id="app")), 0
    )
    through = rows_of_topic(read_log(session, ReadOptions(str(tmp_path / "log"), ("s",))), source)
    letters = [orjson.loads(v or b"") for v in values(log, "app-dead-letters")[0]]
    assert good == sorted((tuple(r) for r in through.select("K", "AT", "V", ROWTIME).collect()), key=repr)
    assert told == said_in(letters)
    bad, at = "timestamp column AT cannot be used: ", f"file:{tmp_path}/p/1.parquet, row"
    without_key = [("FQ4022", f"{at} 4: a record of a table needs a key")] if kind == "table" else []
    assert told == [
        *without_key,
        ("FQ4023", f"{at} 2: {bad}it is NULL"),
        ("FQ4023", f"{at} 3: {bad}{LONG_MAX} is not from 1970-01-01 to 2200-01-01"),
    ]


@pytest.mark.spark
def test_of_typed_files_spark_reads_what_is_used(session: SparkSession, tmp_path: Path) -> None:
    """Columns that a query leaves out are not read, and its filters reach the files; that times can be used is not asked of them."""
    parquet(tmp_path / "p")
    found = relation_of(SOURCE, source_frame(session, SOURCE, files(tmp_path / "p", "parquet")))
    plan = found.frame.where("N = 7").select("N")._jdf.queryExecution().executedPlan().toString()
    (scan,) = [line for line in plan.splitlines() if "FileScan" in line]
    assert re.findall(r"(\w+)#", scan.partition("]")[0]) == ["at", "n"]
    assert "EqualTo(n,7)" in scan
    assert "IsNotNull(at)" not in scan
    assert re.search(r"PushedFilters: .*\bn\b", scan), scan
    assert "Python" not in plan


@pytest.mark.spark
def test_rows_without_a_time_of_their_own(session: SparkSession, tmp_path: Path) -> None:
    """Of a table they count from the beginning, fed into its topic, too; the column ROWTIME gives the time of a stream; else its file does."""
    for name, document in {"none": {"K": "a"}, "given": {"K": "a", "ROWTIME": 77}}.items():
        lines(tmp_path / name, document)
        os.utime(tmp_path / name / "1.jsonl", (5, 5))
    schema = Schema((Field("K", t.STRING, "key"), Field("V", t.STRING)))
    found = {}
    for kind, name in (("stream", "none"), ("stream", "given"), ("table", "none"), ("table", "given")):
        source = SourceDef("S", kind, "s", schema, Format("KAFKA"), Format("JSON"))  # type: ignore[arg-type]
        fed = file_rows(session, source, files(tmp_path / name, "json"), 1, query="files").emitted.collect()
        (at,) = from_ipc(bytes(fed[0]["ipc"])).column("timestamp").to_pylist()
        relation = relation_of(source, source_frame(session, source, files(tmp_path / name, "json")))
        ((seen,),) = relation.frame.select(ROWTIME).collect()
        found[kind, name] = (at, seen if seen > -(2**61) else None, relation.timed)
    assert found == {
        ("stream", "none"): (5000, 5000, True), ("stream", "given"): (77, 77, True),
        ("table", "none"): (0, None, False), ("table", "given"): (77, 77, False),
    }  # fmt: skip


def of_columns(*fields: Field) -> SourceDef:
    """A stream without a time column of its own."""
    return SourceDef(
        "S", "stream", "s", Schema((Field("K", t.STRING, "key"), *fields)), Format("KAFKA"), Format("JSON")
    )


def both_forms(
    session: SparkSession, source: SourceDef, given: TopicFiles
) -> tuple[list[Any], list[str], list[Any], list[str]]:
    """Rows and messages of dead letters: as a frame, and as records of the topic."""
    made = prepared(source, source_frame(session, source, given))
    columns = [quoted(n) for n in (*source.schema.names, ROWTIME)]
    rows = sorted(tuple(r) for r in relation_of_prepared(source, made).frame.selectExpr(*columns).collect())
    bad = bad_rows(made)
    assert bad is not None
    fed = [
        (r["kind"], from_ipc(bytes(r["ipc"])))
        for r in file_rows(session, source, given, 1, query="q").emitted.collect()
    ]
    found: dict[str, list[Any]] = {"sink": [], "dead": []}
    for kind, batch in fed:
        found[kind] += [(r["timestamp"], r["key"], orjson.loads(r["value"])) for r in batch.to_pylist()]
    texts = sorted(message for r in bad.collect() for message in r["messages"])
    sent = sorted((k.decode(), *value.values(), at) for at, k, value in found["sink"])
    return rows, texts, sent, sorted(value["MESSAGE"] for *_, value in found["dead"])


@pytest.mark.spark
@pytest.mark.turns("files")
def test_folders_are_columns_of_json_and_csv_files(session: SparkSession, tmp_path: Path) -> None:
    """As the texts that they are, below the folder that is read; of JSON files they were NULL, and `02` of CSV files was 2."""
    source = of_columns(Field("V", t.INT), Field("DAY", t.STRING), Field("AT", t.DATE), Field("OK", t.BOOLEAN))
    places = {
        "a": "day=02/at=2024-01-01/ok=TRUE",
        "b": "day=a%20b/at=1969-12-31/ok=false",
        "c": "day=x/at=__HIVE_DEFAULT_PARTITION__/ok=true",
    }
    for kind in ("json", "csv"):
        root = tmp_path / "day=no" / kind
        for k, place in places.items():
            text = f'{{"K": "{k}", "V": 1, "ROWTIME": 5}}\n' if kind == "json" else f"K,V,ROWTIME\n{k},1,5\n"
            (root / place).mkdir(parents=True)
            (root / place / f"1.{kind}").write_text(text)
        rows, bad, sent, dead = both_forms(session, source, files(root, kind))
        days = [dt.date(2024, 1, 1), dt.date(1969, 12, 31), None]
        assert rows == [
            ("a", 1, "02", days[0], True, 5),
            ("b", 1, "a b", days[1], False, 5),
            ("c", 1, "x", None, True, 5),
        ]
        assert sent == [("a", 1, "02", 19723, True, 5), ("b", 1, "a b", -1, False, 5), ("c", 1, "x", None, True, 5)]
        assert (bad, dead) == ([], [])


@pytest.mark.spark
def test_csv_files_of_other_columns_are_told(session: SparkSession, tmp_path: Path) -> None:
    """Spark would read them by place: values of one column in another, without a word."""
    source = of_columns(Field("V", t.STRING))
    for header in ("V,K,ROWTIME", "K,ROWTIME", "K,V,W,ROWTIME"):
        folder = tmp_path / header
        folder.mkdir()
        (folder / "1.csv").write_text("K,V,ROWTIME\na,b,5\n")
        (folder / "2.csv").write_text(f"{header}\n{','.join('cdef'[: header.count(',')])},6\n")
        with pytest.raises(Exception, match=r"(?s)FAILED_READ_FILE.*[12]\.csv.*eader"):
            source_frame(session, source, files(folder, "csv")).collect()
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "1.csv").write_text(",K,V,ROWTIME\n0,a,b,5\n")  # as pandas writes them
    assert both_forms(session, source, files(tmp_path / "index", "csv"))[0] == [("a", "b", 5)]
    for name, text, fields in (("one", "a\n", []), ("two", "a,b\n", [Field("DAY", t.STRING), Field("V", t.STRING)])):
        (tmp_path / name / "day=02").mkdir(parents=True)
        (tmp_path / name / "day=02" / "1.csv").write_text(text)
        rows = both_forms(session, of_columns(*fields), files(tmp_path / name, "csv", header="false"))[0]
        assert rows[0][:-1] == ("a", "02", "b")[: 1 + len(fields)]


@pytest.mark.spark
def test_broken_rows_of_csv_files_are_dead_letters(session: SparkSession, tmp_path: Path) -> None:
    """One of too few or too many fields, or with an open quote, had NULLs, or lost what was behind."""
    source = of_columns(Field("V", t.STRING))
    (tmp_path / "1.csv").write_text('K,V,ROWTIME\na,1,5\nb\nc,2,7,8\n"d,3,9\ne,,10\nf,6,soon\n')
    rows, bad, sent, dead = both_forms(session, source, files(tmp_path, "csv"))
    assert rows == sent == [("a", "1", 5), ("e", None, 10)]
    for texts in (bad, dead):
        said = [(m[1], m[2]) for x in texts if (m := re.search(r"1\.csv, row (\d): (.*)", x))]
        assert [n for n, _ in said] == ["2", "3", "4", "6"]
        assert all("fields" in text for _, text in said[:3])
        assert "ROWTIME cannot be used" in said[3][1]


@pytest.mark.spark
def test_a_time_that_cannot_be_read_is_not_that_of_the_file(session: SparkSession, tmp_path: Path) -> None:
    source = of_columns(Field("V", t.STRING))
    stamp = {"K": "a", "V": "1", "ROWTIME": "2024-01-01T00:00:00Z"}
    lines(tmp_path / "json", stamp, {"K": "b", "V": "1", "rowtime": 7}, {"K": "c", "V": "1"})
    os.utime(tmp_path / "json" / "1.jsonl", (5, 5))
    rows, bad, sent, dead = both_forms(session, source, files(tmp_path / "json", "json"))
    assert rows == sent == [("b", "1", 7), ("c", "1", 5000)]
    assert [len(bad), len(dead)] == [1, 1]
    assert all("row 1: timestamp column ROWTIME cannot be used" in x for x in (*bad, *dead))
    (tmp_path / "parquet").mkdir()
    table = pa.table({"K": ["a", "b"], "V": ["1", "2"], "ROWTIME": pa.array([None, 5], pa.int64())})
    pq.write_table(table, tmp_path / "parquet" / "1.parquet")
    rows, _, sent, dead = both_forms(session, source, files(tmp_path / "parquet", "parquet"))
    assert rows == sent == [("b", "2", 5)]
    assert "row 1: timestamp column ROWTIME cannot be used" in dead[0]


@pytest.mark.spark
@pytest.mark.turns("files")
def test_a_stream_reads_files_with_old_times_too(session: SparkSession, tmp_path: Path) -> None:
    """A copy that keeps the time of its original: Spark leaves out what is seven days older than the newest file."""
    source, found = of_columns(Field("V", t.STRING)), []
    lines(tmp_path / "in", {"K": "a", "V": "1"}, name="1")
    for part in (1, 2):
        rows = source_frame(session, source, files(tmp_path / "in", "json"), streaming=True)
        writer = rows.writeStream.foreachBatch(lambda batch, _n: found.extend(r["K"] for r in batch.collect()))
        writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(
            300
        )
        if part == 1:
            lines(tmp_path / "in", {"K": "b", "V": "1"}, name="2")
            os.utime(tmp_path / "in" / "2.jsonl", (1_000_000, 1_000_000))
    assert found == ["a", "b"]


@pytest.mark.spark
@pytest.mark.turns("files")
def test_a_stream_of_files_reads_each_once(session: SparkSession, tmp_path: Path) -> None:
    """Each portion by a new query on the same checkpoint."""
    log = open_log(tmp_path, "orders")
    for n, row in enumerate(ROWS[:2]):
        parquet(tmp_path / "in", str(n), [row])
        rows = file_rows(session, SOURCE, files(tmp_path / "in", "parquet"), 2, query="files", streaming=True).emitted
        into = epochs_of(rows, log, Target("files"), tmp_path / "c1")
        assert into.trigger(availableNow=True).start().awaitTermination(120)
    assert sorted(len(p) for p in values(log, "orders")) in ([1, 1], [0, 2])


@pytest.mark.spark
def test_folders_that_spark_passes_over_are_told(
    session: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Files in them, whatever their names, were no part of any result, without a word."""
    for folder, v in (("", 1), ("x", 2), ("y", 3), ("_spark", 4)):
        (tmp_path / folder).mkdir(exist_ok=True)
        pq.write_table(pa.table({"K": ["a"], "V": [v], "ROWTIME": [0]}), tmp_path / folder / "a.parquet")
    source = of_columns(Field("V", t.BIGINT))

    def read(**options: str) -> list[int]:
        frame = source_frame(session, source, TopicFiles("parquet", str(tmp_path), options))
        return sorted(r["V"] for r in frame.collect())

    with caplog.at_level("WARNING", "flowql"):
        assert (read(), read()) == ([1], [1])
        assert read(recursiveFileLookup="true") == [1, 2, 3]
    (said,) = caplog.records
    assert "/x and 1 more folders there are not read" in said.getMessage()


@pytest.mark.spark
@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_a_stream_reads_a_path_that_is_one_file(session: SparkSession, tmp_path: Path, form: str) -> None:
    """Spark takes the path of a stream for a folder. The file beside it, and one whose name is longer, are not read."""
    for name, v in (("a", 1), ("b", 2), ("ab", 3)):
        pa_table = pa.table({"K": [name], "V": pa.array([v], pa.int64())})
        if form == "parquet":
            pq.write_table(pa_table, tmp_path / name)
        else:
            (tmp_path / name).write_text(f'{{"K":"{name}","V":{v}}}\n' if form == "json" else f"K,V\n{name},{v}\n")
    source, found = of_columns(Field("V", t.BIGINT)), []
    rows = source_frame(session, source, TopicFiles(form, f"file:{tmp_path}/a"), streaming=True)  # type: ignore[arg-type]
    writer = rows.writeStream.foreachBatch(lambda batch, _n: found.extend(r["V"] for r in batch.collect()))
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination(300)
    assert found == [1]


@pytest.mark.spark
def test_a_result_takes_the_place_of_all_folders_whatever_the_session_says(
    session: SparkSession, tmp_path: Path
) -> None:
    """On a session of the caller with partitionOverwriteMode `dynamic`, folders of values that no row has any more stayed."""
    schema = Schema((Field("K", t.STRING, "key"), Field("V", t.INT)))
    stream = SourceDef("T", "stream", "t", schema, Format("KAFKA"), Format("JSON"))
    to = TopicFiles("parquet", str(tmp_path / "out"), partition_by=("V",))
    theirs = session.newSession()
    theirs.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    for v in (1, 2):
        write_files(theirs.sql(f"SELECT 'a' AS K, {v} AS V, 0L AS ROWTIME"), stream, to)
    assert [p.name for p in (tmp_path / "out").glob("V=*")] == ["V=2"]


@pytest.mark.spark
@pytest.mark.parametrize("staged", ["in memory", "in a folder", "at an address"])
def test_epochs_of_a_stream_are_folders(session: SparkSession, tmp_path: Path, staged: str) -> None:
    """One that is given again is there once; epoch 0 begins anew; of a table deletions are rows, too, and changes of a key keep their order."""
    there = HadoopPath(lambda: session, f"file://{tmp_path}/there") if staged == "at an address" else None
    staging = Staging(tmp_path / "staged", there)
    schema = Schema((Field("K", t.STRING, "key"), Field("V", t.INT)))
    table = SourceDef("T", "table", "t", schema, Format("KAFKA"), Format("JSON"))
    to = files(tmp_path / "out", "json")

    def epoch(n: int, *rows: tuple[bytes, bytes | None]) -> None:
        found = [("sink", "t", 0, 0, seq, records([v], [k])) for seq, (k, v) in enumerate(rows)]
        letter = ("dead", "q", 0, 0, 99, records([b"not a row"]))
        with results(session, emitted(*found[::-1], letter), staging, staged=staged != "in memory") as given:
            write_epoch_files(session, given, table, to, Epoch("q", n))

    def written() -> list[tuple[Any, ...]]:
        folders = sorted(tmp_path.joinpath("out").glob("epoch=*"))
        found = [
            (d.name, orjson.loads(x)) for d in folders for f in d.glob("*.txt") for x in f.read_bytes().splitlines()
        ]
        return [(name, r["K"], r["V"], r["ROWDELETED"]) for name, r in found]

    tmp_path.joinpath("out").mkdir()
    (tmp_path / "out" / "left.txt").write_text("of a batch")
    for n in (0, 1, 1):
        epoch(n, (b"a", b'{"V":%d}' % n))
    epoch(2)
    epoch(3, (b"a", None))
    assert written() == [("epoch=0", "a", 0, False), ("epoch=1", "a", 1, False), ("epoch=3", "a", None, True)]
    assert sorted(f.name for f in tmp_path.joinpath("out").iterdir()) == ["epoch=0", "epoch=1", "epoch=3"]
    epoch(0, (b"b", b'{"V":9}'), (b"c", b'{"V":8}'), (b"b", b'{"V":7}'))
    assert written() == [("epoch=0", "b", 9, False), ("epoch=0", "c", 8, False), ("epoch=0", "b", 7, False)]
    shutil.rmtree(tmp_path / "out")
    epoch(4)
    with pytest.raises(FilesUnfit, match=r"out does not exist, and the micro-batches before 5 .*\n.*--rebuild"):
        epoch(5, (b"d", b'{"V":7}'))  # alone it would be taken for all results
    epoch(0)
    epoch(5, (b"d", b'{"V":7}'))
    assert written() == [("epoch=5", "d", 7, False)]


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
def test_the_final_rows_of_a_table_are_written_and_read_again(
    session: SparkSession, tmp_path: Path, file_format: Any
) -> None:
    table = SourceDef("T", "table", "t", SOURCE.schema, Format("KAFKA"), Format("JSON"), TimestampSpec("AT"))
    log = open_log(tmp_path, "t")
    parquet(tmp_path / "in")
    o = SinkOptions(str(tmp_path / "log"), Staging(tmp_path / "staging"), Target("files"))
    write_epoch(file_rows(session, table, files(tmp_path / "in", "parquet"), 2, query="files").emitted, o, 0)
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
    write_files(topic_frame(final_rows(rows, table), table), table, to)
    back = open_log(tmp_path / "again", "t")
    again_in = SinkOptions(str(tmp_path / "again" / "log"), Staging(tmp_path / "staging"), Target("files"))
    write_epoch(file_rows(session, table, to, 2, query="files").emitted, again_in, 0)
    read = rows_of_topic(read_log(session, ReadOptions(str(tmp_path / "again" / "log"), ("t",))), table)
    again = read.select(*table.schema.names, ROWTIME).toArrow().to_pylist()
    back.close()
    last = (*ROWS[2][:-3], ROWS[2][-3] if file_format != "csv" else None, *ROWS[2][-2:], 30)
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

    text = unfit(lambda: source_frame(session, source(Field("NOPE", t.INT)), p))
    assert "they have no column NOPE, only id, at" in text
    assert "column D is INT, theirs is double" in unfit(lambda: source_frame(session, source(Field("D", t.INT)), p))
    (tmp_path / "unlike").mkdir()
    for n, value in enumerate((1, "two")):
        pq.write_table(pa.table({"D": [value]}), tmp_path / "unlike" / f"{n}.parquet")
    unlike = unfit(lambda: source_frame(session, source(Field("D", t.INT)), files(tmp_path / "unlike", "parquet")))
    assert "unlike cannot be used for topic s: a column has other types in some of them" in unlike
    price = source(Field("PRICE", t.decimal(5, 2)))
    assert "column PRICE is DECIMAL(5, 2), theirs is decimal(6,2)" in unfit(lambda: source_frame(session, price, p))
    header = source(Field("H", t.BYTES, "header", "h"))
    assert "column H is not part of a row" in unfit(lambda: source_frame(session, header, p))
    nothing = files(tmp_path / "none", "csv")
    fed = {"query": "files", "streaming": True}
    assert "at least one file" in unfit(lambda: file_rows(session, SOURCE, nothing, 2, **fed).emitted)
    many = files(tmp_path / "p", "json", multiLine="true")
    assert "one document per line" in unfit(lambda: file_rows(session, SOURCE, many, 2, query="files").emitted)
    nested = source(Field("A", t.array(t.INT)))
    rows = rows_of_topic(read_log(session, ReadOptions(os.fspath(tmp_path), ("s",))), nested)
    assert "column A is ARRAY<INT>" in unfit(
        lambda: write_files(topic_frame(rows, nested), nested, files(tmp_path / "o", "csv"))
    )


def test_a_csv_boolean_is_one_in_any_case() -> None:
    batch = pa.record_batch({"B": ["TRUE", " false", "yes", None], "N": ["1", "2", "3", None]})
    texts = csv_lines(batch, ["B", "N"], frozenset({"B"})).to_pylist()
    assert [orjson.loads(x)["B"] for x in texts] == [True, False, "yes", None]
    assert texts[0] == b'{"B":true,"N":"1"}'
