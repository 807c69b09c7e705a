"""One script of psql, and messages of the extended protocol, against FlowQL and against PostgreSQL 15 over the same rows: equal output."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.flowql.pg.clients import (
    Place,
    Shows,
    asked,
    asyncpg_shows,
    differences,
    jdbc_shows,
    psycopg_shows,
    sqlalchemy_shows,
    tcp_to,
)
from tests.flowql.pg.conftest import Shop, started
from tests.flowql.pg.wire import ANSWER_S, SYNC, Wire, bind, describe, execute, fields_of, parse
from tests.one_meaning import postgres

pytestmark = [
    pytest.mark.turns("beside PostgreSQL"),
    pytest.mark.skipif(not postgres.installed() or shutil.which("psql") is None, reason="needs PostgreSQL 15 and psql"),
]
TABLES = """
CREATE TABLE t (id BIGINT PRIMARY KEY, n INTEGER, s TEXT, dec DECIMAL(10,2), x DOUBLE PRECISION, ok BOOLEAN, d DATE, tm TIME,
  ts TIMESTAMP(6), tz TIMESTAMPTZ(6), j JSONB, u UUID, b BYTEA, xs BIGINT[], ss TEXT[]);
CREATE TABLE o (id BIGINT PRIMARY KEY, customer TEXT, amount DECIMAL(10,2));
CREATE TABLE c (code TEXT PRIMARY KEY, name TEXT);
CREATE TABLE w (id BIGINT PRIMARY KEY, s TEXT);
"""
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM o GROUP BY customer;"
ROWS = r"""
INSERT INTO t VALUES
  (1, 7, 'it''s "ada", \n', 10.50, 1.5, true, '2024-02-29', '10:00:00.25', '2024-01-01 10:00:00.123456', '2024-01-01 10:00:00+02', '{"a": [1, null]}',
   '00000000-0000-0000-0000-00000000000a', '\x00ff', ARRAY[1, NULL, 3], ARRAY['a b', '', 'NULL', 'x"y', NULL]),
  (2, -2147483648, '', -0.01, 'NaN', false, '1969-12-31', '00:00:00', '1969-12-31 23:59:59.5', '2024-07-01 00:00:00+00', '"s"',
   'ffffffff-ffff-ffff-ffff-ffffffffffff', '', '{}', '{}'),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (4, 0, 'Ünïcödé €', 99999999.99, 1e300, true, '2199-12-31', '23:59:59.999', '2024-01-01', '2024-01-01 00:00:00+00', '{}',
   '12345678-9abc-def0-1234-56789abcdef0', 'abc', ARRAY[-1], ARRAY['ä,b', '{}', '\']),
  (9223372036854775807, 1, E'two\nlines\ttab', 0, 0.00001, false, '1900-01-01', '12:34:56', '2200-01-01 00:00:00', '1970-01-01 00:00:00+00', '[1, 2.50, "x"]',
   NULL, 'x', ARRAY[9223372036854775807], ARRAY['one']);
INSERT INTO o VALUES (1, 'ada', 10.5), (2, 'bob', 20), (3, 'ada', 1.25), (4, 'eve', 7.77);
INSERT INTO c VALUES ('ada', 'Ada'), ('bob', 'Bob'), ('fay', 'Fay');
"""
SOME = 50  # statements of the script that a run draws
SCRIPT = "".join((Path(__file__).parent / name).read_text("utf-8") for name in ("script.sql", "values.sql"))
PARAMETERS: tuple[tuple[str, tuple[int, ...], tuple[bytes | None, ...], tuple[int, ...]], ...] = (
    ("SELECT $1::int + 1", (), (b"41",), ()),
    ("SELECT id, s FROM t WHERE id = $1", (), (b"1",), ()),
    ("SELECT id, s FROM t WHERE id = $1", (20,), (b"\0\0\0\0\0\0\0\1",), (1,)),
    ("SELECT id FROM t WHERE n = $1 AND ok = $2 ORDER BY id", (), (b"7", b"true"), ()),
    ("SELECT id FROM t WHERE s = $1", (), (b'it\'s "ada", \\n',), ()),
    ("SELECT id FROM t WHERE dec > $1 ORDER BY id", (), (b"10.49",), ()),
    ("SELECT id FROM t WHERE x < $1 ORDER BY id", (), (b"2.5",), ()),
    ("SELECT id FROM t WHERE d = $1", (), (b"2024-02-29",), ()),
    ("SELECT id FROM t WHERE d = $1", (1082,), (b"\0\0\x22\x79",), (1,)),
    ("SELECT id FROM t WHERE ts = $1", (), (b"2024-01-01 10:00:00.123456",), ()),
    ("SELECT id FROM t WHERE tz = $1", (), (b"2024-01-01 08:00:00+00",), ()),
    ("SELECT id FROM t WHERE u = $1", (), (b"00000000-0000-0000-0000-00000000000a",), ()),
    ("SELECT id FROM t WHERE id IN ($1, $2, $3) ORDER BY id", (), (b"1", b"2", b"77"), ()),
    ("SELECT id FROM t WHERE id BETWEEN $1 AND $2 ORDER BY id", (), (b"2", b"4"), ()),
    ("SELECT id FROM t WHERE s LIKE $1 ORDER BY id", (), (b"%ada%",), ()),
    ("SELECT id FROM t WHERE id = ANY($1) ORDER BY id", (), (b"{1,2}",), ()),
    ("SELECT id FROM o ORDER BY id LIMIT $1 OFFSET $2", (), (b"2", b"1"), ()),
    ("SELECT $1::text, $2::numeric(10, 2), $3::bool, $4::date", (), (b"x", b"1.50", b"t", b"2024-01-01"), ()),
    ("SELECT $1::text", (), (None,), ()),
    ("SELECT $1", (), (b"x",), ()),
    (
        "SELECT $1::float8, $2::timestamp, $3::uuid",
        (),
        (b"0.1", b"2024-01-01 00:00:00", b"00000000-0000-0000-0000-00000000000a"),
        (),
    ),
    ("SELECT id FROM t WHERE id = $1", (), (b"x",), ()),
    ("SELECT id FROM t WHERE n = $1", (), (b"99999999999",), ()),
    ("SELECT nope FROM t WHERE id = $1", (), (b"1",), ()),
    ("SELECT id FROM t WHERE id = $1", (), (), ()),
    ("SELECT 1 / $1::int", (), (b"0",), ()),
    ("INSERT INTO w VALUES ($1, $2)", (), (b"1", b"a"), ()),
    ("INSERT INTO w (s, id) VALUES ($1, $2) RETURNING id, s", (), (None, b"2"), ()),
    ("UPDATE w SET s = $1 WHERE id = $2", (), (b"u", b"1"), ()),
    ("DELETE FROM w WHERE id = $1", (), (b"1",), ()),
    ("DELETE FROM w", (), (), ()),
)


@dataclass(frozen=True, slots=True)
class Both:
    shop: Shop
    postgres: str

    def wires(self) -> tuple[Wire, Wire]:
        return self.shop.wire(), Wire(0, path=self.postgres, user="postgres", database="postgres", TimeZone="UTC")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with postgres.server() as server:
        server.run(TABLES + ROWS + VIEW)
        for shop in started(tmp_path_factory.mktemp("beside"), "{port}", TABLES + VIEW, ROWS):
            yield Both(shop, server.address)


def statements() -> list[str]:
    return [s for s in SCRIPT.split(";\n") if s.strip()]


def run(script: str, **where: str) -> list[str]:
    """What psql shows of each statement; of an error its SQLSTATE."""
    environment = {**os.environ, "PGTZ": "UTC", **where}
    done = subprocess.run(
        ["psql", "-X", "-v", "VERBOSITY=sqlstate"],
        input=script,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=ANSWER_S * 3,
    )
    return done.stdout.split("=====\n")[1:]


def test_psql_shows_what_postgresql_shows(both: Both) -> None:
    found = statements()
    script = "".join(f"\\echo =====\n{s};\n" for s in found)
    ours = run(script, PGHOST="127.0.0.1", PGPORT=str(both.shop.port), PGUSER="ada", PGDATABASE="x")
    theirs = run(
        script, PGHOST=str(Path(both.postgres).parent), PGPORT="5432", PGUSER="postgres", PGDATABASE="postgres"
    )
    assert len(ours) == len(theirs) == len(found)
    wrong = [
        f"{s}\n  FlowQL:     {a!r}\n  PostgreSQL: {b!r}" for s, a, b in zip(found, ours, theirs, strict=True) if a != b
    ]
    assert not wrong, f"{len(wrong)} of {len(found)}:\n" + "\n".join(wrong)


def answered(w: Wire, sql: str, *, binary: bool) -> list[tuple[bytes, bytes]]:
    w.send(parse(sql), bind(results=(int(binary),)), describe(), execute(), SYNC)
    return shown(w.until_ready())


def shown(messages: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Columns, rows and tag; of an error its SQLSTATE alone: FlowQL finds mistakes in values as it describes a portal."""
    errors = [(k, fields_of(b)["C"].encode()) for k, b in messages if k == b"E"]
    return errors or [
        (k, _columns(b) if k == b"T" else b) for k, b in messages if k not in (b"N", b"S", b"Z", b"1", b"2")
    ]


def _columns(body: bytes) -> bytes:
    """Names, types, sizes and formats: numbers of tables and modifiers differ."""
    found, at = b"", 2
    for _ in range(int.from_bytes(body[:2], "big")):
        end = body.index(b"\0", at) + 1
        found += body[at:end] + body[end + 6 : end + 12] + body[end + 16 : end + 18]
        at = end + 18
    return found


@pytest.mark.parametrize("binary", [False, True])
def test_messages_are_those_of_postgresql(both: Both, binary: bool) -> None:
    reads = [s for s in statements() if s.startswith(("SELECT", "WITH", "VALUES")) and ";" not in s]
    turns = os.environ["TURNS"]
    reads = reads if turns == "all" else Random(f"{turns} {binary}").sample(reads, SOME)
    ours, theirs = both.wires()
    wrong = []
    with ours, theirs:
        for sql in reads:
            a, b = answered(ours, sql, binary=binary), answered(theirs, sql, binary=binary)
            if a != b:
                wrong.append(f"{sql}\n  FlowQL:     {a}\n  PostgreSQL: {b}")
    assert not wrong, f"{len(wrong)} of {len(reads)}:\n" + "\n".join(wrong)


def test_parameters_are_those_of_postgresql(both: Both) -> None:
    ours, theirs = both.wires()
    wrong = []
    with ours, theirs:
        for sql, oids, given, formats in PARAMETERS:
            found = []
            for w in (ours, theirs):
                w.send(
                    parse(sql, *oids),
                    describe("S"),
                    SYNC,
                    parse(sql, *oids),
                    bind(*given, formats=formats),
                    describe(),
                    execute(),
                    SYNC,
                )
                found.append(shown(w.until_ready()) + shown(w.until_ready()))
            if found[0] != found[1]:
                wrong.append(f"{sql} {given}\n  FlowQL:     {found[0]}\n  PostgreSQL: {found[1]}")
    assert not wrong, "\n".join(wrong)


def places(both: Both) -> tuple[Place, Place]:
    ours = {"host": "127.0.0.1", "port": both.shop.port, "user": "ada"}
    return ours, {"host": str(Path(both.postgres).parent), "port": 5432, "user": "postgres"}


CLIENTS: dict[str, Shows] = {
    "psycopg": psycopg_shows,
    "psycopg in binary": partial(psycopg_shows, binary=True),
    "SQLAlchemy": sqlalchemy_shows,
    "asyncpg": asyncpg_shows,
}


@pytest.mark.parametrize("client", [*CLIENTS, "Java"])
def test_a_driver_shows_what_it_shows_of_postgresql(both: Both, client: str, tmp_path: Path) -> None:
    """One of them each turn."""
    turns = os.environ["TURNS"]
    if turns != "all" and client != Random(turns).choice([*CLIENTS, "Java"]):
        pytest.skip("another client has its turn")
    found, (ours, theirs) = asked(statements()), places(both)
    if client != "Java":
        a, b = (CLIENTS[client](place, found) for place in (ours, theirs))
    else:
        with tcp_to(both.postgres) as port:
            a, b = jdbc_shows([ours, {**theirs, "host": "127.0.0.1", "port": port}], found, tmp_path)
    assert len(found) > 200
    assert not (wrong := differences(found, a, b)), wrong
