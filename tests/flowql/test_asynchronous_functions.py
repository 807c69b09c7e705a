"""Asynchronous functions in SQL: rows do not wait for each other, and results are those of the same functions called one after the other.

The hazards that KIP-311 names have tests with their names: WAW, RAW, retry, delay, prefix.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import flowql
from flowql.compiler.functions.asynchronous import RetryAfter
from flowql.config.compile import compile_sources
from flowql.config.load import load_project
from flowql.runtime.functions import workers
from flowql.testing.suite import load, run_all
from tests.flowql.projects_with_modules import made, resumed, running, state_of, until

pytestmark = pytest.mark.turns("functions")

YAML = "name: shop\nfunctions: [calls]\nsql: [shop.sql]\n"
ORDERS = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID BIGINT, MS BIGINT)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
CALLS = '''
import asyncio, os, signal, time
from datetime import timedelta
from pathlib import Path
from flowql import RetryAfter, exponential, fixed, udf

STARTED = []

def note(text):
    with open(Path(__file__).parent / "calls.log", "a") as log:
        print(text, file=log)

@udf(asynchronous=True)
async def together(id: int) -> int:
    """Returns when fifty calls are under way at once."""
    STARTED.append(id)
    while len(STARTED) < 50:
        await asyncio.sleep(0.01)
    return id

@udf(asynchronous=True)
async def slowly(id: int, ms: int) -> int:
    note(f"slowly {id}")
    await asyncio.sleep(ms / 1000)
    return id

@udf(asynchronous=True, order="input")
async def in_order(id: int, ms: int) -> int:
    await asyncio.sleep(ms / 1000)
    return id

@udf(asynchronous=True, order="none", isolation="inline")
def blocking(id: int, ms: int) -> int:
    time.sleep(ms / 1000)
    return id

@udf(asynchronous=True, retry=exponential(0.02, attempts=3))
async def failing(id: int) -> int | None:
    note(f"failing {id}")
    if id % 2:
        raise ValueError(f"there is no order {id}")
    return id

@udf(asynchronous=True, retry=exponential(0.02, attempts=3), isolation="inline")
async def at_third(id: int) -> int:
    STARTED.append(id)
    if STARTED.count(id) < 3:
        raise ConnectionError("the service is away")
    return STARTED.count(id)

@udf(asynchronous=True, isolation="inline")
async def later(id: int) -> int:
    STARTED.append(id)
    if STARTED.count(id) < 2:
        raise RetryAfter(timedelta(milliseconds=300))
    return STARTED.count(id)

@udf(asynchronous=True, timeout=1)
async def harmful(id: int, ms: int) -> int:
    if ms == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if ms == 2:
        time.sleep(60)
    if ms == 3:
        len(bytearray(10 << 30))
    if ms == 4:
        raise SystemExit
    await asyncio.sleep(0.02)
    return id
'''


def project(folder: Path, sql: str, calls: str = CALLS) -> Path:
    return made(folder / "shop", YAML, ORDERS + sql, calls=calls)


def order(id_: int, ms: int = 0, customer: str | None = None) -> dict[str, Any]:
    return {"CUSTOMER": customer or f"c{id_}", "ID": id_, "MS": ms}


def rows(instance: flowql.Connection, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(r.values()) for r in instance.sql(sql)]


def in_order_of_topic(instance: flowql.Connection, name: str, count: int) -> list[dict[str, Any]]:
    with instance.subscribe(name, start="earliest", limit=count) as changes:
        return [change.row for change in changes]


def calls_made(folder: Path) -> Counter[str]:
    return Counter((folder / "calls.log").read_text().splitlines())


def test_calls_of_many_rows_are_under_way_at_once(tmp_path: Path) -> None:
    folder = project(tmp_path, "CREATE STREAM OUT AS SELECT CUSTOMER, TOGETHER(ID) AS ID FROM ORDERS;")
    with running(folder) as instance:
        instance.produce("ORDERS", [order(n) for n in range(50)])
        until(lambda: rows(instance, "SELECT COUNT(*) FROM OUT"), [(50,)])
        (function,) = instance.status()["instance"]["functions"]
        assert (function["function"], function["calls"], function["failures"]) == ("TOGETHER", 50, 0)


@pytest.mark.parametrize("name", ["SLOWLY", "IN_ORDER", "BLOCKING"])
def test_rows_go_on_in_the_order_that_is_asked_for(tmp_path: Path, name: str) -> None:
    folder = project(tmp_path, f"CREATE STREAM OUT AS SELECT CUSTOMER, {name}(ID, MS) AS ID FROM ORDERS;")
    given = [order(1, 400, "a"), order(2, 0, "b"), order(3, 0, "a"), order(4, 200, "b"), order(5, 0, "b")]
    with running(folder) as instance:
        instance.produce("ORDERS", given)
        found = in_order_of_topic(instance, "OUT", 5)
    of_key = {c: [r["ID"] for r in found if r["CUSTOMER"] == c] for c in "ab"}
    all_ids = [r["ID"] for r in found]
    if name == "SLOWLY":
        assert of_key == {"a": [1, 3], "b": [2, 4, 5]}
        assert all_ids == [2, 4, 5, 1, 3]
    elif name == "IN_ORDER":
        assert all_ids == [1, 2, 3, 4, 5]
    else:
        assert all_ids[-1] == 1
        assert sorted(all_ids) == [1, 2, 3, 4, 5]


def test_retry(tmp_path: Path) -> None:
    folder = project(
        tmp_path,
        "CREATE STREAM OUT AS SELECT CUSTOMER, ID, FAILING(ID) AS GOT FROM ORDERS;"
        "CREATE STREAM THIRD AS SELECT CUSTOMER, AT_THIRD(ID) AS CALLS FROM ORDERS WHERE ID = 4;",
    )
    with running(folder) as instance:
        instance.produce("ORDERS", [order(3), order(4)])
        until(lambda: sorted(rows(instance, "SELECT ID, GOT FROM OUT"), key=str), [(3, None), (4, 4)])
        until(lambda: rows(instance, "SELECT CALLS FROM THIRD"), [(3,)])
        assert calls_made(folder) == {"failing 3": 3, "failing 4": 1}
        letters = list(instance.sql("SELECT * FROM DEAD_LETTERS"))
    (letter,) = letters
    assert letter["MESSAGE"] == "FAILING(3): ValueError: there is no order 3 (calls.py:41 failing)"
    assert (letter["TOPIC"], letter["OFFSET"], letter["CODE"]) == ("orders", 0, "FQ4030")
    assert (letter["KEY"], b'"ID":3' in letter["VALUE"]) == (b"c3", True)


def test_delay(tmp_path: Path) -> None:
    folder = project(tmp_path, "CREATE STREAM OUT AS SELECT CUSTOMER, ID, LATER(ID) AS CALLS FROM ORDERS;")
    with running(folder) as instance:
        instance.produce("ORDERS", [order(1), order(2)])
        until(lambda: sorted(rows(instance, "SELECT ID, CALLS FROM OUT")), [(1, 2), (2, 2)])
        assert not list(instance.sql("SELECT * FROM DEAD_LETTERS"))
    assert RetryAfter(300).delay_ms == 300_000


def test_waw(tmp_path: Path) -> None:
    """Of rows of a table that replace each other only the last is called for, while earlier ones wait. Streams keep every row."""
    folder = project(
        tmp_path,
        "CREATE TABLE LAST (CUSTOMER STRING PRIMARY KEY, ID BIGINT, MS BIGINT)"
        " WITH (KAFKA_TOPIC = 'last', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');"
        "CREATE TABLE T AS SELECT CUSTOMER, SLOWLY(ID, MS) AS ID FROM LAST;"
        "CREATE STREAM S AS SELECT CUSTOMER, SLOWLY(ID, MS) AS ID FROM ORDERS;",
    )
    with running(folder) as instance:
        instance.produce("LAST", [order(1, 30_000, "a"), order(9, 0, "b")])
        until(lambda: rows(instance, "SELECT * FROM T"), [("b", 9)])
        instance.produce("LAST", [order(n, 30_000, "a") for n in range(2, 6)] + [order(6, 0, "a")])
        until(lambda: sorted(rows(instance, "SELECT * FROM T")), [("a", 6), ("b", 9)])
        instance.produce("LAST", {"CUSTOMER": "b"})  # a deletion needs no call
        until(lambda: rows(instance, "SELECT * FROM T"), [("a", 6)])
        assert calls_made(folder) == {"slowly 1": 1, "slowly 9": 1, "slowly 6": 1}
        instance.produce("ORDERS", [order(n, 0, "a") for n in range(5)])
        assert [r["ID"] for r in in_order_of_topic(instance, "S", 5)] == list(range(5))


def test_raw(tmp_path: Path) -> None:
    """What a call reads of another is forwarded to it, without a way through the log."""
    folder = project(
        tmp_path, "CREATE STREAM OUT AS SELECT CUSTOMER, SLOWLY(SLOWLY(ID, MS) * 10, 0) + 1 AS ID FROM ORDERS;"
    )
    (query,) = compile_sources(load_project(folder)).plan.queries
    assert (len(query.subtopologies), query.repartitions) == (1, ())
    with running(folder) as instance:
        instance.produce("ORDERS", [order(1, 200, "a"), order(2, 0, "a"), order(3, 0, "b")])
        found = in_order_of_topic(instance, "OUT", 3)
    assert [r["ID"] for r in found] == [31, 11, 21]


def test_prefix(tmp_path: Path) -> None:
    """A row that does not get done holds back no other, and what is done is done once, whatever ends the instance."""
    folder = project(tmp_path, "CREATE STREAM OUT AS SELECT CUSTOMER, SLOWLY(ID, MS) AS ID FROM ORDERS;")
    with running(folder) as instance:
        instance.produce("ORDERS", [order(0, 30_000), *(order(n) for n in range(1, 300))])
        until(lambda: rows(instance, "SELECT COUNT(*) FROM OUT"), [(299,)])
        until(lambda: state_of(instance, "CSAS_OUT")["waiting"]["parked"], 1)
        waiting = state_of(instance, "CSAS_OUT")["waiting"]
        assert (waiting["calls"], waiting["in_flight"]) == (1, 1)
    with resumed(folder) as instance:
        instance.produce("ORDERS", [order(300)])
        until(lambda: rows(instance, "SELECT COUNT(*), COUNT(DISTINCT ID) FROM OUT"), [(300, 300)])
        until(lambda: calls_made(folder)["slowly 0"], 2)
    assert {n for c, n in calls_made(folder).items() if c != "slowly 0"} == {1}


def test_what_is_behind_sees_rows_in_their_order(tmp_path: Path) -> None:
    """An aggregate, windows that are closed, and a condition give what they give of rows that never waited."""
    folder = project(
        tmp_path,
        "CREATE TABLE LAST AS SELECT MS % 2 AS EVEN, LATEST_BY_OFFSET(SLOWLY(ID, MS)) AS ID FROM ORDERS GROUP BY MS % 2;"
        "CREATE TABLE SUMS AS SELECT CUSTOMER, SUM(SLOWLY(ID, MS)) AS IDS FROM ORDERS"
        " WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS) GROUP BY CUSTOMER EMIT FINAL;"
        "CREATE STREAM FEW AS SELECT CUSTOMER, ID FROM ORDERS WHERE ID > 2 AND SLOWLY(ID, MS) < 5;",
    )
    given = [{"AT": 1_700_000_000_000 + n * 100, **order(n, 200 - 20 * (n % 11), "a")} for n in range(45)]
    with running(folder) as instance:
        instance.produce("ORDERS", given, timestamp="AT")
        until(lambda: sorted(rows(instance, "SELECT EVEN, ID FROM LAST")), [(0, 44)])
        sums = [(sum(range(first, first + 10)),) for first in (0, 10, 20, 30)]
        until(lambda: rows(instance, "SELECT IDS FROM SUMS ORDER BY WINDOWSTART"), sums)
        until(lambda: sorted(rows(instance, "SELECT ID FROM FEW")), [(3,), (4,)])


def test_what_harms_its_process_costs_its_own_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "STARTING_CREDIT_S", 1_000.0)
    folder = project(tmp_path, "CREATE STREAM OUT AS SELECT CUSTOMER, ID, HARMFUL(ID, MS) AS GOT FROM ORDERS;")
    given = [order(n, {7: 1, 17: 2, 27: 3, 37: 4}.get(n, 0)) for n in range(60)]
    with running(folder) as instance:
        instance.produce("ORDERS", given)
        until(lambda: rows(instance, "SELECT COUNT(*) FROM OUT"), [(60,)])
        lost = rows(instance, "SELECT ID FROM OUT WHERE GOT IS NULL OR GOT <> ID")
        said = dict(rows(instance, 'SELECT "OFFSET", MESSAGE FROM DEAD_LETTERS'))
    assert sorted(lost) == [(7,), (17,), (27,), (37,)]
    assert "killed by signal 11" in said[7]
    assert "held up the event loop" in said[17]
    assert "MemoryError" in said[27]
    assert "SystemExit" in said[37]


def test_an_edit_goes_forward_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    sql = (
        "CREATE STREAM OUT AS SELECT CUSTOMER, SLOWLY(ID, MS) AS ID FROM ORDERS;"
        "CREATE STREAM AGAIN WITH (ON_CHANGE = 'rebuild') AS SELECT CUSTOMER, SLOWLY(ID, MS) AS ID FROM ORDERS;"
    )
    folder = project(tmp_path, sql)
    with running(folder) as instance:
        instance.produce("ORDERS", [order(1)])
        until(lambda: rows(instance, "SELECT ID FROM OUT"), [(1,)])
        (folder / "calls.py").write_text(CALLS.replace("return id\n", "return id + 100\n"))
        planned = {c["query"]: c for c in instance.deploy(dry_run=True)["changes"]}
        assert planned["CSAS_AGAIN"]["reads"]["calls"] == ["SLOWLY"]
        done = instance.deploy()
        assert {c["query"]: c["class"] for c in done["changes"]} == {"CSAS_OUT": "forward", "CSAS_AGAIN": "rebuilt"}
        instance.produce("ORDERS", [order(2)])
        until(lambda: sorted(rows(instance, "SELECT ID FROM OUT")), [(1,), (102,)])
        until(lambda: sorted(rows(instance, "SELECT ID FROM AGAIN")), [(101,), (102,)])


def test_interactive_queries_wait_for_all_calls_together(tmp_path: Path) -> None:
    folder = project(tmp_path, "")
    with running(folder) as instance:
        instance.produce("ORDERS", [order(n, 20) for n in range(50)])
        until(lambda: rows(instance, "SELECT COUNT(*) FROM ORDERS"), [(50,)])
        assert rows(instance, "SELECT SUM(TOGETHER(ID)) FROM ORDERS") == [(sum(range(50)),)]
        assert isinstance(instance.sql("SELECT SLOWLY(ID, MS) AS ID FROM ORDERS").arrow(), pa.Table)


REFUSED = {
    "SELECT CUSTOMER, CASE WHEN MS > 1 THEN SLOWLY(ID, MS) ELSE 0 END AS ID FROM ORDERS": "in an argument of CASE",
    "SELECT CUSTOMER, TRANSFORM(ARRAY[ID], X => SLOWLY(X, 1)) AS ID FROM ORDERS": "in a lambda",
    "SELECT CUSTOMER, ID FROM ORDERS WHERE ID = 1 OR SLOWLY(ID, MS) = 2": "in an argument of OR",
}


@pytest.mark.parametrize("query", list(REFUSED))
def test_calls_that_are_not_made_for_every_row_are_refused(tmp_path: Path, query: str) -> None:
    folder = project(tmp_path, f"CREATE STREAM OUT AS {query};")
    (found,) = compile_sources(load_project(folder)).diagnostics
    assert found.title == f"a call of the asynchronous function SLOWLY {REFUSED[query]}" + (
        "" if "lambda" in found.title else ", which need not be computed"
    )
    assert (found.code, found.unsupported) == ("FQ2090", True)


def test_the_first_argument_of_coalesce_is_computed_for_every_row(tmp_path: Path) -> None:
    folder = project(tmp_path, "CREATE STREAM OUT AS SELECT CUSTOMER, COALESCE(FAILING(ID), -1) AS ID FROM ORDERS;")
    with running(folder) as instance:
        instance.produce("ORDERS", [order(3), order(4)])
        until(lambda: sorted(rows(instance, "SELECT ID FROM OUT")), [(-1,), (4,)])


TESTS = """
tests:
  - name: in order, after retries
    given:
      ORDERS: [{CUSTOMER: a, ID: 3, MS: 50}, {CUSTOMER: b, ID: 4, MS: 0}]
    expect:
      OUT: [{CUSTOMER: a, ID: 3, GOT: ~}, {CUSTOMER: b, ID: 4, GOT: 4}]
"""


def test_tests_of_a_project_make_the_calls_and_do_not_wait_for_delays(tmp_path: Path) -> None:
    sql = "CREATE STREAM OUT AS SELECT CUSTOMER, SLOWLY(ID, MS) AS ID, FAILING(ID) AS GOT FROM ORDERS;"
    folder = project(
        tmp_path, sql, CALLS.replace("exponential(0.02, attempts=3)", "exponential(600, longest=900, attempts=3)")
    )
    (folder / "tests").mkdir()
    (folder / "tests" / "out.yaml").write_text(TESTS)
    suite = load(load_project(folder))
    (verdict,) = run_all(suite, 2, 7, lambda _: None)
    assert verdict.passed, verdict.findings
