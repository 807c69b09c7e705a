"""Catalogue queries of Metabase, Grafana and DBeaver. Each file names its origin; the statements are ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import Wire
from tests.one_meaning import postgres

FILES = Path(__file__).parent / "tools"
_EXPECTED = "-- = "


def recorded() -> Iterator[tuple[str, str, list[str]]]:
    """Name, statement, and the rows of the answer with `|` between values."""
    for file in sorted(FILES.glob("*.sql")):
        _, *parts = re.split(r"^-- name: ", file.read_text(), flags=re.MULTILINE)
        for part in parts:
            name, *lines = part.splitlines()
            rows = [line.removeprefix(_EXPECTED) for line in lines if line.startswith(_EXPECTED)]
            sql = "\n".join(line for line in lines if not line.startswith("--")).strip().removesuffix(";")
            yield f"{file.stem}: {name}", sql, rows


RECORDED = list(recorded())


TABLES = """
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer TEXT, amount DECIMAL(10, 2));
CREATE MATERIALIZED VIEW spent AS SELECT customer, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY customer;
"""


def shown(wire: Wire, sql: str) -> list[str]:
    return ["|".join("NULL" if value is None else value for value in row) for row in wire.rows(sql)]


@pytest.mark.parametrize(("sql", "expected"), [r[1:] for r in RECORDED], ids=[r[0] for r in RECORDED])
def test_what_tools_read(shop: Shop, sql: str, expected: list[str]) -> None:
    with shop.wire() as w:
        assert shown(w, sql) == expected


@pytest.mark.turns("beside PostgreSQL")
@pytest.mark.skipif(not postgres.installed(), reason="needs PostgreSQL 15")
def test_postgresql_gives_these_rows() -> None:
    """Except for its version, roles, which FlowQL does not list, and materialized views, which FlowQL has in `information_schema.tables`."""
    own = ("grafana: version", "dbeaver: settings", "dbeaver: roles")
    own += ("grafana: tables of a schema", "grafana: tables in the search path")
    with postgres.server() as server:
        server.run("CREATE ROLE ada LOGIN SUPERUSER")
        server.run("CREATE DATABASE x")
        with Wire(0, path=server.address, user="ada", database="x", TimeZone="UTC") as w:
            w.ask(TABLES)
            w.ask("UPDATE pg_database SET datallowconn = false WHERE datname = 'postgres'")
            found = {name: shown(w, sql) for name, sql, _ in RECORDED if name not in own}
    assert found == {name: rows for name, _, rows in RECORDED if name not in own}


def test_each_file_names_its_origin() -> None:
    for file in FILES.glob("*.sql"):
        assert re.search(r"^-- Origin: \w+/\w+, .*\.\w+", file.read_text(), re.MULTILINE), file
