"""Functions over STRUCT and MAP: dataclasses and `msgspec.Struct`s in annotations, as values and as Arrow arrays."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest

import flowql
from flowql.compiler.plan.types import STRING, struct
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from tests.flowql.projects_with_modules import made, running, until

pytestmark = pytest.mark.turns("functions")
MODULE = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from flowql import udf, udtf

@dataclass
class Point:
    lat: float
    lon: float

class Stop(msgspec.Struct):
    at: datetime | None
    days: list[date]
    hours: dict[str, time]

@dataclass
class Leg:
    start: Point
    stops: list[Stop]

Points = Annotated[pa.StructArray, Point]

@udf(vectorized=True)
def north(p: Points, by: pa.DoubleArray) -> Points:
    if pc.any(pc.equal(by, 13.0)).as_py():
        raise ValueError("13 is not north")
    return pa.StructArray.from_arrays([pc.add(p.field("lat"), by), p.field("lon")], names=["lat", "lon"], mask=p.is_null())

@udf(vectorized=True, isolation="inline")
def stays(s: Annotated[pa.StructArray, Stop]) -> Annotated[pa.StructArray, Stop]:
    return s

@udf(vectorized=True)
def same(m: Annotated[pa.MapArray, dict[str, float]]) -> Annotated[pa.MapArray, dict[str, float]]:
    return m

@udf(vectorized=True)
def legs(ps: Annotated[pa.ListArray, list[Point]]) -> Annotated[pa.ListArray, list[Point]]:
    return ps

@udf(vectorized=True)
def sizes(p: Points) -> pa.Int64Array:
    return pa.array([len(p)] * len(p))

@udf
def between(a: Point, b: Point | None) -> float:
    return abs(a.lat - (b.lat if b else 0.0))

@udf(isolation="inline")
def leg(p: Point, s: Stop) -> Leg:
    return Leg(p, [Stop(s.at, sorted(s.days), s.hours), s])

@udf(asynchronous=True)
async def later(p: Point) -> Point:
    return Point(p.lat + 1.0, p.lon)

@udtf
def corners(ps: list[Point]) -> Iterator[Point]:
    yield from ps
"""
TOWN = """
import msgspec
from flowql import udf

class Town(msgspec.Struct):
    cityName: str

@udf
def town(k: int) -> Town:
    return Town(str(k))
"""
KSQL = """
CREATE STREAM I (K BIGINT KEY, BY_ DOUBLE, P STRUCT<LON DOUBLE, NAME STRING, LAT DOUBLE>, M MAP<STRING, DOUBLE>,
    PS ARRAY<STRUCT<LON DOUBLE, LAT DOUBLE>>, S STRUCT<DAYS ARRAY<DATE>, AT TIMESTAMP, HOURS MAP<STRING, TIME>>)
  WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM O AS SELECT K, NORTH(P, BY_) AS N, NORTH(P, 1.0)->LAT AS LAT, STAYS(S) AS S, SAME(M) AS M, LEGS(PS) AS PS, BETWEEN_(P, NULL) AS D,
  LEG(P, S)->STOPS[1]->HOURS AS HOURS, LEG(P, S)->START AS START FROM I;
CREATE STREAM V AS SELECT K, SIZES(P) AS N, NORTH(P, 1.0) AS P, STAYS(S)->DAYS AS DAYS, SAME(M) AS M, LEGS(PS) AS PS FROM I;
CREATE STREAM LATE AS SELECT K, LATER(P) AS P FROM I;
CREATE STREAM CORNERS_OF AS SELECT K, CORNERS(PS)->LAT AS LAT FROM I WHERE PS IS NOT NULL;
""".replace("BETWEEN_(", "`BETWEEN`(")


def row(i: int) -> dict[str, Any]:
    stop = {
        "DAYS": [date(2026, 1, 2), date(2026, 1, 1)],
        "AT": datetime(2026, 1, 1, 2, 3, i % 60),
        "HOURS": {"a": time(1, 2, 3)},
    }
    return {
        "K": i,
        "BY_": 13.0 if i == 100 else 0.5,
        "P": None if i % 5 == 0 else {"LON": float(i), "NAME": "x", "LAT": i / 2},
        "M": (None, {}, {"é": float(i), "n": None})[i % 3],
        "PS": (None, [], [{"LON": 1.0, "LAT": float(i)}, None])[i % 3],
        "S": None if i % 7 == 0 else stop,
    }


def expected(i: int) -> dict[str, Any]:
    given = row(i)
    p, s, ps = given["P"], given["S"], given["PS"]
    return {
        "K": i,
        "N": (p and i != 100 and {"LAT": p["LAT"] + 0.5, "LON": p["LON"]}) or None,
        "LAT": p and p["LAT"] + 1.0,
        "S": s and {"AT": s["AT"], "DAYS": s["DAYS"], "HOURS": s["HOURS"]},
        "M": given["M"],
        "PS": ps and [x and {"LAT": x["LAT"], "LON": x["LON"]} for x in ps],
        "D": p and p["LAT"],
        "HOURS": p and s and s["HOURS"],
        "START": p and s and {"LAT": p["LAT"], "LON": p["LON"]},
    }


