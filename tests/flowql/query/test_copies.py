"""An interactive query that would hold up queries reads a copy of the state in another process: the same rows, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pyarrow as pa
import pytest

from flowql.config.sections import InteractiveQuerySettings
from flowql.query import loading, pace, query_pool, query_process
from flowql.query.committed import Commit
from flowql.query.database import QueryDatabase
from flowql.query.errors import INVALID, NO_PROCESS, TOO_LARGE, QueryError
from flowql.query.limits import QueryLimits
from flowql.query.pace import YIELDED, Pace
from flowql.query.query_process import QueryProcess
from flowql.query.relations import StoreRelation
from flowql.query.session import answer
from flowql.runtime.errors import StateError
from flowql.runtime.state.copy import StateCopy, copy_of
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.server.on_runtime import RuntimeEngine, copies_in
from tests.processes import children_that_run
from tests.runtime.app.harness import InstanceHarness

pytestmark = pytest.mark.turns("long")

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT, W STRING)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 3, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM R (K BIGINT KEY, X DECIMAL(9, 2))
  WITH (KAFKA_TOPIC = 'r', PARTITIONS = 3, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, COUNT(*) AS N, SUM(V) AS TOTAL, COLLECT_LIST(W) AS ALL_W, AVG(V) AS MEAN FROM S GROUP BY K;
CREATE TABLE BY_TEXT WITH (KEY_FORMAT = 'JSON') AS SELECT W, V, COUNT(*) AS N, TOPK(V, 3) AS MOST FROM S GROUP BY W, V;
CREATE TABLE SOME AS SELECT K, COUNT(*) AS N FROM S GROUP BY K HAVING COUNT(*) > 36;
CREATE TABLE WINDOWS AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 SECOND, RETENTION 20 SECONDS, GRACE PERIOD 5 SECONDS) GROUP BY K;
CREATE TABLE SESSIONS AS SELECT K, MAX(V) AS M FROM S WINDOW SESSION (300 MILLISECONDS) GROUP BY K;
CREATE TABLE FINAL AS SELECT K, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 SECOND, RETENTION 1 DAY, GRACE PERIOD 2 SECONDS) GROUP BY K EMIT FINAL;
CREATE STREAM JOINED AS SELECT S.K AS K, V, X FROM S LEFT JOIN R WITHIN 5 SECONDS GRACE PERIOD 1 SECOND ON S.K = R.K;
CREATE TABLE PRICES AS SELECT K, SUM(X) AS X FROM R GROUP BY K;
CREATE TABLE BOTH_SIDES AS SELECT T.K AS K, T.TOTAL AS TOTAL, PRICES.X AS X FROM T LEFT JOIN PRICES ON T.K = PRICES.K;
"""
RECORDS = 3_000


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstanceHarness]:
    data_dir = tmp_path_factory.mktemp("copies")
    physical = open_rocks(data_dir / "state")
    with InstanceHarness(SQL, physical=physical, data_dir=data_dir, threads=1) as made:
        made.send(
            "s", [(i % 83, {"V": i % 7, "W": None if i % 11 == 0 else f"w{i % 5}\0é"}, i * 10) for i in range(RECORDS)]
        )
        made.send("r", [(i % 50, {"X": f"{i}.25"}, i * 40) for i in range(500)])
        made.settle()
        yield made
        physical.close()


