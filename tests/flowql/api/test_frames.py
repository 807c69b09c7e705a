"""Frames of other libraries: answers as polars frames, and frames of any library as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from threading import Thread
from time import sleep
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import flowql

SQL = """
CREATE STREAM VALUES_OF_ALL_TYPES (ID BIGINT KEY, OK BOOLEAN, SMALL INT, RATIO DOUBLE, PRICE DECIMAL(10, 2), LONGEST DECIMAL(38, 10),
    NAME STRING, RAW BYTES, DAY DATE, CLOCK TIME, MOMENT TIMESTAMP, SIZES ARRAY<INT>, TEXTS ARRAY<ARRAY<STRING>>, COUNTS MAP<STRING, INT>,
    PLACE STRUCT<X INT, TAGS ARRAY<STRING>>, POINTS MAP<STRING, STRUCT<P DECIMAL(4, 1)>>)
  WITH (KAFKA_TOPIC = 'all', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
"""
TYPES: dict[str, Any] = {
    "ID": pl.Int64,
    "OK": pl.Boolean,
    "SMALL": pl.Int32,
    "RATIO": pl.Float64,
    "PRICE": pl.Decimal(10, 2),
    "LONGEST": pl.Decimal(38, 10),
    "NAME": pl.String,
    "RAW": pl.Binary,
    "DAY": pl.Date,
    "CLOCK": pl.Time,
    "MOMENT": pl.Datetime("ms"),
    "SIZES": pl.List(pl.Int32),
    "TEXTS": pl.List(pl.List(pl.String)),
    "COUNTS": pl.Map(pl.String, pl.Int32),
    "PLACE": pl.Struct({"X": pl.Int32, "TAGS": pl.List(pl.String)}),
    "POINTS": pl.Map(pl.String, pl.Struct({"P": pl.Decimal(4, 1)})),
}
ROW: dict[str, Any] = {
    "ID": 1,
    "OK": True,
    "SMALL": -(2**31),
    "RATIO": 0.1,
    "PRICE": Decimal("-12345678.90"),
    "LONGEST": Decimal("1234567890123456789012345678.0123456789"),
    "NAME": "Zoë 🦊",
    "RAW": b"\x00\xff",
    "DAY": date(1582, 10, 15),
    "CLOCK": time(23, 59, 59, 999_000),
    "MOMENT": datetime(1969, 12, 31, 23, 59, 59, 999_000),
    "SIZES": [1, None, 3],
    "TEXTS": [["a", None], None, []],
    "COUNTS": {"x": 1, "y": None},
    "PLACE": {"X": 7, "TAGS": ["a", None]},
    "POINTS": {"p": {"P": Decimal("0.5")}, "q": None},
}
EMPTY: dict[str, Any] = {
    **dict.fromkeys(TYPES),
    "ID": 2,
    "NAME": "",
    "RAW": b"",
    "SIZES": [],
    "TEXTS": [],
    "COUNTS": {},
    "PLACE": {"X": None, "TAGS": None},
    "POINTS": {},
}
NULLS: dict[str, Any] = {**dict.fromkeys(TYPES), "ID": 3}
ROWS = [ROW, EMPTY, NULLS]
ALL = f"SELECT {', '.join(TYPES)} FROM VALUES_OF_ALL_TYPES WHERE ID < 10 ORDER BY ID"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[flowql.Connection]:
    folder = tmp_path_factory.mktemp("frames")
    (folder / "flowql.yaml").write_text("name: frames\nsql: [frames.sql]\n")
    (folder / "frames.sql").write_text(SQL)
    with flowql.Instance(folder) as instance:
        assert instance.connection.produce("VALUES_OF_ALL_TYPES", pl.DataFrame(ROWS, schema=TYPES)) == 3
        yield instance.connection


def test_a_polars_frame_comes_back_as_it_went_in(project: flowql.Connection) -> None:
    found = project.sql(ALL)
    frame = found.pl()
    assert dict(frame.schema) == TYPES
    assert frame.rows(named=True) == ROWS
    assert list(found) == ROWS, "the same values as those of Arrow"


@pytest.mark.parametrize("query", [f"{ALL} LIMIT 0", "SELECT NULL AS X", "SELECT 1 AS A, 2 AS A"])
def test_a_frame_of_any_shape(project: flowql.Connection, query: str) -> None:
    found = project.sql(query)
    frame = found.pl()
    assert frame.shape == (found.arrow().num_rows, found.arrow().num_columns)
    assert frame.columns == found.columns


class Exported:
    """What a library shows of its frames: Arrow's PyCapsule interface and nothing else."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch


class Stream(Exported):
    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_stream__(requested_schema)


class Array(Exported):
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def produced(project: flowql.Connection, column: str, rows: Any, *ids: int) -> list[Any]:
    """What is in a column of the rows of these ids after `rows` are written."""
    assert project.produce("VALUES_OF_ALL_TYPES", rows) == len(ids)
    found = project.sql(f"SELECT ID, {column} AS X FROM VALUES_OF_ALL_TYPES WHERE ID IN {(*ids, 0)} ORDER BY ID")
    assert [row["ID"] for row in found] == list(ids)
    return [row["X"] for row in found]


@pytest.mark.parametrize("kind", [Stream, Array])
def test_frames_of_any_library_with_the_interface_of_arrow(project: flowql.Connection, kind: type[Exported]) -> None:
    ids = [10, 11] if kind is Stream else [12, 13]
    batch = pa.record_batch({"id": ids, "price": pa.array([Decimal("1.5"), None], pa.decimal128(3, 1))})
    assert produced(project, "PRICE", kind(batch), *ids) == [Decimal("1.50"), None]


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["a", "b"])])
def test_categories_of_polars_are_texts(project: flowql.Connection, kind: Any) -> None:
    ids = [20, 21, 22] if kind is pl.Categorical else [23, 24, 25]
    frame = pl.DataFrame({"id": ids, "name": ["b", None, "a"]}, schema={"id": pl.Int64, "name": kind})
    assert produced(project, "NAME", frame, *ids) == ["b", None, "a"]


