"""COPY ... FROM STDIN: rows that clients send, alone and in transactions."""

from __future__ import annotations

import struct
import threading
from types import SimpleNamespace

import pytest

from flowql.compiler.plan.tables import TableChange
from flowql.pg import incoming
from flowql.pg.binary_rows import SIGNATURE
from flowql.pg.execution import Execution
from flowql.pg.settings import SessionSettings
from flowql.pg.transactions import Transaction
from flowql.pg.writes import Write, Writes
from flowql.runtime.errors import StatementFailed
from flowql.runtime.topology.bulk_insert import GivenRows
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import Failed, Wire, bind, execute, fields_of, parse, rows_of, tags

NOTES = "SELECT id, note FROM notes WHERE id BETWEEN 5000 AND 5999 ORDER BY id"


@pytest.fixture
def wire(shop: Shop) -> Wire:
    with shop.wire() as w:
        w.ask("DELETE FROM notes WHERE id BETWEEN 5000 AND 5999")
        yield w  # type: ignore[misc]
        w.ask("ROLLBACK")
        w.ask("DELETE FROM notes WHERE id BETWEEN 5000 AND 5999")


def copy(w: Wire, sql: str, *data: bytes, end: tuple[bytes, bytes] = (b"c", b"")) -> list[tuple[bytes, bytes]]:
    w.send((b"Q", sql.encode() + b"\0"))
    kind, body = w.message()
    if kind == b"E":
        w.until_ready()
        raise Failed(fields_of(body))
    assert kind == b"G"
    w.send(*((b"d", d) for d in data), end)
    return w.until_ready()


def test_text_and_csv(wire: Wire) -> None:
    assert tags(copy(wire, "COPY notes FROM STDIN", b"5001\ta\\tb\n50", b"02\tc\n", b"\\.\n")) == ["COPY 2"]
    found = copy(wire, "COPY notes (note, id) FROM STDIN WITH (FORMAT csv, HEADER); SELECT 1", b'n,i\n"x,\ny",5003\n')
    assert (tags(found), rows_of(found)) == (["COPY 1", "SELECT 1"], [("1",)])
    assert tags(copy(wire, "copy notes from stdin csv delimiter ';'")) == ["COPY 0"]
    assert wire.rows(NOTES) == [("5001", "a\tb"), ("5002", "c"), ("5003", "x,\ny")]


def binary(*rows: bytes) -> bytes:
    """Rows as DataRow has them, in a file."""
    return SIGNATURE + struct.pack("!II", 0, 0) + b"".join(rows) + struct.pack("!h", -1)


def row(*values: bytes | None) -> bytes:
    fields = (struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in values)
    return struct.pack("!h", len(values)) + b"".join(fields)


def test_rows_of_a_query_in_binary_format_are_copied_back_with_all_their_types(wire: Wire) -> None:
    columns = "n, name, price, x, ok, d, tm, at, tz, doc, u, raw, span, list, words"
    query = f"SELECT {{}}, {columns} FROM kinds WHERE id {{}} 4 ORDER BY 1"
    wire.send(parse(query.format("id + 1000", "<")), bind(results=(1,)), execute(), (b"S", b""))
    given = [body for kind, body in wire.until_ready() if kind == b"D"]
    data = binary(*given)
    assert len(given) == 3
    pieces = [data[i : i + 100] for i in range(0, len(data), 100)]
    try:
        wire.send((b"Q", f"COPY kinds (id, {columns}) FROM STDIN (FORMAT binary)\0".encode()))
        assert wire.message() == (b"G", b"\1" + struct.pack("!h", 16) + struct.pack("!h", 1) * 16)
        wire.send(*((b"d", d) for d in pieces), (b"c", b""))
        found = wire.until_ready()
        rows_of(found)
        assert tags(found) == ["COPY 3"]
        copied = wire.rows(query.format("id - 1000", "BETWEEN 1001 AND 1000 +"))
        assert copied == wire.rows(query.format("id", "<"))
    finally:
        wire.ask("DELETE FROM kinds WHERE id BETWEEN 1001 AND 1003")