@pytest.fixture
def contended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries wait for every interactive query, and for every row of it."""
    monkeypatch.setattr(loading, "CONTENDED_S_MAX", -1.0)
    monkeypatch.setattr(QueryLimits, "registered_bytes", 1)
    monkeypatch.setattr(StateSnapshot, "chunks", small_chunks(StateSnapshot.chunks))
    monkeypatch.setattr(Pace, "rest", lambda self: self.end() or 0.0)


def copies_of(world: InstanceHarness) -> list[Path]:
    assert world.instance.config.data_dir is not None
    folder = copies_in(world.instance.config.data_dir)
    return list(folder.iterdir()) if folder.exists() else []


@pytest.fixture(scope="module")
def database() -> Iterator[QueryDatabase]:
    before = children_that_run(query_process.PROGRAM)  # of other tests in this process
    with closing(QueryDatabase()) as made:
        yield made
    assert not set(children_that_run(query_process.PROGRAM)) - set(before)


def commit_of(world: InstanceHarness, snapshot: StateSnapshot) -> Commit:
    return Commit(world.instance.plan, snapshot, world.log, world.instance.config.application_id)


def ask(world: InstanceHarness, sql: str, database: QueryDatabase) -> pa.Table:
    engine = RuntimeEngine(world.instance)
    return answer(sql, engine.take, database=database, copied=engine.take_copied).table()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[QueryProcess]:
    """The processes that have been asked, once for each request."""
    real, made = QueryProcess.ask, list[QueryProcess]()

    def ask(self: QueryProcess, *given: Any) -> Any:
        made.append(self)
        return real(self, *given)

    monkeypatch.setattr(QueryProcess, "ask", ask)
    return made


@pytest.mark.turns("load")
@pytest.mark.usefixtures("contended")
def test_every_store_has_the_same_rows_in_another_process(world: InstanceHarness, database: QueryDatabase) -> None:
    rows: dict[str, int] = {}
    with world.instance.state.snapshot() as snapshot:
        commit = commit_of(world, snapshot)
        names = [n for n, make in commit.relations().items() if isinstance(make(), StoreRelation)]
    for name in names:
        sql = f'SELECT * FROM "{name}"'
        expected, found = answer(sql, RuntimeEngine(world.instance).take).table(), ask(world, sql, database)
        assert found == expected, name
        rows[name] = found.num_rows
    assert rows["T"] == 83
    assert rows["BY_TEXT"] == 35
    assert 0 < rows["SOME"] < 83
    assert sum(n > 0 for n in rows.values()) >= 11, rows
    assert not copies_of(world)


@pytest.mark.usefixtures("contended")
@pytest.mark.parametrize(
    ("sql", "processes"),
    [
        ("SELECT * FROM T ORDER BY K", 1),
        ("SELECT K, N FROM T WHERE K >= 5 AND K < 60 ORDER BY K", 1),
        ("SELECT t.K, t.N, w.N FROM T t JOIN WINDOWS w ON t.K = w.K ORDER BY t.K, w.WINDOWSTART", 1),
        ("SELECT t.K, w.N FROM WINDOWS w JOIN T t ON t.K = w.K ORDER BY t.K, w.WINDOWSTART", 1),
        ("SELECT SUM(K) AS TOTAL, 7 // 2 AS H FROM T", 1),
        ("SELECT COUNT(*) AS N FROM T WHERE K = 1", 0),
        ("SELECT COUNT(*) AS N FROM S", 0),
        ("SELECT s.K, COUNT(*) AS N FROM S s JOIN T t ON s.K = t.K GROUP BY s.K ORDER BY s.K", 0),
    ],
)
def test_an_interactive_query_that_queries_wait_for_has_the_same_answer(
    world: InstanceHarness, database: QueryDatabase, sql: str, processes: int, asked: list[QueryProcess]
) -> None:
    engine = RuntimeEngine(world.instance)
    assert ask(world, sql, database) == answer(sql, engine.take).table()
    assert len(asked) == processes
    assert not copies_of(world)


@pytest.mark.parametrize("sql", ["SELECT * FROM T", "SELECT * FROM T WHERE N > 1000 LIMIT 5"])
def test_no_more_is_read_here_once_queries_wait_for_it(
    world: InstanceHarness, database: QueryDatabase, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of rows that would all fit into memory."""
    read, small = list[int](), small_chunks(StateSnapshot.chunks)

    def counted(*args: Any, **limits: Any) -> Iterator[Any]:
        for chunk in small(*args, **limits):
            read.append(1)
            yield chunk

    monkeypatch.setattr(StateSnapshot, "chunks", counted)
    monkeypatch.setattr(Pace, "_contended", lambda self: loading.CONTENDED_S_MAX / 4.5)
    assert ask(world, sql, database).num_rows == (0 if "LIMIT" in sql else 83)
    assert len(read) == 5


