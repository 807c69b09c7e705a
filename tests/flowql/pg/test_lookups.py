"""Look-ups by key, which no query engine answers, in both protocols of queries (`tests/flowql/query/test_point_lookups.py` compares the ways)."""

from __future__ import annotations

from random import Random

import pytest

from flowql.query.point_lookups import WAY
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import SYNC, bind, describe, execute, fields_of, parse, rows_of


@pytest.mark.parametrize("binary", [0, 1])
def test_answers_are_those_of_a_query(shop: Shop, binary: int) -> None:
    """The same statement with a condition that is true goes the usual way."""
    rng = Random(binary)
    with shop.wire() as w, shop.wire() as other:
        for table, key, values in (
            ("kinds", "id", [b"1", b"2", b"3", b"4", b"9223372036854775807", None]),
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


def test_both_protocols_of_queries_look_up(shop: Shop) -> None:
    way = [("way", WAY)]
    with shop.wire() as w:
        assert w.rows("EXPLAIN SELECT total FROM spent WHERE customer = 'ada'") == way
        for sql, value in (
            ("SELECT * FROM kinds WHERE id = $1", b"1"),
            ("SELECT * FROM spent WHERE customer = $1", b"x"),
        ):
            w.send(parse(f"EXPLAIN {sql}"), bind(value), execute(), SYNC)
            assert rows_of(w.until_ready()) == way


def test_a_lookup_after_a_write_in_a_transaction_is_refused(shop: Shop) -> None:
    with shop.wire() as w:
        w.ask("BEGIN; INSERT INTO notes VALUES (9100, 'x')")
        w.send(parse("SELECT note FROM notes WHERE id = $1"), bind(b"9100"), execute(), SYNC)
        assert [fields_of(b)["C"] for k, b in w.until_ready() if k == b"E"] == ["0A000"]
        w.ask("ROLLBACK")
