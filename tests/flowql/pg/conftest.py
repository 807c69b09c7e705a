"""An instance with a port for PostgreSQL's protocol."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import flowql
from tests.flowql.pg.wire import Wire
from tests.one_meaning.world import free_port

YAML = """name: shop
dialect: {dialect}
sql: "*.sql"
targets:
  main: {{data_dir: data, threads: 1, memory: 256 MB, pg: {pg}}}
"""
SQL = """
CREATE TABLE kinds (id BIGINT PRIMARY KEY, n INTEGER, name VARCHAR, price DECIMAL(10,2), x DOUBLE PRECISION, ok BOOLEAN, d DATE, tm TIME,
  at TIMESTAMP(6), tz TIMESTAMPTZ(6), doc JSONB, u UUID, raw BYTEA, span INTERVAL, list BIGINT[], words VARCHAR[]);
CREATE TABLE orders (id BIGINT PRIMARY KEY, customer VARCHAR, amount DECIMAL(10,2));
CREATE TABLE notes (id BIGINT PRIMARY KEY, note VARCHAR NOT NULL);
CREATE MATERIALIZED VIEW spent AS SELECT customer, COUNT(*) AS orders, SUM(amount) AS total FROM orders GROUP BY customer;
"""
ROWS = r"""
INSERT INTO kinds VALUES
  (1, 7, 'it''s "ada", \n', 10.50, 1.5, true, '2024-02-29', '10:00:00.25', '2024-01-01 10:00:00.123456', '2024-01-01 10:00:00+02', '{"a": [1, null]}',
   '00000000-0000-0000-0000-00000000000a', '\x00ff', '1 year 2 mons -3 days 04:05:06.7', ARRAY[1, NULL, 3], ARRAY['a b', '', 'NULL', 'x"y', NULL]),
  (2, -2147483648, '', -0.01, 'NaN', false, '1969-12-31', '00:00:00', '1969-12-31 23:59:59.5', '2024-07-01 00:00:00+00', '"s"',
   'ffffffff-ffff-ffff-ffff-ffffffffffff', '', '-1 mon', '{}', '{}'),
  (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (9223372036854775807, 0, 'Ünïcödé €', 99999999.99, 1e300, true, '2199-12-31', '23:59:59.999', '2024-01-01', '2024-01-01 00:00:00+00', '{}',
   '12345678-9abc-def0-1234-56789abcdef0', 'abc', '00:00:01', ARRAY[-1], ARRAY['ä,b']);
INSERT INTO orders VALUES (1, 'ada', 10.5), (2, 'bob', 20), (3, 'ada', 1.25);
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """folder: of the project. port: of PostgreSQL's protocol."""

    folder: Path
    port: int
    instance: flowql.Instance

    def wire(self, **settings: str) -> Wire:
        return Wire(self.port, **settings)

    @property
    def process(self) -> int | None:
        """The process that answers."""
        host = self.instance._host
        assert host is not None
        assert host.listening is not None
        assert host.listening.gateway is not None
        return host.listening.gateway.pid


def started(folder: Path, pg: str, sql: str = SQL, rows: str = ROWS, dialect: str = "standard") -> Iterator[Shop]:
    port = free_port()
    (folder / "flowql.yaml").write_text(YAML.format(pg=pg.format(port=port), dialect=dialect))
    (folder / "shop.sql").write_text(sql)
    with flowql.Instance(folder) as instance:
        if rows:
            instance.connection.execute(rows)
        assert instance._host is not None
        caught_up, limit_s = instance._host.engine.catch_up(), time.monotonic() + 60
        while not caught_up():
            instance.check()
            assert time.monotonic() < limit_s
            time.sleep(0.01)
        yield Shop(folder, port, instance)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Without users: everybody on this machine may connect. Tests write into `notes` alone."""
    yield from started(tmp_path_factory.mktemp("pg"), "{port}")
