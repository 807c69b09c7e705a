"""Changes of rows as they are committed."""

from __future__ import annotations

import asyncio
import struct
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from flowql.pg.errors import PgError
from flowql.pg.execution import Execution, Shared
from tests.flowql.pg.conftest import Shop, started
from tests.flowql.pg.wire import Failed, Wire, fields_of, rows_of, tags, values


def until(w: Wire, count: int) -> list[tuple[str | None, ...]]:
    """The next rows of COPY or of a query."""
    found = list[tuple[str | None, ...]]()
    while len(found) < count:
        kind, body = w.message()
        assert kind in (b"T", b"H", b"d", b"D"), (kind, body)
        if kind == b"D":
            found.append(tuple(None if v is None else v.decode() for v in values(body)))
        elif kind == b"d":
            found += [tuple(None if v == "\\N" else v for v in line.split("\t")) for line in body.decode().splitlines()]
    return found


def test_a_table_from_its_rows_on(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        other.ask("INSERT INTO notes VALUES (5000, 'a'), (5001, 'b')")
        w.send((b"Q", b"COPY (SUBSCRIBE TO notes) TO STDOUT\0"))
        assert sorted(r[1:] for r in until(w, 2)) == [("1", "5000", "a"), ("1", "5001", "b")]
        other.ask("UPDATE notes SET note = 'c' WHERE id = 5000")
        assert [r[1:] for r in until(w, 2)] == [("-1", "5000", "a"), ("1", "5000", "c")]
        other.ask("DELETE FROM notes WHERE id >= 5000")
        assert sorted(r[1:] for r in until(w, 2)) == [("-1", "5000", "c"), ("-1", "5001", "b")]
        with Wire(shop.port, start=False) as c:
            c.socket.sendall(struct.pack("!iiiI", 16, 80_877_102, *w.key))
        assert fields_of(w.until_ready()[-2][1])["C"] == "57014"
        assert w.rows("SELECT 1") == [("1",)]


def test_a_cursor_over_a_view_with_progress(shop: Shop) -> None:
    with shop.wire() as w, shop.wire() as other:
        w.ask("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE spent WITH (SNAPSHOT = false, PROGRESS)")
        found = w.ask("FETCH ALL c")
        assert {(v[1], *v[3:]) for k, b in found if k == b"D" for v in [values(b)]} == {(b"t", None, None, None, None)}
        other.ask("INSERT INTO orders VALUES (6000, 'zoe', 2.5)")
        told = list[tuple[str | None, ...]]()
        while not any(r[4] == "zoe" for r in told):
            told += w.rows("FETCH ALL c WITH (TIMEOUT = '30s')")
        assert [r[1:] for r in told if r[1] == "f"] == [("f", None, "1", "zoe", "1", "2.50")]
        other.ask("DELETE FROM orders WHERE id = 6000")
        while not any(r[3] == "-1" for r in told):
            told += w.rows("FETCH ALL c WITH (TIMEOUT = '30s')")
        assert tags(w.ask("COMMIT")) == ["COMMIT"]


def test_differences_add_up_to_the_rows(shop: Shop) -> None:
    rng, rows = Random(7), Counter[tuple[str | None, ...]]()
    with shop.wire() as w, shop.wire() as other:
        w.ask("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE notes")
        for _ in range(25):
            ids = rng.sample(range(7000, 7012), 3)
            if rng.randrange(3):
                given = ", ".join(f"({i}, 'n{rng.randrange(9)}')" for i in ids)
                other.ask(f"INSERT INTO notes VALUES {given} ON CONFLICT (id) DO UPDATE SET note = excluded.note")
            else:
                other.ask(f"DELETE FROM notes WHERE id IN ({ids[0]}, {ids[1]})")
            if rng.randrange(2):
                for _, diff, *row in w.rows("FETCH ALL c"):
                    assert diff is not None
                    rows[tuple(row)] += int(diff)
                assert sorted(+rows) == sorted(other.rows("SELECT * FROM notes"))
                assert set(rows.values()) <= {0, 1}
        other.ask("DELETE FROM notes WHERE id >= 7000")


def test_what_cannot_be_subscribed(shop: Shop) -> None:
    with shop.wire() as w:
        for sql, state in (
            ("SUBSCRIBE nowhere", "42P01"),
            ("SUBSCRIBE (SELECT 1)", "0A000"),
            ("SUBSCRIBE notes WITH (NONSENSE)", "42601"),
            ("SUBSCRIBE", "42601"),
        ):
            with pytest.raises(Failed, match=state):
                rows_of(w.ask(sql))


def test_a_request_to_cancel_that_comes_during_a_look_is_not_lost() -> None:
    async def run() -> None:
        execution = Execution(Shared.__new__(Shared), lambda: False)
        execution.shared.at_once, execution.shared.threads = asyncio.Semaphore(1), ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        await execution.run(lambda: loop.call_soon_threadsafe(execution.cancel) and time.sleep(0.05))
        with pytest.raises(PgError, match="user request"):
            await execution.pause(0.01)
        execution.shared.threads.shutdown()

    asyncio.run(run())


ROWS_AT_ONCE = 30_000
HALVES = """
CREATE TABLE halves (id BIGINT PRIMARY KEY, half VARCHAR, n BIGINT) WITH (PARTITIONS = 2);
CREATE MATERIALIZED VIEW halved AS SELECT half, SUM(n) AS n FROM halves GROUP BY half;
"""


def test_no_part_of_a_transaction_is_told(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A view that has not read all of a large transaction when a commit is due is committed with a part of it, and the commit was told."""
    rows = f"SELECT i, CASE WHEN i % {ROWS_AT_ONCE} < {ROWS_AT_ONCE // 2} THEN 'a' ELSE 'b' END, 1 FROM generate_series"
    for shop in started(tmp_path_factory.mktemp("halves"), "{port}", HALVES, ""):
        with shop.wire() as w, shop.wire() as other:
            w.ask("BEGIN; DECLARE c CURSOR FOR SUBSCRIBE halved WITH (PROGRESS)")
            known, seen = {"a": 0, "b": 0}, list[dict[str, int]]()
            for n in range(3):
                other.ask(f"INSERT INTO halves {rows}({n * ROWS_AT_ONCE}, {(n + 1) * ROWS_AT_ONCE - 1}) AS t(i)")
                while sum(known.values()) < (n + 1) * ROWS_AT_ONCE:
                    for _, progressed, _, diff, half, count in w.rows("FETCH ALL c WITH (TIMEOUT = '30s')"):
                        if progressed == "t":
                            seen.append(dict(known))
                        elif diff == "1":
                            known[str(half)] = int(count or 0)
            assert [s for s in seen if s["a"] != s["b"]] == []
            assert len(seen) > 3
            w.ask("COMMIT")
