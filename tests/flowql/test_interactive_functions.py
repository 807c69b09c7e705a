"""Interactive queries call the project's scalar functions: in the instance, in the process that answers large interactive queries, and at rest."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import flowql
from flowql.config.functions import LoadError, load_query_functions
from flowql.deploy.functions import interactive_functions
from flowql.errors import CommandError, CompileError
from flowql.query import loading
from flowql.query.database import QueryDatabase
from flowql.query.errors import QueryError
from flowql.query.limits import QueryLimits
from flowql.query.pace import Pace
from flowql.query.query_process import QueryProcess
from flowql.query.session import answer
from flowql.runtime.functions.workers import end_idle_workers
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.server.on_runtime import RuntimeEngine
from tests.flowql.projects_with_modules import made, running, until
from tests.flowql.query.test_copies import small_chunks
from tests.runtime.app.harness import InstanceHarness

pytestmark = pytest.mark.turns("functions")

YAML = "name: shop\nfunctions: [prices]\nsql: [shop.sql]\n"
PRICES = """
from datetime import date, datetime, time
from decimal import Decimal
import os
import pyarrow as pa
import pyarrow.compute as pc
from flowql import udf, udaf

@udf
def net(amount: float, vat: float | None) -> float:
    if amount == 13.0:
        raise ValueError("13 is not an amount")
    return amount / (1 + (vat or 0.25))

@udf(isolation="inline")
def where_it_runs(a: int) -> int:
    return os.getpid()

@udf(vectorized=True)
def twice(a: pa.Int64Array) -> pa.Int64Array:
    return pc.multiply(a, 2)

@udf
def day_after(d: date) -> date:
    return date.fromordinal(d.toordinal() + 1)

@udf
def hour(t: time) -> int:
    return t.hour

@udf
def exact(d: Decimal) -> int:
    return int(d)
"""
SQL = """
CREATE STREAM S (K BIGINT KEY, V DOUBLE) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, SUM(V) AS V FROM S GROUP BY K;
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield made(tmp_path, YAML, SQL, prices=PRICES)
    end_idle_workers()


def failure(connection: flowql.Connection, sql: str) -> str:
    with pytest.raises(CommandError) as caught:
        connection.sql(sql).arrow()
    return str(caught.value)


def test_functions_are_called_in_interactive_queries_and_nothing_needs_to_be_deployed_for_it(folder: Path) -> None:
    with running(folder) as shop:
        shop.produce("S", [{"K": k, "V": float(v)} for k, v in ((1, 10), (2, 20), (3, 13))])
        until(lambda: shop.sql("SELECT COUNT(*) FROM T").one(), 3)
        found = shop.sql("SELECT K, net(V, NULL) AS N, NET(V, 1.0) AS H FROM T WHERE K < 3 ORDER BY net(V, 0.5) DESC")
        assert found.arrow().to_pylist() == [{"K": 2, "N": 16.0, "H": 10.0}, {"K": 1, "N": 8.0, "H": 5.0}]
        assert shop.sql("SELECT SUM(twice(K)) AS S FROM T").one() == 12
        assert shop.sql("SELECT where_it_runs(K) FROM T WHERE K = 1").one() != os.getpid()
        dates = "SELECT day_after(DATE '2026-02-28') AS D, hour(TIME '07:30:00') AS H, net(NULL, 1.0) AS N"
        (row,) = shop.sql(dates).arrow().to_pylist()
        assert (str(row["D"]), row["H"], row["N"]) == ("2026-03-01", 7, None)
        assert failure(shop, "SELECT net(V, NULL) FROM T").startswith(
            "a function failed: ValueError: 13 is not an amount"
        )
        assert "does not exist" in failure(shop, "SELECT nett(V) FROM T")
        assert "NET does not take these arguments: it takes (DOUBLE, DOUBLE)" in failure(shop, "SELECT net(V) FROM T")
        (folder / "prices.py").write_text(PRICES.replace("0.25", "1.0"))
        assert shop.sql("SELECT net(V, NULL) FROM T WHERE K = 1").one() == 5.0
        (folder / "prices.py").write_text("1 / 0")
        assert "prices: prices cannot be imported: ZeroDivisionError" in failure(shop, "SELECT net(V, NULL) FROM T")
        (folder / "prices.py").write_text(PRICES)
    assert flowql.connect(folder).sql("SELECT net(V, NULL) FROM T WHERE K = 1").one() == 8.0, "at rest"