def test_a_time_zone_of_polars_is_a_moment(project: flowql.Connection) -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    frame = pl.DataFrame({"id": [30], "moment": [moment]}).with_columns(
        pl.col("moment").dt.convert_time_zone("Asia/Tokyo")
    )
    assert produced(project, "MOMENT", frame, 30) == [moment.replace(tzinfo=None)]


def test_rows_taken_out_of_a_pandas_frame_have_an_index_that_is_no_column(project: flowql.Connection) -> None:
    frame = pd.DataFrame({"id": [40, 41], "name": ["x", "y"]})
    assert produced(project, "NAME", frame[frame["name"] == "y"], 41) == ["y"]
    named = pd.DataFrame({"id": [42, 43], "name": ["x", "y"]}).set_index("id")
    assert produced(project, "NAME", named, 42, 43) == ["x", "y"]


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        (pl.DataFrame({"prize": [1]}), flowql.CommandError, "has no column prize"),
        (pl.DataFrame({"small": [2**40]}), flowql.CommandError, "column SMALL of VALUES_OF_ALL_TYPES is INT"),
        (pl.DataFrame({"clock": [time(1, 2, 3, 4)]}), flowql.CommandError, "CLOCK of .* would lose data"),
        (pl.DataFrame({"counts": [{"x": 1}]}), flowql.CommandError, "column COUNTS of .* is MAP<STRING, INT>"),
        (pl.DataFrame({"id": [1]}, schema={"id": pl.Int128}), flowql.CommandError, "DataFrame is not a table of Arrow"),
        (pl.Series("id", [1]), flowql.CommandError, "Series is not a table of Arrow"),
        (pl.LazyFrame({"id": [1]}), TypeError, "rows are dicts or a frame, not LazyFrame"),
        (7, TypeError, "rows are dicts or a frame, not int"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_and_nothing_is_written(
    project: flowql.Connection, rows: Any, error: type[Exception], says: str
) -> None:
    before = project.sql("SELECT COUNT(*) FROM VALUES_OF_ALL_TYPES").one()
    with pytest.raises(error, match=says):
        project.produce("VALUES_OF_ALL_TYPES", rows)
    assert project.sql("SELECT COUNT(*) FROM VALUES_OF_ALL_TYPES").one() == before


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"small": 1.5}, "a value of column small does not fit INT: 1.5 is not a whole number"),
        ({"sizes": [1, 2.5]}, "does not fit ARRAY<INT>: 2.5 is not a whole number"),
        ({"ratio": True}, "does not fit DOUBLE: True is not a number"),
        ({"day": datetime(2026, 1, 1, 13)}, "does not fit DATE: 2026-01-01 13:00:00 has a time of day"),
        ({"place": {"X": 1, "TAGZ": []}}, "it has no field TAGZ"),
        ({"place": {"X": 1, "x": 2}}, "it has the field X twice"),
        ({"points": {"a": {"Q": 1}}}, "it has no field Q"),
        ({"name": "\ud800"}, "half of a surrogate pair"),
        ({"price": 1.5}, r"does not fit DECIMAL\(10, 2\)"),
        ({"id": 1, "ID": 2}, "the rows have the columns id and ID, which are one column"),
        (pa.table([[1], [2]], names=["id", "ID"]), "the rows have the columns id and ID"),
        (pl.DataFrame({"place": [{"x": 1}]}), "column PLACE of .*: it has no field x"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "Duplicate column names"),
    ],
    ids=str,
)
def test_no_value_is_cut_off_and_no_field_left_out(project: flowql.Connection, row: Any, says: str) -> None:
    with pytest.raises(flowql.CommandError, match=says):
        project.produce("VALUES_OF_ALL_TYPES", row)


