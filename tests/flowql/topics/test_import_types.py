"""Texts of imported files are read as the declared types, from CSV and from JSON lines alike."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.compiler.plan.types import SqlType
from flowql.errors import CommandError
from flowql.runtime.batch import Row
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.operators.base import NO_STATE, MicroBatchContext
from flowql.runtime.operators.decode import Decoder
from flowql.topics.import_job import Job
from flowql.topics.typed_texts import from_text, json_sql, retyped_document
from tests.flowql.topics.test_importing import run, source

COLUMNS = (
    "K STRING KEY, D DATE, TI TIME, TS TIMESTAMP, B BOOLEAN, N INT, C DECIMAL(20, 2), S STRING, L ARRAY<DATE>, "
    "R STRUCT<AT TIMESTAMP, OK BOOLEAN>, M MAP<STRING, INT>"
)
ROW = {
    "K": "a",
    "D": 19_782,  # 2024-02-29
    "TI": 45_296_500,
    "TS": 1_709_210_096_500,
    "B": True,
    "N": 7,
    "C": "12345678901234567.10",
    "S": "NULL",
    "L": [0, 19_782],
    "R": {"AT": 1_709_164_800_000, "OK": False},
    "M": {"x": 1},
}
TEXTS = {
    "K": "a",
    "D": "2024-02-29",
    "TI": "12:34:56.5",
    "TS": "2024-02-29T12:34:56.5Z",
    "B": "Yes",
    "N": " 7 ",
    "C": "12345678901234567.10",
    "S": "NULL",
    "L": ["1970-01-01", "2024-02-29"],
    "R": {"AT": "2024-02-29", "OK": "no"},
    "M": {"x": "1"},
}


def decoded(log: MemoryLog, declared: SourceDef) -> list[dict[str, Any]]:
    """What queries read of the topic; no record may be a dead letter."""
    reader, context = log.reader(TopicPartition("t", 0)), MicroBatchContext(NO_STATE)
    decoder = Decoder(scan_of(declared), declared.schema)
    rows: list[Row] = []
    while (raw := reader.read(10_000, 1 << 20)) is not None:
        rows += decoder.decode(raw, context).rows()
    assert not context.dead_letters
    return [dict(zip(declared.schema.names, row, strict=True)) for row in rows]


def imported(tmp_path: Path, name: str, text: str, declared: SourceDef, **options: Any) -> list[dict[str, Any]]:
    log, file = MemoryLog(), tmp_path / name
    file.write_text(text)
    form = "csv" if name.endswith("csv") else "jsonl"
    run(log, Job("t", 1, file, form, declared, 5, **options))  # type: ignore[arg-type]
    return decoded(log, declared)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"C": str(row["C"])}


def csv_line(values: dict[str, Any]) -> str:
    texts = [json.dumps(v) if isinstance(v, (list, dict)) else v for v in values.values()]
    return ",".join('"' + text.replace('"', '""') + '"' for text in texts)


def test_csv_with_iso_dates_is_what_is_declared(tmp_path: Path) -> None:
    text = ",".join(TEXTS).lower() + "\n" + csv_line(TEXTS) + "\n"
    assert [plain(r) for r in imported(tmp_path, "a.csv", text, source(COLUMNS))] == [ROW]


def test_json_lines_with_iso_dates_are_what_is_declared(tmp_path: Path) -> None:
    text = json.dumps(TEXTS) + "\n" + json.dumps({k.lower(): v for k, v in TEXTS.items()}) + "\n"
    assert [plain(r) for r in imported(tmp_path, "a.jsonl", text, source(COLUMNS))] == [ROW, ROW]


def test_other_formats_take_iso_dates_too(tmp_path: Path) -> None:
    declared = source("K STRING KEY, D DATE, B BOOLEAN", VALUE_FORMAT="DELIMITED")
    found = imported(tmp_path, "a.csv", "K,D,B\na,2024-02-29,y\n", declared)
    assert found == [{"K": "a", "D": 19_782, "B": True}]


def test_many_rows_with_iso_times(tmp_path: Path) -> None:
    """More than the vector decoder takes at once, and with other rows among them."""
    declared = source("K STRING KEY, TS TIMESTAMP, N INT")
    rows = [{"K": "a", "TS": f"2024-01-01T00:{i // 60 % 60:02}:{i % 60:02}Z", "N": i} for i in range(2000)]
    rows[700] = {"K": "a", "TS": None, "N": 700}
    rows[800] = {"K": "a", "TS": 5, "N": 800}
    found = imported(tmp_path, "a.jsonl", "".join(json.dumps(r) + "\n" for r in rows), declared)
    assert [r["N"] for r in found] == list(range(2000))
    assert [found[i]["TS"] for i in (0, 61, 700, 800)] == [1_704_067_200_000, 1_704_067_261_000, None, 5]


def test_parts_of_a_millisecond_are_cut_off_toward_the_past(tmp_path: Path) -> None:
    """In every format, in values and in times of records. DuckDB's `epoch_ms` rounds: an event of 23:59:59.9996 was one of the next day."""
    texts = ["2024-01-02T23:59:59.999600Z", "1969-12-31T23:59:59.999999Z", "2024-01-02T03:04:05.678Z"] * 100
    expected = [1_704_239_999_999, -1, 1_704_164_645_678] * 100
    declared = source("K STRING KEY, TS TIMESTAMP")
    csv = "K,TS\n" + "".join(f"a,{at}\n" for at in texts)
    jsonl = "".join(json.dumps({"K": "a", "TS": at}) + "\n" for at in texts)
    for name, text in (("a.csv", csv), ("a.jsonl", jsonl), ("few.jsonl", "".join(jsonl.splitlines(keepends=True)[:3]))):
        found = [r["TS"] for r in imported(tmp_path, name, text, declared)]
        assert found == expected[: len(found)], name
    file, log = tmp_path / "a.parquet", MemoryLog()
    moments = pa.array([datetime.fromisoformat(at) for at in texts], pa.timestamp("us", "UTC"))
    table = pa.table({"K": ["a"] * len(texts), "TS": moments, "F": [float("nan"), float("-inf"), 0.5] * 100})
    pq.write_table(table, file)
    declared = source("K STRING KEY, TS TIMESTAMP, F DOUBLE")
    run(log, Job("t", 1, file, "parquet", declared, 5, timestamp="TS"))
    rows = decoded(log, declared)
    assert [r["TS"] for r in rows] == expected
    assert [repr(r["F"]) for r in rows[:3]] == ["nan", "-inf", "0.5"]
    raw = log.reader(TopicPartition("t", 0)).read(10_000, 1 << 20)
    assert raw is not None
    assert raw.records["timestamp"].to_pylist() == expected