def test_binary_data_that_is_damaged_or_has_another_form_is_told_and_writes_nothing(wire: Wire) -> None:
    one, sql = row(struct.pack("!q", 5001), b"a"), "COPY notes FROM STDIN BINARY"
    good = binary(one)
    for data, why in (
        (b"5001\ta\n", "22P04 COPY file signature not recognized"),
        (good[:15], "22P04 invalid COPY file header"),
        (SIGNATURE + struct.pack("!II", 1 << 16, 0), "22P04 unrecognized critical flags"),
        (SIGNATURE + struct.pack("!II", 0, 99) + one, "22P04 invalid COPY file header"),
        *((good[:n], "22P04 unexpected EOF in COPY data") for n in (20, 24, 30, len(good) - 2, len(good) - 1)),
        (binary(one, row(b"a")), "22P04 row 2: row field count is 1, expected 2"),
        (binary(row(struct.pack("!i", 5001), b"a")), "22P03 incorrect binary data format in column id"),
        (binary(row(struct.pack("!q", 5001), b"\xff")), "22P03 incorrect binary data format in column note"),
        (binary(one, row(struct.pack("!q", 5002), None)), "COPY notes:2: .*note.* NULL"),
        (binary(one, one), "COPY notes:2: .*5001 already"),
    ):
        with pytest.raises(Failed, match=why):
            rows_of(copy(wire, sql, data))
    assert wire.rows(NOTES) == []
    extended = SIGNATURE + struct.pack("!II", 5, 3) + b"xyz" + one + struct.pack("!h", -1) + b"behind the end"
    assert tags(copy(wire, sql, extended)) == ["COPY 1"]
    assert tags(copy(wire, sql, binary())) == ["COPY 0"]
    for option in ("HEADER", "DELIMITER ','", "NULL ''"):
        with pytest.raises(Failed, match=r"42601|0A000"):
            copy(wire, f"COPY notes FROM STDIN (FORMAT binary, {option})")
    assert wire.rows(NOTES) == [("5001", "a")]


def test_a_row_that_does_not_fit_ends_it(wire: Wire) -> None:
    for data, why in (
        (b"5001\ta\nx\tb\n", "COPY notes:2: column id: .*x"),
        (b"5001\ta\n5001\tb\n", "COPY notes:2: .*5001 already"),
    ):
        with pytest.raises(Failed, match=why):
            rows_of(copy(wire, "COPY notes FROM STDIN", data))
    with pytest.raises(Failed, match="57014 COPY from stdin failed: no more"):
        rows_of(copy(wire, "COPY notes FROM STDIN", b"5001\ta\n", end=(b"f", b"no more\0")))
    with pytest.raises(Failed, match="0A000 the server reads no files"):
        copy(wire, "COPY notes FROM '/etc/passwd'")
    with pytest.raises(Failed, match="42703"):
        copy(wire, "COPY notes (nope) FROM STDIN")
    assert wire.rows(NOTES) == []


def test_in_a_transaction(wire: Wire) -> None:
    wire.ask("BEGIN; INSERT INTO notes VALUES (5001, 'first')")
    assert tags(copy(wire, "COPY notes FROM STDIN", b"5002\tb\n")) == ["COPY 1"]
    assert tags(copy(wire, "COPY notes FROM STDIN", b"5003\tc\n5004\td\n")) == ["COPY 2"]
    wire.ask("SAVEPOINT s")
    copy(wire, "COPY notes FROM STDIN", b"5005\te\n")
    wire.ask("ROLLBACK TO s")
    assert tags(wire.ask("COMMIT")) == ["COMMIT"]
    assert [int(i or 0) for i, _ in wire.rows(NOTES)] == [5001, 5002, 5003, 5004]
    wire.ask("BEGIN")
    copy(wire, "COPY notes FROM STDIN", b"5006\tf\n")
    wire.ask("ROLLBACK")
    wire.ask("BEGIN")
    with pytest.raises(Failed, match="22"):
        rows_of(copy(wire, "COPY notes FROM STDIN", b"x\tf\n"))
    with pytest.raises(Failed, match="25P02"):
        copy(wire, "COPY notes FROM STDIN", b"5007\tf\n")
    wire.ask("ROLLBACK")
    assert len(wire.rows(NOTES)) == 4


