"""Statements of several clients at once, over HTTP and PostgreSQL's protocol: of forms that are known, and others."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flowql.server.address import read_address
from flowql.server.audit import FILE
from flowql.server.http import Http
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import Failed, bind, execute, parse, rows_of, tags

EACH = 12
COUNTER, FIRST = 7_000, 7_001
Say = Callable[[str], str]  # a statement; the number of rows, or the error


def over_pg(shop: Shop, client: Callable[[Say], None]) -> None:
    def say(sql: str) -> str:
        found = wire.ask(sql)
        try:
            rows_of(found)
        except Failed as error:
            return str(error)
        return tags(found)[0].split()[-1]

    with shop.wire() as wire:
        client(say)


def over_http(shop: Shop, client: Callable[[Say], None]) -> None:
    address = read_address(shop.folder / "data")
    assert address is not None
    http = Http(address.port, {"Authorization": f"Bearer {address.token}"}, connect_s=30, answer_s=30)

    def say(sql: str) -> str:
        with http.request("POST", "/v1/execute", json.dumps({"statements": sql}).encode()) as reply:
            found = json.loads(reply.read())
        return str(found["rows"]) if "rows" in found else str(found["error"]["message"])

    try:
        client(say)
    finally:
        http.close()


@pytest.fixture
def audited(shop: Shop) -> Callable[[], list[dict[str, object]]]:
    """Lines that the test adds to the audit log."""
    file = Path(shop.folder) / "data" / FILE
    before = len(file.read_text().splitlines()) if file.exists() else 0
    return lambda: [json.loads(line) for line in file.read_text().splitlines()[before:]]


def test_no_change_is_lost_and_each_error_is_of_its_statement(
    shop: Shop, audited: Callable[[], list[dict[str, object]]]
) -> None:
    over_pg(shop, lambda say: (say(f"INSERT INTO orders VALUES ({COUNTER}, 'counter', 0)"), None)[1])
    failures = list[str]()

    def client(number: int, say: Say) -> None:
        for n in range(EACH):
            key = FIRST + number * EACH + n
            for sql, wanted in (
                (f"INSERT INTO orders VALUES ({key}, 'it''s {n}', {n}.5)", "1"),
                (f"INSERT INTO orders VALUES ({key}, 'again', 1.5)", f"key id = {key} already"),
                (f"UPDATE orders SET amount = amount + 1 WHERE id = {COUNTER}", "1"),
                (f"UPDATE orders SET customer = 'nobody' WHERE id = {key + 1_000_000}", "0"),
                (f"INSERT INTO orders VALUES ({key}, 'x', 'no number')", "no number"),
            ):
                if wanted not in (found := say(sql)):
                    failures.append(f"{sql}: {found}")

    doors = (over_pg, over_http) * 2
    threads = [
        threading.Thread(target=door, args=(shop, lambda say, i=i: client(i, say))) for i, door in enumerate(doors)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rows = EACH * len(doors)
    with shop.wire() as wire:
        query = f"SELECT id, customer, amount FROM orders WHERE id BETWEEN {COUNTER} AND {FIRST + rows} ORDER BY id"
        try:
            (_, _, count), *others = wire.rows(query)
            assert count == f"{rows}.00"
            assert others == [(str(FIRST + i), f"it's {i % EACH}", f"{i % EACH}.50") for i in range(rows)]
        finally:
            wire.ask(f"DELETE FROM orders WHERE id BETWEEN {COUNTER} AND {FIRST + rows}")
    lines = [line for line in audited() if line["action"] == "write"]
    assert sum(line["status"] in ("00000", 200) for line in lines) == 3 * rows + 2
    assert len(lines) == 5 * rows + 2


def test_returning_and_parameters_of_known_forms(shop: Shop) -> None:
    insert, update = (
        "INSERT INTO notes VALUES ($1, $2) RETURNING note, id",
        "UPDATE notes SET note = $2 WHERE id = $1 RETURNING *",
    )
    with shop.wire() as wire:
        try:
            for sql, text in ((insert, b"a"), (insert, b"b'"), (update, b"c"), (update, b"")):
                for key in (b"7101", b"7102"):
                    number = str(int(key) + 10 * (text == b"b'")).encode()
                    wire.send(parse(sql), bind(number, text), execute(), (b"S", b""))
                    (found,) = rows_of(wire.until_ready())
                    wanted = (text.decode(), number.decode())
                    assert found == (wanted if sql == insert else wanted[::-1])
            assert wire.rows("SELECT id, note FROM notes WHERE id BETWEEN 7101 AND 7200 ORDER BY id") == [
                ("7101", ""), ("7102", ""), ("7111", "b'"), ("7112", "b'"),
            ]  # fmt: skip
        finally:
            wire.ask("DELETE FROM notes WHERE id BETWEEN 7101 AND 7200")
