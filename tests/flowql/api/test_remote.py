"""`flowql.connect(URL)`: what a program on another machine does with a running instance, beside the same of the project's folder."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import flowql
from flowql.api import remote
from flowql.runtime.errors import TransactionAborted
from flowql.server import change_stream, remote_client, subscriber
from flowql.server.following import Following
from tests.flowql.api.shop import TOKEN, WAIT_S, Shop, changes_threads, project, wait
from tests.flowql.api.test_connection import AT, ORDERS, SQL, until

pytestmark = pytest.mark.turns("servers")


def test_rows_in_and_answers_out(shop: Shop) -> None:
    assert shop.remote.produce("orders", ORDERS) == 3
    until(shop.remote, "SELECT SUM(N)::INT FROM SPENT", 3)
    query = "SELECT * FROM SPENT ORDER BY CUSTOMER"
    found = shop.remote.sql(query)
    assert found.arrow() == shop.local.sql(query).arrow()
    assert found.df()["N"].tolist() == [2, 1]
    assert found.commit is not None
    assert [b.to_pylist() for b in shop.remote.batches(query)] == [found.arrow().to_pylist()]
    everything = "SELECT * FROM ORDERS ORDER BY ID"
    assert shop.remote.sql(everything).arrow() == shop.local.sql(everything).arrow()
    large = list(shop.remote.batches(f"SELECT i, '{'x' * 100}' AS x FROM range(200000) t(i)"))
    assert sum(b.num_rows for b in large) == 200_000
    assert len(large) > 1


def test_what_is_written_here_and_there_is_the_same(shop: Shop) -> None:
    for connection in (shop.local, shop.remote):
        connection.produce("ORDERS", ORDERS)
        connection.produce("customers", [{"name": "ada", "city": "Rome"}, {"name": "bob", "city": "Rome"}])
        connection.produce("customers", {"name": "bob"})
    query = 'SELECT CUSTOMER, ID, AMOUNT, DAY, "AT", TAGS, SIZES FROM ORDERS ORDER BY ID'
    rows = shop.local.sql(query).arrow().to_pylist()
    assert rows[::2] == rows[1::2]
    assert len(rows) == 6
    until(shop.remote, "SELECT MAX(N) FROM CITIES", 1)


def test_frames_of_any_kind_and_event_times(shop: Shop) -> None:
    frame = pd.DataFrame({"CUSTOMER": ["eve"] * 7, "ID": range(7), "AMOUNT": [1.25] * 7, "AT": [AT] * 7})
    assert shop.remote.produce("ORDERS", frame) == 7
    assert shop.remote.produce("ORDERS", pa.table({"id": [1], "at": [AT]})) == 1
    assert [shop.remote.produce(name, []) for name in ("ORDERS", "CUSTOMERS")] == [0, 0]
    stamped = pa.table({"NAME": ["zoe"], "CITY": ["Oslo"], "SINCE": [AT]})
    assert shop.remote.produce("CUSTOMERS", stamped, timestamp="since") == 1
    at_ms = int(AT.replace(tzinfo=UTC).timestamp() * 1000)
    with shop.remote.subscribe("CUSTOMERS", start="earliest", limit=1) as changes:
        (change,) = changes
    assert isinstance(change, flowql.Change)
    assert change.rowtime_ms == at_ms


def test_a_large_frame_goes_in_several_requests(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REQUEST_BYTES", 4_000)
    asked = []
    send = remote_client.RemoteClient.produce

    def counted(*given: Any) -> int:
        asked.append(given[2].num_rows)
        return send(*given)

    monkeypatch.setattr(remote_client.RemoteClient, "produce", counted)
    rows = [{"customer": "ada", "id": i, "amount": 1, "at": AT} for i in range(1_000)]
    assert shop.remote.produce("ORDERS", rows) == 1_000
    assert len(asked) > 5
    assert shop.remote.sql("SELECT COUNT(*), COUNT(DISTINCT ID) FROM ORDERS").arrow().to_pylist() == [
        {"count_star()": 1_000, "count(DISTINCT ID)": 1_000}
    ]
    asked.clear()
    wrong = pa.table({"ID": [*range(999), 2**40], "AT": [AT] * 1_000})
    with pytest.raises(flowql.CommandError, match="column ID of ORDERS is INT"):
        shop.remote.produce("ORDERS", wrong)
    assert not asked, "what cannot be written is found before anything is"


@pytest.mark.parametrize(
    ("name", "rows", "timestamp"),
    [
        ("ORDERS", [{"customr": "x"}], None),
        ("ORDERS", [{"id": "many", "at": AT}], None),
        ("ORDERS", pa.table({"amount": ["many"], "at": [AT]}), None),
        ("ORDERS", pa.table({"id": [2**40], "at": [AT]}), None),
        ("ORDERS", [{"id": 1}], "nope"),
        ("ORDER", [{"id": 1}], None),
        ("ORDERS", [3], None),
    ],
)
def test_a_row_that_cannot_be_written_is_refused_as_here(
    shop: Shop, name: str, rows: object, timestamp: str | None
) -> None:
    refused = []
    for connection in (shop.local, shop.remote):
        with pytest.raises((flowql.CommandError, TypeError)) as caught:
            connection.produce(name, rows, timestamp=timestamp)
        refused.append((type(caught.value), str(caught.value), vars(caught.value)))
    assert refused[0] == refused[1]
    assert shop.local.sql("SELECT COUNT(*) FROM ORDERS").one() == 0


@pytest.mark.parametrize(
    "ask",
    [
        lambda shop: shop.sql("SELECT NOPE FROM ORDERS"),
        lambda shop: shop.sql("DROP TABLE SPENT"),
        lambda shop: shop.sql("SELECT * FROM NOWHERE"),
        lambda shop: list(shop.batches("SELECT error('late') FROM range(10)")),
        lambda shop: shop.execute("DELETE FROM ORDERS WHERE ID = 1"),
        lambda shop: shop.execute("INSERT INTO NOWHERE VALUES (1)"),
        lambda shop: shop.execute("this is no SQL"),
        lambda shop: shop.subscribe("NOWHERE"),
        lambda shop: shop.subscribe("SELECT NOPE FROM ORDERS EMIT CHANGES"),
        lambda shop: shop.subscribe("SELECT FROM"),
        lambda shop: shop.rollback(99),
        lambda shop: shop.pause("SPENT", "NOPE"),
    ],
)
def test_mistakes_are_the_same_errors_as_here(shop: Shop, ask: Callable[[flowql.Connection], object]) -> None:
    refused = []
    for connection in (shop.local, shop.remote):
        with pytest.raises((flowql.CommandError, flowql.CompileError)) as caught:
            ask(connection)
        refused.append((type(caught.value), vars(caught.value)))
    assert refused[0] == refused[1]


def test_changes_have_the_values_that_they_have_here(shop: Shop) -> None:
    shop.remote.produce("ORDERS", ORDERS)
    shop.remote.produce("customers", [{"name": "ada", "city": "Rome"}, {"name": "ada"}])
    for what, limit in (
        ("LARGE", 2),
        ("CUSTOMERS", 2),
        ("SELECT CUSTOMER, SIZES, DAY FROM ORDERS EMIT CHANGES LIMIT 3", None),
    ):
        told = []
        for connection in (shop.local, shop.remote):
            with connection.subscribe(what, start="earliest", limit=limit) as changes:
                told.append(sorted(changes, key=repr))
        assert told[0] == told[1]
        assert len(told[0]) == (limit or 3)
    with shop.remote.subscribe("LARGE", start="earliest", limit=2) as changes:
        (bob,) = (c for c in changes if isinstance(c, flowql.Change) and c.row["CUSTOMER"] == "bob")
    assert bob.row == {
        **{"CUSTOMER": "bob", "ID": 2, "AMOUNT": Decimal("310.00"), "DAY": date(1969, 12, 31), "AT": AT},
        "SIZES": {"x": 1},
    }


def test_changes_in_asynchronous_code(shop: Shop) -> None:
    shop.remote.produce("ORDERS", ORDERS)

    async def first() -> list[str]:
        return [c.row["CUSTOMER"] async for c in shop.remote.subscribe("LARGE", start="earliest", limit=2)]

    assert sorted(asyncio.run(first())) == ["ada", "bob"]


def test_a_rebuilt_result_is_announced(shop: Shop) -> None:
    shop.remote.produce("ORDERS", ORDERS)
    with shop.remote.subscribe("LARGE", start="earliest") as changes:
        told = iter(changes)
        before = [next(told), next(told)]
        (shop.folder / "shop.sql").write_text(
            SQL.replace("ID, AMOUNT, DAY, AT", "ID, AMOUNT").replace("> 100", "> 300")
        )
        shop.remote.deploy(project=shop.folder)
        rebuilt, after = next(told), next(told)
    assert {sorted(c.row)[0] for c in before if isinstance(c, flowql.Change)} == {"AMOUNT"}
    assert isinstance(rebuilt, flowql.Rebuilt)
    assert rebuilt.generations == {"LARGE": 2}
    assert rebuilt.columns == ["CUSTOMER", "ID", "AMOUNT", "SIZES"]
    assert rebuilt.result.name
    assert isinstance(after, flowql.Change)
    assert after.row == {"CUSTOMER": "bob", "ID": 2, "AMOUNT": Decimal("310.00"), "SIZES": {"x": 1}}


def test_a_client_that_leaves_ends_its_subscription(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[Following] = []
    release = Following.close

    def close(following: Following) -> None:
        release(following)
        released.append(following)

    monkeypatch.setattr(Following, "close", close)
    shop.remote.produce("ORDERS", ORDERS)
    subscription = shop.remote.subscribe("LARGE", start="earliest")
    assert next(iter(subscription))
    assert shop.gateway.readers.subscriptions == 1
    assert changes_threads()
    subscription.close()
    assert list(subscription) == []
    wait(lambda: shop.gateway.readers.subscriptions == 0 and not changes_threads())
    assert len(released) == 1
    abandoned = shop.remote.subscribe("LARGE")  # never iterated
    wait(lambda: shop.gateway.readers.subscriptions == 1)
    abandoned.close()
    wait(lambda: shop.gateway.readers.subscriptions == 0 and not changes_threads())
    assert len(released) == 2


def test_a_transaction_that_fails_does_not_spoil_the_next_one(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.remote.produce("ORDERS", ORDERS)
    used = shop.rows._writer._producer

    def commit() -> None:
        raise TransactionAborted("for a test")

    monkeypatch.setattr(used, "commit", commit)
    with pytest.raises(flowql.RuntimeFailure, match="for a test") as failed:
        shop.remote.produce("ORDERS", ORDERS)
    assert failed.value.code == TransactionAborted.code
    monkeypatch.undo()
    assert shop.remote.produce("ORDERS", ORDERS) == 3
    assert shop.rows._writer._producer is not used
    assert shop.local.sql("SELECT COUNT(*) FROM ORDERS").one() == 6


def test_another_thread_ends_a_subscription_that_waits(shop: Shop) -> None:
    changes = shop.remote.subscribe("LARGE")
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.extend(changes))
    reader.start()
    time.sleep(0.3)
    began = time.monotonic()
    changes.close()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    assert time.monotonic() - began < change_stream.KEEP_ALIVE_S
    assert not found


def test_signs_of_life_keep_a_silent_subscription(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriber, "KEEP_ALIVE_S", 0.1)
    monkeypatch.setattr(remote_client, "SILENCE_S", 1.0)
    with shop.remote.subscribe("LARGE", limit=1) as changes:
        threading.Timer(2.5, lambda: shop.local.produce("ORDERS", ORDERS[1])).start()
        (change,) = changes
    assert isinstance(change, flowql.Change)
    monkeypatch.setattr(subscriber, "KEEP_ALIVE_S", 60.0)
    with shop.remote.subscribe("LARGE") as changes, pytest.raises(flowql.CommandError, match="broke off: TimeoutError"):
        next(iter(changes))


def test_there_is_a_limit_on_subscriptions(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop.gateway.readers, "subscriptions_max", 2)
    with shop.remote.subscribe("LARGE"), shop.remote.subscribe("ORDERS") as second:
        with pytest.raises(flowql.CommandError, match="serves at most 2 different subscriptions") as refused:
            shop.remote.subscribe("SPENT")
        assert refused.value.code == "FQ5308"
        assert refused.value.help
        with shop.remote.subscribe("LARGE"):
            assert shop.gateway.readers.subscriptions == 3, "it shares a reader"
        second.close()
        wait(lambda: shop.gateway.readers.subscriptions == 1)
        shop.remote.subscribe("SPENT").close()


def test_two_clients_at_once(shop: Shop) -> None:
    other = flowql.connect(shop.url, token=TOKEN)
    failed: list[BaseException] = []

    def write(connection: flowql.Connection, customer: str) -> None:
        try:
            for i in range(20):
                connection.produce("ORDERS", [{"customer": customer, "id": i, "amount": 1, "at": AT}] * 5)
                connection.sql("SELECT COUNT(*) FROM SPENT").one()
        except BaseException as error:
            failed.append(error)

    with other, other.subscribe("SPENT", start="earliest") as changes:
        threads = [
            threading.Thread(target=write, args=g) for g in ((shop.remote, "ada"), (other, "bob"), (shop.local, "eve"))
        ]
        for thread in threads:
            thread.start()
        seen: dict[str, int] = {}
        for change in changes:
            assert isinstance(change, flowql.Change)
            seen[change.row["CUSTOMER"]] = change.row["N"]
            if seen == {"ada": 100, "bob": 100, "eve": 100}:
                break
        for thread in threads:
            thread.join()
    assert not failed


def test_statements_change_tables(tmp_path: Path) -> None:
    sql = "CREATE TABLE users (id INT PRIMARY KEY, name TEXT); CREATE TABLE names (name TEXT PRIMARY KEY);"
    url = project(tmp_path / "own", sql, "dialect: standard\n")
    with (
        flowql.Instance(tmp_path / "own") as instance,
        flowql.connect(url, token=TOKEN, variables={"WHO": "ada"}) as own,
    ):
        insert = "INSERT INTO users VALUES (1, '${WHO}'), (2, 'bob'); DELETE FROM users WHERE id = 2"
        assert own.execute(insert) == 3
        assert own.execute("INSERT INTO names SELECT name FROM users") == 1
        assert own.sql("SELECT name FROM names").one() == "ada"
        for connection in (instance.connection, own):
            returned = connection.returning(
                "UPDATE users SET name = name || '!' RETURNING id, name, current_timestamp AS at"
            )
            assert (returned.columns, str(returned.arrow().schema.types[2])) == (
                ["id", "name", "at"],
                "timestamp[us, tz=UTC]",
            )
            for sql in ("DELETE FROM users", "DELETE FROM users RETURNING *; DELETE FROM names RETURNING *"):
                with pytest.raises(flowql.CommandError, match="the rows of one are asked for"):
                    connection.returning(sql)
            with pytest.raises(flowql.CompileError, match="nope"):
                connection.returning("DELETE FROM users RETURNING nope")
        assert [*own.returning("DELETE FROM names; UPDATE users SET name = 'ada' RETURNING *")] == [
            {"id": 1, "name": "ada"}
        ]
        assert len(own.returning("DELETE FROM users WHERE id = 9 RETURNING id")) == 0
        refused = []
        for connection in (instance.connection, own):
            with pytest.raises(flowql.RuntimeFailure) as caught:
                connection.execute("INSERT INTO users VALUES (3, 'eve'); INSERT INTO users VALUES (1, 'eve')")
            refused.append((caught.value.code, str(caught.value).replace("(3)", "(1)")))
            connection.execute("DELETE FROM users WHERE id = 3")
            with pytest.raises(flowql.CommandError, match="which statements change"):
                connection.produce("users", {"id": 3})
        assert refused[0] == refused[1]
        assert own.sql("SELECT COUNT(*) FROM users").one() == 1


def test_deployments_from_a_folder_here(shop: Shop, tmp_path: Path) -> None:
    assert shop.remote.status()["queries"] == shop.local.status()["queries"]
    project(tmp_path / "here", SQL.replace("> 100", "> 300"))
    with pytest.raises(flowql.CommandError, match="does not know its project"):
        shop.remote.deploy()
    with pytest.raises(flowql.CommandError, match="is that of the project"):
        shop.local.deploy(project=tmp_path)
    tried = shop.remote.deploy(project=tmp_path / "here", dry_run=True)
    assert not tried["applied"]
    done = shop.remote.deploy(project=tmp_path / "here")
    assert {c["query"]: c["class"] for c in done["changes"]}["CSAS_LARGE"] == "rebuilt"
    wait(lambda: shop.local.deployments()[-1]["result"] == "serves")  # it may be rebuilding when the call returns
    assert shop.remote.deployments() == shop.local.deployments()
    assert [d["how"] for d in shop.remote.deployments()] == ["deploy", "deploy from Python"]
    first = shop.remote.deployments()[0]["id"]
    assert shop.remote.rollback(first)["applied"]
    assert shop.local.deployments()[-1]["how"] == f"rollback to {first}"
    (tmp_path / "here" / "shop.sql").write_text("CREATE STREAM X AS SELECT NOPE FROM ORDERS;")
    with pytest.raises(flowql.CompileError, match="ORDERS"):
        shop.remote.deploy(project=tmp_path / "here")
    with pytest.raises(flowql.ProjectError):
        shop.remote.deploy(project=tmp_path / "nowhere")
    topic = "ASSERT TOPIC orders WITH (PARTITIONS={}){};"
    for statement, says in (
        (topic.format(3, ""), None),
        (topic.format(4, ""), "topic orders has 3 partitions, not 4"),
        ("ASSERT TOPIC orders WITH (REPLICAS=1);", "are not known over a URL"),
    ):
        (tmp_path / "here" / "shop.sql").write_text(SQL + statement)
        if says is None:
            shop.remote.deploy(project=tmp_path / "here")
        else:
            with pytest.raises(flowql.CompileError, match=says):
                shop.remote.deploy(project=tmp_path / "here")
    assert not (tmp_path / "here" / ".flowql").exists(), "the log of the folder here is not asked"


def test_queries_pause_and_resume(shop: Shop) -> None:
    assert shop.remote.pause("SPENT") == ["CTAS_SPENT"]
    assert {q["id"]: q["state"] for q in shop.local.status()["queries"]}["CTAS_SPENT"] == "paused"
    shop.remote.produce("ORDERS", ORDERS)
    assert shop.remote.resume("CTAS_SPENT") == ["CTAS_SPENT"]
    until(shop.remote, "SELECT SUM(N)::INT FROM SPENT", 3)


def test_functions_that_the_instance_has_too(tmp_path: Path) -> None:
    url = project(tmp_path / "there", more="functions: [f]\n")
    (tmp_path / "there" / "f.py").write_text("from flowql import udf\n\n@udf\ndef net(a: int) -> int:\n    return a\n")
    (tmp_path / "here").mkdir()
    for file in ("flowql.yaml", "f.py"):
        (tmp_path / "here" / file).write_text((tmp_path / "there" / file).read_text())
    call = "CREATE STREAM NETS AS SELECT CUSTOMER, NET(ID) AS N FROM ORDERS;"
    (tmp_path / "here" / "shop.sql").write_text(SQL + call)
    with flowql.Instance(tmp_path / "there"), flowql.connect(url, token=TOKEN) as shop:
        shop.deploy(project=tmp_path / "here")
        shop.produce("ORDERS", ORDERS)
        with shop.subscribe("SELECT NET(ID) AS N FROM ORDERS EMIT CHANGES", start="earliest", limit=3) as changes:
            assert sorted(c.row["N"] for c in changes if isinstance(c, flowql.Change)) == [1, 2, 3]
