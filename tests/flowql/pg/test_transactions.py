"""Transactions: what their queries read, when their rows are written, and their settings."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.flowql.pg.conftest import Shop, started
from tests.flowql.pg.wire import SYNC, Failed, Wire, bind, execute, fields_of, parse, rows_of, tags

ALL = "SELECT * FROM notes WHERE id BETWEEN 400 AND 499 ORDER BY id"


@pytest.fixture
def noted(shop: Shop) -> Iterator[Shop]:
    """Rows 400 to 402 of `notes`, and none of its others from 400 to 499 afterwards."""
    with shop.wire() as w:
        w.rows("INSERT INTO notes VALUES (400, 'a'), (401, 'b'), (402, 'c')")
        yield shop
        w.rows("DELETE FROM notes WHERE id BETWEEN 400 AND 499")


def changed(other: Wire) -> None:
    other.rows("UPDATE notes SET note = 'z' WHERE id = 400")
    other.rows("DELETE FROM notes WHERE id = 401")
    other.rows("INSERT INTO notes VALUES (403, 'new')")


def test_queries_of_a_transaction_read_the_same_commit(noted: Shop) -> None:
    before, after = [("400", "a"), ("401", "b"), ("402", "c")], [("400", "z"), ("402", "c"), ("403", "new")]
    by_key = parse("SELECT note FROM notes WHERE id = $1", name="by_key")
    with noted.wire() as w, noted.wire() as late, noted.wire() as other:
        for each in (w, late):
            each.send(by_key, SYNC)
            each.until_ready()
        w.ask("BEGIN; SELECT 1")
        changed(other)  # BEGIN takes nothing
        assert w.rows(ALL) == after
        w.ask("ROLLBACK")
        other.rows("DELETE FROM notes WHERE id = 403; INSERT INTO notes VALUES (401, 'b')")
        other.rows("UPDATE notes SET note = 'a' WHERE id = 400")

        w.ask("BEGIN")
        assert w.rows(ALL) == before
        late.ask("BEGIN")
        assert late.rows("SELECT COUNT(*) FROM orders") == [("3",)], "it pins all results, of whichever it reads first"
        for _ in range(2):
            changed(other)
            assert other.rows(ALL) == after
            for each in (w, late):
                assert each.rows(ALL) == before
                assert each.rows("SELECT note FROM notes WHERE id = 401") == [("b",)]
                found = []
                for key in (b"400", b"401", b"403"):
                    each.send(bind(key, name="by_key"), execute(), SYNC)
                    found.append(rows_of(each.until_ready()))
                assert found == [[("a",)], [("b",)], []]
            other.rows("DELETE FROM notes WHERE id = 403; INSERT INTO notes VALUES (401, 'b')")
        changed(other)
        for each in (w, late):
            assert each.rows(ALL) == before
            each.ask("COMMIT")
            assert each.rows(ALL) == after


def test_a_pinned_table_survives_what_becomes_of_the_kept_rows(noted: Shop) -> None:
    """So many changes that replaced rows are dropped from what is kept."""
    with noted.wire() as w, noted.wire() as other:
        w.ask("BEGIN")
        before = w.rows(ALL)
        other.ask("DELETE FROM notes WHERE id = 400; SELECT COUNT(*) FROM notes")
        for _ in range(3):
            values = ", ".join(f"({n}, 'x')" for n in range(410, 499))
            other.ask(f"INSERT INTO notes VALUES {values}; SELECT COUNT(*) FROM notes")
            for _ in range(3):
                other.ask("UPDATE notes SET note = note || 'y' WHERE id > 402 AND id < 500; SELECT COUNT(*) FROM notes")
            other.ask("DELETE FROM notes WHERE id BETWEEN 410 AND 499; SELECT COUNT(*) FROM notes")
        other.ask(
            "DELETE FROM notes WHERE id = 401; UPDATE notes SET note = 'late' WHERE id = 402; SELECT COUNT(*) FROM notes"
        )
        assert w.rows(ALL) == before
        assert w.rows("SELECT note FROM notes WHERE id = 402") == [("c",)]
        w.ask("ROLLBACK")


def test_sixteen_transactions_read_at_a_time(shop: Shop) -> None:
    with ExitStack() as stack:
        wires = [stack.enter_context(shop.wire()) for _ in range(17)]
        for w in wires:
            w.ask("BEGIN; SELECT 1")
        for w in wires[:16]:
            assert w.rows("SELECT COUNT(*) FROM orders") == [("3",)]
        with pytest.raises(Failed, match="53400"):
            wires[16].rows("SELECT COUNT(*) FROM orders")
        wires[16].ask("ROLLBACK")
        assert wires[16].rows("SELECT COUNT(*) FROM orders") == [("3",)], "autocommit needs no pin"
        wires[0].ask("ROLLBACK")
        wires[1].socket.close()
        wires[1].stream.close()
        wires[16].ask("BEGIN")
        assert wires[16].rows("SELECT COUNT(*) FROM orders") == [("3",)]


def test_an_idle_transaction_ends_its_session(shop: Shop) -> None:
    with shop.wire() as w:
        assert w.rows("SHOW idle_in_transaction_session_timeout") == [("1min",)]
        w.ask("SET idle_in_transaction_session_timeout = 50; BEGIN")
        kind, body = w.message()
        assert (kind, fields_of(body)["C"]) == (b"E", "25P03")
        with pytest.raises((EOFError, ConnectionError)):
            w.message()


def test_settings_of_a_transaction_end_with_it(shop: Shop) -> None:
    with shop.wire() as w:

        def shown(name: str) -> str | None:
            return w.rows(f"SHOW {name}")[0][0]

        w.ask("SET statement_timeout = '90s'; BEGIN; SET LOCAL statement_timeout = 5000; SET lock_timeout = 7")
        assert (shown("statement_timeout"), shown("lock_timeout")) == ("5s", "7ms")
        w.ask("SAVEPOINT s; SET LOCAL statement_timeout = 1; SET lock_timeout = 8; ROLLBACK TO s")
        assert (shown("statement_timeout"), shown("lock_timeout")) == ("5s", "7ms")
        w.ask("ROLLBACK")
        assert (shown("statement_timeout"), shown("lock_timeout")) == ("90s", "0")
        w.ask("BEGIN; SET lock_timeout = 7; SELECT set_config('application_name', 'here', true)")
        assert shown("application_name") == "here"
        w.ask("COMMIT")
        assert (shown("lock_timeout"), shown("application_name")) == ("7ms", "")
        w.ask("SELECT set_config('application_name', 'there', false); SET LOCAL lock_timeout = 9")
        assert (shown("lock_timeout"), shown("application_name")) == ("7ms", "there")
        w.ask("RESET ALL")
        assert (shown("lock_timeout"), shown("statement_timeout")) == ("0", "0")
        for sql, state in (("SET lock_timeout = 'soon'", "22023"), ("SET transaction_isolation = 'chaos'", "22023")):
            w.ask("BEGIN")
            with pytest.raises(Failed, match=state):
                w.rows(sql)
            w.ask("ROLLBACK")
        w.ask("BEGIN")
        with pytest.raises(Failed, match="25001"):
            w.rows("DISCARD ALL")
        w.ask("ROLLBACK")


def test_characteristics_of_a_transaction(shop: Shop) -> None:
    with shop.wire() as w:

        def shown() -> tuple[str | None, str | None]:
            return w.rows("SHOW transaction_isolation")[0][0], w.rows("SHOW transaction_read_only")[0][0]

        assert shown() == ("read committed", "off")
        w.ask("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY NOT DEFERRABLE")
        assert shown() == ("repeatable read", "on")
        with pytest.raises(Failed, match="25006"):
            w.rows("DELETE FROM notes")
        assert tags(w.ask("ROLLBACK AND CHAIN")) == ["ROLLBACK"]
        assert shown() == ("repeatable read", "on")
        assert tags(w.ask("COMMIT AND NO CHAIN")) == ["COMMIT"]
        assert shown() == ("read committed", "off")
        w.ask("START TRANSACTION; SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        assert w.rows("SELECT COUNT(*) FROM orders") == [("3",)]
        with pytest.raises(Failed, match="25001"):
            w.rows("SET TRANSACTION READ ONLY")
        w.ask("ROLLBACK; BEGIN TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        with pytest.raises(Failed, match="0A000"):
            w.rows("DELETE FROM notes")
        w.ask("ROLLBACK; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        with pytest.raises(Failed, match="25006"):
            w.rows("INSERT INTO notes VALUES (1, 'x')")
        w.ask("BEGIN READ WRITE")
        assert shown() == ("read committed", "off")
        for sql in ("BEGIN ISOLATION LEVEL CHAOS", "BEGIN READ", "SET TRANSACTION nonsense"):
            w.ask("ROLLBACK")
            with pytest.raises(Failed, match="42601"):
                w.rows(sql)


VIEWS = """
CREATE TABLE moves (id BIGINT PRIMARY KEY, n BIGINT);
CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS c FROM moves;
CREATE MATERIALIZED VIEW again AS SELECT MAX(c) AS c FROM counted;
"""


def test_views_of_a_transaction_fit_together(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A view over a view is a commit later, so that their ends as of one commit do not fit together."""
    for shop in started(tmp_path_factory.mktemp("views"), "{port}", VIEWS, "INSERT INTO moves VALUES (0, 1)"):
        stop = threading.Event()

        def write(shop: Shop = shop, stop: threading.Event = stop) -> None:
            with shop.wire() as w:
                number = 1
                while not stop.is_set():
                    w.rows(f"INSERT INTO moves VALUES ({number}, 1)")
                    number += 1

        writer = threading.Thread(target=write)
        writer.start()
        seen, until = set(), time.monotonic() + 2.0
        try:
            with shop.wire() as w:
                while time.monotonic() < until or len(seen) < 2:
                    w.ask("BEGIN")
                    (count,), (again,) = w.rows("SELECT c FROM counted") + w.rows("SELECT c FROM again")
                    assert w.rows("SELECT a.c, b.c FROM counted a, again b") == [(count, again)], "one commit"
                    assert count == again, "one tick"
                    seen.add(count)
                    w.ask("COMMIT")
        finally:
            stop.set()
            writer.join()