def test_fields_of_dicts_are_found_whatever_their_case(project: flowql.Connection) -> None:
    row = {"id": 77, "small": 3.0, "day": datetime(2026, 1, 2), "place": {"x": 5, "tags": None}, "counts": [("a", 1)]}
    assert project.produce("VALUES_OF_ALL_TYPES", row) == 1
    (found,) = project.sql("SELECT SMALL, DAY, PLACE, COUNTS FROM VALUES_OF_ALL_TYPES WHERE ID = 77")
    assert found == {"SMALL": 3, "DAY": date(2026, 1, 2), "PLACE": {"X": 5, "TAGS": None}, "COUNTS": {"a": 1}}


def test_arguments_of_another_type_are_named(project: flowql.Connection) -> None:
    """They fail where they are given, and not somewhere inside."""
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: project.sql(None), "query is a string, not NoneType"),
        (lambda: list(project.batches(5)), "query is a string, not int"),
        (lambda: project.execute(b""), "statements is a string, not bytes"),
        (lambda: project.subscribe(None), "what is a string, not NoneType"),
        (lambda: project.subscribe("X", start="now"), "start is 'latest' or 'earliest', not 'now'"),
        (lambda: project.subscribe("X", limit="5"), "limit is a whole number, not str"),
        (lambda: project.subscribe("X", limit=-1), "limit is a number of changes, not -1"),
        (lambda: project.produce(None, []), "name is a string, not NoneType"),
        (lambda: project.produce("X", [], timestamp=5), "timestamp is a string, not int"),
        (lambda: project.produce("VALUES_OF_ALL_TYPES", [{1: 2}]), "names of columns are strings, not int"),
        (lambda: project.pause(None), "each of the names is a string, not NoneType"),
        (lambda: flowql.connect(None), "project is a folder or a URL, not NoneType"),
        (lambda: flowql.connect(".", variables={"A": 1}), "the variable A is a string, not int"),
        (lambda: flowql.Instance(".", variables=["A=1"]), "variables is a dict of strings, not list"),
    ]
    for call, says in calls:
        with pytest.raises((TypeError, ValueError), match=says):
            call()
    with pytest.raises(flowql.CommandError, match="EMIT CHANGES asks for changes"):
        project.sql("SELECT ID FROM VALUES_OF_ALL_TYPES EMIT CHANGES")


def test_a_closed_subscription_gives_nothing_and_another_thread_is_told(project: flowql.Connection) -> None:
    with project.subscribe("VALUES_OF_ALL_TYPES", start="earliest") as changes:
        assert next(iter(changes)).op == "insert"
    changes.close()
    assert list(changes) == []
    waiting = project.subscribe("VALUES_OF_ALL_TYPES")
    found: list[Any] = []
    thread = Thread(target=lambda: found.append(list(waiting)))
    thread.start()
    while not waiting._iterating.locked():
        sleep(0.01)
    with pytest.raises(RuntimeError, match="another thread iterates this subscription"):
        next(waiting)
    waiting.close()
    thread.join(10)
    assert found == [[]]
