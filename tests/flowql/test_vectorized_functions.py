"""Vectorised functions of a project: the same results for one row, for many, and where the function fails."""

from __future__ import annotations

from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowql.compiler.functions.registry import Function, register_of_project
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.plan.types import DOUBLE
from flowql.config.compile import compile_sources
from flowql.config.functions import load_functions
from flowql.config.load import load_project
from flowql.runtime.functions.workers import FunctionFailed
from flowql.runtime.operators.kernels import INPUT, compute
from tests.flowql.projects_with_modules import made, running, until
from tests.registries import forget_projects

pytestmark = pytest.mark.turns("functions")

YAML = "name: shop\nfunctions: [fast]\nsql: [shop.sql]\n"
FAST = """
from typing import Annotated
import pyarrow as pa
import pyarrow.compute as pc
from flowql import udf

CALLS = []

@udf(vectorized=True)
def net(amount: pa.DoubleArray, rate: pa.DoubleArray) -> pa.DoubleArray:
    CALLS.append(len(amount))
    if pc.any(pc.equal(amount, 13.0)).as_py():
        raise ValueError("13 is not an amount")
    return pc.divide(amount, pc.add(rate, 1.0))

@udf(vectorized=True)
def size(text: pa.StringArray) -> pa.Int64Array:
    return pc.utf8_length(text)

@udf(vectorized=True)
def same_day(d: pa.Date32Array) -> pa.Date32Array:
    return d

@udf(vectorized=True)
def same_time(t: pa.Time32Array) -> pa.Time32Array:
    return t

@udf(vectorized=True)
def same_ts(t: pa.TimestampArray) -> pa.TimestampArray:
    return t

@udf(vectorized=True)
def same_bytes(b: pa.BinaryArray) -> pa.BinaryArray:
    return b

@udf(vectorized=True)
def no(b: pa.BooleanArray) -> pa.BooleanArray:
    return pc.invert(b)

@udf(vectorized=True)
def doubled(l: Annotated[pa.ListArray, list[float]]) -> Annotated[pa.ListArray, list[float]]:
    return pa.ListArray.from_arrays(l.offsets, pc.multiply(l.values, 2.0), mask=l.is_null() if l.offset == 0 else None)

@udf(vectorized=True)
def items(l: Annotated[pa.ListArray, list[str]]) -> pa.Int64Array:
    return pc.list_value_length(l)

@udf(vectorized=True)
def parts(text: pa.StringArray) -> Annotated[pa.ListArray, list[str]]:
    return pc.utf8_split_whitespace(text)

@udf(vectorized=True)
def calls(amount: pa.DoubleArray) -> pa.Int64Array:
    return pa.array([len(amount)] * len(amount))
"""
SQL = """
CREATE STREAM I (K BIGINT KEY, A DOUBLE, R DOUBLE, S STRING, D DATE, T TIME, TS TIMESTAMP, B BOOLEAN, L ARRAY<DOUBLE>, W ARRAY<STRING>)
  WITH (KAFKA_TOPIC = 'i', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM O AS SELECT K, net(A, R) AS N, size(S) + 1 AS Z, same_day(D) AS D, same_time(T) AS T, same_ts(TS) AS TS,
  same_bytes(TO_BYTES(S, 'utf8')) AS BYTES, no(B) AS B, doubled(L) AS L, items(W) AS W, parts(S) AS P, CASE WHEN A > 50 THEN net(A, 0.0) END AS HIGH FROM I WHERE A IS NULL OR A < 20 OR net(A, R) > 0;
CREATE STREAM SIZES AS SELECT K, calls(A) AS C FROM I;
"""


def row(i: int) -> dict[str, Any]:
    return {
        "K": i,
        "A": None if i % 7 == 0 else 13.0 if i == 100 else float(i % 90 + 20),
        "R": 0.25,
        "S": None if i % 5 == 0 else "é" * (i % 4),
        "D": date(2026, 1, 1 + i % 28),
        "T": time(1, 2, i % 60, 4_000),
        "TS": datetime(2026, 1, 1, 2, 3, i % 60, 5_000),
        "B": None if i % 3 == 0 else i % 2 == 0,
        "L": (None, [], [float(i), None, 0.5])[i % 3],
        "W": (None, [], ["é", None])[i % 3],
    }


def expected(i: int) -> dict[str, Any]:
    given = row(i)
    a, s = given["A"], given["S"]
    fails = a is None or a == 13.0
    return {
        "K": i,
        "N": None if fails else a / 1.25,
        "Z": None if s is None else len(s) + 1,
        "D": given["D"],
        "T": given["T"],
        "TS": given["TS"],
        "BYTES": None if s is None else s.encode(),
        "B": None if given["B"] is None else not given["B"],
        "L": (None, [], [2.0 * i, None, 1.0])[i % 3],
        "W": (None, 0, 2)[i % 3],
        "P": None if s is None else [s],
        "HIGH": a if a is not None and a > 50 else None,
    }