OWN = """
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from flowql import udaf, udf, udtf

@dataclass
class Place:
    name: str
    opens: time | None

@udf
def always() -> float:
    return 1.5

@udf
def digits(d: Decimal) -> str:
    return str(d)

@udf
def place(name: str) -> Place:
    return Place(name, time(8))

@udf
def name_of(p: Place) -> str:
    return p.name

@udtf
def words(line: str) -> Iterator[str]:
    yield from line.split()

@udtf
def hours(n: int) -> list[time]:
    return [time(h) for h in range(n)]

@udaf
class Median:
    def init(self) -> list[float]:
        return []

    def add(self, seen: list[float], v: float) -> None:
        if v == 13.0:
            raise ValueError("13 is not measured")
        seen.append(v)

    def undo(self, seen: list[float], v: float) -> None:
        seen.remove(v)

    def result(self, seen: list[float]) -> float | None:
        return sorted(seen)[len(seen) // 2] if seen else None

@udaf
class Trace:
    def init(self) -> list[str]:
        return []

    def add(self, seen: list[str], d: Decimal | None, at: datetime | None) -> None:
        seen.append(f"{d} {at}")

@udaf(timeout=0.2)
class Stuck:
    def init(self) -> int:
        return 0

    def add(self, n: int, v: int) -> int:
        while True:
            pass

@udaf
class Calls:
    def init(self) -> int:
        return 0

    def add(self, n: int) -> int:
        return n + 1
"""


