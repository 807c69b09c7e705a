"""Statements of several clients at once: they are committed in groups, and the table is as DuckDB has it after the same statements in order."""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_changes
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.errors import StateError, StateFull, StatementFailed
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.topology.query import ensure_sources
from flowql.runtime.topology.row_store import Followed, OpenedAgain, RowStores, StoresInDatabase, StoresInMemory
from flowql.runtime.topology.table_changes import Changed
from flowql.runtime.topology.table_writer import TableWriters
from tests.runtime.topology.test_table_writer import NOW, plan_of, produce, rows_in

TABLE = "CREATE TABLE t (k INT PRIMARY KEY, n INT, s TEXT) WITH (PARTITIONS=3);"
ORDER = TopicPartition("order", 0)
KEYS = st.integers(0, 6)
VALUES = st.one_of(st.none(), st.integers(-3, 3))
CONDITIONS = st.one_of(
    KEYS.map("k = {}".format),
    KEYS.map("{} = k AND n > 0".format),
    st.lists(KEYS, min_size=1, max_size=3).map(lambda keys: f"k IN ({', '.join(map(str, keys))})"),
    st.tuples(KEYS, KEYS).map(lambda keys: "k = {} OR k = {}".format(*keys)),
    VALUES.map(lambda n: f"n = {n}" if n is not None else "n IS NULL"),
    st.just("k <> 2"),
)
INSERTS = st.builds(
    "INSERT INTO t VALUES ({}, {}, 'new'){}".format,
    KEYS,
    VALUES.map(lambda n: "NULL" if n is None else n),
    st.sampled_from(["", " ON CONFLICT DO NOTHING", " ON CONFLICT (k) DO UPDATE SET n = excluded.n, s = t.s || '+'"]),
)
UPDATES = st.builds("UPDATE t SET n = {} WHERE {}".format, st.sampled_from(["n + 1", "k", "NULL"]), CONDITIONS)
STATEMENTS = st.one_of(INSERTS, UPDATES, CONDITIONS.map("DELETE FROM t WHERE {}".format))


def prepared(log: Log, text: str = TABLE) -> Plan:
    plan = plan_of(text)
    ensure_sources(plan, log.admin())
    log.admin().create_topic(ORDER.topic, 1)
    return plan


class Client:
    """Carries out statements one after the other, each with a record of its name in the topic ORDER. owners: where others wait for the table."""

    def __init__(
        self, plan: Plan, writers: TableWriters, name: str, statements: Sequence[str], owners: Executor | None = None
    ) -> None:
        self._plan, self._writers, self._owners = plan, writers, owners
        self.statements = {f"{name}-{i}": sql for i, sql in enumerate(statements)}
        self.counts: dict[str, int] = {}
        self.errors: list[Exception] = []

    def run(self) -> None:
        for name, sql in self.statements.items():
            try:
                self.counts[name] = self._carry_out(name, sql)
            except StatementFailed:  # the key exists
                pass
            except Exception as error:
                self.errors.append(error)

    def _carry_out(self, name: str, sql: str) -> int:
        (change,) = compile_changes(SourceText("", sql), self._plan.sources, dialect="standard")
        source = self._plan.source("t")
        assert isinstance(change, TableChange)
        assert source is not None
        columns = [[NOW], [name.encode()], [b""], [None]]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
        record = pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)
        if self._owners is None:
            return self._writers.change(source, change, NOW, mark=lambda _: (ORDER, record)).count
        told = SimpleQueue[Changed | BaseException]()
        self._writers.begin(source, change, NOW, told.put, self._owners.submit, lambda _: (ORDER, record))
        found = told.get()
        if isinstance(found, BaseException):
            raise found
        return found.count


