"""What interactive queries may take: memory of all, rows and time of one. One that needs more is an error with a code, others go on."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from flowql.config.sections import InteractiveQuerySettings
from flowql.query import room
from flowql.query.answer import Answer
from flowql.query.committed import Commit, Part, Wanted
from flowql.query.database import QueryDatabase
from flowql.query.errors import NO_ROOM, TOO_LARGE, TOO_LONG, QueryError
from flowql.query.interactive import InteractiveQuery
from flowql.query.letters import LettersRelation
from flowql.query.limits import QueryLimits
from flowql.query.loading import load
from flowql.query.room import QueryMemory, Room
from flowql.query.session import answer, evaluate
from flowql.query.statement import Statement, parse
from flowql.query.united import parts_of
from flowql.runtime.log.base import HEADERS_TYPE, PRODUCE_SCHEMA, TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.server import parts
from tests.flowql.query.harness import QueryHarness

pytestmark = pytest.mark.turns("queries")

MB = 1 << 20
SQL = """
CREATE STREAM S (K STRING KEY, V STRING) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE U (K STRING PRIMARY KEY, V STRING) WITH (KAFKA_TOPIC = 's', KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE TABLE T AS SELECT K, LATEST_BY_OFFSET(V) AS V, COUNT(*) AS N FROM S GROUP BY K;
"""
WHOLE = "SELECT SUM(N) OVER () AS H, V FROM T"
ROWS, TEXT = 16_000, "x" * 1_500  # 24 MB


@pytest.fixture(scope="module")
def world() -> QueryHarness:
    made = QueryHarness(SQL)
    made.producer.begin()
    for p in (0, 1):
        rows = range(p, ROWS, 2)
        values = [json.dumps({"V": f"{i} {TEXT}"}).encode() for i in rows]
        columns = [pa.array(range(len(rows))), pa.array([b"k%d" % i for i in rows]), pa.array(values)]
        records = pa.RecordBatch.from_arrays([*columns, pa.nulls(len(rows), HEADERS_TYPE)], schema=PRODUCE_SCHEMA)
        made.producer.send(TopicPartition("s", p), records)
    made.producer.commit()
    made.driver.run_until_caught_up()
    return made


@pytest.fixture
def database(tmp_path: Path):
    """Interactive queries with less memory than the relations need."""
    made = QueryDatabase(QueryLimits(16 * MB, InteractiveQuerySettings(rows=60_000, time_ms=300_000), tmp_path))
    yield made
    made.close()
    assert list(tmp_path.iterdir()) == []  # nothing that was spilled stays


def refused(world: QueryHarness, sql: str, database: QueryDatabase) -> QueryError:
    with pytest.raises(QueryError) as raised:
        evaluate(sql, world.commit, database)
    return raised.value


@pytest.mark.parametrize("relation", ["T", "S"])
def test_a_relation_that_is_larger_than_the_memory_of_interactive_queries_is_spilled(
    world: QueryHarness, database: QueryDatabase, relation: str
) -> None:
    found = evaluate(f"SELECT COUNT(*) AS N, SUM(LENGTH(V)) AS S FROM {relation}", world.commit, database).to_pylist()
    assert found == [{"N": ROWS, "S": sum(len(f"{i} {TEXT}") for i in range(ROWS))}]
    ordered = evaluate(f"SELECT K, V FROM {relation} ORDER BY V DESC LIMIT 2", world.commit, database).to_pylist()
    assert ordered == [{"K": f"k{i}", "V": f"{i} {TEXT}"} for i in (9999, 9998)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT LIST(V || '!') FROM T",
        "SELECT K, V FROM U ORDER BY V",  # the last record of each key is known when all are read
        "SELECT STRING_AGG(V || '!', '') FROM S",
        "SELECT LIST(range) FROM range(100000000)",
        "SELECT SUM(N) OVER () AS H, V FROM T",  # HUGEINT: in memory as a whole
    ],
)
def test_what_does_not_fit_is_an_error_that_says_so_and_others_go_on(
    world: QueryHarness, database: QueryDatabase, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "WAIT_S", 0.1)
    error = refused(world, sql, database)
    assert error.code == TOO_LARGE
    limits = (database.limits, database.limits.of_process)  # a child process answers those that make lists and strings
    assert any(f"{given.memory_bytes / MB:,.0f} MB" in error.title for given in limits)
    assert "memory" in error.help
    going_on = answer("SELECT K, V FROM T", world.commit, database=database)
    assert refused(world, sql, database).code in (TOO_LARGE, NO_ROOM)  # the other one holds a piece of its answer
    assert sum(b.num_rows for b in going_on.batches) == ROWS
    assert evaluate("SELECT COUNT(*) AS N FROM T", world.commit, database).to_pylist() == [{"N": ROWS}]


@pytest.mark.parametrize(
    ("free", "file_bytes", "says", "remedy"),
    [
        (4 * MB, None, "has 4 MB left, of which it may use half", "make room on that disk"),
        (None, 100_000, "rows could not be written to disk (Could not write file", "ulimit -f"),
    ],
)
def test_a_full_disk_is_named_where_rows_cannot_be_spilled(
    world: QueryHarness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int | None,
    file_bytes: int | None,
    says: str,
    remedy: str,
) -> None:
    """It was said to need more memory, or to be wrong SQL."""
    if free is not None:
        usage = shutil.disk_usage(tmp_path)._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes or before[0], before[1]))
    try:
        with pytest.raises(QueryError) as error:
            evaluate(
                "SELECT K, V FROM T ORDER BY V", world.commit, QueryDatabase(QueryLimits(16 * MB, folder=tmp_path))
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (error.value.code, says in error.value.title, remedy in error.value.help) == (TOO_LARGE, True, True), (
        error.value
    )


def test_many_heavy_interactive_queries_at_once_stay_within_memory(
    world: QueryHarness, database: QueryDatabase
) -> None:
    sql = "SELECT range % 100000 AS k, COUNT(*) AS n, MAX(hash(range)) AS h FROM range(300000) GROUP BY 1 ORDER BY h LIMIT 3"
    ends: list[str] = []

    def ask() -> None:
        try:
            evaluate(sql, world.commit, database)
            ends.append("")
        except QueryError as error:
            ends.append(error.code)

    before = psutil.Process().memory_info().rss
    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == 6
    assert set(ends) <= {"", TOO_LARGE}
    assert psutil.Process().memory_info().rss - before < 150 * MB


def test_the_rows_of_an_answer_have_a_limit(world: QueryHarness, database: QueryDatabase) -> None:
    assert evaluate("SELECT * FROM range(60000)", world.commit, database).num_rows == 60_000
    error = refused(world, "SELECT * FROM range(70000)", database)
    assert error.code == TOO_LONG
    assert "60,000 rows" in error.title


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(a.range * b.range) FROM range(10000000) a, range(1000000) b",
        "SELECT * FROM range(10000000) a, range(1000000) b WHERE hash(a.range + b.range) % 1000000007 = 1",
    ],
)
def test_an_interactive_query_has_a_time(world: QueryHarness, sql: str) -> None:
    database = QueryDatabase(QueryLimits(settings=InteractiveQuerySettings(time_ms=300)))
    begun = time.monotonic()
    error = refused(world, sql, database)
    assert (error.code, time.monotonic() - begun < 20) == (TOO_LONG, True)
    assert evaluate("SELECT 1 AS A", world.commit, database).to_pylist() == [{"A": 1}]


def test_an_answer_that_is_taken_slowly_ends_in_time(world: QueryHarness) -> None:
    database = QueryDatabase(QueryLimits(settings=InteractiveQuerySettings(time_ms=2_000)))
    taken = answer("SELECT * FROM range(1000000)", world.commit, database=database)
    next(taken.batches)
    time.sleep(2.2)
    with pytest.raises(QueryError, match="not answered within"):
        list(taken.batches)


def test_what_a_killed_process_has_spilled_is_removed(tmp_path: Path, world: QueryHarness) -> None:
    left = tmp_path / "spill-99999999"
    left.mkdir()
    (left / "x.tmp").write_bytes(b"x")
    evaluate("SELECT 1", world.commit, QueryDatabase(QueryLimits(folder=tmp_path)))
    assert not left.exists()


def test_what_others_spill_stays_while_they_live(tmp_path: Path, world: QueryHarness) -> None:
    """Whatever their number is, here or in a container that has the same directory."""
    script = "import sys, time; from pathlib import Path; from flowql.query.spilling import SpillFolder as S; "
    script += "s = S.made(Path(sys.argv[1])); s.files.mkdir(); print(s.path, flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    no_process = theirs.rename(tmp_path / "spill-99999999-ab")
    own = [QueryDatabase(QueryLimits(folder=tmp_path)) for _ in range(3)]
    for database in own[:2]:
        evaluate("SELECT 1", world.commit, database)
    assert len(list(tmp_path.iterdir())) == 3
    other.kill()
    other.wait()
    other.stdout.close()
    left = no_process.rename(tmp_path / f"spill-{os.getpid()}-ab")  # a number that is used again
    evaluate("SELECT 1", world.commit, own[2])
    assert not left.exists()
    for database in own:
        database.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("sql", "enough"),
    [
        ("SELECT * FROM T LIMIT 5", 5),
        ("SELECT k, v AS x, NULL, n > 3, CAST(n AS VARCHAR) FROM T LIMIT 5 OFFSET 2", 7),
        ("SELECT * FROM T LIMIT 0", 0),
        ("SELECT * FROM T", None),
        ("SELECT * FROM T ORDER BY K LIMIT 5", None),
        ("SELECT DISTINCT K FROM T LIMIT 5", None),
        ("SELECT COUNT(*) FROM T LIMIT 5", None),
        ("SELECT * FROM T WHERE N > 1 LIMIT 5", None),
        ("SELECT N FROM T GROUP BY N LIMIT 5", None),
        ("SELECT N FROM T GROUP BY ALL LIMIT 5", None),
        ("SELECT * FROM T, U LIMIT 5", None),
        ("SELECT * FROM T UNION ALL SELECT * FROM T LIMIT 5", None),
        ("SELECT ROW_NUMBER() OVER (ORDER BY K) FROM T LIMIT 5", None),
        ("SELECT (SELECT MAX(N) FROM T) FROM T LIMIT 5", None),
        ("SELECT * FROM T QUALIFY ROW_NUMBER() OVER (ORDER BY K) = 1 LIMIT 5", None),
        ("SELECT * FROM T TABLESAMPLE 10% LIMIT 5", None),
        ("SELECT * FROM T USING SAMPLE 10% LIMIT 5", None),
        ("WITH x AS (SELECT 1) SELECT * FROM T LIMIT 5", None),
        ("SELECT UNNEST([1, 2]) FROM T LIMIT 5", None),
        ("SELECT * FROM T LIMIT 10%", None),
        ("SELECT * FROM (SELECT * FROM T) LIMIT 5", None),
        ("SELECT K FROM T HAVING COUNT(*) > 0 LIMIT 5", None),
    ],
)
def test_how_many_rows_of_a_relation_are_enough(sql: str, enough: int | None) -> None:
    connection = QueryDatabase().connection()
    assert parse(sql, connection).enough == enough
    connection.close()


def test_rooms_of_instances_that_ask_each_other() -> None:
    """What is too large for one of them is too large for who asked, not an answer without its partitions."""

    def too_large():
        yield from ()
        Room(QueryMemory(MB)).take(2 * MB)

    with pytest.raises(QueryError) as raised:
        list(parts.decode(parts.encode(too_large())))
    assert raised.value.code == TOO_LARGE
    wanted = [Wanted("T", "d", (), None, 7), Wanted("T", "d", copies=True)]
    assert parts.wanted_of(parts.wanted_to_data(wanted)) == wanted


def test_a_heavy_interactive_query_waits_for_others_without_the_rows_it_has_read(
    world: QueryHarness, database: QueryDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen that waited held 8 MB each: the exception that made them wait kept the frames in which they had read."""
    database.heavy.acquire()
    waits = threading.Event()

    def wait_heavy(query: InteractiveQuery) -> None:
        waits.set()
        waited(query)

    waited = InteractiveQuery.wait_heavy
    monkeypatch.setattr(InteractiveQuery, "wait_heavy", wait_heavy)
    before = pa.total_allocated_bytes()
    asked = threading.Thread(target=lambda: evaluate("SELECT MAX(V) FROM T", world.commit, database))
    asked.start()
    assert waits.wait(30)
    held = pa.total_allocated_bytes() - before
    database.heavy.release()
    asked.join(30)
    assert held < MB // 4
    assert database.memory.taken == 0


def test_the_piece_of_an_answer_that_a_client_has_not_taken_is_counted(
    world: QueryHarness, database: QueryDatabase
) -> None:
    given = answer("SELECT K, V FROM T", world.commit, database=database)
    first = next(given.batches)
    assert first.nbytes > MB
    assert database.memory.taken == first.nbytes
    large = evaluate("SELECT LIST(range) AS L FROM range(400000)", world.commit, database)
    assert large.nbytes > 3 * MB
    given.close()
    assert database.memory.taken == 0


def test_a_heavy_interactive_query_waits_for_others_without_holding_a_commit(
    world: QueryHarness, database: QueryDatabase
) -> None:
    taken: list[StateSnapshot] = []

    def take(relations: Sequence[str]) -> Commit:
        commit = world.commit(relations)
        assert isinstance(commit.snapshot, StateSnapshot)
        taken.append(commit.snapshot)
        return commit

    database.heavy.acquire()
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(evaluate("SELECT * FROM T", take, database).num_rows))
    waiting.start()
    while len(taken) < 1 or not closed(taken[0]):
        time.sleep(0.01)
    assert evaluate("SELECT * FROM T LIMIT 3", world.commit, database).num_rows == 3  # small ones do not wait
    assert not found
    database.heavy.release()
    waiting.join(30)
    assert found == [ROWS]
    assert len(taken) == 2


