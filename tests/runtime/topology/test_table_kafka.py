"""Statements that change tables on Kafka: a broker's offsets have gaps, and the transactional id alone keeps a second writer out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from flowql.runtime.log.kafka.connection import Connection
from flowql.runtime.log.kafka.log import KafkaLog
from flowql.runtime.topology import table_writer
from flowql.runtime.topology.query import ensure_sources
from flowql.runtime.topology.table_statements import carry_out
from tests.runtime.topology.test_table_writer import FILE, NOW, TABLES, Tables, between, plan_of

pytestmark = [pytest.mark.kafka, pytest.mark.turns("long")]


class KafkaTables(Tables):
    def __init__(self, log: KafkaLog, sql: str, prefix: str) -> None:
        self.log = log  # type: ignore[assignment]
        self.plan = plan_of(f"SET 'ksql.output.topic.name.prefix' = '{prefix}';" + sql)
        ensure_sources(self.plan, log.admin())


@pytest.fixture
def log(kafka: str) -> Iterator[KafkaLog]:
    made = KafkaLog(Connection(kafka), "tables")
    yield made
    made.close()


@pytest.fixture
def prefix() -> str:
    return f"t{uuid.uuid4().hex[:8]}-"


def test_rows_are_changed_as_on_the_embedded_log(log: KafkaLog, prefix: str) -> None:
    tables = KafkaTables(log, TABLES, prefix)
    for sql in (
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)",
        "UPDATE t SET n = n * 10 WHERE k > 1",
        "DELETE FROM t WHERE k = 3",
        "UPDATE t SET k = 3 - k",
        "INSERT INTO t VALUES (1, 5), (7, 7) ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n",
        "INSERT INTO bag VALUES (1), (1)",
        "INSERT INTO bag VALUES (1), (2)",
        "DELETE FROM bag WHERE n = 2",
    ):
        tables.change(sql)
    assert tables.rows("t") == [(1, 25), (2, 1), (7, 7)]
    assert tables.rows("bag") == [(1,), (1,), (1,)]


def test_a_statement_takes_in_what_another_process_wrote_meanwhile(
    log: KafkaLog, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = KafkaTables(log, TABLES, prefix)
    other = tables.elsewhere()
    tables.change("INSERT INTO t VALUES (1, 0)")
    between(monkeypatch, lambda: other.change("UPDATE t SET n = n + 1"))
    assert tables.change("UPDATE t SET n = n + 1") == 1
    assert tables.rows("t") == [(1, 2)]


def test_statements_of_files_are_carried_out_once(log: KafkaLog, prefix: str) -> None:
    tables = KafkaTables(log, TABLES + FILE, prefix)
    assert carry_out(log, tables.plan, prefix + "app", NOW) == {"t": 4, "bag": 2}
    assert carry_out(log, tables.plan, prefix + "app", NOW) == {}
    assert (tables.rows("t"), tables.rows("bag")) == ([(1, 10), (2, 20)], [(1,), (1,)])
    assert table_writer.writer_id("a", "t") == "a-table-t"
