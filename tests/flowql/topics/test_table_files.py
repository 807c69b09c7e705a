"""Files into local tables: DuckDB writes them, and the table has its rows; what does not fit is told with its line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query.changing import carry_out
from flowql.topics import table_files
from flowql.topics.table_load import LocalFiles
from tests.runtime.topology.test_table_writer import Tables

COLUMNS = "id INT PRIMARY KEY, n BIGINT, x DOUBLE, d DECIMAL(9, 3), s TEXT, b BOOLEAN, day DATE, t TIMESTAMP(6)"
NESTED = ", l INT[], p STRUCT<a INT, b TEXT>"
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=5) | st.sampled_from(
    ["", '"', '""', "a,b", "\n", "NULL", "\\N", " x ", "é\u2028", "-1"]
)
_MOMENT = st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "x": st.floats(width=64),
    "d": st.decimals(-999_999, 999_999, places=3),
    "s": _TEXT,
    "b": st.booleans(),
    "day": st.dates(date(1, 1, 1)),
    "t": _MOMENT,
    "l": st.lists(st.none() | st.integers(-5, 5), max_size=3),
    "p": st.fixed_dictionaries({"a": st.none() | st.integers(0, 5), "b": st.none() | _TEXT}),
}
Rows = list[tuple[Any, ...]]


@st.composite
def rows_of(draw: st.DrawFn, names: Sequence[str]) -> Rows:
    made = draw(st.lists(st.tuples(*(st.none() | VALUES[n] for n in names)), max_size=8))
    return [(i, *row) for i, row in enumerate(made)]


class Loaded(Tables):
    def do(self, sql: str) -> int:
        (done,) = carry_out(
            sql, self.plan.sources, self.writers, lambda sql: pytest.fail(sql), "t", dialect="standard", variables={}, files=LocalFiles()
        )  # fmt: skip
        return done.rows


def written(rows: Rows, types: dict[str, str], path: Path, options: str) -> None:
    """DuckDB's file of rows."""
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE r ({', '.join(f'{n} {t}' for n, t in types.items())})")
        if rows:
            database.executemany(f"INSERT INTO r VALUES ({', '.join('?' * len(types))})", rows)
        database.execute(f"COPY r TO '{path}' ({options})")


def as_stored(value: Any) -> Any:
    match value:
        case float():
            return "nan" if math.isnan(value) else value
        case datetime():
            since = value - datetime(1970, 1, 1)
            return since.days * 86_400_000_000 + since.seconds * 1_000_000 + since.microseconds
        case date():
            return value.toordinal() - date(1970, 1, 1).toordinal()
        case Decimal():
            return value.quantize(Decimal("0.001"))
    return value


def check(rows: Rows, nested: bool, folder: Path, name: str, options: str, copy: str) -> None:
    tables = Loaded(f"CREATE TABLE r ({COLUMNS}{NESTED if nested else ''});")
    types = {
        "id": "INT",
        "n": "BIGINT",
        "x": "DOUBLE",
        "d": "DECIMAL(9,3)",
        "s": "VARCHAR",
        "b": "BOOLEAN",
        "day": "DATE",
    }
    types |= {"t": "TIMESTAMP"} | ({"l": "INT[]", "p": "STRUCT(a INT, b VARCHAR)"} if nested else {})
    file = folder / name
    written(rows, types, file, options)
    assert tables.do(copy.format(file)) == len(rows)
    found = [[as_stored(v) for v in row] for row in tables.rows("r")]
    assert found == [[as_stored(v) for v in row] for row in rows]


_RELAXED = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@_RELAXED
@given(rows_of([*VALUES][:7]))
@pytest.mark.parametrize("options", ["", ", DELIMITER '|', NULL 'none'"])
def test_csv_of_duckdb(tmp_path: Path, options: str, rows: Rows) -> None:
    force = ", FORCE_QUOTE (s)"  # otherwise a string that reads as NULL is written without quotes
    check(
        rows,
        False,
        tmp_path,
        "r.csv",
        f"FORMAT csv, HEADER{options}{force}",
        "COPY r FROM '{}' WITH (HEADER" + options + ")",
    )


@_RELAXED
@given(rows_of([*VALUES]))
def test_parquet_of_duckdb(tmp_path: Path, rows: Rows) -> None:
    check(rows, True, tmp_path, "r.parquet", "FORMAT parquet", "COPY r FROM '{}'")


