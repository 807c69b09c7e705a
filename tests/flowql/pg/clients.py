"""Clients of PostgreSQL that run statements one after the other: what each of them shows of each statement."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Place = Mapping[str, Any]  # how a client reaches a server: host, port, user, database
_JAVA = Path(__file__).with_name("Script.java")
_LEFT_OUT = re.compile(r"COPY|DISCARD|DEALLOCATE|UPDATE .* RETURNING|.*;", re.DOTALL)


def asked(statements: Sequence[str]) -> list[str]:
    """Those that drivers send as they are, and whose rows have an order: COPY has calls of its own, and DISCARD drops what drivers have prepared."""
    return [s for s in statements if not _LEFT_OUT.match(s)]


def psycopg_shows(place: Place, statements: Sequence[str], *, binary: bool = False) -> list[object]:
    psycopg = pytest.importorskip("psycopg")
    found = list[object]()
    with psycopg.connect(**place, dbname="postgres", autocommit=True) as c, c.cursor(binary=binary) as cursor:
        for sql in statements:
            try:
                cursor.execute(sql)
                found.append((cursor.statusmessage, cursor.fetchall() if cursor.description else None))
            except psycopg.Error as error:
                found.append(error.sqlstate)
    return found


def sqlalchemy_shows(place: Place, statements: Sequence[str]) -> list[object]:
    sa = pytest.importorskip("sqlalchemy")
    pytest.importorskip("psycopg")
    url = sa.URL.create(
        "postgresql+psycopg", place["user"], database="postgres", query={k: str(place[k]) for k in ("host", "port")}
    )
    engine, found = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool), list[object]()
    with engine.connect() as c:
        for sql in statements:
            try:
                result = c.exec_driver_sql(sql)
                found.append(list(map(tuple, result)) if result.returns_rows else None)
            except sa.exc.DBAPIError as error:
                found.append(error.orig.sqlstate)
    engine.dispose()
    return found


def asyncpg_shows(place: Place, statements: Sequence[str]) -> list[object]:
    asyncpg = pytest.importorskip("asyncpg")

    async def run() -> list[object]:
        c, found = await asyncpg.connect(**place, database="postgres"), list[object]()
        for sql in statements:
            try:
                found.append([tuple(row) for row in await c.fetch(sql)])
            except asyncpg.PostgresError as error:
                found.append(error.sqlstate)
        await c.close()
        return found

    return asyncio.run(run())


def jdbc_shows(places: Sequence[Place], statements: Sequence[str], folder: Path) -> list[list[str]]:
    """As `Script.java` prints it; the servers are reached by TCP. Skips the test where Java or the driver is not installed."""
    jars = sorted(Path.home().glob(".m2/repository/org/postgresql/postgresql/*/postgresql-*.jar"))
    if not jars:
        pytest.skip(
            "needs PostgreSQL's driver for Java:  mvn dependency:get -Dartifact=org.postgresql:postgresql:42.7.4"
        )
    script = folder / "script.txt"
    script.write_text("\0".join(statements))
    urls = [f"jdbc:postgresql://{p['host']}:{p['port']}/postgres?user={p['user']}&sslmode=disable" for p in places]
    try:
        done = subprocess.run(
            ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", str(jars[-1]), str(_JAVA), str(script), *urls],
            env={**os.environ, "TZ": "UTC"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    except FileNotFoundError:
        pytest.skip("needs Java")
    assert done.returncode == 0, done.stderr
    return [part.split("=====\n")[1:] for part in done.stdout.split("#####\n")[1:]]


def differences(statements: Sequence[str], ours: Sequence[object], theirs: Sequence[object]) -> str:
    """The statements of which two servers show different things."""
    assert len(ours) == len(theirs) == len(statements)
    shown = ((s, _equal(a), _equal(b)) for s, a, b in zip(statements, ours, theirs, strict=True))
    return "\n".join(f"{s}\n  FlowQL:     {a!r}\n  PostgreSQL: {b!r}" for s, a, b in shown if a != b)


def _equal(shown: object) -> object:
    """NaN is equal to itself in its text."""
    return repr(shown)


@contextmanager
def tcp_to(path: str) -> Iterator[int]:
    """A port of this machine that leads to a socket of the file system, which Java's driver cannot open."""
    loop = asyncio.new_event_loop()

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
        sink.close()

    async def joined(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(path)
        await asyncio.gather(pump(reader, back), pump(there, writer))

    server = loop.run_until_complete(asyncio.start_server(joined, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


Shows = Callable[[Place, Sequence[str]], list[object]]