@pytest.mark.parametrize("at_once", [1, 300], ids=["row-by-row", "batches"])
def test_rows_and_columns_give_the_same(tmp_path: Path, at_once: int) -> None:
    """A batch with a record for which the function fails goes through it row by row: one dead letter, and no row less."""
    count = 300
    made(tmp_path, YAML, SQL, fast=FAST)
    with running(tmp_path) as instance:
        for start in range(0, count, 1 if at_once == 1 else count):
            instance.produce("I", [row(i) for i in range(start, start + at_once)])
            if at_once == 1 and start >= 101:
                break
        sent = count if at_once > 1 else 102
        until(lambda: instance.sql("SELECT COUNT(*) FROM O").one(), sent)
        columns = "K, N, Z, D, T, TS, BYTES, B, L, W, P, HIGH"
        found = instance.sql(f"SELECT {columns} FROM O ORDER BY K").arrow().to_pylist()
        assert [{k: v.replace(tzinfo=None) if isinstance(v, datetime) else v for k, v in r.items()} for r in found] == [
            expected(i) for i in range(sent)
        ]
        (letter,) = instance.sql("SELECT FAILURES FROM DEAD_LETTERS").arrow().to_pylist()
        assert "13 is not an amount" in str(letter)
        if at_once > 1:
            assert instance.sql("SELECT MAX(C) FROM SIZES").one() > 16, "it was called with columns"


def test_another_one_of_that_name_replaces_what_statements_call(tmp_path: Path) -> None:
    """A version that its author gives names both."""
    source = "import pyarrow as pa\nimport pyarrow.compute as pc\nfrom flowql import udf\n"
    source += '@udf(vectorized=True, version="1")\ndef twice(a: pa.DoubleArray) -> pa.DoubleArray:\n    return pc.{}(a, 2.0)\n'
    batch = pa.RecordBatch.from_pydict({"a": [1.0, None, 3.0]})
    try:
        for number, (part, expected) in enumerate([("multiply", [2.0, None, 6.0]), ("add", [3.0, None, 5.0])]):
            (tmp_path / "m.py").write_text(source.format(part) + "#" * number)
            register_of_project(load_functions(tmp_path, ["m"])["TWICE"])
            for _ in range(2):
                (column,) = compute(f'SELECT "TWICE@m:1"(a) AS c0 FROM {INPUT}', batch, [DOUBLE])
                assert column.to_pylist() == expected
    finally:
        forget_projects()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return 1", "it returned int, which is not an Arrow array"),
        ("return a.slice(1)", "it returned 0 values for 1"),
        ("return a.cast(pa.string())", "it returned string, but double is declared"),
        ("raise SystemExit", "F raised SystemExit"),
    ],
)
def test_what_is_no_column_is_a_failure(tmp_path: Path, body: str, error: str) -> None:
    (tmp_path / "m.py").write_text(
        f"import pyarrow as pa\nfrom flowql import udf\n@udf(vectorized=True)\ndef f(a: pa.DoubleArray) -> pa.DoubleArray:\n    {body}\n"
    )
    function = load_functions(tmp_path, ["m"])["F"]
    assert isinstance(function, Function)
    with pytest.raises(FunctionFailed, match=error):
        function.reference(Resolution((), DOUBLE))(1.0)


@pytest.mark.parametrize(
    ("source", "title"),
    [
        (
            "def f(a: float) -> pa.DoubleArray: ...",
            "F has the annotation float, which is not an Arrow array of a SQL type",
        ),
        ("def f(a: pa.DoubleArray) -> pa.ListArray: ...", "F takes or gives a pa.ListArray"),
        (
            "def f(a: Annotated[pa.ListArray, float]) -> pa.Int64Array: ...",
            "F takes or gives a pa.ListArray, and does not say of what",
        ),
        (
            "def f(a: pa.StructArray) -> pa.Int64Array: ...",
            "F takes or gives a pa.StructArray, and does not say of what",
        ),
        (
            "def f(a: Annotated[pa.MapArray, list[int]]) -> pa.Int64Array: ...",
            "F takes or gives a pa.MapArray, and does not say of what",
        ),
        ("def f() -> pa.DoubleArray: ...", "F takes no array"),
        ("def f(a: pa.DoubleArray): ...", "F does not say the type of its result"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, source: str, title: str) -> None:
    module = (
        f"from typing import Annotated\nimport pyarrow as pa\nfrom flowql import udf\n@udf(vectorized=True)\n{source}\n"
    )
    made(tmp_path, "name: x\nfunctions: m\n", "", m=module)
    (found,) = (d for d in compile_sources(load_project(tmp_path)).diagnostics if d.code == "FQ3012")
    assert title in found.title
