"""The local tables of a process from their first statement to the end of the process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

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
    begun = [tables.begin("INSERT INTO t VALUES (2, 1)", plan.sources, "standard")]
    assert arrived.wait(20)
    begun += [tables.begin(f"INSERT INTO t VALUES ({k}, 1)", plan.sources, "standard") for k in (3, 4)]
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
