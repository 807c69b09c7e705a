"""Interactive queries by every door show whole transactions, while large ones are written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.config.api import ApiSettings
from flowql.config.sections import InteractiveQuerySettings
from flowql.deploy.settings import Settings
from flowql.query.errors import APART
from flowql.server.address import read_address
from flowql.server.host import Host
from tests.gateway import gateway_of, port_of

TOKEN, ANSWER_S = "t" * 16, 120.0
ROWS, TRANSACTIONS = 20_000, 4
PAUSE_S = 0.05  # a process of low priority computes the rows
# Of each transaction, one half of the rows are a's and one half are b's.
SQL = """
CREATE TABLE halves (id BIGINT PRIMARY KEY, half VARCHAR, n BIGINT) WITH (PARTITIONS = 2);
CREATE MATERIALIZED VIEW halved AS SELECT half, COUNT(*) AS n FROM halves GROUP BY half;
CREATE MATERIALIZED VIEW difference AS SELECT n, SUM(CASE half WHEN 'a' THEN 1 ELSE -1 END) AS d FROM halves GROUP BY n;
CREATE VIEW a AS SELECT n, COUNT(*) AS c FROM halves WHERE half = 'a' GROUP BY n;
CREATE VIEW b AS SELECT n, COUNT(*) AS c FROM halves WHERE half = 'b' GROUP BY n;
"""
INSERT = "INSERT INTO halves SELECT i, CASE WHEN i % {rows} < {rows} / 2 THEN 'a' ELSE 'b' END, 1 FROM generate_series({first}, {last}) AS t(i)"
COUNT = "SELECT CAST(SUM(n) AS BIGINT) AS n FROM halved"
ZEROS = {
    "a view": "SELECT MAX(n) - MIN(n) AS zero FROM halved",
    "a row by key": "SELECT d AS zero FROM difference WHERE n = 1",
    "two views": "SELECT a.c - b.c AS zero FROM a JOIN b ON a.n = b.n",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    queries = InteractiveQuerySettings(dialect="standard")
    made = Host(Settings(tmp_path_factory.mktemp("halves"), "demo", 2, 256 << 20, interactive_queries=queries))
    made.start()
    made.service.deploy(compile_project([SourceText("halves.sql", SQL)], dialect="standard").plan)
    yield made
    made.close()


def zeros(document: dict[str, Any]) -> list[object]:
    """What a query of `ZEROS` has found, "apart" if the answer says that it combines states; [] where there is nothing yet."""
    found = [row["zero"] for row in document["rows"] if row["zero"] is not None]
    return ["apart"] if found and "inconsistent" in document else found


def test_no_answer_has_a_part_of_a_transaction(host: Host) -> None:
    """A view that has not read all of a large transaction when a commit is due is committed with a part of it."""
    address = read_address(host._settings.data_dir)
    assert address is not None
    with gateway_of(host, ApiSettings(1, TOKEN)) as gateway, httpx.Client(trust_env=False, timeout=ANSWER_S) as client:

        def post(port: int, token: str, path: str, **body: Any) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            said = client.post(f"http://127.0.0.1:{port}{path}", headers=headers, json=body)
            assert said.status_code == 200, said.text
            return said.json()

        def by_pg(sql: str) -> dict[str, Any]:
            answer = gateway.reading.ask(sql)
            apart = {"inconsistent": ""} if APART in (answer.schema.metadata or {}) else {}
            return {"rows": answer.table().to_pylist(), **apart}

        doors: dict[str, Callable[[str], dict[str, Any]]] = {
            "instance": lambda sql: post(address.port, address.token, "/v1/query", sql=sql),
            "http": lambda sql: post(port_of(gateway), TOKEN, "/v1/query", sql=sql),
            "pg": by_pg,
        }

        def execute(statement: str) -> None:
            with httpx.Client(trust_env=False, timeout=ANSWER_S) as own:
                url, headers = (
                    f"http://127.0.0.1:{address.port}/v1/execute",
                    {"Authorization": f"Bearer {address.token}"},
                )
                said = own.post(url, headers=headers, json={"statements": statement})
                assert said.status_code == 200, said.text

        def write() -> None:
            for first in range(0, TRANSACTIONS * ROWS, ROWS):
                execute(INSERT.format(first=first, last=first + ROWS - 1, rows=ROWS))

        limit = time.monotonic() + ANSWER_S
        execute("INSERT INTO halves VALUES (-1, 'a', 1), (-2, 'b', 1)")  # from now on there is a tick
        while any(zeros(ask(sql)) != [0] for ask in doors.values() for sql in ZEROS.values()):
            assert time.monotonic() < limit
        writer, found = threading.Thread(target=write), list[tuple[str, str, object]]()
        writer.start()
        while writer.is_alive() or doors["http"](COUNT)["rows"] != [{"n": 2 + TRANSACTIONS * ROWS}]:
            assert time.monotonic() < limit
            time.sleep(PAUSE_S)
            for door, ask in doors.items():
                found += [(door, what, value) for what, sql in ZEROS.items() for value in zeros(ask(sql))]
        writer.join()
        told = [looked for looked in found if looked[2] != "apart"]
        assert [looked for looked in told if looked[2] != 0] == []
        for door in doors:
            assert sum(of == door for of, *_ in told) > sum(of == door for of, *_ in found) / 2