def test_own_aggregates_and_table_functions_give_what_deployed_queries_give(tmp_path: Path) -> None:
    """MEDIAN is a function of DuckDB, too, which takes the mean of the two in the middle."""
    sql = """
CREATE STREAM S (K BIGINT KEY, V DOUBLE, W STRING, D DECIMAL(9, 2), T TIMESTAMP)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE TOLD AS SELECT W, MEDIAN(V) AS M, TRACE(D, T) AS R, COUNT(*) AS N FROM S GROUP BY W;
CREATE STREAM PARTS AS SELECT K, WORDS(W) AS X, HOURS(K) AS H FROM S;
CREATE STREAM PLACED AS SELECT K, PLACE(W) AS P FROM S;
"""
    with running(made(tmp_path, YAML, sql, prices=OWN)) as shop:
        rows = [
            {"K": k, "V": None if k == 4 else k * 7.0 % 5, "W": "ab c"[k % 2 * 2 :], "D": Decimal(k) / 2, "T": 1000 * k}
            for k in range(8)
        ]
        shop.produce("S", rows)
        until(lambda: shop.sql("SELECT SUM(N) FROM TOLD").one(), 8)
        for asked, deployed in (
            ("W, MEDIAN(V) AS M, TRACE(D, T) AS R, COUNT(*) AS N FROM S GROUP BY W", "W, M, R, N FROM TOLD"),
            ("W, MEDIAN(V) + 1 AS M FROM S GROUP BY W HAVING MEDIAN(V) < 100", "W, M + 1 AS M FROM TOLD"),
            ("K, WORDS(W) AS X, HOURS(K) AS H FROM S", "K, X, H FROM PARTS"),
            ("K, PLACE(W) AS P FROM S", "K, P FROM PLACED"),
        ):
            found, wanted = (sorted(map(str, shop.sql(f"SELECT {q}").arrow().to_pylist())) for q in (asked, deployed))
            assert found == wanted, asked
        for asked, value in (
            ("MEDIAN(V) FROM S WHERE K < 0", None),
            ("MEDIAN(DISTINCT V) FROM S", 2.0),
            ("MEDIAN(V) FILTER (WHERE V > 2) FROM S", 4.0),
            ("TRACE(D, NULL ORDER BY K DESC) FILTER (WHERE K < 2) FROM S", ["0.50 None", "0.00 None"]),
            ("TRACE(DISTINCT 10 * (K % 2), NULL) FROM S", ["0 None", "10 None"]),
            ("MAX(m) FROM (SELECT W, MEDIAN(DISTINCT V) AS m FROM S GROUP BY ROLLUP (W))", 2.0),
            ("CALLS() FROM S", 8),
            ("COUNT(*) FROM S, WORDS(W) AS x(w), HOURS(K)", 40),
            ("ALWAYS()", 1.5),
            ("DIGITS(1.50) || DIGITS(7)", "1.507"),
            ("DIGITS(NULL)", None),
            ("COUNT(*) FROM WORDS(NULL)", 0),
            ("NAME_OF(PLACE('x')) || PLACE('y').name", "xy"),
            ("STRING_AGG(w, ',') FROM WORDS('a b') AS t(w)", "a,b"),
        ):
            assert shop.sql(f"SELECT {asked}").one() == value, asked
        for asked, column in (("MEDIAN(DISTINCT V) FROM S", "MEDIAN(DISTINCT V)"), ("* FROM WORDS('a')", "WORDS")):
            assert shop.sql(f"SELECT {asked}").arrow().column_names == [column]
        assert shop.sql("EXPLAIN SELECT MEDIAN(V) FILTER (WHERE V > 1) FROM S").arrow().num_rows
        for asked, why, help_ in (
            ("SELECT MEDIAN(V) OVER (PARTITION BY W) FROM S", "MEDIAN is an aggregate of the project", "GROUP BY"),
            ("PIVOT S ON W IN ('a') USING MEDIAN(V)", "MEDIAN is an aggregate of the project", "FILTER"),
            ("SELECT MEDIAN(DISTINCT V ORDER BY V) FROM S", "MEDIAN has DISTINCT and ORDER BY", "leave ORDER BY out"),
            ("SELECT MEDIAN(W) FROM S", "MEDIAN does not take these arguments: it takes (DOUBLE)", "CAST"),
            ("SELECT MEDIAN(V, DISTINCT W) FROM S", "syntax error", ""),
            ("SELECT MEDIAN(DISTINCT V, W) FROM S", "MEDIAN does not take these arguments", "CAST"),
            ("SELECT DIGITS(V) FROM S", "DIGITS does not take these arguments: it takes (DECIMAL)", "CAST"),
            ("SELECT * FROM WORDS(1)", "WORDS does not take these arguments: it takes (STRING)", "CAST"),
            ("SELECT K FROM S WHERE WORDS(W) = 'a'", "WORDS gives several rows", "FROM WORDS"),
            ("SELECT * FROM WORD('a')", "there is no table function word", "did you mean `WORDS`?"),
            ("SELECT * FROM DIGITS(1.0)", "DIGITS gives one value, and FROM takes rows", "SELECT DIGITS"),
            ("SELECT * FROM read_csv('/etc/passwd')", "read_csv() is refused: files", "flowql topic import"),
            ("SELECT MEDIAN(V + 13) FROM S", "a function failed: ValueError: 13 is not measured", ""),
            ("SELECT STUCK(K) FROM S", "it did not return within 0.2 s", ""),
        ):
            with pytest.raises(QueryError) as caught:
                shop.sql(asked).arrow()
            assert why in caught.value.title, asked
            assert help_ in caught.value.help, asked
            assert "@prices" not in str(caught.value), asked


def test_own_aggregates_of_the_standard_dialect_take_rows_in_the_order_of_their_values(tmp_path: Path) -> None:
    sql = """
CREATE TABLE s (k BIGINT PRIMARY KEY, g BIGINT, v DOUBLE PRECISION, d NUMERIC(9, 2));
CREATE VIEW told AS SELECT g, median(DISTINCT v) AS m, median(v) FILTER (WHERE k > 2) AS high, trace(d, NULL) AS r,
  trace(d, NULL ORDER BY k DESC) AS back FROM s GROUP BY g;
"""
    with running(made(tmp_path, YAML + "dialect: standard\n", sql, prices=OWN)) as shop:
        values = ", ".join(
            f"({k}, {k % 2}, {k * 7 % 5}, {'NULL' if k == 2 else 20 - 3.5 * k})" for k in (5, 1, 3, 0, 2, 4)
        )
        shop.execute(f"INSERT INTO s VALUES {values}")
        until(lambda: shop.sql("SELECT COUNT(*) FROM told").one(), 2)
        asked = (
            "SELECT g, median(DISTINCT v) AS m, median(v) FILTER (WHERE k > 2) AS high, trace(d, NULL) AS r, "
            "trace(d, NULL ORDER BY k DESC) AS back FROM s GROUP BY g ORDER BY g"
        )
        found = shop.sql(asked).arrow().to_pylist()
        assert found == shop.sql("SELECT * FROM told ORDER BY g").arrow().to_pylist()
        assert found[0]["r"] == ["6.00 None", "20.00 None", "None None"]
        assert shop.sql("SELECT median(12.0)").one() == 12.0, "DuckDB refuses to order by a constant"


