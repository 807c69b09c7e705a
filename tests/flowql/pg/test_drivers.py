"""Drivers of PostgreSQL, where they are installed."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from tests.flowql.pg.conftest import Shop

ROW = (1, 7, "it's \"ada\", \\n", Decimal("10.50"), 1.5, True, date(2024, 2, 29), time(10, 0, 0, 250_000), datetime(2024, 1, 1, 10, 0, 0, 123_456), datetime(2024, 1, 1, 8, tzinfo=UTC))  # fmt: skip
REST = (UUID(int=10), b"\x00\xff")


@pytest.mark.parametrize("is_binary", [False, True])
def test_psycopg(shop: Shop, is_binary: bool) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(host="127.0.0.1", port=shop.port, user="ada", dbname="x") as c:
        with c.cursor(binary=is_binary) as cursor:
            (row,) = cursor.execute("SELECT * FROM kinds WHERE id = %s", (1,)).fetchall()
            assert (row[:10], row[11:13], row[14:]) == (ROW, REST, ([1, None, 3], ["a b", "", "NULL", 'x"y', None]))
            assert cursor.execute(
                "SELECT id FROM kinds WHERE name = %s OR id = ANY(%s) ORDER BY id", ("", [1])
            ).fetchall() == [(1,), (2,)]
            assert cursor.execute(
                "SELECT %s, %s::numeric, %s::date, %s", ("ü' \\", Decimal("-1.5"), date(2024, 2, 29), None)
            ).fetchone() == ("ü' \\", Decimal("-1.5"), date(2024, 2, 29), None)
            with pytest.raises(psycopg.errors.UndefinedColumn):
                cursor.execute("SELECT nope FROM kinds")
            c.rollback()
            cursor.executemany("INSERT INTO notes VALUES (%s, %s)", [(n, f"n{n}") for n in range(100, 150)])
        c.commit()
        c.autocommit = True
        assert c.execute("SELECT COUNT(*), MIN(note) FROM notes WHERE id >= 100").fetchone() == (50, "n100")
        assert c.execute("DELETE FROM notes WHERE id >= %s", (100,)).rowcount == 50
        with c.cursor().copy("COPY (SELECT id FROM orders ORDER BY id) TO STDOUT") as copy:
            assert b"".join(copy) == b"1\n2\n3\n"


def test_psycopg_subscribes(shop: Shop) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(host="127.0.0.1", port=shop.port, user="ada", dbname="x", autocommit=True) as c:
        c.execute("INSERT INTO notes VALUES (150, 'a')")
        with c.transaction(), c.cursor() as cursor:
            cursor.execute("DECLARE c CURSOR FOR SUBSCRIBE notes ENVELOPE UPSERT WITH (PROGRESS)")
            told = cursor.execute("FETCH ALL c WITH (TIMEOUT = '20s')").fetchall()
        assert [r[3:] for r in told if not r[1]] == [("upsert", 150, "a")]
        c.execute("DELETE FROM notes WHERE id = 150")
        changes = c.cursor().stream("SUBSCRIBE notes ENVELOPE UPSERT WITH (RESUME = %s)", (told[-1][2],))
        assert next(changes)[1:] == ("delete", 150, None)
        c.cancel()
        with pytest.raises(psycopg.errors.QueryCanceled):
            next(changes)
        with c.cursor().copy("COPY (SUBSCRIBE orders WITH (PROGRESS)) TO STDOUT") as copy:
            rows = iter(copy.rows())
            assert [next(rows)[1] for _ in range(2)] == ["t", "f"]
            c.cancel()
            with pytest.raises(psycopg.errors.QueryCanceled):
                list(rows)


def test_asyncpg(shop: Shop) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def run() -> None:
        c = await asyncpg.connect(host="127.0.0.1", port=shop.port, user="ada", database="x")
        row = tuple(await c.fetchrow("SELECT * FROM kinds WHERE id = $1", 1))
        assert (row[:10], row[11:13], row[13], row[14:]) == (
            ROW,
            REST,
            timedelta(days=425 - 3, seconds=14_706, microseconds=700_000),
            ([1, None, 3], ["a b", "", "NULL", 'x"y', None]),
        )
        assert (
            await c.fetchval(
                "SELECT customer FROM orders WHERE amount > $1 AND id IN ($2, $3) LIMIT $4", Decimal(15), 1, 2, 5
            )
            == "bob"
        )
        assert await c.execute("INSERT INTO notes VALUES ($1, $2)", 200, "x") == "INSERT 0 1"
        assert await c.execute("UPDATE notes SET note = $1 WHERE id = $2", "y", 200) == "UPDATE 1"
        assert await c.fetchval("DELETE FROM notes WHERE id = $1 RETURNING note", 200) == "y"
        async with c.transaction():
            assert [r[0] async for r in c.cursor("SELECT id FROM orders ORDER BY id", prefetch=2)] == [1, 2, 3]
        with pytest.raises(asyncpg.exceptions.UndefinedTableError):
            await c.fetch("SELECT * FROM nowhere")
        await c.reset()
        await c.close()

    asyncio.run(run())


def test_reflection_of_sqlalchemy(shop: Shop) -> None:
    sa = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    engine = sa.create_engine(f"postgresql+psycopg://ada@127.0.0.1:{shop.port}/x")
    meta = sa.MetaData()
    meta.reflect(engine, views=True)
    assert {"kinds", "orders", "notes", "spent"} <= set(meta.tables)
    orders = meta.tables["orders"]
    assert [(c.name, str(c.type), c.nullable, c.primary_key) for c in orders.columns] == [
        *(("id", "BIGINT", False, True), ("customer", "TEXT", True, False), ("amount", "NUMERIC(10, 2)", True, False))
    ]
    with engine.connect() as c:
        assert c.execute(sa.select(orders.c.customer).where(orders.c.id == 2)).all() == [("bob",)]
        spent = meta.tables["spent"]
        assert c.execute(sa.select(sa.func.sum(spent.c.total))).scalar() == Decimal("31.75")
    notes = meta.tables["notes"]
    with engine.begin() as c:
        c.execute(notes.insert(), [{"id": 300, "note": "a"}, {"id": 301, "note": "b"}])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        assert c.execute(notes.update().where(notes.c.id == 300).values(note="z")).rowcount == 1
        assert c.execute(notes.delete().where(notes.c.id >= 300)).rowcount == 2
    engine.dispose()
