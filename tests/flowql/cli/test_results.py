"""Answers as files and pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import typer

from flowql.api.result import Result
from flowql.cli.options import Output
from flowql.cli.results import destination, write_answer
from flowql.query.answer import Answer
from flowql.query.errors import QueryError

TABLE = pa.table({"K": ["a", None, "long enough"], "N": [1, 22, None]})


def answer() -> Answer:
    return Answer(TABLE.schema, (b for b in TABLE.to_batches(1)))


def read(file: Path) -> pa.Table:
    match file.suffix:
        case ".parquet":
            return pyarrow.parquet.read_table(file)
        case ".arrow":
            return pa.ipc.open_stream(file.read_bytes()).read_all()
        case ".csv":
            return pyarrow.csv.read_csv(file, convert_options=pyarrow.csv.ConvertOptions(strings_can_be_null=True))
        case _:
            return pa.Table.from_pylist(json.loads(file.read_text()), TABLE.schema)


@pytest.mark.parametrize("form", [o for o in Output if o is not Output.TABLE])
def test_a_file_holds_what_was_answered(form: Output, tmp_path: Path) -> None:
    file = tmp_path / f"rows.{form.value}"
    assert destination([str(file)], Output.TABLE) == (form, file)
    assert write_answer(answer(), form, file) == 3
    assert read(file).to_pylist() == TABLE.to_pylist()
    assert [f.name for f in tmp_path.iterdir()] == [file.name]


def test_an_answer_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("as before\n")

    def batches() -> Iterator[pa.RecordBatch]:
        yield TABLE.to_batches(1)[0]
        raise QueryError("no more of it")

    for form in (Output.CSV, Output.PARQUET):
        with pytest.raises(QueryError):
            write_answer(Answer(TABLE.schema, (b for b in batches())), form, file)
    assert file.read_text() == "as before\n"
    assert [f.name for f in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], (Output.JSON, None)),
        (["csv"], (Output.CSV, None)),
        (["csv", "rows.txt"], (Output.CSV, Path("rows.txt"))),
        (["rows.txt", "parquet"], (Output.PARQUET, Path("rows.txt"))),
        (["ROWS.PARQUET"], (Output.PARQUET, Path("ROWS.PARQUET"))),
    ],
)
def test_formats_and_files_are_told_apart(given: list[str], expected: tuple[Output, Path | None]) -> None:
    assert destination(given, Output.JSON) == expected


@pytest.mark.parametrize("given", [["rows.txt"], ["csv", "json"], ["a.csv", "b.csv"], ["xml"]])
def test_what_says_too_little_or_too_much_is_refused(given: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        destination(given, Output.TABLE)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_bytes_are_kept_from_terminals(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(typer.BadParameter, match="not for a terminal"):
        destination([form], Output.TABLE)
    assert destination([form, f"x.{form}"], Output.TABLE)[1] == Path(f"x.{form}")


def test_a_long_table_is_aligned_and_shows_what_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    write_answer(answer(), Output.TABLE)
    assert capsys.readouterr().out == "K               N\na               1\nNULL           22\nlong enough  NULL\n"


def test_a_text_of_several_lines_stays_in_its_column(capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table({"A": ["x\ny", "東京"], "B": ["1", "2"]})
    write_answer(Answer(table.schema, (b for b in table.to_batches())), Output.TABLE)
    assert capsys.readouterr().out == "A     B\nx     1\ny\n東京  2\n"


def test_times_that_python_does_not_hold_are_shown_as_texts(capsys: pytest.CaptureFixture[str]) -> None:
    far = [-62_167_222_800_000, 506_000_000_000_000, 0, None]
    table = pa.table(
        {
            "MS": pa.array(far, pa.timestamp("ms")),
            "US": pa.array([None if ms is None else ms * 1000 + 1 for ms in far], pa.timestamp("us", "UTC")),
            "D": pa.array([-1_000_000, 10_000_000, 0, None], pa.date32()),
            "NEAR": pa.array([0, 0, 0, 1], pa.timestamp("ms")),
        }
    )
    write_answer(Answer(table.schema, iter(table.to_batches())), Output.CSV)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "-0001-12-31T23:00:00.000Z,-0001-12-31T23:00:00.000001Z,-0768-02-04,1970-01-01T00:00:00.000Z",
        "18004-07-02T11:33:20.000Z,18004-07-02T11:33:20.000001Z,29349-01-26,1970-01-01T00:00:00.000Z",
        "1970-01-01T00:00:00.000Z,1970-01-01T00:00:00.000001Z,1970-01-01,1970-01-01T00:00:00.000Z",
        ",,,1970-01-01T00:00:00.001Z",
    ]
    with pytest.raises(QueryError, match="after the year 9999"):
        list(Result(table))
    nested = pa.table({"A": [far[:2]]}, schema=pa.schema([("A", pa.list_(pa.timestamp("ms")))]))
    with pytest.raises(QueryError, match="after the year 9999"):
        write_answer(Answer(nested.schema, iter(nested.to_batches())), Output.JSON)
