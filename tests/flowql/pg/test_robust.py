"""Clients that are slow, many, or send too much."""

from __future__ import annotations

import contextlib
import struct
import time
from random import Random

import psutil
import pytest

from flowql.config.api import CONNECTIONS
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import SYNC, Failed, Wire, bind, execute, fields_of, parse, rows_of, tags

MANY = "SELECT a.id, 'some text that makes rows longer' AS t FROM kinds a, " + ", ".join(
    f"kinds k{n}" for n in range(8)
)
GROWTH_BYTES_MAX = 64 << 20
CONNECTION_BYTES_MAX = 100_000  # of an idle one; about 40,000 are measured


def test_a_client_that_takes_nothing_holds_little(shop: Shop) -> None:
    process = psutil.Process(shop.process)
    with shop.wire() as slow, shop.wire() as other:
        assert len(slow.rows(MANY + " LIMIT 10000")) == 10_000  # memory that the first answer takes and keeps
        before = process.memory_info().rss
        slow.send((b"Q", MANY.encode() + b"\0"))
        limit = time.monotonic() + 0.5
        while time.monotonic() < limit:
            assert other.rows("SELECT COUNT(*) FROM orders") == [("3",)]
        assert process.memory_info().rss - before < GROWTH_BYTES_MAX
        assert sum(kind == b"D" for kind, _ in slow.until_ready()) == 4**9


def test_a_client_that_leaves_ends_its_statement(shop: Shop) -> None:
    slow = "SELECT COUNT(*) FROM kinds a, " + ", ".join(f"kinds k{n}" for n in range(15))
    for _ in range(10):  # more than may begin at the same time
        with shop.wire() as w:
            w.send((b"Q", slow.encode() + b"\0"))
            time.sleep(0.02)
    with shop.wire() as w:
        assert w.rows("SELECT 1") == [("1",)]


def test_statements_that_are_sent_before_answers_are_read(shop: Shop) -> None:
    with shop.wire() as w:
        for _ in range(50):
            w.send(parse("SELECT $1::int"), bind(b"1"), execute(), SYNC)
        assert [rows_of(w.until_ready()) for _ in range(50)] == [[("1",)]] * 50


@pytest.mark.parametrize("size", [(1 << 20) + 5, 1 << 30])
def test_a_message_that_is_too_large_is_refused_before_it_is_read(shop: Shop, size: int) -> None:
    with shop.wire() as w:
        w.socket.sendall(b"Q" + struct.pack("!i", size) + b"x" * 1_000)
        assert fields_of(w.message()[1])["C"] == "54000"
        with pytest.raises((EOFError, ConnectionError)):
            w.message()


def packet(code: int, body: bytes = b"", size: int | None = None) -> bytes:
    return struct.pack("!ii", len(body) + 8 if size is None else size, code) + body