def test_they_are_found_where_a_deployment_alone_knows_the_variables(tmp_path: Path) -> None:
    """MEDIAN would be DuckDB's otherwise, without a word."""
    yaml = "name: ${NAME}\nfunctions: {}\nsql: [shop.sql]\n"
    for functions, found in (("prices", {"NET"}), ("[prices, other]", {"NET"}), ("5", set()), ("[", set())):
        folder = made(tmp_path / "shop", yaml.replace("{}", functions), SQL, prices=PRICES, other="")
        assert interactive_functions(str(folder)).keys() & {"NET"} == found
    (folder / "flowql.yaml").unlink()
    assert interactive_functions(str(folder)) == {}


def test_push_queries_call_them(folder: Path) -> None:
    """All of them: also aggregates, table functions, and those with types that have no column."""
    more = PRICES + "\n@udaf\nclass Most:\n    def init(self) -> float | None:\n        return None\n\n"
    more += "    def add(self, m: float | None, v: float) -> float:\n        return v if m is None else max(m, v)\n"
    (folder / "prices.py").write_text(more)
    with running(folder) as shop:
        shop.produce("S", [{"K": k, "V": float(v)} for k, v in ((1, 10), (2, 13), (3, 20))])
        until(lambda: shop.sql("SELECT COUNT(*) FROM T").one(), 3)
        asked = "SELECT K, net(V, 1.0) AS N, exact(CAST(V AS DECIMAL(9, 2))) AS E FROM S EMIT CHANGES LIMIT 3"
        with shop.subscribe(asked, start="earliest") as changes:
            assert [c.row for c in changes] == [
                {"K": 1, "N": 5.0, "E": 10},
                {"K": 2, "N": None, "E": 13},
                {"K": 3, "N": 10.0, "E": 20},
            ]
        asked = "SELECT K % 2 AS ODD, most(V) AS M FROM S GROUP BY K % 2 EMIT CHANGES"
        with shop.subscribe(asked, start="earliest") as changes:
            last = {}
            for change in changes:
                last[change.row["ODD"]] = change.row["M"]
                if last == {1: 20.0, 0: 13.0}:
                    break
        (folder / "prices.py").write_text("1 / 0")
        with pytest.raises(CompileError, match="ZeroDivisionError"):
            shop.subscribe("SELECT net(V, 1.0) AS N FROM S EMIT CHANGES")
        with shop.subscribe("SELECT K FROM S EMIT CHANGES LIMIT 1", start="earliest") as changes:
            assert [c.row for c in changes] == [{"K": 1}]


def test_many_interactive_queries_at_once_call_them(folder: Path) -> None:
    """A function that one connection created is not freed with it."""
    database = QueryDatabase()
    functions = interactive_functions(str(folder))
    for n in range(20):
        connections = [database.connection() for _ in range(3)]
        for connection in connections:
            database.offer(functions["NET"], connection)
        connections[0].close()
        for connection in connections[1:]:
            found = connection.sql(f"SELECT net(r, {n + 1.0}) AS n FROM range(5000) t(r) WHERE r <> 13").fetchall()
            assert found == [(r / (n + 2.0),) for r in range(5000) if r != 13]
            connection.close()
    database.close()


