"""The local tables of a process from their first statement to the end of the process."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import duckdb
import pytest

from flowql.query.answer import Done
from flowql.query.changing import carry_out
from flowql.query.local_tables import LocalTables
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.topology import table_writer
from flowql.runtime.topology.query import ensure_sources
from tests.runtime.topology.test_table_writer import plan_of, rows_in

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, n INT)"


def test_statements_that_wait_when_the_process_ends_are_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads of the process take no more calls while the statements before them are written."""
    log, plan = MemoryLog(), plan_of(TABLE)
    ensure_sources(plan, log)
    tables = LocalTables(lambda: log, "app", "one")
    (source,) = plan.sources

    def execute(sql: str) -> None:
        options: dict[str, Any] = {"dialect": "standard", "variables": {}, "bound": tables.bound}
        carry_out(sql, plan.sources, tables.writers(), lambda sql: pytest.fail("no query"), "app", **options)

    execute("INSERT INTO t VALUES (1, 1)")
    arrived, gate, write = threading.Event(), threading.Event(), table_writer._write

    def writes(*given: Any) -> None:
        arrived.set()
        assert gate.wait(20)
        write(*given)

    monkeypatch.setattr(table_writer, "_write", writes)
    begun = [tables.begin("INSERT INTO t VALUES (2, 1)", plan, "standard")]
    assert arrived.wait(20)
    begun += [tables.begin(f"INSERT INTO t VALUES ({k}, 1)", plan, "standard") for k in (3, 4)]
    tables._owners.shutdown(wait=False)
    closing = threading.Thread(target=tables.close, daemon=True)
    closing.start()
    gate.set()
    for future in begun:
        assert future is not None
        assert future.result(timeout=20).rows == 1
    closing.join(20)
    assert not closing.is_alive()
    assert sorted(row[0] for row in rows_in(log, source).values()) == [1, 2, 3, 4]


def test_a_server_hears_once_that_statements_were_carried_out_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server wakes its loop once for each group, when all outcomes of the group are known."""
    log, plan = MemoryLog(), plan_of(TABLE)
    ensure_sources(plan, log)
    tables = LocalTables(lambda: log, "app", "one")
    options: dict[str, Any] = {"dialect": "standard", "variables": {}, "bound": tables.bound}
    carry_out(
        "INSERT INTO t VALUES (1, 1)",
        plan.sources,
        tables.writers(),
        lambda sql: pytest.fail("no query"),
        "app",
        **options,
    )
    arrived, gate, write = threading.Event(), threading.Event(), table_writer._write
    begun, heard = list[Future[Done]](), list[list[bool]]()

    def writes(*given: Any) -> None:
        arrived.set()
        assert gate.wait(20)
        write(*given)

    def begin(key: int) -> None:
        found = tables.begin(f"INSERT INTO t VALUES ({key}, 1)", plan, "standard", after=hears)
        assert found is not None
        begun.append(found)

    def hears() -> None:
        heard.append([future.done() for future in begun])

    monkeypatch.setattr(table_writer, "_write", writes)
    begin(2)
    assert arrived.wait(20)
    for key in (3, 4, 5):
        begin(key)
    gate.set()
    tables.close()
    assert len(heard) == 2, "one for each group"
    assert any(map(all, heard)), "the outcomes are known by then"


FORMS = (
    "INSERT INTO t VALUES ({}, {}) ON CONFLICT DO NOTHING",
    "INSERT INTO t VALUES ({}, 7) ON CONFLICT (k) DO UPDATE SET n = t.n + {}",
    "UPDATE t SET n = n * {} WHERE k = {}",
    "UPDATE t SET n = n - {} WHERE k IN ({}, {}) AND n > -{}",
    "UPDATE t SET n = {} WHERE n < {} OR k = {}",
    "DELETE FROM t WHERE k = {} AND n <> {}",
)


def test_statements_of_one_form_each_have_their_own_constants() -> None:
    """They share what is compiled; DuckDB carries out the same ones."""
    log, plan, db = MemoryLog(), plan_of(TABLE), duckdb.connect()
    ensure_sources(plan, log)
    tables, numbers = LocalTables(lambda: log, "app", "one"), iter([n % 5 + 1 for n in range(0, 400, 3)])
    (source,) = plan.sources
    db.execute(TABLE)
    tables.writers()
    for _ in range(4):
        for form in FORMS:
            sql = form.format(*(next(numbers) for _ in range(form.count("{}"))))
            begun = tables.begin(sql, plan, "standard")
            if begun is not None:
                count = begun.result(timeout=20).rows
            else:
                options: dict[str, Any] = {"dialect": "standard", "variables": {}, "bound": tables.bound}
                (done,) = carry_out(
                    sql, plan.sources, tables.writers(), lambda sql: pytest.fail("no query"), "app", **options
                )
                count = done.rows
            assert db.execute(sql).fetchone() == (count,), sql
            assert sorted(rows_in(log, source).values()) == db.execute("SELECT k, n FROM t ORDER BY k").fetchall(), sql
    assert begun is not None, "the form is known by then"
    tables.close()