def rows(instance: flowql.Connection, sql: str) -> list[dict[str, Any]]:
    return [plain(r) for r in instance.sql(sql).arrow().to_pylist(maps_as_pydicts="strict")]


def plain(value: Any) -> Any:
    """Times without their zone."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


@pytest.mark.parametrize("at_once", [1, 300], ids=["row-by-row", "batches"])
def test_rows_and_columns_give_the_same(tmp_path: Path, at_once: int) -> None:
    made(tmp_path, "name: shop\nfunctions: [m]\nsql: [shop.sql]\n", KSQL, m=MODULE)
    sent = 300 if at_once > 1 else 25
    with running(tmp_path) as instance:
        for start in range(0, sent, at_once):
            instance.produce("I", [row(i) for i in range(start, start + at_once)])
        until(lambda: instance.sql("SELECT COUNT(*) FROM O").one(), sent)
        found = rows(instance, "SELECT K, N, LAT, S, M, PS, D, HOURS, START FROM O ORDER BY K")
        assert found == [expected(i) for i in range(sent)]
        until(lambda: instance.sql("SELECT COUNT(*) FROM V").one(), sent)
        for i, v in enumerate(rows(instance, "SELECT P, DAYS, M, PS FROM V ORDER BY K")):
            p, s = row(i)["P"], row(i)["S"]
            assert v["P"] == (p and {"LAT": p["LAT"] + 1.0, "LON": p["LON"]})
            assert (v["DAYS"], v["M"], v["PS"]) == (s and s["DAYS"], expected(i)["M"], expected(i)["PS"])
        if at_once > 1:
            assert instance.sql("SELECT MAX(N) FROM V").one() > 16, "they were called with columns"
        until(lambda: instance.sql("SELECT COUNT(*) FROM LATE").one(), sent)
        late = rows(instance, "SELECT P FROM LATE ORDER BY K")
        assert [r["P"] and r["P"]["LAT"] for r in late] == [row(i)["P"] and i / 2 + 1 for i in range(sent)]
        corners = rows(instance, "SELECT K, LAT FROM CORNERS_OF ORDER BY K, LAT NULLS LAST")
        assert [(r["K"], r["LAT"]) for r in corners] == [(i, x) for i in range(2, sent, 3) for x in (float(i), None)]
        letters = [f for r in instance.sql("SELECT FAILURES FROM DEAD_LETTERS") for f in r["FAILURES"]]
        assert [("13 is not north" in f["MESSAGE"]) for f in letters] == [True] * (sent > 100)
        asked = (
            "SELECT north(P, 1.0).lat AS LAT, same(M) AS M, stays(S).days AS DAYS, legs(PS) AS PS FROM I WHERE K = 2"
        )
        (answer,) = rows(instance, asked)
        assert (answer["LAT"], answer["M"], answer["DAYS"]) == (2.0, row(2)["M"], row(2)["S"]["DAYS"])
        assert answer["PS"] == [{"LAT": 2.0, "LON": 1.0}, None]


@pytest.mark.parametrize(("dialect", "name"), [("ksql", "CITYNAME"), ("standard", "cityname")])
def test_names_of_fields_fold_as_the_dialect_does(tmp_path: Path, dialect: str, name: str) -> None:
    sql = """
    CREATE TABLE t (k BIGINT PRIMARY KEY) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1, VALUE_FORMAT = 'JSON');
    CREATE TABLE v AS SELECT k, town(k) AS n FROM t;
    """
    made(tmp_path, f"name: shop\ndialect: {dialect}\nfunctions: [m]\nsql: [shop.sql]\n", sql, m=TOWN)
    compiled = compile_sources(load_project(tmp_path))
    assert compiled.ok, compiled.diagnostics
    assert compiled.plan.sources[-1].schema.fields[-1].type == struct((name, STRING))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("NORTH(M, BY_)", "it takes NORTH(STRUCT<lat DOUBLE, lon DOUBLE>, DOUBLE)"),
        ("NORTH(S, BY_)", "it takes NORTH(STRUCT<lat DOUBLE, lon DOUBLE>, DOUBLE)"),
        ("SAME(P)", "it takes SAME(MAP<STRING, DOUBLE>)"),
    ],
)
def test_arguments_without_the_fields_are_refused(tmp_path: Path, call: str, says: str) -> None:
    sql = KSQL.partition("CREATE STREAM O")[0] + f"CREATE STREAM X AS SELECT K, {call} AS V FROM I;"
    made(tmp_path, "name: shop\nfunctions: [m]\nsql: [shop.sql]\n", sql, m=MODULE)
    (found,) = compile_sources(load_project(tmp_path)).diagnostics
    assert (found.code, found.help) == ("FQ2005", says)
