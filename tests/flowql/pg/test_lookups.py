"""Prepared look-ups by key, which no query engine answers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from flowql.config.load import read_project
from flowql.deploy.settings import settings_of
from flowql.pg.lookups import _FIRST_SAMPLE
from flowql.pg.reading import Reading
from flowql.pg.statements import split
from flowql.pg.types import INT8, TEXT
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import SYNC, bind, describe, execute, fields_of, parse, rows_of


@pytest.fixture(scope="module")
def reading(shop: Shop) -> Iterator[Reading]:
    made = Reading(settings_of(read_project(shop.folder)))
    yield made
    made.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM kinds WHERE id = $1",
        "SELECT name, id AS i, id FROM kinds AS k WHERE $1 = k.id",
        "SELECT customer FROM orders WHERE id = $1;",
        "SELECT id FROM kinds WHERE n = $1",
    ],
)
def test_what_is_a_lookup(reading: Reading, sql: str) -> None:
    assert reading.lookup(split(sql)[0], (INT8,)) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id + 1 FROM kinds WHERE id = $1",
        "SELECT id FROM kinds WHERE id > $1",
        "SELECT id FROM kinds WHERE id = $1 AND n = 7",
        "SELECT id FROM kinds WHERE id = $1 OR n = 7",
        "SELECT id FROM kinds WHERE id = $1 LIMIT 1",
        "SELECT id FROM kinds WHERE id = $1 ORDER BY n",
        "SELECT DISTINCT n FROM kinds WHERE id = $1",
        "SELECT COUNT(*) FROM kinds WHERE id = $1",
        "SELECT a.id FROM kinds a JOIN orders b USING (id) WHERE a.id = $1",
        "SELECT id FROM kinds WHERE id = $1 UNION SELECT 1",
        "SELECT id FROM kinds WHERE NOT id = $1",
        "SELECT id, $1::int FROM kinds WHERE id = 1",
        f"SELECT id FROM kinds WHERE id = {_FIRST_SAMPLE} AND id = $1",
        "SELECT id FROM kinds WHERE id = $1 AND id = $2",
        "SELECT id FROM kinds WHERE x = $1",
        "SELECT nope FROM kinds WHERE id = $1",
        "SELECT * FROM nowhere WHERE id = $1",
        "SELECT * FROM (SELECT id FROM kinds WHERE ok) x WHERE id = $1",
    ],
)
def test_what_is_none(reading: Reading, sql: str) -> None:
    (statement,) = split(sql)
    assert reading.lookup(statement, (INT8,) * statement.parameters) is None


def test_a_key_that_is_a_string(reading: Reading) -> None:
    (statement,) = split("SELECT total FROM spent WHERE customer = $1")
    assert reading.lookup(statement, (TEXT,)) is not None
    assert reading.lookup(statement, (INT8,)) is None


@pytest.mark.parametrize("binary", [0, 1])
def test_answers_are_those_of_a_query(shop: Shop, binary: int) -> None:
    """The same statement with a condition that is true goes the usual way."""
    rng = Random(binary)
    with shop.wire() as w, shop.wire() as other:
        for table, key, values in (
            ("kinds", "id", [b"1", b"2", b"3", b"4", b"9223372036854775807", None]),
            ("kinds", "n", [b"7", b"0", b"-2147483648", b"5", None]),
            ("kinds", "name", [b"", b'it\'s "ada", \\n', None]),
            ("spent", "customer", [b"ada", b"bob", b"", b"x", None]),
        ):
            for value in values:
                found = []
                for more in ("", " AND 1 = 1"):
                    w.send(
                        parse(f"SELECT * FROM {table} WHERE {key} = $1{more}"),
                        bind(value, results=(binary,)),
                        describe(),
                        execute(),
                        SYNC,
                    )
                    found.append(w.until_ready())
                assert found[0] == found[1], (table, value)
        w.send(parse("SELECT note FROM notes WHERE id = $1", name="s"), SYNC)
        w.until_ready()
        for n in range(30):
            sql = (
                "INSERT INTO notes VALUES (9000, 'n{n}') ON CONFLICT (id) DO UPDATE SET note = excluded.note",
                "DELETE FROM notes WHERE id = 9000",
            )[rng.randrange(3) // 2]
            other.ask(sql.replace("{n}", str(n)))
            w.send(bind(b"9000", name="s"), execute(), SYNC)
            assert rows_of(w.until_ready()) == other.rows("SELECT note FROM notes WHERE id = 9000")
        other.ask("DELETE FROM notes WHERE id = 9000")


def test_a_lookup_after_a_write_in_a_transaction_is_refused(shop: Shop) -> None:
    with shop.wire() as w:
        w.ask("BEGIN; INSERT INTO notes VALUES (9100, 'x')")
        w.send(parse("SELECT note FROM notes WHERE id = $1"), bind(b"9100"), execute(), SYNC)
        assert [fields_of(b)["C"] for k, b in w.until_ready() if k == b"E"] == ["0A000"]
        w.ask("ROLLBACK")
