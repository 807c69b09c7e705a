"""`flowql state` at a live instance and at a stopped one: the same answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from flowql.config.load import load_project
from flowql.deploy.settings import settings_of
from flowql.server.host import Host
from tests.flowql.cli.program import CommandResult, Program
from tests.flowql.query.harness import plan_of

SQL = """
CREATE STREAM S (K STRING KEY, REGION STRING, V INT)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE BY_K AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
CREATE TABLE BY_V AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
CREATE TABLE HOURLY WITH (KEY_FORMAT = 'JSON') AS
  SELECT REGION, K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY REGION, K;
"""
ROWS = "".join(
    f"INSERT INTO S (K, REGION, V, ROWTIME) VALUES ('{k}', '{region}', {v}, {hour * 3_600_000});\n"
    for k, region, v, hour in [("ann", "n", 1, 0), ("ann", "n", 2, 1), ("anton", "s", 1, 1), ("bea", "n", 10, 2)]
)
COUNTED = "SELECT sum(N) AS n FROM (SELECT N FROM BY_K UNION ALL SELECT N FROM BY_V UNION ALL SELECT N FROM HOURLY)"
WAIT_S = 60.0
HOUR = 3_600_000


class State:
    def __init__(self, flowql: Program, folder: Path) -> None:
        self._flowql, self._folder = flowql, folder

    def __call__(self, *arguments: str) -> CommandResult:
        return self._flowql("state", *arguments, "-p", str(self._folder))

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        said = self(*arguments, "-o", "json")
        assert said.code == 0, said.err
        found: list[dict[str, object]] = json.loads(said.out)
        return found


@pytest.fixture(scope="module", params=["live", "stopped"])
def folder_with_state(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project whose instance runs in this process, or has been stopped; all rows are counted."""
    folder = tmp_path_factory.mktemp("state")
    (folder / "flowql.yaml").write_text("name: demo\nsql: [demo.sql]\n")
    (folder / "demo.sql").write_text(SQL + ROWS)
    host = Host(settings_of(load_project(folder)))
    host.start()
    try:
        host.service.deploy(plan_of(SQL + ROWS))
        limit = time.monotonic() + WAIT_S
        while host.service.query(COUNTED).table().to_pylist() != [{"n": 12}]:
            assert time.monotonic() < limit
        if request.param == "stopped":
            host.close()
        yield folder
    finally:
        host.close()


@pytest.fixture
def state(flowql: Program, folder_with_state: Path) -> State:
    return State(flowql, folder_with_state)


def test_stores_and_what_they_hold(state: State) -> None:
    found = state.rows("ls")
    by_name = {r["STORE"]: r for r in found}
    counted = {name: r["ROWS"] for name, r in by_name.items() if "aggregate" in str(name)}
    assert counted == {"CTAS_BY_K-aggregate-1": 3, "CTAS_BY_V-aggregate-1": 3, "CTAS_HOURLY-aggregate-1": 4}
    assert all(int(str(r["BYTES"])) > 10 * int(str(r["ROWS"])) for r in found)
    assert {r["QUERY"] for r in found} == {"CTAS_BY_K", "CTAS_BY_V", "CTAS_HOURLY"}
    assert "CTAS_BY_K-aggregate-1" in state("ls").out


def test_rows_by_key(state: State) -> None:
    assert state.rows("get", "BY_K", "ann") == [{"K": "ann", "N": 2}]
    assert state.rows("get", "by_v", "10") == [{"V": 10, "N": 1}]
    windows = [(r["WINDOWSTART"], r["N"]) for r in state.rows("get", "HOURLY", "n", "ann")]
    assert sorted(windows, key=str) == [(0, 1), (HOUR, 1)]
    missing = state("get", "BY_K", "zoe")
    assert (missing.code, missing.err) == (1, "(none)\n")