@pytest.mark.parametrize("spelling", ["", "NULL", "null", "None", "NA", "n/a", "\\N", " "])
def test_spellings_of_null(tmp_path: Path, spelling: str) -> None:
    declared = source("K STRING KEY, D DATE, TS TIMESTAMP, B BOOLEAN, N INT, F DOUBLE, C DECIMAL(9, 2), L ARRAY<INT>")
    names = [n for n in declared.schema.names if n != "K"]
    text = f"K,{','.join(names)}\na,{','.join([spelling] * len(names))}\n"
    assert imported(tmp_path, "a.csv", text, declared) == [{"K": "a", **dict.fromkeys(names)}]
    line = json.dumps({"K": "a", **dict.fromkeys(names, spelling)})
    assert imported(tmp_path, "a.jsonl", line, declared) == [{"K": "a", **dict.fromkeys(names)}]


def test_texts_are_null_only_where_they_are_said_to_be(tmp_path: Path) -> None:
    declared = source("K STRING KEY, A STRING, B STRING, C STRING")
    text = 'K,A,B,C\n1,NA,,"NULL"\n2,\\N,"",NULL\n'
    found = imported(tmp_path, "a.csv", text, declared)
    assert [(r["A"], r["B"], r["C"]) for r in found] == [("NA", None, "NULL"), (None, "", "NULL")]
    found = imported(tmp_path, "a.csv", text, declared, nulls=("NULL", "NA"))
    assert [(r["A"], r["B"], r["C"]) for r in found] == [(None, None, "NULL"), (None, "", None)]


def test_a_rewritten_line_keeps_its_digits_and_its_other_members() -> None:
    fields = source("D DATE, X DOUBLE").schema.value
    line = b'{"D":"1970-01-02","other":[1.10,12345678901234567890.123],"X":1e2}'
    assert retyped_document(line, fields) == b'{"D":1,"other":[1.10,12345678901234567890.123],"X":1e2}'