def test_the_extended_protocol(wire: Wire) -> None:
    wire.send(parse("COPY notes FROM STDIN"), bind(), execute(), (b"S", b""))
    assert [wire.message()[0] for _ in range(3)] == [b"1", b"2", b"G"]
    wire.send((b"d", b"5001\ta\n"), (b"H", b""), (b"c", b""), (b"S", b""))
    assert [k for k, _ in wire.until_ready()] == [b"C", b"Z"]
    wire.send(parse("COPY notes FROM STDIN"), bind(), execute(), (b"d", b"5001\ta\n"), (b"c", b""), (b"S", b""))
    assert [k for k, _ in wire.until_ready()] == [b"1", b"2", b"G", b"E", b"Z"]
    assert wire.rows(NOTES) == [("5001", "a")]


def test_too_much_is_told() -> None:
    memory = incoming.CopyMemory(8)
    session = incoming.Incoming(None, None, (), 5, incoming.Held(memory))  # type: ignore[arg-type]
    session.add(b"12345")
    with pytest.raises(incoming.PgError, match="256 MB"):
        session.add(b"6")
    other = incoming.Incoming(None, None, (), 5, incoming.Held(memory))  # type: ignore[arg-type]
    other.add(b"123")
    with pytest.raises(incoming.PgError, match="clients copy more than 0 MB at the same time") as refused:
        other.add(b"4")
    assert refused.value.state == "53200"
    write = Write(None, held=session.held)  # type: ignore[arg-type]
    del session
    with pytest.raises(incoming.PgError):
        other.add(b"4")
    del write
    other.add(b"4")
    assert memory.taken == 4


def test_psycopg(shop: Shop, wire: Wire) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(host="127.0.0.1", port=shop.port, user="ada", dbname="x") as c:
        with c.cursor().copy("COPY notes (id, note) FROM STDIN") as rows:
            for n in range(1_000):
                rows.write_row((5000 + n, f"tab\t{n}"))
        c.commit()
    assert wire.rows("SELECT count(*), min(note) FROM notes WHERE id BETWEEN 5000 AND 5999") == [("1000", "tab\t0")]


def _given(change: TableChange) -> GivenRows:
    return GivenRows(change, [], lambda e: StatementFailed(str(e)))


def test_a_statement_that_was_abandoned_adds_nothing_after_its_savepoint() -> None:
    """Its rows were committed, although ROLLBACK TO had taken the statement back."""
    transaction, change = Transaction(), TableChange("notes", "insert")
    transaction.begin()
    transaction.savepoint("s", SessionSettings("ada", {}, "shop").mark())
    abandoned = transaction.writes
    transaction.back_to("s")
    abandoned.add([Write(change, given=_given(change))])
    assert not transaction.has_written


def test_a_copy_that_was_abandoned_commits_nothing_after_rollback() -> None:
    """It found the transaction ended, and wrote its rows as one of its own."""
    transaction = Transaction()
    transaction.begin()

    def rows() -> GivenRows:
        transaction.end()
        return _given(TableChange("notes", "insert"))

    late = SimpleNamespace(rows=rows, source=None, size=0, held=None)
    Execution(None, lambda: False).finish_copy(late, transaction)  # type: ignore[arg-type]
    assert not transaction.has_written


def test_rows_that_a_savepoint_takes_back_are_let_go() -> None:
    """They stayed in memory, and counted against the 256 MB of the transaction until its end."""
    writes, change = Writes(), TableChange("notes", "insert")
    for size in (7, 100, 200):
        writes.add([Write(change, given=GivenRows(change, [], lambda e: StatementFailed(str(e))), size=size)])
    writes = writes.first(1)
    assert (writes.size, len(writes.all)) == (7, 1)


def test_a_copy_that_is_collected_while_another_takes_memory_gives_its_own_back() -> None:
    """Errors keep it in cycles, so a collection may end it in any allocation, also in the one of the message about too little memory."""
    memory = incoming.CopyMemory(10)
    kept = [incoming.Held(memory)]
    kept[0].add(5)

    class Collecting(int):
        def __gt__(self, other: object) -> bool:
            kept.clear()
            return True

    taking = threading.Thread(target=memory.take, args=(Collecting(2),), daemon=True)
    taking.start()
    taking.join(10)
    assert not taking.is_alive()
    assert memory.taken == 2