@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (["BY_K"], ["ann", "anton", "bea"]),
        (["BY_K", "--prefix", "an"], ["ann", "anton"]),
        (["BY_K", "--from", "anton"], ["anton", "bea"]),
        (["BY_K", "--from", "anton", "--to", "bea"], ["anton"]),
        (["BY_K", "ann"], ["ann"]),
        (["HOURLY", "n"], ["ann", "ann", "bea"]),
        (["HOURLY", "n", "--prefix", "b"], ["bea"]),
        (["HOURLY", "--from", "s"], ["anton"]),
        (["HOURLY", "--window-from", str(HOUR), "--window-to", str(2 * HOUR)], ["ann", "anton"]),
        (["HOURLY", "n", "--window-from", "1970-01-01T02:00:00Z"], ["bea"]),
        (["HOURLY", "n", "--window-to", "1970-01-01T01:00:00"], ["ann"]),
    ],
)
def test_ranges(state: State, arguments: list[str], keys: list[str]) -> None:
    assert sorted(str(r["K"]) for r in state.rows("scan", *arguments)) == keys


def test_numbers_are_compared_as_numbers(state: State) -> None:
    assert sorted(str(r["V"]) for r in state.rows("scan", "CTAS_BY_V-aggregate-1", "--from", "2")) == ["10", "2"]
    assert len(state.rows("scan", "BY_V", "--limit", "2")) == 2


def test_a_store_as_a_file(state: State, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    said = state("export", "HOURLY", "-o", str(file))
    assert (said.code, said.err) == (0, f"4 rows of HOURLY in {file}\n")
    assert sorted(pyarrow.parquet.read_table(file)["K"].to_pylist()) == ["ann", "ann", "anton", "bea"]
    assert len(state("export", "BY_K", "-o", "csv").out.splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["get", "NOPE", "a"], "FQ5103"),
        (["get", "S", "a"], "FQ5103"),
        (["get", "HOURLY", "n"], "FQ5107"),
        (["get", "BY_V", "ten"], "FQ5107"),
        (["scan", "BY_K", "a", "b"], "FQ5107"),
        (["scan", "BY_K", "a", "--from", "b"], "FQ5107"),
        (["scan", "BY_V", "--prefix", "1"], "FQ5107"),
        (["scan", "BY_K", "--window-from", "0"], "FQ5107"),
        (["scan", "HOURLY", "--window-from", "noon"], "FQ5107"),
    ],
)
def test_mistakes(state: State, arguments: list[str], code: str) -> None:
    said = state(*arguments)
    assert (said.code, said.out) == (1, "")
    assert code in said.err


STANDARD = """
CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount NUMERIC(10, 2), at TIMESTAMPTZ)
  WITH (kafka_topic = 'orders', partitions = 1, value_format = 'JSON');
CREATE MATERIALIZED VIEW hourly AS SELECT window_start AS hour, SUM(amount) AS spent, customer
  FROM TUMBLE(orders, at, INTERVAL '1 hour') GROUP BY customer, window_start;
CREATE MATERIALIZED VIEW spent AS SELECT customer, SUM(amount) AS spent FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW sums AS SELECT SUM(amount) AS spent FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW customers AS SELECT DISTINCT customer FROM orders;
CREATE MATERIALIZED VIEW large AS SELECT amount, id FROM orders WHERE amount > 5;
INSERT INTO orders VALUES
  (1, 'ada', 3, '2026-01-01 09:10:00+00'), (2, 'ada', 9, '2026-01-01 10:00:00+00'), (3, 'eve', 4, '2026-01-01 09:00:00+00');
"""


def test_the_key_of_a_standard_view_is_the_columns_that_show_it(flowql: Program, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [p.sql]\ndialect: standard\n")
    (tmp_path / "p.sql").write_text(STANDARD)
    assert flowql("run", "--until-caught-up", "-p", str(tmp_path)).code == 0
    state = State(flowql, tmp_path)
    assert [float(str(r["spent"])) for r in state.rows("get", "spent", "ada")] == [12]
    (at_nine,) = state.rows("get", "hourly", "ada", "2026-01-01T09:00:00Z")
    assert (at_nine["customer"], float(str(at_nine["spent"]))) == ("ada", 3)
    assert sorted(float(str(r["spent"])) for r in state.rows("scan", "hourly", "ada")) == [3, 9]
    assert state.rows("get", "customers", "eve") == [{"customer": "eve"}]
    assert [r["id"] for r in state.rows("get", "large", "2")] == [2]
    assert "the key of hourly is customer, hour" in state("get", "hourly", "ada").err
    assert "sums shows no column of its key" in state("get", "sums", "ada").err
    assert "__0" not in state("scan", "sums", "ada").err
