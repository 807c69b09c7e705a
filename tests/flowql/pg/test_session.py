"""Statements of the simple and the extended protocol, as a client sees them."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time

import pytest

from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import SYNC, Failed, Wire, bind, describe, execute, fields_of, parse, rows_of, tags, values


def test_a_query_a_view_and_an_error_with_its_place(shop: Shop) -> None:
    with shop.wire() as w:
        assert w.rows("SELECT 1 AS one") == [("1",)]
        assert w.rows("SELECT * FROM spent ORDER BY customer") == [("ada", "2", "11.75"), ("bob", "1", "20.00")]
        for sql, state, position in (
            ("SELECT nope FROM spent", "42703", "8"),
            ("SELECT * FROM nowhere", "42P01", "15"),
            ("SELEC 1", "42601", "1"),
            ("SELECT\n  FROM spent WHERE", "42601", "26"),
            ("SELECT 1/0", "22012", None),
            ("SELECT 1; SELECT nope FROM spent", "42703", "18"),
            ("SELECT 'open", "42601", "8"),
            ("CREATE TABLE x (a INT)", "0A000", None),
        ):
            with pytest.raises(Failed) as failed:
                w.rows(sql)
            assert (failed.value.state, failed.value.fields.get("P")) == (state, position), sql
        assert w.rows("SELECT 2") == [("2",)]


def test_several_statements_and_none(shop: Shop) -> None:
    with shop.wire() as w:
        found = w.ask("SELECT 1; ; SELECT customer FROM spent ORDER BY 1 -- done\n;")
        assert [k for k, _ in found] == [b"T", b"D", b"C", b"T", b"D", b"D", b"C", b"Z"]
        assert tags(found) == ["SELECT 1", "SELECT 2"]
        assert [k for k, _ in w.ask(" /* nothing */ ; ")] == [b"I", b"Z"]
        found = w.ask("SELECT 1; SELECT nope; SELECT 3")
        assert [k for k, _ in found] == [b"T", b"D", b"C", b"E", b"Z"]


def test_an_empty_statement_of_the_extended_protocol(shop: Shop) -> None:
    """Drivers look with it whether a connection lives."""
    with shop.wire() as w:
        w.send(parse(""), describe("S"), bind(), describe(), execute(), SYNC)
        assert [k for k, _ in w.until_ready()] == [b"1", b"t", b"n", b"2", b"n", b"I", b"Z"]


def test_a_portal_gives_so_many_rows_at_a_time(shop: Shop) -> None:
    with shop.wire() as w:
        w.send(
            (b"Q", b"BEGIN\0"), parse("SELECT id FROM orders ORDER BY id"), bind(portal="p"), describe(name="p"), execute(2, "p"), execute(2, "p"), execute(2, "p"), SYNC
        )  # fmt: skip
        w.until_ready()
        found = w.until_ready()
        assert [k for k, _ in found] == [b"1", b"2", b"T", b"D", b"D", b"s", b"D", b"C", b"C", b"Z"]
        assert [r[0] for r in rows_of(found)] == ["1", "2", "3"]
        w.send(execute(0, "p"), SYNC)
        assert w.until_ready()[-1] == (b"Z", b"T"), "a portal lives as long as its transaction"
        w.ask("COMMIT")
        w.send(execute(0, "p"), SYNC)
        assert fields_of(w.until_ready()[0][1])["C"] == "34000"


def test_parameters_of_both_formats(shop: Shop) -> None:
    with shop.wire() as w:
        w.send(parse("SELECT customer, amount FROM orders WHERE id = $1 AND customer = $2"), describe("S"), SYNC)
        _, (kind, types), (_, columns), _ = w.until_ready()
        assert (kind, struct.unpack("!hii", types)) == (b"t", (2, 20, 25)), "types come from the columns"
        assert columns.count(b"\0customer\0") or columns[2:].startswith(b"customer\0")
        for given, formats in (((b"1", b"ada"), ()), ((struct.pack("!q", 1), b"ada"), (1, 0))):
            w.send(bind(*given, formats=formats), execute(), SYNC)
            assert rows_of(w.until_ready()) == [("ada", "10.50")]
        w.send(parse("SELECT $1::text, $2::int + 1, $3"), bind(b"it's $2 \\", b"41", None), execute(), SYNC)
        assert rows_of(w.until_ready()) == [("it's $2 \\", "42", None)]
        for given, state in (((b"x", b"a"), "22P02"), ((b"1",), "08P01"), ((b"99999999999999999999", b"a"), "22003")):
            w.send(parse("SELECT * FROM orders WHERE id = $1 AND customer = $2"), bind(*given), execute(), SYNC)
            found = w.until_ready()
            assert [fields_of(b)["C"] for k, b in found if k == b"E"] == [state]
        w.send(parse("SELECT $1::int AS n, nope FROM orders"), bind(b"123456"), execute(), SYNC)
        assert fields_of(w.until_ready()[2][1])["P"] == "22", "a place in the statement that was sent"


def test_after_an_error_nothing_is_done_until_sync(shop: Shop) -> None:
    with shop.wire() as w:
        w.send(
            parse("SELECT nope FROM orders"),
            bind(),
            execute(),
            parse("SELECT 1", name="late"),
            SYNC,
            (b"Q", b"SELECT 1\0"),
        )
        assert [k for k, _ in w.until_ready()] == [b"1", b"2", b"E", b"Z"]
        assert rows_of(w.until_ready()) == [("1",)]
        w.send(bind(name="late"), SYNC)
        assert fields_of(w.until_ready()[0][1])["C"] == "26000"


def test_an_error_arrives_before_sync(shop: Shop) -> None:
    """asyncpg asks with Flush, and sends Sync once it has the answer."""
    with shop.wire() as w:
        w.send(parse("SELECT nope FROM orders"), describe("S"), (b"H", b""))
        while (found := w.message())[0] == b"1":
            pass
        assert fields_of(found[1])["C"] == "42703"
        w.send(SYNC)
        assert w.until_ready()[-1] == (b"Z", b"I")


def test_a_transaction_writes_at_its_end(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        assert w.ask("BEGIN")[-1] == (b"Z", b"T")
        assert tags(w.ask("INSERT INTO notes VALUES (1, 'a'), (2, 'b')")) == ["INSERT 0 2"]
        assert tags(w.ask("INSERT INTO notes VALUES (3, 'c')")) == ["INSERT 0 1"]
        assert other.rows("SELECT * FROM notes") == []
        with pytest.raises(Failed, match="0A000"):
            w.rows("SELECT * FROM notes")
        with pytest.raises(Failed, match="25P02"):
            w.rows("SELECT 1")
        assert tags(w.ask("COMMIT")) == ["ROLLBACK"]
        assert other.rows("SELECT * FROM notes") == []
        w.ask(
            "BEGIN; SAVEPOINT s; INSERT INTO notes VALUES (1, 'a'); ROLLBACK TO s; INSERT INTO notes VALUES (2, 'b'); RELEASE s; INSERT INTO notes VALUES (3, 'c')"
        )
        assert tags(w.ask("COMMIT")) == ["COMMIT"]
        assert other.rows("SELECT * FROM notes ORDER BY id") == [("2", "b"), ("3", "c")]
        with pytest.raises(Failed, match="23505"):
            w.rows("INSERT INTO notes VALUES (3, 'again')")
        with pytest.raises(Failed, match="23502"):
            w.rows("INSERT INTO notes VALUES (4, NULL)")
        assert tags(w.ask("UPDATE notes SET note = 'z' WHERE id = 3")) == ["UPDATE 1"]
        assert rows_of(w.ask("DELETE FROM notes WHERE id = 3 RETURNING note")) == [("z",)]
        assert tags(w.ask("DELETE FROM notes")) == ["DELETE 1"]


def test_settings_of_drivers_and_pools(shop: Shop) -> None:
    with shop.wire(application_name="test") as w:
        assert w.rows("SHOW application_name") == [("test",)]
        w.ask(
            "SET application_name TO 'other'; SET extra_float_digits = 3; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
        )
        assert w.rows("SHOW application_name") == [("other",)]
        w.ask("RESET application_name")
        assert w.rows("SHOW application_name") == [("test",)]
        assert tags(w.ask("DISCARD ALL; DEALLOCATE ALL; UNLISTEN *; SET TIME ZONE 'UTC'")) == [
            "DISCARD ALL",
            "DEALLOCATE ALL",
            "UNLISTEN",
            "SET",
        ]
        for sql, state in (
            ("SET nonsense = 1", "42704"),
            ("SHOW nonsense", "42704"),
            ("SET client_encoding = 'LATIN1'", "22023"),
        ):
            with pytest.raises(Failed, match=state):
                w.rows(sql)


def test_a_cursor_reads_forward(shop: Shop) -> None:
    with shop.wire() as w:
        with pytest.raises(Failed, match="25P01"):
            w.rows("DECLARE c CURSOR FOR SELECT id FROM orders")
        w.ask(
            "BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT id FROM orders ORDER BY id; DECLARE h CURSOR WITH HOLD FOR SELECT 7"
        )
        w.send(parse("FETCH 2 FROM c"), describe("S"), parse("FETCH nothing"), describe("S"), SYNC)
        assert [k for k, _ in w.until_ready()] == [b"1", b"t", b"T", b"1", b"t", b"n", b"Z"]
        assert w.rows("FETCH 2 FROM c") == [("1",), ("2",)]
        found = w.ask("FETCH FORWARD ALL IN c")
        assert (rows_of(found), tags(found)) == ([("3",)], ["FETCH 1"])
        assert tags(w.ask("FETCH c; MOVE 5 h; CLOSE c; COMMIT")) == ["FETCH 0", "MOVE 1", "CLOSE CURSOR", "COMMIT"]
        assert w.rows("FETCH h") == []
        assert tags(w.ask("CLOSE ALL")) == ["CLOSE CURSOR ALL"]
        with pytest.raises(Failed, match="34000"):
            w.rows("FETCH h")


def test_copy_to_stdout(shop: Shop) -> None:
    with shop.wire() as w:
        found = w.ask("COPY (SELECT id, name, raw FROM kinds WHERE id < 4 ORDER BY id) TO STDOUT")
        assert (
            b"".join(b for k, b in found if k == b"d") == b'1\tit\'s "ada", \\\\n\t\\\\x00ff\n2\t\t\\\\x\n3\t\\N\t\\N\n'
        )
        assert tags(found) == ["COPY 3"]
        found = w.ask("COPY kinds (id, name) TO STDOUT WITH (FORMAT csv, HEADER)")
        assert b"".join(b for k, b in found if k == b"d").splitlines()[:4] == [
            b"id,name",
            b'1,"it\'s ""ada"", \\n"',
            b'2,""',
            b"3,",
        ]


def test_a_request_to_cancel_ends_a_statement(shop: Shop) -> None:
    slow = "SELECT COUNT(*) FROM kinds a, kinds b, " + ", ".join(f"kinds k{n}" for n in range(14))
    with shop.wire() as w:
        w.send((b"Q", slow.encode() + b"\0"))
        time.sleep(0.3)
        with Wire(shop.port, start=False) as c:
            c.socket.sendall(struct.pack("!iiiI", 16, 80_877_102, *w.key))
            assert c.stream.read() == b""
        with pytest.raises(Failed, match="57014"):
            rows_of(w.until_ready())
        assert w.rows("SELECT 1") == [("1",)]
        w.ask("SET statement_timeout = 100")
        with pytest.raises(Failed, match="statement timeout"):
            w.rows(slow)


def test_a_killed_process_ends_sessions_and_another_one_starts(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as reading:
        w.ask("BEGIN; INSERT INTO notes VALUES (9600, 'a'); INSERT INTO orders VALUES (9600, 'a', 1)")
        reading.ask("BEGIN; SELECT * FROM orders; DECLARE c CURSOR FOR SUBSCRIBE notes")
        before = shop.process
        assert before is not None
        os.kill(before, signal.SIGKILL)
        for each in (w, reading):
            with pytest.raises((EOFError, ConnectionError)):
                each.rows("COMMIT")
    with shop.wire() as w:  # waits in the queue of the socket
        assert w.rows("SELECT COUNT(*) FROM orders") == [("3",)]
        assert w.rows("SELECT * FROM notes WHERE id = 9600") == []
    assert shop.process != before
    assert shop.instance.connection.sql("SELECT COUNT(*) AS n FROM orders").one() == 3


def test_many_connections_are_served(shop: Shop) -> None:
    found = list[object]()

    def one() -> None:
        with shop.wire() as w:
            found.extend(w.rows("SELECT COUNT(*) FROM orders"))

    threads = [threading.Thread(target=one) for _ in range(40)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [("3",)] * 40


def test_an_answer_of_1600_columns(shop: Shop) -> None:
    """As many as a table of PostgreSQL has."""
    sql = "SELECT " + ", ".join(f"{n} AS c{n}" for n in range(1_600))
    with shop.wire() as w:
        assert w.rows(sql) == [tuple(map(str, range(1_600)))]
        w.send(parse(sql), bind(results=(1,)), describe(), execute(), SYNC)
        found = dict(w.until_ready())
        assert struct.unpack("!h", found[b"T"][:2]) == (1_600,)
        assert values(found[b"D"]) == [struct.pack("!i", n) for n in range(1_600)]


@pytest.mark.parametrize("value", ["'NaN'", "NUMERIC 'NaN'", "'NaN'::numeric"])
def test_a_numeric_has_no_nan(shop: Shop, value: str) -> None:
    with shop.wire() as w:
        with pytest.raises(Failed, match="22P02"):
            w.rows(f"INSERT INTO orders VALUES (9700, 'ada', {value})")
        assert w.rows("SELECT * FROM orders WHERE id = 9700") == []


def test_all_types_in_text_and_binary(shop: Shop) -> None:
    with shop.wire() as w:
        (row,) = w.rows("SELECT * FROM kinds WHERE id = 1")
        assert row == (
            *("1", "7", "it's \"ada\", \\n", "10.50", "1.5", "t", "2024-02-29", "10:00:00.25", "2024-01-01 10:00:00.123456", "2024-01-01 08:00:00+00"),
            *('{"a": [1, null]}', "00000000-0000-0000-0000-00000000000a", "\\x00ff", "1 year 2 mons -3 days +04:05:06.7", "{1,NULL,3}"),
            '{"a b","","NULL","x\\"y",NULL}',
        )  # fmt: skip
        w.send(parse("SELECT * FROM kinds WHERE id = 1"), bind(results=(1,)), execute(), SYNC)
        (raw,) = [values(b) for k, b in w.until_ready() if k == b"D"]
        assert raw[0] == struct.pack("!q", 1)
        assert raw[3] == struct.pack("!hhHhhh", 2, 0, 0, 2, 10, 5000)
        assert raw[6] == struct.pack("!i", 8825)
        assert raw[8] == struct.pack("!q", 757_418_400_123_456)
        assert raw[13] == struct.pack("!qii", 14_706_700_000, -3, 14)
        assert raw[14] == struct.pack("!iiIiiiqiiq", 1, 1, 20, 3, 1, 8, 1, -1, 8, 3)