def test_a_query_for_which_others_wait_a_little_yields_and_is_answered_here(
    world: InstanceHarness, database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aggregate over 10,000 rows, say: a child process would answer seconds later."""
    read, slept, small = list[int](), list[float](), small_chunks(StateSnapshot.chunks)

    def counted(*args: Any, **limits: Any) -> Iterator[Any]:
        for chunk in small(*args, **limits):
            read.append(1)
            yield chunk

    sql = "SELECT MAX(N) AS N FROM T"
    monkeypatch.setattr(StateSnapshot, "chunks", counted)
    expected, pieces = ask(world, sql, database), len(read)
    monkeypatch.setattr(QueryProcess, "ask", lambda *_: pytest.fail("a process was asked"))
    monkeypatch.setattr(Pace, "_contended", lambda self: 0.09 / pieces)
    told = SimpleNamespace(thread_time=time.thread_time, monotonic=time.monotonic, sleep=slept.append)
    monkeypatch.setattr(pace, "time", told)
    assert ask(world, sql, database).equals(expected)
    assert sum(slept) == pytest.approx(YIELDED * (0.09 - loading.YIELDS_AFTER_S), abs=YIELDED * 0.09 / pieces)


def test_an_instance_at_rest_is_read_in_its_own_process(
    world: InstanceHarness, database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryLimits, "registered_bytes", 1)
    monkeypatch.setattr(QueryProcess, "ask", lambda *_: pytest.fail("a process was asked"))
    monkeypatch.setattr(Pace, "rest", lambda self: self.end() or 0.0)
    assert ask(world, "SELECT COUNT(*) AS N FROM T", database).to_pylist() == [{"N": 83}]


@pytest.mark.usefixtures("contended")
def test_stores_and_topics_together_are_read_between_two_commits(world: InstanceHarness) -> None:
    """A copy is older than the topics when it is there, as commits come all the time."""
    engine = RuntimeEngine(world.instance)
    refused = lambda _: pytest.fail("a copy was made")  # noqa: E731
    table = answer("SELECT COUNT(*) AS N FROM T, S", engine.take, copied=refused).table()
    assert table.to_pylist() == [{"N": 83 * RECORDS}]


@pytest.mark.usefixtures("contended")
def test_where_no_process_can_be_started_it_reads_here(world: InstanceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError("Cannot allocate memory")

    monkeypatch.setattr(query_process.subprocess, "Popen", refused)
    with closing(QueryDatabase()) as database:
        assert ask(world, "SELECT COUNT(*) AS N FROM T", database).to_pylist() == [{"N": 83}]
        with pytest.raises(QueryError, match="Cannot allocate memory") as error:
            ask(world, "SELECT LIST(N) AS N FROM T", database)
    assert error.value.code == NO_PROCESS
    assert not copies_of(world)


@pytest.mark.usefixtures("contended")
def test_where_no_copy_can_be_made_it_reads_here(
    world: InstanceHarness, database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StateError("no space left on device")

    monkeypatch.setattr(world.instance.state, "checkpoint", full)
    assert ask(world, "SELECT COUNT(*) AS N FROM T", database).to_pylist() == [{"N": 83}]
    assert not copies_of(world)


@pytest.mark.usefixtures("contended")
def test_a_process_that_is_killed_ends_its_query_alone(
    world: InstanceHarness, database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = QueryProcess.ask

    def killed(self: QueryProcess, *given: Any) -> Any:
        self.stop(signal.SIGSTOP)
        os.kill(self.pid, signal.SIGKILL)
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(QueryProcess, "ask", killed)
        with pytest.raises(QueryError, match="ended before its answer") as error:
            ask(world, "SELECT K, N FROM T ORDER BY K", database)
    assert error.value.code == TOO_LARGE
    assert ask(world, "SELECT K, N FROM T ORDER BY K", database).column("K").to_pylist() == list(range(83))
    assert not copies_of(world)


@pytest.mark.usefixtures("contended")
def test_mistakes_and_limits_are_those_of_an_interactive_query(world: InstanceHarness, database: QueryDatabase) -> None:
    with pytest.raises(QueryError, match='column "NOPE" not found') as first:
        ask(world, "SELECT K, NOPE FROM T", database)
    assert first.value.code == INVALID
    settings = InteractiveQuerySettings(rows=10, spill_bytes=1_000)
    with closing(QueryDatabase(QueryLimits(settings=settings))) as small:
        with pytest.raises(QueryError, match="more than 10 rows"):
            ask(world, "SELECT K FROM T", small)
        with pytest.raises(QueryError, match="on disk for interactive queries here") as second:
            ask(world, "SELECT K, N, TOTAL, ALL_W FROM T LIMIT 10", small)
    assert second.value.code == TOO_LARGE
    assert not copies_of(world)


@pytest.mark.usefixtures("contended")
def test_an_answer_that_is_left_leaves_no_file(world: InstanceHarness, database: QueryDatabase) -> None:
    engine = RuntimeEngine(world.instance)
    found = answer("SELECT K FROM T", engine.take, database=database, copied=engine.take_copied)
    next(found.batches)
    found.close()
    assert not copies_of(world)


def small_chunks(real: Any) -> Any:
    """Rows of this process come one by one."""

    def chunks(self: StateSnapshot, store: str, **limits: Any) -> Iterator[Any]:
        for keys, values in real(self, store, **limits):
            for at in range(len(keys)):
                yield keys[at : at + 1], values[at : at + 1]

    return chunks


@pytest.mark.usefixtures("contended")
def test_an_interactive_query_that_is_broken_off_leaves_no_files(
    world: InstanceHarness, database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, breaks = RuntimeEngine(world.instance), list[Any]()
    waiting, real = threading.Event(), QueryProcess.ask

    def stopped(self: QueryProcess, *given: Any) -> Any:
        os.kill(self.pid, signal.SIGSTOP)
        waiting.set()
        return real(self, *given)

    monkeypatch.setattr(QueryProcess, "ask", stopped)
    threading.Thread(target=lambda: waiting.wait(60) and breaks[0]()).start()
    with pytest.raises(QueryError, match="cancelled"):
        answer("SELECT * FROM T", engine.take, breaks.append, database=database, copied=engine.take_copied).table()
    assert not copies_of(world)


@pytest.mark.skipif(sys.platform != "linux", reason="the process is never stopped here")
@pytest.mark.usefixtures("contended")
@pytest.mark.parametrize("high", [True, False])
def test_the_process_is_stopped_in_turn_while_queries_need_the_processors(
    world: InstanceHarness, database: QueryDatabase, high: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries lost a fifth of their throughput to a process that had only what they left over."""
    monkeypatch.setattr(query_pool.Load, "high", lambda _: high)
    monkeypatch.setattr(query_pool, "RUN_S", 0.05)
    monkeypatch.setattr(query_pool, "STOP_S", 0.1)
    stopped, real = list[str](), QueryProcess.stop

    def sent(self: QueryProcess, number: signal.Signals) -> None:
        real(self, number)
        if number == signal.SIGSTOP:
            stopped.append(psutil.Process(self.pid).status())

    monkeypatch.setattr(QueryProcess, "stop", sent)
    slow = "SELECT COUNT(*) AS N FROM T a, T b, T c, range(300) WHERE a.K + b.K * c.K <> -1"
    assert ask(world, slow, database).to_pylist() == [{"N": 83**3 * 300}]
    assert bool(stopped) is high


def test_load_is_high_while_this_process_works_and_no_processor_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(0.0, 0.0, 0.0), (1.0, 0.4, 0.5), (2.0, 1.4, 1.6), (3.0, 2.4, 1.9)])
    monkeypatch.setattr(query_pool.Load, "_read", staticmethod(lambda: next(readings)))
    load = query_pool.Load()
    assert [load.high() for _ in range(3)] == [False, False, True]


