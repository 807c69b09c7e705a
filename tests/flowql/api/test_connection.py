"""`flowql.connect` and `flowql.Instance`: what a Python program does with a project."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pytest

import flowql
from flowql.config.storage import open_log
from flowql.server.listening import Listening

pytestmark = pytest.mark.turns("long")

SQL = """
CREATE STREAM ORDERS (CUSTOMER STRING KEY, ID INT, AMOUNT DECIMAL(10, 2), DAY DATE, AT TIMESTAMP, TAGS ARRAY<STRING>,
    SIZES MAP<STRING, INT>)
  WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 3, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON', TIMESTAMP = 'AT');
CREATE TABLE CUSTOMERS (NAME STRING PRIMARY KEY, CITY STRING)
  WITH (KAFKA_TOPIC = 'customers', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM LARGE AS SELECT CUSTOMER, ID, AMOUNT, DAY, AT, SIZES FROM ORDERS WHERE AMOUNT > 100;
CREATE TABLE SPENT AS SELECT CUSTOMER, COUNT(*) AS N, SUM(AMOUNT) AS TOTAL FROM ORDERS GROUP BY CUSTOMER;
CREATE TABLE CITIES AS SELECT CITY, COUNT(*) AS N FROM CUSTOMERS GROUP BY CITY;
"""
AT = datetime(2026, 1, 2, 3, 4, 5, 678_000)
ORDERS = [
    {"customer": "ada", "id": 1, "amount": Decimal("40.50"), "at": AT, "tags": ["a", "b"]},
    {"customer": "bob", "id": 2, "amount": Decimal("310"), "day": date(1969, 12, 31), "at": AT, "sizes": {"x": 1}},
    {"customer": "ada", "id": 3, "amount": 120, "at": AT},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [shop.sql]\n")
    (tmp_path / "shop.sql").write_text(SQL)
    return tmp_path


@pytest.fixture
def instance(folder: Path) -> Iterator[flowql.Instance]:
    with flowql.Instance(folder) as running:
        yield running


def until(connection: flowql.Connection, query: str, value: object) -> None:
    with connection.subscribe(query.split(" FROM ")[1].split()[0], start="earliest") as changes:
        for _ in changes:
            if connection.sql(query).one() == value:
                return


def test_rows_in_and_answers_out_in_every_form(instance: flowql.Instance) -> None:
    shop = instance.connection
    assert shop.produce("orders", ORDERS) == 3
    until(shop, "SELECT SUM(N)::INT FROM SPENT", 3)
    found = shop.sql("SELECT * FROM SPENT ORDER BY CUSTOMER")
    assert (found.columns, len(found)) == (["CUSTOMER", "N", "TOTAL"], 2)
    expected = [
        {"CUSTOMER": "ada", "N": 2, "TOTAL": Decimal("160.50")},
        {"CUSTOMER": "bob", "N": 1, "TOTAL": Decimal("310.00")},
    ]
    assert list(found) == expected
    assert found.arrow().to_pylist() == expected
    assert found.df()["N"].tolist() == [2, 1]
    assert found.rel().aggregate("sum(N)").fetchall() == [(3,)]
    with duckdb.connect() as other:
        assert found.rel(other).filter("N = 1").fetchall() == [("bob", 1, Decimal("310.00"))]
    assert found.commit is not None
    assert found.note == ""
    assert "<td>310.00</td>" in found._repr_html_()
    assert [b.num_rows for b in shop.batches("SELECT * FROM SPENT")] == [2]
    with pytest.raises(ValueError, match="2 rows and 3 columns"):
        found.one()


def test_changes_have_python_values(instance: flowql.Instance) -> None:
    shop = instance.connection
    shop.produce("ORDERS", ORDERS)
    with shop.subscribe("LARGE", start="earliest", limit=2) as changes:
        found = {c.row["CUSTOMER"]: c for c in changes if isinstance(c, flowql.Change)}
    bob = found["bob"]
    assert bob.op == "insert"
    assert bob.rowtime_ms == int(AT.replace(tzinfo=UTC).timestamp() * 1000)
    assert bob.row == {
        **{"CUSTOMER": "bob", "ID": 2, "AMOUNT": Decimal("310.00"), "DAY": date(1969, 12, 31), "AT": AT},
        "SIZES": {"x": 1},
    }
    assert found["ada"].row["SIZES"] is None


def test_a_change_with_a_date_beyond_python_is_an_error_that_says_so(instance: flowql.Instance) -> None:
    shop = instance.connection
    day = pa.array([10**7], pa.int32()).cast(pa.date32())
    shop.produce("ORDERS", pa.table({"customer": ["eve"], "amount": [Decimal(500)], "day": day, "at": [AT]}))
    changes = shop.subscribe("LARGE", start="earliest", limit=1)
    with closing(changes), pytest.raises(flowql.CommandError, match="after the year 9999"):
        next(changes)


def test_a_push_query_may_begin_with_a_comment(instance: flowql.Instance) -> None:
    shop = instance.connection
    shop.produce("ORDERS", ORDERS)
    sql = "-- of each\n/* customer */ SELECT CUSTOMER FROM LARGE EMIT CHANGES"
    with shop.subscribe(sql, start="earliest", limit=2) as changes:
        assert sorted(c.row["CUSTOMER"] for c in changes if isinstance(c, flowql.Change)) == ["ada", "bob"]


def test_a_subscription_ends_when_another_thread_closes_it(instance: flowql.Instance) -> None:
    changes = instance.connection.subscribe("LARGE")
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.extend(changes))
    reader.start()
    changes.close()
    reader.join(10)
    assert not reader.is_alive()
    assert not found


def test_changes_in_asynchronous_code(instance: flowql.Instance) -> None:
    shop = instance.connection
    shop.produce("ORDERS", ORDERS)

    async def first() -> list[str]:
        return [c.row["CUSTOMER"] async for c in shop.subscribe("LARGE", start="earliest", limit=2)]

    assert sorted(asyncio.run(first())) == ["ada", "bob"]


def test_a_row_of_a_table_without_values_deletes(instance: flowql.Instance) -> None:
    shop = instance.connection
    shop.produce("customers", [{"name": "ada", "city": "Rome"}, {"name": "bob", "city": "Rome"}])
    until(shop, "SELECT MAX(N) FROM CITIES", 2)
    shop.produce("customers", {"name": "bob"})
    until(shop, "SELECT MAX(N) FROM CITIES", 1)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`df()` without pandas ended with ModuleNotFoundError from within Arrow."""
    monkeypatch.setattr("flowql.api.result.find_spec", lambda package: None)
    found = flowql.Result(pa.table({"N": [1]}))
    with pytest.raises(flowql.CommandError, match=r"df\(\) needs pandas, which is not installed: pip install pandas"):
        found.df()
    with pytest.raises(flowql.CommandError, match=r"pl\(\) needs polars"):
        found.pl()


def test_frames_are_rows(instance: flowql.Instance) -> None:
    shop = instance.connection
    frame = pd.DataFrame({"CUSTOMER": ["eve"] * 7, "ID": range(7), "AMOUNT": [1.25] * 7, "AT": [AT] * 7})
    assert shop.produce("ORDERS", frame) == 7
    assert shop.produce("ORDERS", pa.table({"id": [1], "at": [AT]})) == 1
    until(shop, "SELECT SUM(N)::INT FROM SPENT", 7)
    assert shop.sql("SELECT TOTAL FROM SPENT WHERE CUSTOMER = 'eve'").one() == Decimal("8.75")


@pytest.mark.parametrize(
    ("name", "rows", "says"),
    [
        ("ORDERS", [{"customr": "x"}], "ORDERS has no column customr"),
        ("ORDERS", [{"id": "many", "at": AT}], "column id"),
        ("ORDERS", pa.table({"amount": ["many"], "at": [AT]}), "column AMOUNT of ORDERS is DECIMAL"),
        ("ORDERS", pa.table({"id": [2**40], "at": [AT]}), "column ID of ORDERS is INT"),
        ("ORDER", [{"id": 1}], "there is no stream or table ORDER"),
        ("ORDERS", [{"id": 1, "at": AT}, {"id": 2}], "timestamp column AT cannot be used: it is NULL"),
        ("CUSTOMERS", [{"city": "x"}], "a row of the table CUSTOMERS has no key: NAME is NULL"),
    ],
)
def test_a_row_that_cannot_be_written_is_refused_and_nothing_is(
    folder: Path, name: str, rows: object, says: str
) -> None:
    with flowql.connect(folder) as shop:
        with pytest.raises(flowql.CommandError, match=says):
            shop.produce(name, rows)
        with closing(open_log(shop.project)) as log:
            assert not log.admin().topics()


def test_deploying_starts_an_instance_that_outlives_the_program(folder: Path) -> None:
    with flowql.connect(folder) as shop:
        tried = shop.deploy(dry_run=True)
        assert [c["class"] for c in tried["changes"]] == ["added"] * 3
        assert shop.status()["queries"] == []
        try:
            done = shop.deploy()
            assert done["applied"]
            shop.produce("ORDERS", ORDERS)
            until(shop, "SELECT SUM(N)::INT FROM SPENT", 3)
            later = "CREATE STREAM LATER (A INT) WITH (KAFKA_TOPIC='later', PARTITIONS=1, VALUE_FORMAT='JSON');"
            (folder / "shop.sql").write_text(SQL.replace("> 100", "> 300") + later)
            with pytest.raises(flowql.CommandError, match="no stream or table later"):
                shop.produce("later", {"a": 1})
            changes = {c["query"]: c["class"] for c in shop.deploy()["changes"]}
            assert changes["CSAS_LARGE"] == "rebuilt"
            assert shop.produce("later", {"a": 1}) == 1
            assert {q["state"] for q in shop.status()["queries"]} == {"running"}
            while any(q.get("building") for q in shop.status()["queries"]):  # or nothing is taken back
                time.sleep(0.05)
            back = shop.rollback(dry_run=True)
            assert {c["query"]: c["class"] for c in back["changes"] if c["class"] != "unchanged"} == {
                c: k for c, k in changes.items() if k != "unchanged"
            }
            assert [d["how"] for d in shop.deployments()] == ["deploy from Python"] * 2
            first = shop.deployments()[0]["id"]
            assert shop.rollback(first)["applied"]
            assert [d["how"] for d in shop.deployments()][-1] == f"rollback to {first}"
            with pytest.raises(flowql.CommandError, match="there is no deployment 99"):
                shop.rollback(99)
        finally:
            assert shop.stop()
        assert not shop.stop()
        assert shop.sql("SELECT SUM(N)::INT FROM SPENT").one() == 3, "of the directory"


def test_mistakes_are_errors_of_their_own_kind(folder: Path) -> None:
    with flowql.connect(folder) as shop:
        with pytest.raises(flowql.CommandError, match="nothing has been deployed"):
            shop.subscribe("ORDERS")
        (folder / "shop.sql").write_text("CREATE STREAM X AS SELECT NOPE FROM ORDERS;")
        with pytest.raises(flowql.CompileError, match="ORDERS"):
            shop.deploy()
    with pytest.raises(flowql.CompileError), flowql.Instance(folder):
        pass
    with pytest.raises(flowql.ProjectError):
        flowql.connect(folder / "nowhere")


def test_a_paused_query_goes_on_where_it_stopped(instance: flowql.Instance, folder: Path) -> None:
    shop = instance.connection
    assert shop.pause("LARGE", "CTAS_SPENT") == ["CSAS_LARGE", "CTAS_SPENT"]
    assert {q["id"]: q["state"] for q in shop.status()["queries"]} == {
        **{"CSAS_LARGE": "paused", "CTAS_SPENT": "paused", "CTAS_CITIES": "running"},
    }
    shop.produce("ORDERS", ORDERS)
    assert shop.resume("SPENT") == ["CTAS_SPENT"]
    until(shop, "SELECT SUM(N)::INT FROM SPENT", 3)
    assert shop.sql("SELECT COUNT(*) FROM LARGE").one() == 0
    with shop.subscribe("LARGE", start="earliest", limit=2) as changes:
        shop.resume("LARGE")
        assert len(list(changes)) == 2
    with pytest.raises(flowql.CommandError, match="NOPE"):
        shop.pause("NOPE")
    instance.stop()
    for change in (shop.pause, shop.resume):
        with pytest.raises(flowql.CommandError, match="no instance of this project is running"):
            change("LARGE")


def test_an_instance_says_whether_it_is_healthy(folder: Path) -> None:
    instance = flowql.Instance(folder)
    assert not instance.healthy
    with instance:
        assert instance.healthy
        with pytest.raises(flowql.RuntimeFailure, match="runs shop on"), flowql.Instance(folder):
            pass
        assert instance.healthy
    assert not instance.healthy


def test_an_instance_that_ctrl_c_finds_stopping_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = flowql.Instance(folder).start()

    end = Listening.end

    def interrupted(listening: Listening) -> None:
        end(listening)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Listening, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            instance.stop()
    assert not instance.healthy
    with flowql.Instance(folder) as again:
        assert again.healthy


def test_statements_change_tables(tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: own\nsql: [own.sql]\ndialect: standard\n")
    (tmp_path / "own.sql").write_text("CREATE TABLE users (id INT PRIMARY KEY, name TEXT);")
    with flowql.Instance(tmp_path) as instance:
        own = instance.connection
        assert own.execute("INSERT INTO users VALUES (1, 'ada'), (2, 'bob'); DELETE FROM users WHERE id = 2") == 3
        assert own.sql("SELECT name FROM users").one() == "ada"
        with pytest.raises(flowql.CommandError, match="which statements change"):
            own.produce("users", {"id": 3})


def test_importing_the_package_loads_nothing_else() -> None:
    program = (
        "import sys, flowql; print([m for m in sys.modules if m.startswith('flowql.') or m in ('pyarrow', 'duckdb')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_name_that_is_offered_is_there() -> None:
    for name in flowql.__all__:
        assert getattr(flowql, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'connekt'"):
        flowql.connekt  # type: ignore[attr-defined]  # noqa: B018
