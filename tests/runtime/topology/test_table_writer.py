"""Statements that change tables: over the newest rows whoever writes them, and statements of files once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_changes, compile_project
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.batch import Row
from flowql.runtime.errors import (
    LogError,
    StatementFailed,
    TableBusy,
    TableUnsupported,
    TopicMissing,
    TransactionAborted,
)
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, Producer, TopicPartition
from flowql.runtime.log.clients import LogProducer
from flowql.runtime.log.embedded.journal import InDoubt
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.topology import table_writer
from flowql.runtime.topology.query import ensure_sources
from flowql.runtime.topology.table_groups import TableStatement
from flowql.runtime.topology.table_image import table_ends
from flowql.runtime.topology.table_rows import RowReader, Rows
from flowql.runtime.topology.table_statements import carry_out, check_tables
from flowql.runtime.topology.table_writer import TableWriters

APP, NOW = "app", 1_700_000_000_000
TABLES = "CREATE TABLE t (k INT PRIMARY KEY, n INT); CREATE TABLE bag (n INT) WITH (PARTITIONS=3);"


def plan_of(sql: str) -> Plan:
    result = compile_project([SourceText("t.sql", sql)], dialect="standard")
    assert result.ok, [d.title for d in result.diagnostics]
    return result.plan


class Tables:
    def __init__(self, sql: str = TABLES) -> None:
        self.log: Log = MemoryLog()
        self.plan = plan_of(sql)
        ensure_sources(self.plan, self.log.admin())

    def change(self, sql: str) -> int:
        (made,) = compile_changes(SourceText("", sql), self.plan.sources, dialect="standard")
        assert isinstance(made, TableChange)
        return self.writers.change(self.source(made.target), made, NOW).count

    @cached_property
    def writers(self) -> TableWriters:
        return TableWriters(self.log, APP)

    def elsewhere(self) -> Tables:
        """The same tables in another process."""
        other = copy(self)
        other.__dict__.pop("writers", None)
        other.writers = TableWriters(self.log, APP, "elsewhere")
        return other

    def source(self, name: str) -> SourceDef:
        found = self.plan.source(name)
        assert found is not None
        return found

    def rows(self, name: str) -> list[tuple[object, ...]]:
        source = self.source(name)
        at = [source.schema.names.index(n) for n in source.visible]
        return sorted(tuple(row[i] for i in at) for row in rows_in(self.log, source).values())


def rows_in(log: Log, source: SourceDef) -> Rows:
    """The last record of each key of a table's topic."""
    found: dict[bytes, Row | None] = {}
    for tp, end in table_ends(log, source).items():
        reader = RowReader(source)
        for read in reader.changes(
            log, tp, log.admin().begin_offset(tp), end, log.admin().topics()[tp.topic].partitions
        ):
            found |= {key: None if kept is None else reader.row(kept) for key, kept in read.changes.items()}
    return {key: row for key, row in found.items() if row is not None}


@pytest.fixture
def tables() -> Tables:
    return Tables()


def test_a_deployment_makes_the_topic_and_it_is_compacted(tables: Tables) -> None:
    found = tables.log.admin().topics()
    assert {n: (i.partitions, i.config) for n, i in found.items()} == {
        "t": (1, {"cleanup.policy": "compact"}),
        "bag": (3, {"cleanup.policy": "compact"}),
    }
    ensure_sources(tables.plan, tables.log.admin())


def test_a_topic_of_others_is_not_written_to(tables: Tables) -> None:
    log = MemoryLog()
    log.create_topic("t", 1)
    with pytest.raises(LogError, match="exists and is not compacted"):
        ensure_sources(tables.plan, log)
    with pytest.raises(TopicMissing, match="deploy"):
        TableWriters(log, APP).change(replace(tables.source("t"), topic="gone"), TableChange("t", "delete"), NOW)


def between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Do something after a statement has read the rows, and before it writes."""
    waiting, write = [act], table_writer._write

    def writes(*given: Any) -> None:
        if waiting:
            waiting.pop()()
        write(*given)

    monkeypatch.setattr(table_writer, "_write", writes)


def test_a_statement_takes_in_what_another_process_wrote_meanwhile(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tables.elsewhere()
    tables.change("INSERT INTO t VALUES (1, 0)")
    between(monkeypatch, lambda: other.change("UPDATE t SET n = n + 1"))
    assert tables.change("UPDATE t SET n = n + 1") == 1
    assert tables.rows("t") == [(1, 2)]
    between(monkeypatch, lambda: other.change("INSERT INTO t VALUES (2, 0)"))
    with pytest.raises(StatementFailed, match="already"):
        tables.change("INSERT INTO t VALUES (2, 5)")
    assert tables.rows("t") == [(1, 2), (2, 0)]


def test_a_statement_takes_in_what_a_producer_wrote_meanwhile(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer with another id is not shut out; the log compares the end."""
    tables.change("INSERT INTO t VALUES (1, 0)")
    between(monkeypatch, lambda: produce(tables.log, b"2", b'{"n":7}'))
    assert tables.change("UPDATE t SET n = n + 5") == 2
    assert tables.rows("t") == [(1, 5), (2, 12)]