def test_the_process_that_answers_large_interactive_queries_calls_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(loading, "CONTENDED_S_MAX", -1.0)
    monkeypatch.setattr(QueryLimits, "registered_bytes", 1)
    monkeypatch.setattr(Pace, "rest", Pace.end)
    monkeypatch.setattr(StateSnapshot, "chunks", small_chunks(StateSnapshot.chunks))
    asked: list[str] = []
    real = QueryProcess.ask
    monkeypatch.setattr(QueryProcess, "ask", lambda self, *given: (asked.append("process"), real(self, *given))[1])
    physical = open_rocks(tmp_path / "state")
    with InstanceHarness(SQL, physical=physical, data_dir=tmp_path, threads=1) as world:
        world.send("s", [(k, {"V": k * 10.0}, k) for k in range(100)])
        world.settle()
        engine = RuntimeEngine(world.instance)
        database = QueryDatabase()
        ask = partial(answer, database=database, functions=partial(interactive_functions, str(folder)))
        found = ask("SELECT SUM(net(V, 1.0)) AS N FROM T", engine.take, copied=engine.take_copied).table()
        assert found.to_pylist() == [{"N": sum(k * 5.0 for k in range(100))}]
        with pytest.raises(QueryError, match="a function failed: ValueError: 13 is not an amount"):
            ask("SELECT SUM(net(V + 3, 1.0)) AS N FROM T", engine.take, copied=engine.take_copied)
        database.close()
        physical.close()
    assert len(asked) == 2


def test_modules_are_imported_again_only_when_a_file_of_them_has_changed(tmp_path: Path) -> None:
    folder = made(tmp_path, YAML, "", prices=PRICES + "from rates.eu import RATE\n", other="")
    (folder / "rates").mkdir()
    (folder / "rates" / "eu.py").write_text("RATE = 1\n")
    first = load_query_functions(folder, ["prices"])
    assert load_query_functions(folder, ["prices"]) is first
    assert "rates" not in sys.modules, "another project may have a folder of that name"
    assert load_query_functions(folder, ["prices", "other"]).keys() == first.keys()

    stat = (folder / "rates" / "eu.py").stat()
    (folder / "rates" / "eu.py").write_text("RATE = 2\n")
    os.utime(folder / "rates" / "eu.py", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    second = load_query_functions(folder, ["prices"])
    assert second["NET"].key != first["NET"].key

    (folder / "rates" / "__init__.py").write_text("")
    third = load_query_functions(folder, ["prices"])
    assert third["NET"].key not in (first["NET"].key, second["NET"].key)

    (folder / "rates" / "eu.py").unlink()
    with pytest.raises(LoadError, match="No module named"):
        load_query_functions(folder, ["prices"])


def test_replies_of_a_process_that_a_function_forks_are_those_of_no_other_call(tmp_path: Path) -> None:
    source = "import os\nfrom flowql import udf\n"
    source += "@udf\ndef forks(a: int) -> int:\n    os.fork()\n    return a\n@udf\ndef twice(a: int) -> int:\n    return 2 * a\n"
    source += "@udf(asynchronous=True)\nasync def later(a: int) -> int:\n    os.fork()\n    return a\n"
    functions = load_query_functions(made(tmp_path, YAML, "", prices=source), ["prices"])

    def value(name: str, a: int) -> int:
        return int(functions[name].call([pa.array([a])])[0].as_py())

    assert [value(name, a) for a in range(3) for name in ("FORKS", "TWICE", "LATER")] == [0, 0, 0, 1, 2, 1, 2, 4, 2]
    end_idle_workers()


def test_moments_of_any_precision_are_timestamps_and_texts_are_none(tmp_path: Path) -> None:
    source = (
        "from datetime import datetime\nfrom flowql import udf\n@udf\ndef f(t: datetime) -> str:\n    return str(t)\n"
    )
    database, functions = QueryDatabase(), load_query_functions(made(tmp_path, YAML, "", prices=source), ["prices"])
    connection = database.connection()
    database.offer(functions["F"], connection)
    asked = "SELECT f(TIMESTAMP '2026-01-01 01:02:03.456'), f(TIMESTAMPTZ '2026-01-01 01:02:03+02'), f(DATE '2026-01-01'), f(NULL)"
    found = ("2026-01-01 01:02:03.456000", "2025-12-31 23:02:03", "2026-01-01 00:00:00", None)
    assert connection.sql(asked).fetchall() == [found]
    with pytest.raises(duckdb.Error, match="not for F"):
        connection.sql("SELECT f('2026-01-01')").fetchall()
    with pytest.raises(duckdb.Error, match=r"takes a TIMESTAMP in milliseconds: write  CAST\(... AS TIMESTAMP\(3\)\)"):
        connection.sql("SELECT f(TIMESTAMP '2026-01-01 01:02:03.456789')").fetchall()  # it was cut
    connection.close()
    database.close()
    end_idle_workers()