@_RELAXED
@given(rows_of([*VALUES]))
def test_queries_over_files(tmp_path: Path, rows: Rows) -> None:
    check(rows, True, tmp_path, "r.parquet", "FORMAT parquet", "INSERT INTO r SELECT * FROM read_parquet('{}')")


@_RELAXED
@given(rows_of([*VALUES]))
def test_json_of_duckdb(tmp_path: Path, rows: Rows) -> None:
    rows = [
        tuple(None if isinstance(v, float) and not math.isfinite(v) else v for v in row) for row in rows
    ]  # JSON has none
    check(rows, True, tmp_path, "r.json", "FORMAT json", "COPY r FROM '{}'")


TEXTS = "CREATE TABLE r (id INT PRIMARY KEY, s TEXT, n INT DEFAULT 5);"


@pytest.mark.parametrize(
    ("data", "options", "rows"),
    [
        ("1\ta\\tb\\nc\\\\d\\x41\\101\t\\N\n2\t\\N\t7\n\\.\nrest", "FORMAT text", [(1, "a\tb\nc\\dAA", None), (2, None, 7)]),
        ("1|a\\|b|3\n", "FORMAT text, DELIMITER '|'", [(1, "a|b", 3)]),
        ("id\ts\tn\n1\t\t3\n", "FORMAT text, HEADER, NULL ''", [(1, None, 3)]),
        ("n,id\n3,1\n", "FORMAT csv, HEADER", [(1, None, 3)]),
        ("\ufeff1,x,\r\n\r\n2,\"\",3\r\n", "FORMAT csv", [(1, "x", None), (2, "", 3)]),
        ('{"id": 1, "s": "x"}\n\n{"n": null, "id": 2}\n', "FORMAT json", [(1, "x", None), (2, None, None)]),
        ('{"id": 1, "s": "x"}\n', "FORMAT json", [(1, "x", 5)]),
        ("", "FORMAT csv, HEADER", []),
        ("", "FORMAT text", []),
        ("", "FORMAT json", []),
    ],
)  # fmt: skip
def test_forms_of_text(tmp_path: Path, data: str, options: str, rows: Rows) -> None:
    (tmp_path / "f").write_bytes(data.encode())
    tables = Loaded(TEXTS)
    assert tables.do(f"COPY r FROM '{tmp_path}/f' WITH ({options})") == len(rows)
    assert tables.rows("r") == rows