def test_rows_that_a_query_chose_must_not_have_changed_since(tables: Tables) -> None:
    tables.change("INSERT INTO t VALUES (1, 0), (2, 0)")
    source, change = tables.source("t"), TableChange("t", "delete", columns=("k",), select="SELECT ...")
    seen = table_ends(tables.log, source)
    tables.change("UPDATE t SET n = 5 WHERE k = 2")
    with pytest.raises(TableBusy, match="repeat it"):
        tables.writers.change(source, change, NOW, [(1,)], seen)
    assert tables.writers.change(source, change, NOW, [(1,)], table_ends(tables.log, source)).count == 1
    assert tables.rows("t") == [(2, 5)]


def produce(log: Log, key: bytes, value: bytes | None) -> None:
    producer = log.producer("other")
    producer.begin()
    batch = {"timestamp": NOW, "key": key, "value": value, "headers": None}
    producer.send(TopicPartition("t", 0), pa.RecordBatch.from_pylist([batch], PRODUCE_SCHEMA))
    producer.commit()


def test_rows_without_key_get_numbers_that_never_come_again(tables: Tables) -> None:
    numbers: list[int] = []
    for _ in range(5):
        tables.change("INSERT INTO bag VALUES (1), (1), (2)")
        tables.change("DELETE FROM bag WHERE n = 2")
        source = tables.source("bag")
        numbers += [row[0] for row in rows_in(tables.log, source).values()]
    assert len(tables.rows("bag")) == 10
    assert len(set(numbers)) == 10, "a row keeps its number"


def test_a_record_that_is_no_row_stops_a_statement(tables: Tables) -> None:
    produce(tables.log, b"2", b"not JSON")
    with pytest.raises(StatementFailed, match="not a row of it"):
        tables.change("DELETE FROM t")


def test_a_topic_that_has_got_more_partitions_is_noticed(tables: Tables) -> None:
    tables.change("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    grown = Tables("CREATE TABLE t (k INT PRIMARY KEY, n INT) WITH (PARTITIONS=2)")
    batch = tables.log.reader(TopicPartition("t", 0)).read(10, 1 << 20)
    assert batch is not None
    producer = grown.log.producer("other")
    producer.begin()
    producer.send(TopicPartition("t", 0), batch.records.drop_columns("offset"))
    producer.commit()
    with pytest.raises(StatementFailed, match="partitions of their keys"):
        grown.change("DELETE FROM t")


# --- statements of files ---

FILE = """
INSERT INTO t VALUES (1, 1), (2, 2);
UPDATE t SET n = n * 10;
INSERT INTO bag VALUES (1);
INSERT INTO bag VALUES (1);
"""


def test_statements_of_files_are_carried_out_once() -> None:
    tables = Tables(TABLES + FILE)
    assert carry_out(tables.log, tables.plan, APP, NOW) == {"t": 4, "bag": 2}
    assert carry_out(tables.log, tables.plan, APP, NOW) == {}
    assert (tables.rows("t"), tables.rows("bag")) == ([(1, 10), (2, 20)], [(1,), (1,)])


def test_each_statement_of_a_file_has_a_later_time_than_those_before_it() -> None:
    tables = Tables(TABLES + FILE)
    carry_out(tables.log, tables.plan, APP, NOW)
    found: dict[str, list[int]] = {"t": [], "bag": []}
    for name, times in found.items():
        for p in range(tables.log.topics()[name].partitions):
            reader = tables.log.reader(TopicPartition(name, p), EARLIEST)
            while (batch := reader.read(100, 1 << 20)) is not None:
                times += batch.records.column("timestamp").to_pylist()
    assert {n: sorted(t) for n, t in found.items()} == {"t": [NOW, NOW, NOW + 1, NOW + 1], "bag": [NOW + 2, NOW + 3]}


def test_a_new_statement_is_carried_out_and_another_layout_is_none() -> None:
    tables = Tables(TABLES + FILE)
    carry_out(tables.log, tables.plan, APP, NOW)
    text = (
        FILE.replace("UPDATE t SET n = n * 10", "update t -- ten times\n  set n=n*10") + "INSERT INTO bag VALUES (1);"
    )
    assert carry_out(tables.log, plan_of(TABLES + text), APP, NOW) == {"bag": 1}


def test_after_a_failure_it_goes_on_where_it_stopped() -> None:
    tables = Tables(TABLES + FILE)
    tables.change("INSERT INTO t VALUES (2, 0)")
    with pytest.raises(StatementFailed):
        carry_out(tables.log, tables.plan, APP, NOW)
    assert tables.rows("bag") == []
    tables.change("DELETE FROM t")
    assert carry_out(tables.log, tables.plan, APP, NOW) == {"t": 4, "bag": 2}


def test_a_statement_that_is_found_to_change_nothing_is_done_all_the_same() -> None:
    tables = Tables(TABLES + "DELETE FROM t;")
    assert carry_out(tables.log, tables.plan, APP, NOW) == {"t": 0}
    tables.change("INSERT INTO t VALUES (1, 1)")
    assert carry_out(tables.log, tables.plan, APP, NOW) == {}
    assert tables.rows("t") == [(1, 1)]


def test_a_topic_that_was_made_anew_gets_its_rows_again() -> None:
    tables = Tables(TABLES + FILE)
    carry_out(tables.log, tables.plan, APP, NOW)
    tables.log.admin().delete_topic("t")
    ensure_sources(tables.plan, tables.log.admin())
    assert carry_out(tables.log, tables.plan, APP, NOW) == {"t": 4}
    assert (tables.rows("t"), tables.rows("bag")) == ([(1, 10), (2, 20)], [(1,), (1,)])


# --- other declarations ---


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        ("t (k INT PRIMARY KEY, n INT)", ""),
        ("t (k INT PRIMARY KEY, n INT DEFAULT 7)", ""),
        ("t (n INT, k INT, PRIMARY KEY (k))", ""),
        ("t (k INT PRIMARY KEY, n INT, new TEXT)", ""),
        ("t (k INT PRIMARY KEY, n INT, new TEXT NOT NULL)", "new would become NOT NULL"),
        ("t (k INT PRIMARY KEY, n INT, new TEXT DEFAULT 'x')", "new column new is NULL"),
        ("t (k INT PRIMARY KEY, n INT NOT NULL)", "n would become NOT NULL"),
        ("t (k INT PRIMARY KEY, n TEXT)", "column n, INT, would become STRING"),
        ("t (k INT PRIMARY KEY)", "column n, INT, would be gone"),
        ("t (k INT, n INT PRIMARY KEY)", "its key would change"),
        ("t (k INT, n INT)", "its key would change"),
        ("t (k INT PRIMARY KEY, n INT) WITH (PARTITIONS=1)", ""),
        ("t (k INT PRIMARY KEY, n INT) WITH (PARTITIONS=2)", "rows in 1 partitions"),
        ("t (k TEXT PRIMARY KEY, n INT)", "its key would change"),
        ("t (k INT PRIMARY KEY, n INT, new INT AS (n + 1))", "new was not computed"),
        ("t (k INT PRIMARY KEY, n INT AS (k + 1))", "n was not computed"),
    ],
)
def test_a_table_with_rows_keeps_what_they_need(declared: str, why: str) -> None:
    tables, wanted = Tables(), plan_of(f"CREATE TABLE {declared};")
    check_tables(tables.plan, wanted, tables.log.admin())
    tables.change("INSERT INTO t VALUES (1, NULL)")
    if not why:
        check_tables(tables.plan, wanted, tables.log.admin())
        return
    with pytest.raises(TableUnsupported, match=why):
        check_tables(tables.plan, wanted, tables.log.admin())