def test_writes_of_several_tables_are_one_commit(noted: Shop) -> None:
    """A failure in one of them leaves out all, and nobody sees some of them."""
    both = (
        "SELECT (SELECT COUNT(*) FROM notes WHERE id >= 450 AND id < 500), (SELECT COUNT(*) FROM orders WHERE id = 450)"
    )
    with noted.wire() as w, noted.wire() as other:
        w.ask("BEGIN; INSERT INTO notes VALUES (450, 'a'), (451, 'b'); INSERT INTO orders VALUES (450, 'eve', 1)")
        assert other.rows(both) == [("0", "0")]
        other.ask("INSERT INTO orders VALUES (450, 'first', 1)")
        with pytest.raises(Failed, match="23505"):
            w.rows("COMMIT")
        assert other.rows(both) == [("0", "1")], "the table that did not fail has no rows of it either"
        other.ask("DELETE FROM orders WHERE id = 450")

        stop, wrong = threading.Event(), list[object]()

        def look() -> None:
            with noted.wire() as r:
                while not stop.is_set():
                    found = r.rows(both)
                    if found not in ([("0", "0")], [("2", "1")]):
                        wrong.append(found)

        reader = threading.Thread(target=look)
        reader.start()
        for _ in range(8):
            w.ask(
                "BEGIN; INSERT INTO notes VALUES (450, 'a'), (451, 'b'); INSERT INTO orders VALUES (450, 'eve', 1); COMMIT"
            )
            w.ask("BEGIN; DELETE FROM orders WHERE id = 450; DELETE FROM notes WHERE id IN (450, 451); COMMIT")
        stop.set()
        reader.join()
        assert not wrong


