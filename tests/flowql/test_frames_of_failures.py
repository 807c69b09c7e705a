"""The dead letter of a record that a function of the project fails for names the lines of the module that it came through."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flowql.runtime.functions.failures import described, frames_of
from tests.flowql.projects_with_modules import made, running, until

MODULE = """
from collections.abc import Iterator
import pyarrow as pa
from flowql import StreamsBuilder, fixed, udaf, udf, udtf

def divide(a):
    return 1 // a

@udf
def isolated(a: int) -> int:
    return divide(a)

@udf(isolation="inline")
def in_engine(a: int) -> int:
    return divide(a)

@udf(vectorized=True)
def over_columns(a: pa.Int64Array) -> pa.Int64Array:
    return pa.array([divide(x) for x in a.to_pylist()])

@udtf
def many(a: int) -> Iterator[int]:
    yield divide(a)

@udf(asynchronous=True, retry=fixed(0.01, attempts=2))
async def waited(a: int) -> int:
    return divide(a)

@udaf(isolation="{}")
class Sum:
    def init(self) -> int:
        return 0

    def add(self, total: int, a: int) -> int:
        return total + divide(a)

streams = StreamsBuilder("S")
streams.stream("I").filter(lambda i: divide(i["A"]) >= 0).to("F")
"""
SQL = """
CREATE STREAM I (K BIGINT KEY, A BIGINT) WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM O1 AS SELECT K, ISOLATED(A) AS V FROM I;
CREATE STREAM O2 AS SELECT K, IN_ENGINE(A) AS V FROM I;
CREATE STREAM O3 AS SELECT K, OVER_COLUMNS(A) AS V FROM I;
CREATE STREAM O4 AS SELECT K, MANY(A) AS V FROM I;
CREATE STREAM O5 AS SELECT K, WAITED(A) AS V FROM I;
CREATE TABLE O6 AS SELECT K, SUM_OF(A) AS V FROM I GROUP BY K;
"""
PLACES = {
    "CSAS_O1": "m.py:11 isolated",
    "CSAS_O2": "m.py:15 in_engine",
    "CSAS_O3": "m.py:19 over_columns, m.py:19 <listcomp>" if sys.version_info < (3, 12) else "m.py:19 over_columns",
    "CSAS_O4": "m.py:23 many",
    "CSAS_O5": "m.py:27 waited",
    "CTAS_O6": "m.py:35 add",
    "CSAS_F": "m.py:38 <lambda>",
}


def test_dead_letters_of_all_kinds_of_functions_name_the_lines(tmp_path: Path) -> None:
    module = MODULE.format("process").replace("class Sum", "class Sum_of")
    made(tmp_path, "name: x\nfunctions: m\nsql: [shop.sql]\n", SQL, m=module)
    with running(tmp_path) as instance:
        instance.produce("I", [{"K": 1, "A": 0}])
        letters = "SELECT FAILURES FROM DEAD_LETTERS"
        until(lambda: sum(len(r["FAILURES"]) for r in instance.sql(letters)), len(PLACES))
        failures = {f["QUERY"]: f["MESSAGE"] for r in instance.sql(letters) for f in r["FAILURES"]}
    for query, place in PLACES.items():
        assert failures[query].endswith(f" ({place}, m.py:7 divide)"), failures[query]


def test_failures_of_built_in_functions_name_no_lines() -> None:
    """Neither the standard library's nor those of installed packages are lines of the user."""
    with pytest.raises(ValueError, match="Expecting property name") as caught:
        json.loads("{")
    trace = caught.value.__traceback__
    assert trace is not None
    assert frames_of(caught.value).startswith(" (test_frames_of_failures.py:"), "this test is not part of the library"
    assert described(caught.value.with_traceback(trace.tb_next)) == f"JSONDecodeError: {caught.value}"