def test_a_generated_column_of_rows_stays_as_it_is_computed() -> None:
    tables = Tables("CREATE TABLE t (k INT PRIMARY KEY, n INT AS (k + 1));")
    tables.change("INSERT INTO t (k) VALUES (1)")
    for expr, why in (("(k + 1)", None), ("(k + 2)", "n was not computed"), (None, None)):
        wanted = plan_of(f"CREATE TABLE t (k INT PRIMARY KEY, n INT{' AS ' + expr if expr else ''});")
        with pytest.raises(TableUnsupported, match=why) if why else nullcontext():
            check_tables(tables.plan, wanted, tables.log.admin())


def test_a_new_table_is_not_laid_over_rows_of_an_older_one(tables: Tables) -> None:
    check_tables(Plan(), tables.plan, tables.log.admin())
    tables.change("INSERT INTO t VALUES (1, NULL)")
    with pytest.raises(TableUnsupported, match="flowql topic delete t"):
        check_tables(Plan(), tables.plan, tables.log.admin())


@pytest.mark.parametrize("is_written", [True, False])
def test_a_transaction_over_two_tables_without_an_answer_leaves_no_producer_open(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, *, is_written: bool
) -> None:
    """The second producer, which resolves the commit, stayed open."""
    commit, changes = MemoryLog.commit, ("INSERT INTO t VALUES (1, 0)", "INSERT INTO bag VALUES (2)")
    statements = list[TableStatement]()
    for sql in changes:
        (made,) = compile_changes(SourceText("", sql), tables.plan.sources, dialect="standard")
        assert isinstance(made, TableChange)
        statements.append(TableStatement(tables.source(made.target), made))

    def unanswered(*given: Any) -> int:
        if is_written:
            commit(*given)
        raise InDoubt("no answer")

    opened, closed = list[Producer](), list[Producer]()
    make, close = MemoryLog.producer, LogProducer.close
    with monkeypatch.context() as patch:
        patch.setattr(MemoryLog, "commit", unanswered)
        patch.setattr(MemoryLog, "producer", lambda *given: opened.append(made := make(*given)) or made)  # type: ignore[func-returns-value]
        patch.setattr(LogProducer, "close", lambda self: closed.append(self) or close(self))  # type: ignore[func-returns-value]
        with nullcontext() if is_written else pytest.raises(TransactionAborted):
            tables.writers.transact(statements, NOW, lambda _: None)
    assert len(opened) == 2
    assert set(opened) == set(closed)
    assert tables.rows("t") == [(1, 0)] * is_written