@pytest.mark.parametrize(
    ("data", "options", "why"),
    [
        ("id,s\n1,a\n2,b\nx,c\n", "FORMAT csv, HEADER", 'f:4: column id: .*"?x'),
        ("id,s\n1,a\n2\n", "FORMAT csv, HEADER", "f:3: this record has 1 fields, and there are 2 columns"),
        ('id,s\n1,"a\nb"\n,c\n', "FORMAT csv, HEADER", "f:4: column id of r is NOT NULL"),
        ("1,a,1\n2,b,1\n1,c,1\n", "FORMAT csv", "f:3: r has a row with the key id = 1 already"),
        ("id,no\n1,a\n", "FORMAT csv, HEADER", "f: r has no column no"),
        ("id;s\n1;a\n", "FORMAT csv, HEADER", "f: its header names only one column, id;s"),
        ("s,id,n\n", "FORMAT csv, HEADER MATCH", "f: the header names s, id, n"),
        ("id,s\n1,\xff\n", "FORMAT csv, HEADER", "f:2: this is not UTF-8 text"),
        ("1\ta\n", "FORMAT text", "f:1: this row has 2 fields, and there are 3 columns"),
        ("1\ta\t\\xff\n", "FORMAT text", "f:1: this is not UTF-8 text"),
        ('{"id": 1}\n{"id": 2, "z": 1}\n', "FORMAT json", "f: r has no column z, which line 2 has"),
        ('{"id": 1}\nnull\n', "FORMAT json", "f:2: this line is not a JSON object"),
        ('{"id": 1}\n{"id": "x"}\n', "FORMAT json", "f:2: id"),
        ("PAR1", "FORMAT parquet", "f: this is not a Parquet file"),
        ("1\n", "FORMAT binary", "the format binary of COPY is not supported"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, options: str, why: str
) -> None:
    monkeypatch.setattr("flowql.topics.import_files.CHUNK_BYTES", 9)  # pieces of a row or two
    monkeypatch.setattr(table_files, "CHUNK_BYTES", 9)
    (tmp_path / "f").write_bytes(data.encode("latin-1"))
    tables = Loaded(TEXTS)
    with pytest.raises((RuntimeFailure, CommandError), match=why):
        tables.do(f"COPY r FROM '{tmp_path}/f' WITH ({options})")
    assert tables.rows("r") == []


@pytest.mark.parametrize(
    ("sql", "code", "why"),
    [
        ("COPY r FROM 'missing.csv'", "FQ3015", "cannot be read"),
        ("COPY r FROM 'f.what'", "FQ5010", "is this CSV, JSON lines or Parquet"),
        ("COPY r FROM STDIN", "FQ5010", "PostgreSQL's clients"),
        ("COPY r TO 'f.csv'", "FQ1901", "COPY ... TO"),
        ("COPY r FROM 'f.csv' WHERE id = 1", "FQ1901", "WHERE of COPY"),
        ("COPY r FROM 'f.csv' (FREEZE)", "FQ1901", "the option FREEZE of COPY"),
        ("COPY r FROM 'f.csv' (DELIMITER 'ab')", "FQ2090", "one ASCII character"),
        ("COPY r (no) FROM 'f.csv'", "FQ2002", "column no does not exist in r"),
        ("COPY clicks FROM 'f.csv'", "FQ2090", "it is over the topic clicks"),
        ("INSERT INTO r (id) SELECT id FROM read_csv('missing.csv')", "FQ5010", "INSERT INTO r: .*missing.csv"),
        ("INSERT INTO r (id) VALUES ((SELECT id FROM read_csv('missing.csv')))", "FQ5010", "INSERT INTO r: .*missing.csv"),
    ],
)  # fmt: skip
def test_statements_that_cannot_be_carried_out(sql: str, code: str, why: str) -> None:
    tables = Loaded(
        TEXTS + "CREATE STREAM clicks (k INT KEY) WITH (KAFKA_TOPIC='clicks', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )
    with pytest.raises((CommandError, CompileError), match=why) as refused:
        tables.do(sql)
    codes = (
        [d.code for d in refused.value.diagnostics] if isinstance(refused.value, CompileError) else [refused.value.code]
    )
    assert codes == [code]


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("1,1 day 2 hours\n2,PT90M\n3,\n4,{}\n", "FORMAT csv"),
        ("1\t1 day 2 hours\n2\tPT90M\n3\t\\N\n4\t{}\n", "FORMAT text"),
        ('{{"id": 1, "s": "1 day 2 hours"}}\n{{"id": 2, "s": "PT90M"}}\n{{"id": 3, "s": null}}\n{{"id": 4, "s": "{}"}}\n', "FORMAT json"),
    ],
)  # fmt: skip
def test_intervals_are_read_as_in_sql(tmp_path: Path, data: str, options: str) -> None:
    tables = Loaded("CREATE TABLE r (id INT PRIMARY KEY, s INTERVAL);")
    (tmp_path / "f").write_text(data.format("2 whiles"))
    with pytest.raises(RuntimeFailure, match=r'f:4: column s: .*interval: "2 whiles"'):
        tables.do(f"COPY r FROM '{tmp_path}/f' WITH ({options})")
    (tmp_path / "f").write_text(data.format("-1-2"))
    assert tables.do(f"COPY r FROM '{tmp_path}/f' WITH ({options})") == 4
    assert tables.rows("r") == [(1, "1 day 02:00:00"), (2, "01:30:00"), (3, None), (4, "-1 years -2 mons")]


def test_moments_are_not_rounded(tmp_path: Path) -> None:
    tables = Loaded("CREATE TABLE r (id INT PRIMARY KEY, t TIMESTAMP);")
    moments = [datetime(2024, 1, 1, 0, 0, 0, 1000 * i + (i == 2)) for i in range(3)]
    written([*enumerate(moments)], {"id": "INT", "t": "TIMESTAMP"}, tmp_path / "r.parquet", "FORMAT parquet")
    with pytest.raises(RuntimeFailure, match=r"r.parquet:3: column t: .* parts of a millisecond"):
        tables.do(f"COPY r FROM '{tmp_path}/r.parquet'")
    written([*enumerate(moments[:2])], {"id": "INT", "t": "TIMESTAMP"}, tmp_path / "r.parquet", "FORMAT parquet")
    assert tables.do(f"COPY r FROM '{tmp_path}/r.parquet'") == 2