KINDS: list[SqlType] = [t.DATE, t.TIME, t.TIMESTAMP, t.BOOLEAN, t.INT, t.BIGINT, t.DOUBLE, t.decimal(9, 2)]
WORDS = [
    *("2024-02-29", "2023-02-29", "2024-1-1", "0001-01-01", "9999-12-31", "1969-12-31", "12:34", "12:34:56", "23:59:59.999999"),
    *("24:00", "24:00:00", "12:60", "2024-02-29T12:34Z", "2024-02-29 12:34:56", "2024-02-29T12:34:56,789+02:00"),
    *("2024-02-29T12:34:56.123456789-0330", "1969-12-31T23:59:59.9995Z", "2024-02-29T12:34:56+02", "2024-02-29T25:00", "soon"),
    *("yes", "No", "T", "f", "1", "0", "2", "-5", "+5", "007", "1.5", ".5", "1e3", "NaN", "2147483648", "9223372036854775808"),
    *("NULL", "None", "", " ", "na", "\\N", "N/A", " 12 ", "1,5", "１"),
]  # fmt: skip


@pytest.mark.parametrize("declared", KINDS, ids=str)
def test_columns_are_read_as_single_values_are(declared: SqlType) -> None:
    """DuckDB's reading of a column of CSV texts, against the one value by one."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for word in WORDS:
        sql = f"SELECT {json_sql('w', declared)} FROM (SELECT ? AS w)"
        found = database.execute(sql, [word]).fetchall()[0][0]
        wanted = from_text(word, declared.kind)
        value = None if found is None else json.loads(found, parse_float=str, parse_int=str)
        if isinstance(wanted, str):  # no value of the type, or a number with its digits
            same = value == wanted or (value is not None and Decimal(value) == Decimal(wanted))
        else:
            same = value == (wanted if wanted is None or isinstance(wanted, bool) else str(wanted))
        assert same, (word, found, wanted)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("a,2024-02-30,,,", "a.csv:3: D: "),
        ("a,,noon,,", "a.csv:3: TS: "),
        ("a,,,3000000000,", "a.csv:3: N: "),
        ("a,,,1.5,", "a.csv:3: N: "),
        ("a,,,,12345678.9", "a.csv:3: C: "),
        ("a,,,", "a.csv:3: this record has 4 fields, the header has 5"),
        ('a,"2024-01-01,,,', "a.csv:3: a quote is not closed"),
    ],
)
def test_what_is_no_value_of_its_type_is_named(tmp_path: Path, line: str, says: str) -> None:
    declared = source("K STRING KEY, D DATE, TS TIMESTAMP, N INT, C DECIMAL(6, 2)")
    with pytest.raises(CommandError) as caught:
        imported(tmp_path, "a.csv", f"K,D,TS,N,C\nb,,,1,\n{line}\nc,,,,\n", declared)
    assert says in caught.value.title


def test_a_carriage_return_outside_of_quotes_is_a_bad_record(tmp_path: Path) -> None:
    """The reader of columns ends a row there: columns had another length than records, an internal error."""
    (tmp_path / "a.csv").write_bytes(b'A,B\n1,x\n2,y\r3,z\n4,"in\rquotes"\n')
    log = MemoryLog()
    job = Job("t", 1, tmp_path / "a.csv", "csv", source("A INT, B VARCHAR"), 0, on_error="skip")
    outcome = run(log, job)
    assert (outcome.records, outcome.skipped) == (2, 1)


def test_a_mark_of_the_encoding_is_no_part_of_the_first_line_where_another_is_bad(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"A": 1}\n{"A": "\xff"}\n{"A": 3}\n')
    log = MemoryLog()
    outcome = run(log, Job("t", 1, tmp_path / "a.jsonl", "jsonl", source("A INT"), 0, on_error="skip"))
    assert (outcome.records, outcome.skipped) == (2, 1)


def test_a_bad_line_that_is_too_large_for_a_letter_goes_without_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryLog, "record_bytes_max", lambda *_: 1_000)
    (tmp_path / "a.jsonl").write_text('{"A": 1}\n' + "x" * 5_000 + "\n")
    log = MemoryLog()
    job = Job("t", 1, tmp_path / "a.jsonl", "jsonl", source("A INT"), 0, on_error="dead-letter", dead_letters="letters")
    log.create_topic(job.dead_letters, 1)
    assert run(log, job).dead == 1
    batch = log.reader(TopicPartition(job.dead_letters, 0)).read(10, 1 << 20)
    assert batch is not None
    letter = json.loads(batch.records.column("value")[0].as_py())
    assert letter["VALUE"] is None
    assert "a.jsonl:2" in letter["MESSAGE"]