@pytest.fixture
def crowded(world: QueryHarness, tmp_path: Path):
    """Memory for one answer that is in memory as a whole, as its HUGEINT needs, and not for two; and one of them that is not read yet."""
    database = QueryDatabase(QueryLimits(40 * MB, folder=tmp_path))
    yield database, answer(WHOLE, world.commit, database=database)
    database.close()


def test_interactive_queries_at_once_share_one_memory(
    world: QueryHarness, crowded: tuple[QueryDatabase, Answer]
) -> None:
    """Each had as much as all of them may have together: sixteen took sixteen times that."""
    database, first = crowded
    held = database.memory.taken
    assert held > 20 * MB
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(evaluate(WHOLE, world.commit, database).num_rows))
    waiting.start()
    while database.memory.taken == held and waiting.is_alive():
        time.sleep(0.01)
    time.sleep(0.5)
    assert not found
    assert database.memory.taken <= database.memory.bytes_max
    assert evaluate("SELECT COUNT(*) AS N FROM range(10)", world.commit, database).num_rows == 1  # small ones go on
    assert sum(b.num_rows for b in first.batches) == ROWS
    waiting.join(30)
    assert found == [ROWS]
    assert database.memory.taken == 0


def test_an_interactive_query_that_finds_no_room_in_time_is_refused(
    world: QueryHarness, crowded: tuple[QueryDatabase, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "WAIT_S", 0.1)
    database, first = crowded
    held = database.memory.taken
    error = refused(world, WHOLE, database)
    assert (error.code, "40 MB" in error.title, "memory: " in error.help) == (NO_ROOM, True, True), error
    assert f"other interactive queries hold {held / MB:.0f} MB" in error.title
    assert database.memory.taken == held
    assert sum(b.num_rows for b in first.batches) == ROWS
    assert evaluate(WHOLE, world.commit, database).num_rows == ROWS


def asking(sql: str, world: QueryHarness, database: QueryDatabase) -> tuple[threading.Thread, list[str]]:
    """A thread that asks, and the code of what it is refused with."""
    codes: list[str] = []

    def ask() -> None:
        try:
            evaluate(sql, world.commit, database)
        except QueryError as error:
            codes.append(error.code)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, codes


def test_an_interactive_query_that_waits_for_room_can_be_cancelled(
    world: QueryHarness, crowded: tuple[QueryDatabase, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "WAIT_S", 60)
    database, first = crowded
    held = database.memory.taken
    waiting, codes = asking(WHOLE, world, database)
    while database.memory.taken == held and waiting.is_alive():
        time.sleep(0.01)
    database.break_off()
    waiting.join(30)
    assert codes == [TOO_LONG]
    first.close()
    assert database.memory.taken == 0


def test_an_interactive_query_that_begins_as_the_database_is_closed(
    world: QueryHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told that its SQL is wrong: Connection already closed."""
    database = QueryDatabase()
    connection = database.connection()
    connection.close()
    monkeypatch.setattr(database, "connection", lambda: connection)
    with pytest.raises(QueryError, match="the instance is stopping") as caught:
        evaluate("SELECT 1", world.commit, database)
    assert caught.value.code == TOO_LONG


def test_a_database_that_is_closed_breaks_off_its_interactive_queries(world: QueryHarness) -> None:
    database = QueryDatabase()
    thread, codes = asking("SELECT SUM(a.range * b.range) FROM range(10000000) a, range(1000000) b", world, database)
    while not database.running:
        time.sleep(0.01)
    time.sleep(0.2)
    database.close()
    thread.join(30)
    assert codes == [TOO_LONG]


def closed(snapshot: StateSnapshot) -> bool:
    return snapshot._shared is None


@pytest.mark.parametrize("name", ["S", "DEAD_LETTERS"])
def test_records_that_go_while_an_interactive_query_begins_are_left_out(name: str) -> None:
    """A rebuild replaces them, or their time is over."""
    world = QueryHarness(SQL)
    world.feed("s", [("a", {"V": "x"}, 0), ("a", "no object", 1), ("a", {"V": "y"}, 2), ("a", "no object", 3)])
    relation = world.commit().relations()[name]()
    source = (relation.letters if isinstance(relation, LettersRelation) else relation).source  # type: ignore[attr-defined]
    partition, gone = (0, 1) if name == "DEAD_LETTERS" else (partition_for(b"a", 2), 2)
    world.producer.begin()
    world.producer.drop_before(TopicPartition(source.topic, partition), gone)
    world.producer.commit()
    query = InteractiveQuery("", QueryDatabase())
    load(query, name, relation, Statement("", ()))
    assert query.connection.sql(f"SELECT COUNT(*) FROM {name}").fetchall() == [(1,)]
    query.end()


def test_records_that_were_read_in_vain_take_no_memory() -> None:
    world = QueryHarness(SQL)
    keys = [next(k for n in range(99) if partition_for((k := f"k{n}").encode(), 2) == p) for p in (0, 1)]
    world.feed("s", [(key, {"V": "x"}, n) for n in range(3) for key in keys])
    relation = world.commit().relations()["U"]()
    world.producer.begin()
    world.producer.drop_before(TopicPartition("s", 1), 2)  # it shows when partition 0 was read
    world.producer.commit()
    taken = []
    for of in (relation, world.commit().relations()["U"]()):
        query = InteractiveQuery("", QueryDatabase())
        load(query, "U", of, Statement("", ()))
        assert query.connection.sql("SELECT COUNT(*) FROM U").fetchall() == [(2,)]
        taken.append(query.room.taken)
        query.end()
    assert taken[0] == taken[1] > 0


def test_rows_that_were_gathered_in_vain_take_no_memory(world: QueryHarness, tmp_path: Path) -> None:
    """A partition on its way from one instance to another: the interactive query asks again, each time for all rows."""
    base = world.commit()
    assert isinstance(base.snapshot, StateSnapshot)
    first, second = sorted(base.snapshot.tasks())
    tries = 0

    def others(wanted: Sequence[Wanted], own: Room, _hurried: bool) -> tuple[list[Part], list[str]]:
        nonlocal tries
        tries += 1
        if tries < 4:
            return [], []
        assert isinstance(base.snapshot, StateSnapshot)
        with base.snapshot.of_task(second) as there:
            return list(parts_of(replace(base, snapshot=there), wanted, own)), []

    def take(_: Sequence[str]) -> Commit:
        assert isinstance(base.snapshot, StateSnapshot)
        return replace(base, snapshot=base.snapshot.of_task(first), others=others)

    database = QueryDatabase(QueryLimits(40 * MB, folder=tmp_path))
    found = evaluate("SELECT COUNT(*) AS N, MAX(LENGTH(V)) > 0 AS L FROM T", take, database).to_pylist()
    database.close()
    base.snapshot.close()
    assert (found, tries) == ([{"N": ROWS, "L": True}], 4)