def at_once(clients: Sequence[Client]) -> None:
    threads = [threading.Thread(target=c.run) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not [e for c in clients for e in c.errors]


def check(log: Log, plan: Plan, clients: Sequence[Client]) -> None:
    """The table, and how many rows each statement changed, are those of DuckDB."""
    statements = {name: sql for c in clients for name, sql in c.statements.items()}
    counts = {name: count for c in clients for name, count in c.counts.items()}
    reader, order = log.reader(ORDER, EARLIEST), list[str]()
    while (batch := reader.read(1_000, 1 << 20)) is not None:
        order += [key.decode() for key in batch.records.column("key").to_pylist()]
    assert sorted(order) == sorted(counts), "each statement that has succeeded is committed, once"
    db = duckdb.connect()
    db.execute("CREATE TABLE t (k INT PRIMARY KEY, n INT, s TEXT)")
    for name in order:
        found = db.execute(statements[name]).fetchone()
        assert found == (counts[name],), statements[name]
    source = plan.source("t")
    assert source is not None
    wanted = db.execute("SELECT k, n, s FROM t ORDER BY k").fetchall()
    assert sorted(rows_in(log, source).values()) == wanted


@settings(max_examples=15)
@given(st.lists(st.lists(STATEMENTS, max_size=8), min_size=1, max_size=4), st.booleans())
def test_statements_of_several_clients_take_effect_in_the_order_of_their_commits(
    statements: list[list[str]], database: bool
) -> None:
    log = MemoryLog()
    plan = prepared(log)
    stores: RowStores = StoresInDatabase(MemoryPhysical()) if database else StoresInMemory()
    writers = TableWriters(log, "app", "a", stores)
    with ThreadPoolExecutor(1) as owners:
        waits = [None, owners]
        clients = [Client(plan, writers, str(i), found, waits[i % 2]) for i, found in enumerate(statements)]
        at_once(clients)
    check(log, plan, clients)


@settings(max_examples=6, deadline=None)
@given(st.lists(st.lists(STATEMENTS, min_size=4, max_size=8), min_size=4, max_size=4))
def test_processes_that_share_an_embedded_log_take_in_what_the_others_wrote(
    tmp_path_factory: pytest.TempPathFactory, statements: list[list[str]]
) -> None:
    folder = tmp_path_factory.mktemp("shared")
    with EmbeddedLogs(folder) as (first, second):
        plan = prepared(first)
        writers = [TableWriters(log, "app", str(i)) for i, log in enumerate((first, second))]
        with ThreadPoolExecutor(2) as owners:
            clients = [
                Client(plan, writers[i % 2], str(i), found, owners if i > 1 else None)
                for i, found in enumerate(statements)
            ]
            at_once(clients)
        check(first, plan, clients)


class EmbeddedLogs:
    """A log twice, as two processes have it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> tuple[EmbeddedLog, EmbeddedLog]:
        self._logs = EmbeddedLog(self._folder), EmbeddedLog(self._folder)
        return self._logs

    def __exit__(self, *_: object) -> None:
        for log in self._logs:
            log.close()


def test_statements_that_wait_while_a_table_is_written_are_one_commit_and_one_that_fails_is_left_out() -> None:
    log = MemoryLog()
    plan = prepared(log)
    writers, source = TableWriters(log, "app"), plan.source("t")
    assert source is not None
    calls, told = list[Callable[[], None]](), list[Changed | BaseException]()
    texts = [f"INSERT INTO t VALUES ({k}, {k}, 'a')" for k in (1, 2, 2, 3)]
    changes = compile_changes(SourceText("", ";".join(texts)), plan.sources, dialect="standard")
    for change in changes:
        assert isinstance(change, TableChange)
        writers.begin(source, change, NOW, told.append, calls.append)
    assert len(calls) == 1, "one owner carries out all that wait"
    calls.pop()()
    assert not calls
    assert [f.count if isinstance(f, Changed) else type(f) for f in told] == [1, 1, StatementFailed, 1]
    assert sorted(row[0] for row in rows_in(log, source).values()) == [1, 2, 3]


def test_clients_that_are_answered_together_have_their_next_statements_in_one_commit() -> None:
    """Otherwise two halves of them take turns, and each waits for the commits of both."""
    assert min(commits_of_clients(4, 20) for _ in range(3)) < 28


def commits_of_clients(clients: int, statements: int) -> int:
    log, commits = MemoryLog(), 0
    plan, usual = prepared(log), log.commit

    def commit(*given: Any, **more: Any) -> Any:
        nonlocal commits
        commits += 1
        time.sleep(0.008)
        return usual(*given, **more)

    log.commit = commit  # type: ignore[method-assign]
    writers, source = TableWriters(log, "app"), plan.source("t")
    assert source is not None

    def run(client: int) -> None:
        for change in changes[client]:
            assert isinstance(change, TableChange)
            writers.change(source, change, NOW)

    texts = [[f"INSERT INTO t VALUES ({100 * c + n}, 0, 'a')" for n in range(statements)] for c in range(clients)]
    changes = [compile_changes(SourceText("", ";".join(t)), plan.sources, dialect="standard") for t in texts]
    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(run, range(clients)))
    return commits


# --- which rows are read ---


class Counted(StoresInMemory):
    """Counts the rows that are read: all of a table, and by key."""

    def __init__(self) -> None:
        super().__init__()
        self.scans = self.gets = 0

    def of(self, topic: str) -> Any:
        store = super().of(topic)
        counted = self

        class Rows:
            followed = property(lambda _: store.followed)

            def __getattr__(self, name: str) -> Any:
                if name == "items":
                    counted.scans += 1
                if name == "get":
                    counted.gets += 1
                return getattr(store, name)

        return Rows()


@pytest.mark.parametrize(
    ("sql", "scans", "gets"),
    [
        ("UPDATE t SET n = 1 WHERE k = 3", 0, 1),
        ("UPDATE t SET n = 1 WHERE n > 0 AND k = 3", 0, 1),
        ("DELETE FROM t WHERE k IN (1, 2, 9)", 0, 3),
        ("DELETE FROM t WHERE k = 1 OR 2 = k", 0, 2),
        ("DELETE FROM t WHERE k = 1 + 1", 0, 1),
        ("DELETE FROM t WHERE k = 1 AND k = 2", 0, 0),
        ("DELETE FROM t WHERE k = NULL", 0, 0),
        ("INSERT INTO t VALUES (5, 1, 'a')", 0, 1),
        ("UPDATE t SET n = 1 WHERE k > 3", 1, 0),
        ("DELETE FROM t WHERE k = 1 OR n = 1", 1, 0),
        ("DELETE FROM t WHERE k = n", 1, 0),
        ("DELETE FROM t", 1, 0),
    ],
)
def test_a_statement_with_a_key_reads_the_rows_of_that_key(sql: str, scans: int, gets: int) -> None:
    log, stores = MemoryLog(), Counted()
    plan = prepared(log)
    client = Client(
        plan, TableWriters(log, "app", stores=stores), "a", ["INSERT INTO t VALUES (1, 1, 'a'), (3, 3, 'c')"]
    )
    client.run()
    stores.gets = 0
    client.statements = {"sql": sql}
    client.run()
    assert (stores.scans, stores.gets) == (scans, gets)


# --- the rows that are kept ---


def test_kept_rows_follow_a_topic_that_was_made_again() -> None:
    log = MemoryLog()
    plan = prepared(log)
    writers = TableWriters(log, "app")
    one = Client(plan, writers, "a", ["INSERT INTO t VALUES (1, 1, 'a')"])
    one.run()
    log.delete_topic("t")
    ensure_sources(plan, log)
    two = Client(plan, writers, "b", ["INSERT INTO t VALUES (1, 2, 'b')", "UPDATE t SET n = n + 1 WHERE k = 1"])
    two.run()
    assert not two.errors
    source = plan.source("t")
    assert source is not None
    assert list(rows_in(log, source).values()) == [(1, 3, "b")]


def test_a_tombstone_that_compaction_removed_unread_deletes_the_row(tmp_path: Path) -> None:
    """The rows are read again: what was deleted meanwhile leaves a gap in the offsets, and nothing else."""
    log = EmbeddedLog(tmp_path)
    plan = prepared(log, TABLE.replace("=3", "=1"))
    config = {"segment.bytes": "1", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
    log.alter_topic("t", config)
    writers = TableWriters(log, "app")
    Client(plan, writers, "a", ["INSERT INTO t VALUES (1, 1, 'a')"]).run()
    produce(log, b"1", None)
    produce(log, b"2", b'{"n":2,"s":"b"}')
    for now in (NOW, NOW + 10_000, NOW + 20_000_000):
        log.maintain(now)
    again = Client(plan, writers, "b", ["INSERT INTO t VALUES (1, 7, 'again')"])
    again.run()
    assert again.counts == {"b-0": 1}, "the row was deleted"
    log.close()


def test_kept_rows_are_not_taken_for_those_of_an_older_copy_of_the_log(tmp_path: Path) -> None:
    """The copy has grown as far as the log had."""
    stores = StoresInDatabase(MemoryPhysical())

    def run(statements: Sequence[str], stores: RowStores) -> Client:
        log = EmbeddedLog(tmp_path / "log")
        client = Client(prepared(log), TableWriters(log, "app", stores=stores), "a", statements)
        client.run()
        log.close()
        return client

    run(["INSERT INTO t VALUES (1, 1, 'a')"], stores)
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    run(["UPDATE t SET n = 2 WHERE k = 1"], stores)
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "copy").rename(tmp_path / "log")
    run(["UPDATE t SET n = 5 WHERE k = 1"], StoresInMemory())
    assert run(["DELETE FROM t WHERE n = 5"], stores).counts == {"a-0": 1}


class Full(MemoryPhysical):
    """A database whose disk is full from some moment on."""

    full = False

    def get(self, key: bytes) -> bytes | None:
        return None if self._refused() else super().get(key)

    def write_batch(self, *given: Any) -> None:
        self._refused()
        super().write_batch(*given)

    def accepts_files(self) -> bool:
        return not self.full

    def _refused(self) -> bool:
        if self.full:
            raise StateError("no space left")
        return False


def test_statements_are_carried_out_although_the_disk_of_the_kept_rows_is_full() -> None:
    log, disk = MemoryLog(), Full()
    plan = prepared(log)
    writers = TableWriters(log, "app", stores=StoresInDatabase(disk))
    one = Client(plan, writers, "a", ["INSERT INTO t VALUES (1, 1, 'a')"])
    one.run()
    disk.full = True
    two = Client(plan, writers, "b", ["UPDATE t SET n = 2 WHERE k = 1", "INSERT INTO t VALUES (2, 2, 'b')"])
    two.run()
    assert not two.errors
    check(log, plan, [one, two])


def test_rows_that_no_disk_takes_have_a_limit_of_memory_and_leave_it_when_they_exceed_it() -> None:
    log, disk = MemoryLog(), Full()
    plan = prepared(log)
    writers = TableWriters(log, "app", stores=StoresInDatabase(disk), memory_max=20_000)
    one = Client(plan, writers, "a", ["INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')"])
    one.run()
    disk.full = True
    two = Client(
        plan, writers, "b", ["UPDATE t SET n = 2 WHERE k = 1", f"INSERT INTO t VALUES (3, 3, '{'x' * 30_000}')"]
    )
    two.run()
    assert not two.errors
    assert writers.memory_bytes < 1_000, "the row of 30,000 characters is committed, and no row is in memory any more"
    three = Client(plan, writers, "c", ["UPDATE t SET n = 3 WHERE k = 1"])
    three.run()
    (error,) = three.errors
    assert isinstance(error, StateFull)
    assert "the table of topic t cannot be kept" in str(error)
    assert "`memory` of the target" in str(error)
    assert larger_reads(log, plan, writers) == 0, "as the table does not fit, it is not read again"
    disk.full = False
    six = Client(plan, writers, "f", ["UPDATE t SET n = 5 WHERE k = 1", "UPDATE t SET n = 6 WHERE k = 2"])
    six.run()
    assert not six.errors, "there is room again"
    other = Full()
    larger = TableWriters(log, "app", "b", StoresInDatabase(other), memory_max=200_000)
    four = Client(plan, larger, "d", ["UPDATE t SET n = 3 WHERE k = 1"])
    four.run()
    other.full = True
    five = Client(plan, larger, "e", ["UPDATE t SET n = 4 WHERE k = 1"])
    five.run()
    assert 30_000 < larger.memory_bytes < 60_000
    check(log, plan, [one, two, six, four, five])
    larger.change(_source(plan), TableChange("t", "delete"), NOW)
    assert larger.memory_bytes == 0


def test_after_a_full_disk_the_kept_rows_are_whole_again(tmp_path: Path) -> None:
    """A database that could not write a file takes no rows until it is opened again, without the rows that no file has."""
    log, rng = MemoryLog(), random.Random(1)
    plan = prepared(log)
    disk = open_rocks(tmp_path / "db", write_buffer_bytes=1 << 16)
    writers = TableWriters(log, "app", stores=StoresInDatabase(disk), memory_max=20_000)
    clients = [Client(plan, writers, "a", ["INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')"])]
    clients[0].run()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        for n in range(100):
            text = f"INSERT INTO t VALUES ({n + 10}, 0, '{rng.randbytes(2_000).hex()}')"
            clients.append(Client(plan, writers, f"b{n}", [text]))
            clients[-1].run()
            if clients[-1].errors:
                break
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [type(e) for e in clients.pop().errors] == [StateFull]
    assert len(clients) > 3
    more = ["UPDATE t SET n = 5 WHERE k = 1", "UPDATE t SET n = n + 1 WHERE k >= 10"]
    clients.append(Client(plan, writers, "c", more))
    clients[-1].run()
    assert not clients[-1].errors
    check(log, plan, clients)
    writers.close()


def test_statements_of_other_tables_notice_that_the_database_was_opened_again(tmp_path: Path) -> None:
    """It may lack rows that they have written: what they know of its state does not hold."""
    stores = StoresInDatabase(open_rocks(tmp_path / "db"))
    rows = stores.of("other")
    assert rows.followed == Followed()
    rows.write({b"k": b"{}"}, Followed("a table", {0: 1}))
    assert stores.takes_rows()
    for use in (lambda: rows.get(b"k"), lambda: list(rows.items()), lambda: rows.write({}, Followed()), rows.clear):
        with pytest.raises(OpenedAgain):
            use()
    assert rows.followed.identity in ("", "a table")
    rows.write({}, Followed())
    stores.close()


def larger_reads(log: MemoryLog, plan: Plan, writers: TableWriters) -> int:
    """How often the topic is read by a statement over a table that fits nowhere."""
    reader, reads = log.reader, list[TopicPartition]()

    def counted(tp: TopicPartition, *given: Any) -> Any:
        reads.append(tp)
        return reader(tp, *given)

    log.reader = counted  # type: ignore[method-assign]
    try:
        again = Client(plan, writers, "g", ["UPDATE t SET n = 4 WHERE k = 1"])
        again.run()
    finally:
        log.reader = reader  # type: ignore[method-assign]
    assert [type(e) for e in again.errors] == [StateFull]
    return len(reads)


def _source(plan: Plan) -> SourceDef:
    found = plan.source("t")
    assert found is not None
    return found


PAIRS = "CREATE TABLE t (k TEXT, half INT, PRIMARY KEY (k, half));"


def test_after_a_kill_acknowledged_statements_are_there_and_no_half_ones(tmp_path: Path) -> None:
    folders = [str(tmp_path / "log"), str(tmp_path / "tables")]
    program = [sys.executable, str(Path(__file__).with_name("row_program.py")), *folders, PAIRS]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(60)]
        process.kill()
        told += process.stdout.readlines()
    acknowledged = {line.strip() for line in told if line.endswith("\n")}
    log = EmbeddedLog(tmp_path / "log")
    plan = prepared(log, PAIRS)
    source = plan.source("t")
    assert source is not None
    rows = rows_in(log, source)
    names = {row[0] for row in rows.values()}
    assert len(acknowledged) >= 60
    assert acknowledged <= names
    assert len(rows) == 2 * len(names), "no half of a pair"
    physical = open_rocks(tmp_path / "tables")
    writers = TableWriters(log, "app", "w", StoresInDatabase(physical))
    everything = writers.change(source, TableChange("t", "delete"), NOW)
    assert everything.gone == rows, "what is kept of the table is what its topic says"
    writers.close()
    log.close()