GIVEN = b"user\0ada\0\0"
# What a client sends, and the SQLSTATE that it gets; empty: nothing, as it has left.
BEFORE_A_SESSION = {
    "a startup packet of 1 GB": (packet(196_608, b"x" * 100, 1 << 30), "08P01"),
    "a startup packet without a length": (packet(196_608, GIVEN, 4), "08P01"),
    "a negative length": (packet(196_608, GIVEN, -1), "08P01"),
    "half a startup packet": (packet(196_608, b"user\0", 60), ""),
    "settings without an end": (packet(196_608, b"user\0ada"), "08P01"),
    "no user": (packet(196_608, b"database\0x\0\0"), "28000"),
    "a protocol of the future": (packet(4 << 16, GIVEN), "0A000"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "08P01"),
}
IN_A_SESSION = {
    "a length that is too small": (b"Q" + struct.pack("!i", 3), "08P01"),
    "a negative length": (b"Q" + struct.pack("!i", -5), "08P01"),
    "an unknown message": (b"@" + struct.pack("!i", 4), "08P01"),
    "a query of 100 MB": (b"Q" + struct.pack("!i", 100 << 20) + b"SELECT " * 1_000, "54000"),
    "half a message": (b"Q" + struct.pack("!i", 1_000) + b"SELECT 1", ""),
}
# These end no session.
MESSAGES = {
    "a query without an end": ((b"Q", b"SELECT 1"), "08P01"),
    "more parameters than it has": (bind(*[b"1"] * 65_535), "08P01"),
    "parameters that are not there": ((b"B", b"\0\0" + struct.pack("!hH", 0, 65_535)), "08P01"),
    "a value that is longer than its message": ((b"B", b"\0\0" + struct.pack("!hhi", 0, 1, 1 << 30)), "08P01"),
    "a value of a negative length": ((b"B", b"\0\0" + struct.pack("!hhi", 0, 1, -2)), "08P01"),
    "an unknown format": (bind(b"1", formats=(7,)), "08P01"),
    "more formats than parameters": (bind(b"1", formats=(0, 0, 0)), "08P01"),
    "a NUL in a string": ((b"P", b"\0SELECT 'a\0b'\0\0\0"), "08P01"),
    "other bytes than UTF-8": ((b"P", b"\0SELECT '\xff'\0\0\0"), "22021"),
    "a description of nothing": ((b"D", b"Z\0"), "08P01"),
    "a portal that nothing has": (execute(portal="none"), "34000"),
    "a statement that nothing has": ((b"B", b"\0none\0" + struct.pack("!hhh", 0, 0, 0)), "26000"),
}


@pytest.mark.parametrize("name", [*BEFORE_A_SESSION, *(f"in a session: {n}" for n in IN_A_SESSION)])
def test_a_packet_that_ends_its_connection_alone(shop: Shop, name: str) -> None:
    is_begun = name.startswith("in a session: ")
    sent, state = IN_A_SESSION[name.removeprefix("in a session: ")] if is_begun else BEFORE_A_SESSION[name]
    with shop.wire() as other, Wire(shop.port, start=is_begun) as w:
        w.socket.sendall(sent)
        if state:
            assert fields_of(w.message()[1])["C"] == state
            with pytest.raises((EOFError, ConnectionError)):
                w.message()
        assert other.rows("SELECT 1") == [("1",)]


@pytest.mark.parametrize("name", MESSAGES)
def test_a_malformed_message_is_an_error_of_its_session(shop: Shop, name: str) -> None:
    sent, state = MESSAGES[name]
    with shop.wire() as w:
        w.send(parse("SELECT $1::int"), SYNC)
        w.until_ready()
        w.send(sent, *[SYNC] * (sent[0] != b"Q"))
        assert [fields_of(b)["C"] for k, b in w.until_ready() if k == b"E"] == [state]
        assert w.rows("SELECT 1") == [("1",)]


def test_a_statement_has_as_many_parameters_as_its_text_holds(shop: Shop) -> None:
    count = 20_000
    with shop.wire() as w:
        w.send(parse("SELECT 1 WHERE 5 IN (" + ", ".join(f"${n}" for n in range(1, count + 1)) + ")", *[23] * count))
        w.send(bind(*[b"%d" % n for n in range(count)]), execute(), SYNC)
        (error,) = [fields_of(b) for k, b in w.until_ready() if k == b"E"]
        assert error["C"] == "54000"
        assert w.rows("SELECT 1") == [("1",)]


def test_many_connections_take_little_memory(shop: Shop) -> None:
    process = psutil.Process(shop.process)
    with contextlib.ExitStack() as stack:
        before = process.memory_info().rss
        for _ in range(200):
            stack.enter_context(shop.wire())
        assert (process.memory_info().rss - before) / 200 < CONNECTION_BYTES_MAX


def test_a_statement_that_is_too_long_is_an_error(shop: Shop) -> None:
    with shop.wire() as w:
        with pytest.raises(Failed, match="54000"):
            w.rows("SELECT " + ", ".join(["1"] * 100_000))
        with pytest.raises(Failed, match="54000"):
            w.rows("SELECT " + "(" * 5_000 + "1" + ")" * 5_000)
        assert w.rows("SELECT 1") == [("1",)]


