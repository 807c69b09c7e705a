"""The corpus of standard streaming SQL as a test: what passed once keeps passing. Skipped where the corpus is not there.

`FLOWQL_SLT` names its folder of cases; else the folder `shared/slt/cases` beside the project is looked for.
`python -m tests.slt.passing DIR` adds to the list.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flowql.compiler.plan.topology import Plan
from tests.slt.__main__ import data_of, load, summary
from tests.slt.passing import passing
from tests.slt.rows import difference, inserts, normalised, rendered
from tests.slt.runner import ACCEPTED, INTERNAL, REFUSED, WRONG, run_case
from tests.slt.session import Shape, SqlSession

SAMPLE = 10  # cases that the test runs, up to some seconds each: others from run to run
BUSY_S = 120  # for a statement beside other tests: some load thousands of rows
SOURCE = "create table t (id int primary key, v int) with (kafka_topic = 't', value_format = 'json', partitions = 1)"
VIEW = "create materialized view mv as select id, v + 1 as w from t"


def corpus() -> Path:
    """The folder of cases. The project must not contain them, so a test that needs them is left out where they are not."""
    named = os.environ.get("FLOWQL_SLT")
    folder = Path(named) if named else Path(__file__).parents[3] / "shared" / "slt" / "cases"
    if not folder.is_dir():
        pytest.skip("the corpus of standard SQL is not here (set FLOWQL_SLT)")
    return folder


def test_what_passed_keeps_passing() -> None:
    folder = corpus()
    known = sorted(passing())
    turns = os.environ["TURNS"]
    print(f"TURNS={turns}")
    drawn = set(known if turns == "all" else random.Random(turns).sample(known, min(SAMPLE, len(known))))
    cases = [c for c in load(folder) if c["id"] in drawn]
    assert len(cases) == len(drawn)
    failed = {r.id: r.failures[0] for c in cases if not (r := run_case(c, data_of(folder), step_s=BUSY_S)).passed}
    assert failed == {}


def case(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"id": "case", "tier": "core", "steps": list(steps)}


def statement(sql: str, expect: str = "ok", **more: Any) -> dict[str, Any]:
    return {"kind": "statement", "sql": sql, "expect": expect, **more}


def query(sql: str, *rows: str, sort: str = "rowsort") -> dict[str, Any]:
    return {"kind": "query", "sql": sql, "rows": list(rows), "sort": sort}


@pytest.mark.parametrize("vector", [None, True, False])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_view_over_rows_before_and_after_it_passes(vector: bool | None, partitions: int) -> None:
    made = case(
        statement(SOURCE),
        statement("insert into t (id, v) values (1, 10), (2, 20)"),
        statement(VIEW),
        statement("insert into t (id, v) values (2, 25), (3, 30)"),
        query("select id, w from mv", "3 31", "1 11", "2 26"),
        query("select id, w from mv order by id", "1 11", "2 26", "3 31", sort="nosort"),
    )
    result = run_case(made, Path(), Shape(vector, partitions))
    assert (result.failures, result.queries) == ([], [2, 2])


def test_each_class_of_failure_is_named() -> None:
    made = case(
        statement(SOURCE),
        statement(VIEW),
        query("select id, w from mv", "1 1"),
        statement("select 1", "error"),
        statement("select a from t union select b from t where"),
        {"kind": "no such kind"},
    )
    result = run_case(made, Path())
    assert [(f.step, f.kind) for f in result.failures] == [(2, WRONG), (4, REFUSED), (5, INTERNAL)]
    assert [(f.step, f.kind) for f in result.unrefused] == [(3, ACCEPTED)]
    assert summary([result])["failures"][0]["class"] == WRONG


def test_an_error_counts_only_where_it_is_the_users() -> None:
    wrong = statement("create materialized view mv as select nothing from t", "error")
    assert run_case(case(statement(SOURCE), wrong), Path()).errors == [1, 1]
    not_built = statement("create materialized view mv as select id, v from t natural join t", "error")
    assert run_case(case(statement(SOURCE), not_built), Path()).errors == [0, 1]
    after_failure = case(statement("create table u (no such type)"), wrong)
    assert run_case(after_failure, Path()).errors == [0, 1]


def test_a_view_that_no_query_runs_is_an_error_of_the_runner() -> None:
    """DuckDB must never be what computes a view."""
    world = SqlSession(Shape())
    try:
        world.execute(SOURCE)
        world.execute(VIEW)
        world._deploy(Plan(sources=world._session.plan.sources))
        with pytest.raises(AssertionError, match="no query runs that makes mv"):
            world.ask("select * from t")
    finally:
        world.close()


def test_rows_are_written_as_postgres_writes_them() -> None:
    table = pa.table(
        {
            "b": pa.array([True, None]),
            "d": pa.array([Decimal("1.50"), Decimal("0.00")]),
            "f": pa.array([2.0, float("nan")]),
            "s": pa.array(["a  b", ""]),
            "t": pa.array([dt.datetime(2022, 1, 31, 8), dt.datetime(2022, 1, 31, 8, 0, 0, 1000)]),
            "x": pa.array([b"1", b""]),
            "l": pa.array([[[1], [2]], [None]], pa.list_(pa.list_(pa.int32()))),
            "r": pa.array([{"a": 2, "b": {"c": 1, "d": None}}, None]),
        }
    )
    assert [normalised(r) for r in rendered(table)] == [
        't 1.5 2 a b 2022-01-31 08:00:00 \\x31 {{1},{2}} (2,"(1,)")',
        "NULL 0 NaN (empty) 2022-01-31 08:00:00.001 \\x {NULL} NULL",
    ]


def test_order_counts_only_where_it_is_asked_for() -> None:
    assert difference(["1", "2"], ["2", "1"], ordered=False) == ""
    assert difference(["1", "2"], ["2", "1"], ordered=True) == "row 0 is '2', expected '1'"
    assert difference([], ["1"], ordered=False) == "1 rows, expected 0"


def test_rows_to_load_become_inserts() -> None:
    made = inserts("t", ["a", "b"], [[1, "it's"], [None, Decimal("1.0")]], at_once=1)
    assert made == ["INSERT INTO t (a, b) VALUES (1, 'it''s')", "INSERT INTO t (a, b) VALUES (NULL, 1.0)"]
