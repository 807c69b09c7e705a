"""What psql and drivers read of PostgreSQL's catalogue."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from flowql.api.deploying import wanted_of_engine, wanted_plan
from flowql.config.load import read_project
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import Failed

psql_is_here = pytest.mark.skipif(shutil.which("psql") is None, reason="needs psql")


def psql(shop: Shop, *commands: str) -> str:
    given = [part for c in commands for part in ("-c", c)]
    environment = {
        **os.environ,
        "PGHOST": "127.0.0.1",
        "PGPORT": str(shop.port),
        "PGUSER": "ada",
        "PGDATABASE": "shop",
        "PGCONNECT_TIMEOUT": "20",
    }
    done = subprocess.run(["psql", "-X", *given], env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@psql_is_here
def test_what_psql_describes(shop: Shop) -> None:
    shown = psql(shop, r"\d", r"\d orders", r"\d+ spent", r"\l", r"\dn")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for line in (
        "public | orders | table | flowql",
        "public | spent | materialized view | flowql",
        'Table "public.orders"',
        "id | bigint | | not null |",
        "amount | numeric(10,2) | | |",
        '"orders_pkey" PRIMARY KEY, btree (id)',
        'Materialized view "public.spent"',
        "orders | bigint | | | | plain | | |",
        "View definition:",
        "shop | flowql | UTF8 | C | C | | libc |",
        "public | flowql",
    ):
        assert line in lines, shown
    assert "ERROR" not in shown


@psql_is_here
@pytest.mark.parametrize(
    "command",
    [
        r"\dt",
        r"\dv",
        r"\dm",
        r"\di",
        r"\ds",
        r"\df",
        r"\du",
        r"\dT",
        r"\dp",
        r"\dx",
        r"\db",
        r"\dt+",
        r"\d spent",
        r"\d orders_pkey",
        r"\dS pg_am",
        r"\sv spent",
    ],
)
def test_what_psql_lists_without_an_error(shop: Shop, command: str) -> None:
    assert "ERROR" not in psql(shop, command)


def test_the_information_schema_and_functions_of_the_session(shop: Shop) -> None:
    with shop.wire() as w:
        columns = "SELECT column_name, data_type, is_nullable FROM information_schema.columns WHERE table_name = 'orders' ORDER BY ordinal_position"
        assert w.rows(columns) == [("id", "bigint", "NO"), ("customer", "text", "YES"), ("amount", "numeric", "YES")]
        assert w.rows(
            "SELECT table_name, table_type FROM information_schema.tables WHERE table_name IN ('orders', 'spent') ORDER BY 1"
        ) == [("orders", "BASE TABLE"), ("spent", "VIEW")]
        keys = "SELECT k.column_name FROM information_schema.table_constraints c JOIN information_schema.key_column_usage k USING (constraint_name) WHERE c.table_name = 'orders'"
        assert w.rows(keys) == [("id",)]
        assert w.rows("SELECT current_database(), current_user, current_schema()") == [("x", "ada", "public")]
        assert w.rows("SELECT set_config('application_name', 'me', false), current_setting('application_name')") == [
            ("me", "me")
        ]
        assert w.rows("SHOW application_name") == [("me",)]
        assert w.rows("SELECT 'orders'::regclass::oid = c.oid FROM pg_class c WHERE relname = 'orders'") == [("t",)]
        assert w.rows("SELECT c.oid::regclass::text FROM pg_class c WHERE relname ~ '^ord.*s$'") == [("orders",)]
        # As the driver for Java asks.
        places = "SELECT (information_schema._pg_expandarray(i.indkey)).n, (information_schema._pg_expandarray(i.indkey)).x FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relname = 'orders'"
        assert w.rows(places) == [("1", "1")]
        assert w.rows("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'max_index_keys'") == [("32",)]
        assert w.rows(
            "SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{select,limit,a b}'::text[])"
        ) != [(None,)]
        for sql, state in (
            ("SELECT * FROM pg_nothing", "42P01"),
            ("SELECT nope FROM pg_class", "42703"),
            ("SELECT 'nowhere'::regclass FROM pg_class", "42P01"),
        ):
            with pytest.raises(Failed, match=state):
                w.rows(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM pg_class; DROP TABLE pg_class",
        "COPY (SELECT 1 FROM pg_class) TO '/tmp/x'",
        "SELECT * FROM read_text('/etc/passwd'), pg_catalog.pg_class",
        "SELECT * FROM duckdb_settings(), pg_catalog.pg_class",
        "WITH x AS (SELECT 1) DELETE FROM pg_class",
    ],
)
def test_the_catalogue_is_read_alone_and_tells_nothing_of_the_machine(shop: Shop, sql: str) -> None:
    with shop.wire() as w:
        found = w.ask(sql)
        told = b"".join(b for k, b in found if k == b"D")
        assert b"root:" not in told
        assert b"/" not in told
        assert w.rows("SELECT relname FROM pg_class WHERE relname = 'orders'") == [("orders",)]


def deploy(shop: Shop) -> None:
    host = shop.instance._host
    assert host is not None
    project = read_project(shop.folder)
    deployed = host.service.deployed.plan
    plan = wanted_of_engine(
        host.service,
        project,
        wanted_plan(project, running=deployed, topics=host.service.topics()),
        running=deployed,
        topics=host.service.topics(),
    )
    host.service.deploy(plan)


def test_a_deployment_shows_at_once(shop: Shop) -> None:
    with shop.wire() as w:
        question = "SELECT relname FROM pg_catalog.pg_class WHERE relname = 'more'"
        assert w.rows(question) == []
        (shop.folder / "more.sql").write_text(
            "CREATE MATERIALIZED VIEW more AS SELECT id FROM orders WHERE amount > 5;"
        )
        deploy(shop)
        assert w.rows(question) == [("more",)]