def test_a_write_that_others_overtake_is_refused_at_commit(noted: Shop) -> None:
    with noted.wire() as w, noted.wire() as other:
        w.ask("BEGIN")
        assert tags(w.ask("UPDATE notes SET note = note || '!' WHERE id = 400")) == ["UPDATE 1"]
        other.ask("DELETE FROM notes WHERE id = 400")
        with pytest.raises(Failed, match="40001"):
            w.rows("COMMIT")
        w.ask("BEGIN; UPDATE notes SET note = note || '!' WHERE id = 401")
        other.ask("UPDATE notes SET note = 'other' WHERE id = 401")
        assert tags(w.ask("COMMIT")) == ["COMMIT"], "as many rows as its client was told"
        assert other.rows("SELECT note FROM notes WHERE id = 401") == [("other!",)]
        w.ask("BEGIN")
        ((before,),) = rows_of(w.ask("UPDATE notes SET note = random()::text WHERE id = 402 RETURNING note"))
        w.ask("COMMIT")
        assert other.rows("SELECT note FROM notes WHERE id = 402") == [(before,)]

        strict = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT note FROM notes WHERE id = 401"
        for conflicts in (True, False):
            w.ask(strict)
            if conflicts:
                other.ask("UPDATE notes SET note = 'mine' WHERE id = 401")
            assert tags(w.ask("UPDATE notes SET note = 'read' WHERE id = 401")) == ["UPDATE 1"]
            if conflicts:
                with pytest.raises(Failed, match="40001"):
                    w.rows("COMMIT")
            else:
                assert tags(w.ask("COMMIT")) == ["COMMIT"]


def test_writes_that_a_transaction_cannot_have(noted: Shop) -> None:
    many = ", ".join(f"({n})" for n in range(5000, 5600))
    with noted.wire() as w:
        for before, sql in (
            ("", "UPDATE notes SET note = 'x' WHERE id IN (SELECT id FROM orders)"),
            ("", "DELETE FROM notes WHERE id = (SELECT MAX(id) FROM notes)"),
            ("INSERT INTO notes VALUES (460, 'x')", "SELECT COUNT(*) FROM orders"),
            ("INSERT INTO notes VALUES (460, 'x')", "INSERT INTO notes SELECT id + 490, customer FROM orders"),
            (f"INSERT INTO notes SELECT n, 'x' FROM (VALUES {many}) AS t(n)", "DELETE FROM notes WHERE id = 5001"),
        ):
            w.ask(f"BEGIN; {before}")
            with pytest.raises(Failed, match="0A000"):
                w.rows(sql)
            assert w.ask("ROLLBACK")[-1] == (b"Z", b"I")
        assert w.rows("SELECT COUNT(*) FROM notes WHERE id >= 460") == [("0",)]
