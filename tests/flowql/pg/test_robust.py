"""Clients that are slow, many, or send too much."""

from __future__ import annotations

import contextlib
import struct
import time

import psutil
import pytest

from flowql.pg.connection import CONNECTIONS_MAX
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import SYNC, Failed, Wire, bind, execute, fields_of, parse, rows_of

MANY = "SELECT a.id, 'some text that makes rows longer' AS t FROM kinds a, " + ", ".join(
    f"kinds k{n}" for n in range(8)
)
GROWTH_BYTES_MAX = 64 << 20


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


def test_a_statement_that_is_too_long_is_an_error(shop: Shop) -> None:
    with shop.wire() as w:
        with pytest.raises(Failed, match="54000"):
            w.rows("SELECT " + ", ".join(["1"] * 100_000))
        with pytest.raises(Failed, match="54000"):
            w.rows("SELECT " + "(" * 5_000 + "1" + ")" * 5_000)
        assert w.rows("SELECT 1") == [("1",)]


def test_as_many_connections_as_there_may_be(shop: Shop) -> None:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(shop.wire()) for _ in range(CONNECTIONS_MAX)]
        assert all(w.rows("SELECT 7") == [("7",)] for w in found[::20])
        refused = stack.enter_context(Wire(shop.port, start=False))
        refused.socket.sendall(struct.pack("!ii", 18, 196_608) + b"user\0ada\0\0")
        assert fields_of(refused.message()[1])["C"] == "53300"
    with shop.wire() as w:
        assert w.rows("SELECT 8") == [("8",)]