def test_as_many_connections_as_there_may_be(shop: Shop) -> None:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(shop.wire()) for _ in range(CONNECTIONS)]
        assert all(w.rows("SELECT 7") == [("7",)] for w in found[::20])
        refused = stack.enter_context(Wire(shop.port, start=False))
        refused.socket.sendall(struct.pack("!ii", 18, 196_608) + b"user\0ada\0\0")
        assert fields_of(refused.message()[1])["C"] == "53300"
    with shop.wire() as w:
        assert w.rows("SELECT 8") == [("8",)]


NASTY = [
    "'",
    "''",
    "\\",
    "\\'",
    "$1",
    "$$x$$",
    "--",
    "/* ",
    "*/",
    ";DROP TABLE notes",
    "E'\\n'",
    "%s",
    "ü€😀",
    "\t\n\r",
    '"',
    "' OR 1=1 --",
    "{1,2}",
    "\\x00",
    "a" * 5_000,
]


@pytest.mark.parametrize("form", [0, 1])
def test_a_parameter_is_a_value_whatever_it_says(shop: Shop, form: int) -> None:
    with shop.wire() as w:
        w.send(parse("SELECT $1::text, $2, customer FROM orders WHERE customer = $3 OR id = $4", name="s"), SYNC)
        w.until_ready()
        for text in NASTY:
            given = text.encode()
            last = struct.pack("!q", 1) if form else b"1"
            w.send(bind(given, given, given, last, formats=(form,), name="s"), execute(), SYNC)
            assert rows_of(w.until_ready()) == [(text, text, "ada")]
        for text in NASTY:
            w.send(parse("INSERT INTO notes VALUES (8000, $1) RETURNING note"), bind(text.encode()), execute(), SYNC)
            assert rows_of(w.until_ready()) == [(text,)]
            w.send(parse("DELETE FROM notes WHERE note = $1"), bind(text.encode()), execute(), SYNC)
            assert tags(w.until_ready()) == ["DELETE 1"]


def test_a_number_that_is_none_ends_no_literal(shop: Shop) -> None:
    with shop.wire() as w:
        for sql, oid in (
            ("INSERT INTO notes VALUES ($1, 'x')", 701),
            ("INSERT INTO notes VALUES ($1, 'x')", 20),
            ("SELECT $1", 1700),
            ("SELECT $1", 701),
            ("SELECT $1", 16),
        ):
            w.send(parse(sql, oid), bind(b"1), (2, 'y'); --"), execute(), SYNC)
            (error,) = [fields_of(b) for k, b in w.until_ready() if k == b"E"]
            assert error["C"] in ("22P02", "22000"), error
        assert w.rows("SELECT * FROM notes WHERE note IN ('x', 'y')") == []


@pytest.mark.parametrize("seed", range(4))
def test_random_messages_end_no_process(shop: Shop, seed: int) -> None:
    rng, before = Random(seed), shop.process
    good = [
        parse("SELECT $1::int"),
        bind(b"1"),
        execute(),
        (b"D", b"P\0"),
        (b"C", b"S\0"),
        (b"Q", b"SELECT 1\0"),
        SYNC,
        (b"H", b""),
    ]
    for _ in range(40):
        with shop.wire() as w:
            w.socket.settimeout(5)
            for _ in range(rng.randrange(1, 6)):
                kind, body = rng.choice(good)
                changed = bytearray(body)
                for _ in range(rng.randrange(4)):
                    if changed:
                        changed[rng.randrange(len(changed))] = rng.randrange(256)
                cut = changed[: rng.randrange(len(changed) + 1)] if rng.random() < 0.2 else changed
                with contextlib.suppress(ConnectionError):
                    w.send((kind if rng.random() < 0.9 else bytes([rng.randrange(256)]), bytes(cut)))
            with contextlib.suppress(ConnectionError, EOFError):
                w.send(SYNC)
                w.until_ready()
    with shop.wire() as w:
        assert w.rows("SELECT 1") == [("1",)]
    assert shop.process == before
