"""Transactions whose COMMIT is cancelled, breaks off or fails in the middle: the client learns the outcome, or that it is not known."""

from __future__ import annotations

import errno
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from flowql.pg import execution
from flowql.pg.errors import PgError
from flowql.pg.pins import Holder, Pin
from flowql.runtime.log.embedded.journal import InDoubt, Journal
from flowql.runtime.topology.table_writer import _TableWriter
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.inside import Gate, cancel, served
from tests.flowql.pg.wire import Failed, Wire, fields_of, rows_of

ROWS = "SELECT * FROM notes WHERE id BETWEEN 9500 AND 9599 ORDER BY id"
BOTH = [("9500", "a"), ("9501", "b")]
WRITE = "INSERT INTO notes VALUES (9500, 'a'); INSERT INTO notes VALUES (9501, 'b')"


@pytest.fixture(scope="module")
def port(shop: Shop) -> Iterator[int]:
    with served(shop) as found:
        yield found


@pytest.fixture
def w(shop: Shop, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A session. Rows 9500 to 9599 of `notes` are deleted afterwards."""
    monkeypatch.setattr(execution, "ABANDON_S", 0.1)
    with Wire(port) as made:
        yield made
    with shop.wire() as other:
        other.rows("DELETE FROM notes WHERE id BETWEEN 9500 AND 9599")


def stopped_at(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Gate:
    """A gate before the next call of a method in another thread of this process."""
    gate, usual, calls = Gate(), getattr(owner, name), iter([True])

    def waiting(*given: Any, **named: Any) -> Any:
        if next(calls, False):
            gate.wait()
        return usual(*given, **named)

    monkeypatch.setattr(owner, name, waiting)
    return gate


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.01)


def error_of(messages: list[tuple[bytes, bytes]]) -> dict[str, str]:
    (found,) = [fields_of(b) for k, b in messages if k == b"E"]
    return found


@pytest.mark.parametrize("sql", [f"BEGIN; {WRITE}; COMMIT", "INSERT INTO notes VALUES (9500, 'a'), (9501, 'b')"])
def test_a_commit_that_is_cancelled_while_it_is_written(
    shop: Shop, port: int, w: Wire, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    gate = stopped_at(monkeypatch, Journal, "append")
    w.send((b"Q", sql.encode() + b"\0"))
    assert gate.arrived.wait(20)
    cancel(port, w)
    found = w.until_ready()
    assert error_of(found)["C"] == "08007"
    assert "committed as a whole or not at all" in error_of(found)["H"]
    assert found[-1] == (b"Z", b"I")
    assert w.rows("SELECT 1") == [("1",)]
    gate.open()
    with shop.wire() as other:
        until(lambda: other.rows(ROWS) == BOTH)
    assert w.rows(ROWS) == BOTH


def test_a_commit_that_is_cancelled_before_it_is_written_writes_nothing(
    shop: Shop, port: int, w: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.ask(f"BEGIN; {WRITE}")
    gate = stopped_at(monkeypatch, _TableWriter, "part")
    w.send((b"Q", b"COMMIT\0"))
    assert gate.arrived.wait(20)
    cancel(port, w)
    assert error_of(w.until_ready())["C"] == "57014"
    gate.open()
    assert w.rows("INSERT INTO notes VALUES (9502, 'c') RETURNING id") == [("9502",)], "behind the abandoned one"
    assert w.rows(ROWS) == [("9502", "c")]


def test_a_query_whose_rows_are_inserted_is_cancelled(shop: Shop) -> None:
    slow = "INSERT INTO notes SELECT COUNT(*), 'x' FROM kinds a, " + ", ".join(f"kinds k{n}" for n in range(15))
    with shop.wire() as w:
        w.send((b"Q", slow.encode() + b"\0"))
        time.sleep(0.2)
        cancel(shop.port, w)
        assert error_of(w.until_ready())["C"] == "57014"
        assert w.rows("SELECT * FROM notes WHERE note = 'x'") == []


@pytest.mark.parametrize("is_written", [False, True])
def test_a_log_that_does_not_know_whether_it_has_written(
    shop: Shop, w: Wire, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    usual = Journal.append

    def append(self: Journal, record: Any) -> Any:
        if is_written:
            usual(self, record)
        raise InDoubt("a frame could be neither written nor removed")

    w.ask(f"BEGIN; {WRITE}")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", append)
        found = w.ask("COMMIT")
    assert error_of(found)["C"] == "08007"
    assert found[-1] == (b"Z", b"I")
    assert w.rows("INSERT INTO notes VALUES (9502, 'c') RETURNING id") == [("9502",)]
    assert w.rows(ROWS) == BOTH * is_written + [("9502", "c")]


def test_a_full_disk_leaves_no_trace(w: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    def append(self: Journal, record: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    w.ask(f"BEGIN; {WRITE}")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", append)
        with pytest.raises(Failed, match="53100"):
            rows_of(w.ask("COMMIT"))
    assert w.rows(ROWS) == []
    rows_of(w.ask(f"BEGIN; {WRITE}; COMMIT"))
    assert w.rows(ROWS) == BOTH


def test_a_connection_that_breaks_in_the_middle_of_commit(
    shop: Shop, port: int, w: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, audit = stopped_at(monkeypatch, Journal, "append"), shop.folder / "data" / "audit.jsonl"
    before = audit.read_text().count("\n")
    with Wire(port) as broken:
        broken.send((b"Q", f"BEGIN; {WRITE}; COMMIT\0".encode()))
        assert gate.arrived.wait(20)
    time.sleep(0.2)
    assert w.rows(ROWS) == []
    gate.open()
    until(lambda: w.rows(ROWS) == BOTH)
    until(lambda: audit.read_text().count("\n") > before)
    last = [json.loads(line) for line in audit.read_text().splitlines()[before:]]
    assert [(n["request"], n["status"]) for n in last if n["request"] == "postgres COMMIT"] == [
        ("postgres COMMIT", "00000")
    ]


def test_the_end_of_a_transaction_does_not_wait_for_its_pin() -> None:
    """ROLLBACK of an abandoned query held up all sessions until its pin was made."""
    holder, gate, released = Holder(), Gate(), list[object]()
    pin = Pin.__new__(Pin)

    def make() -> Pin:
        gate.wait()
        return pin

    def query() -> None:
        with pytest.raises(PgError, match="has ended"):
            holder.pinned(make, released.append)
        released.append("told")

    thread = threading.Thread(target=query)
    thread.start()
    assert gate.arrived.wait(20)
    holder.close()
    assert released == []
    gate.open()
    thread.join()
    assert released == [pin, "told"]