def test_a_copy_shows_the_commit_it_is_of(tmp_path: Path) -> None:
    sql = SQL.split("CREATE TABLE BY_TEXT ", maxsplit=1)[0]
    physical = open_rocks(tmp_path / "state")
    with InstanceHarness(sql, physical=physical, data_dir=tmp_path, threads=1) as world:
        world.send("s", [(i, {"V": i, "W": ""}, i) for i in range(100)])
        world.settle()
        with copy_of(world.instance.state, tmp_path / "state" / "copies" / "1") as copy:
            world.send("s", [(i, {"V": i, "W": ""}, i) for i in range(50, 200)])
            world.settle()
            assert [v[0] for _, v in copy.scan("T")] == [1] * 100
            assert len(list(world.instance.state.snapshot().scan("T"))) == 200
        physical.close()


def test_copies_that_a_crash_has_left_are_removed(tmp_path: Path) -> None:
    from flowql.deploy.settings import Settings
    from flowql.server.on_runtime import open_runtime

    settings = Settings(tmp_path, "flowql", 1, 1 << 28)
    open_runtime(settings, "continuous").stop()
    left = copies_in(tmp_path) / "abc"
    left.mkdir(parents=True)
    (left / "CURRENT").write_text("x")
    open_runtime(settings, "continuous").stop()
    assert not left.exists()


def test_a_directory_without_state_is_no_copy(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no state"):
        StateCopy(tmp_path, None, remove=False)
