"""Plans over frames with complete history: by hand what decides, DuckDB for the rest (`tests.spark_files`), and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.event_times import EARLIEST_MS, LATEST_MS
from flowql.compiler.plan.logical import Aggregate, ChangeSpec, Join, JoinShape, Node, Spec, Union, Window, walk_nodes
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.topology import Plan
from flowql.runtime.spark.active import active
from flowql.runtime.spark.errors import FrameUnfit, SparkUnsupported
from flowql.runtime.spark.frames.aggregates import WINDOWS
from flowql.runtime.spark.frames.faults import faults
from flowql.runtime.spark.frames.joins import JOINS
from flowql.runtime.spark.frames.lower import Lowering, lower
from flowql.runtime.spark.frames.nodes import HANDLERS, Nodes
from flowql.runtime.spark.frames.source import relation_of
from flowql.runtime.spark.frames.streams import STREAM_HANDLERS, lower_streams
from flowql.spark import faults as project_faults
from flowql.spark import frames, run, start
from tests.spark_files import data
from tests.spark_files.check import SMALL, TABLES, differences, plan
from tests.spark_files.queries import SOURCES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]
# The frames of the tests by hand: as in files, but for times in ms.
SCHEMAS = {n: s.set(len(s) - 1, pa.field("ROWTIME", pa.int64())) for n, s in data.SCHEMAS.items()}
OTHERS = {
    **SMALL,
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",  # compiling expressions for some rows costs more than to interpret them
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.caseSensitive": "false",
}
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def others(spark: SparkSession) -> Iterator[SparkSession]:
    """A session as somebody else would have it."""
    session = spark.newSession()
    for key, value in OTHERS.items():
        session.conf.set(key, value)
    with active(session):
        yield session


@pytest.fixture(scope="module")
def empty(others: SparkSession) -> dict[str, DataFrame]:
    return {name: frame_of(others, name, []) for name in SCHEMAS}


def frame_of(session: SparkSession, name: str, rows: Rows) -> DataFrame:
    """As an Arrow table: of a list Spark makes a job with a Python process."""
    return session.createDataFrame(
        pa.Table.from_pylist([dict(zip(SCHEMAS[name].names, r, strict=True)) for r in rows], SCHEMAS[name])
    )


def compiled(sql: str, sources: str = SOURCES) -> Plan:
    made = compile_project([SourceText("project.sql", sources + sql)])
    assert made.ok, made.diagnostics
    return made.plan


def result(session: SparkSession, sql: str, **rows: Rows) -> Rows:
    """The rows of OUT over frames of these rows: of A (K, V, G, time), of the others all columns."""
    frames: dict[str, DataFrame] = {}
    for name, given in rows.items():
        full = [(k, v, g, None, None, at) for k, v, g, at in given] if name == "A" else given
        frames[name] = frame_of(session, name, full)
    made = lower(compiled(sql), frames, tables={n: t for n, t in TABLES.items() if n in rows})
    return sorted(map(tuple, made["OUT"].collect()), key=repr)


def test_every_node_has_a_form_or_a_refusal() -> None:
    """Whoever adds a node, a join or a window says here what it is over frames."""
    assert set(HANDLERS) == set(STREAM_HANDLERS) == set(get_args(Spec))
    assert set(JOINS) == set(get_args(JoinShape))
    assert set(WINDOWS) == set(get_args(get_type_hints(Window)["kind"]))


def test_every_node_is_compared_with_duckdb() -> None:
    """But a union, and what is refused: operators over changes, asynchronous calls, and processors."""
    specs = [n.spec for q in plan().queries for n in walk_nodes(q.logical)]
    assert {type(s) for s in specs} == set(get_args(Spec)) - {AsyncMap, Union, Process} - set(get_args(ChangeSpec))
    assert {s.shape for s in specs if isinstance(s, Join)} == set(get_args(JoinShape))
    windows = [s.window for s in specs if isinstance(s, Aggregate) and s.window is not None]
    assert {w.kind for w in windows} == set(WINDOWS)


@pytest.mark.turns("files")
def test_a_union_gives_the_rows_of_all(others: SparkSession) -> None:
    made = compiled("CREATE STREAM OUT AS SELECT K, W FROM B;")
    source, scan = made.source("B"), walk_nodes(made.queries[0].logical)[0]
    assert source is not None
    frame = frame_of(others, "B", [(1, 2, 3), (None, 4, 5)])
    union = Node(Union(), (scan, scan), scan.schema)
    rows = Nodes("Q", {"B": relation_of(source, frame)}).relation(union).frame.collect()
    assert sorted(map(tuple, rows), key=repr) == [(1, 2, 3), (1, 2, 3), (None, 4, 5), (None, 4, 5)]


@pytest.mark.turns("files")
@pytest.mark.parametrize("seed", [1, 2])
def test_files_in_any_order_give_what_duckdb_says(others: SparkSession, tmp_path: Path, seed: int) -> None:
    """And no Python takes part, over frames and over files of a target. More seeds in other sessions: `python -m tests.spark_files`."""
    assert list(differences(others, tmp_path, seed)) == []


def test_over_files_nothing_is_late(others: SparkSession, tmp_path: Path) -> None:
    """120,000 orders in twelve folders of a day, a window of a day with six hours of grace: each counts."""
    day, n = 86_400_000, 10_000
    for d in range(12):
        (tmp_path / f"day={d:02}").mkdir()
        times = pa.array([d * day + (i * 7919 * 8640) % day for i in range(n)], pa.int64())
        rows = pa.table({"ID": pa.array(range(n)), "AMOUNT": pa.array(range(n)), "ROWTIME": times})
        pq.write_table(rows, tmp_path / f"day={d:02}" / "orders.parquet")
    sql = """CREATE STREAM ORDERS (ID BIGINT KEY, AMOUNT BIGINT) WITH (KAFKA_TOPIC='o', PARTITIONS=4, VALUE_FORMAT='JSON');
      CREATE TABLE OUT AS SELECT 1 AS ONE, COUNT(*) AS N FROM ORDERS
        WINDOW TUMBLING (SIZE 1 DAY, GRACE PERIOD 6 HOURS) GROUP BY 1;"""
    made = lower(compiled(sql, ""), {"ORDERS": others.read.parquet(str(tmp_path)).orderBy("AMOUNT")})["OUT"]
    assert made.columns == ["ONE", "WINDOWSTART", "WINDOWEND", "N"]
    assert sorted(map(tuple, made.collect())) == [(1, d * day, (d + 1) * day, n) for d in range(12)]


def test_a_session_ends_behind_the_gap(others: SparkSession) -> None:
    """Rows exactly the gap apart are of one session, one millisecond more is another."""
    sql = "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A WINDOW SESSION (3 SECONDS) GROUP BY K;"
    times = {1: 2999, 2: 3000, 3: 3001}
    rows = [(k, 0, "", at) for k, apart in times.items() for at in (apart - 5000, -5000)]
    expected = [(1, -5000, -2001, 2), (2, -5000, -2000, 2), (3, -1999, -1999, 1), (3, -5000, -5000, 1)]
    assert result(others, sql, A=rows) == expected


def test_a_condition_on_the_bounds_of_sessions_is_on_whole_sessions(others: SparkSession) -> None:
    """Spark's optimiser moves a condition on its own session window before the aggregation, where it decides on single rows."""
    sql = """CREATE TABLE S AS SELECT K, COUNT(*) AS N, WINDOWEND - WINDOWSTART AS LASTED, WINDOWSTART AS OPENED FROM A
        WINDOW SESSION (3 SECONDS) GROUP BY K;
      CREATE TABLE OUT AS SELECT K, N FROM S WHERE LASTED > 2000 AND OPENED < 2000;"""
    rows = [(1, 0, "", at) for at in (0, 1500, 4000)] + [(2, 0, "", at) for at in (0, 9000)]
    assert result(others, sql, A=rows) == [(1, 0, 4000, 3)]


def test_a_query_that_could_not_be_lowered_says_why_each_time() -> None:
    """A run tries again; the second time it said that the query reads what it writes."""
    made = compiled("CREATE STREAM OUT AS SELECT K, V FROM A;")
    letters: dict[str, list[Any]] = {}

    def given(source: Any) -> Any:
        letters["CSAS_OUT"].append("those of the first attempt")
        raise FrameUnfit(f"{source.name} is not what it should be")

    work = Lowering(made, given, letters)
    for _ in range(2):
        letters.setdefault("CSAS_OUT", [])
        with pytest.raises(FrameUnfit, match="A is not what it should be"):
            work.relation(made.queries[0])
        assert "CSAS_OUT" not in letters


@pytest.mark.parametrize("within", ["110000 DAYS", "1 DAY"])
def test_pairs_compare_times_where_they_can_be_too_far_apart(others: SparkSession, within: str) -> None:
    """Not where the bound is wider than all times that rows may have. Rows without a key meet none."""
    sql = f"CREATE STREAM OUT AS SELECT A.K AS K, V, W FROM A JOIN B WITHIN {within} GRACE PERIOD 1 DAY ON A.K = B.K;"
    last = LATEST_MS - 1
    given = {"A": [(1, 5, "", EARLIEST_MS), (None, 6, "", 0)], "B": [(1, 7, last), (1, 8, EARLIEST_MS), (None, 9, 0)]}
    pairs = [(1, 5, 8, EARLIEST_MS)] + ([(1, 5, 7, last)] if within == "110000 DAYS" else [])
    assert result(others, sql, **given) == sorted(pairs, key=repr)
    made = lower(compiled(sql), {n: frame_of(others, n, []) for n in "AB"})["OUT"]
    assert isinstance(made, ClassicFrame)
    compared = "9504000000000" if within == "110000 DAYS" else "86400000"
    assert (compared in made._jdf.queryExecution().toString()) == (within == "1 DAY")


def test_a_row_meets_the_version_of_its_time(others: SparkSession) -> None:
    """At one time the table comes first, the greatest value counts, and a removal is the least."""
    sql = "CREATE STREAM OUT AS SELECT A.K AS K, NAME FROM A LEFT JOIN D ON A.K = D.K;"
    table = [
        (1, "b", 0, "u", 10),
        (1, "a", 9, "u", 10),
        (1, "z", 0, "d", 10),
        (1, "c", 0, "d", 20),
        (None, "n", 0, "u", 0),
    ]
    rows = [(1, 0, "", at) for at in (9, 10, 19, 20)] + [(None, 0, "", 15)]
    assert result(others, sql, A=rows, D=table) == [(1, "b", 10), (1, "b", 19), (1, None, 20), (1, None, 9)]


def test_the_last_row_of_a_table_goes_by_its_sequence(others: SparkSession) -> None:
    sql = "CREATE TABLE OUT AS SELECT K, X FROM E WHERE X <> 7;"
    table = [(1, 1, 5, 900), (1, 2, 6, 100), (2, 3, 1, 0), (2, 7, 2, 0), (3, 4, 1, 1), (3, 5, 1, 0)]
    assert result(others, sql, E=table) == [(1, 2), (3, 5)]


def test_a_group_of_a_table_stays_when_its_last_row_goes(others: SparkSession) -> None:
    """But not one that only a row had in whose place, at its time, another came."""
    sql = "CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM D GROUP BY V;"
    table = [(1, "a", 7, "u", 1), (1, "a", 8, "u", 2), (2, "a", 5, "u", 1), (2, "b", 6, "u", 1), (3, "a", 9, "u", 1)]
    assert result(others, sql, D=[*table, (3, "a", 9, "d", 2)]) == [(6, 1), (7, 0), (8, 1), (9, 0)]


def test_tied_rows_are_not_mixed(others: SparkSession) -> None:
    """The latest of two rows of one time is one of them: the greatest of what is asked for, in order."""
    sql = "CREATE TABLE OUT AS SELECT K, LATEST_BY_OFFSET(V) AS V, LATEST_BY_OFFSET(G) AS G FROM A GROUP BY K;"
    rows = [(1, 1, "z", 5), (1, 2, "a", 5), (1, 9, "q", 4)]
    assert result(others, sql, A=rows) == result(others, sql, A=rows[::-1]) == [(1, 2, "a")]


def test_doubles_are_added_in_the_order_of_times(others: SparkSession) -> None:
    """Their sum in another order is another: 1 is lost beside 1e17, or is not."""
    value = "CASE V WHEN 1 THEN 1E17 WHEN 2 THEN -1E17 ELSE 1E0 END"
    sql = f"CREATE TABLE OUT AS SELECT K, SUM({value}) AS S, AVG({value}) AS M FROM A GROUP BY K;"
    rows = [(1, 3, "", 3), (1, 2, "", 2), (1, 1, "", 1), (2, 3, "", 2), (2, 2, "", 3), (2, 1, "", 1)]
    assert result(others, sql, A=rows) == [(1, 1.0, 1 / 3), (2, 0.0, 0.0)]


def test_a_column_of_the_result_may_be_its_time(others: SparkSession) -> None:
    """And a row whose time cannot be used is left out."""
    sql = "CREATE STREAM OUT WITH (TIMESTAMP='V') AS SELECT K, V, G FROM A;"
    assert result(others, sql, A=[(1, 7, "x", 1), (1, -1, "y", 2), (1, None, "z", 3)]) == [(1, 7, "x", 7)]


def test_sums_wrap_and_failed_values_are_null(others: SparkSession) -> None:
    """Though ANSI mode would end the job at both."""
    big = 2**63 - 1
    sql = "CREATE TABLE OUT AS SELECT K, SUM(V) AS S, SUM(V + V) AS T, COUNT(1 / (V - 5)) AS N FROM A GROUP BY K;"
    rows = [(1, big, "", 1), (1, big, "", 2), (1, 5, "", 3), (2, -big, "", 1), (2, -2, "", 2)]
    assert result(others, sql, A=rows) == [(1, 3, 6, 2), (2, big, -2, 2)]


REFUSED = {
    "CREATE STREAM OUT AS SELECT CAST(V AS DOUBLE) AS X, K FROM A PARTITION BY CAST(V AS DOUBLE);": "Rekey .*DOUBLE",
    "CREATE TABLE OUT AS SELECT V, SUM(CAST(K AS DOUBLE)) AS S FROM D GROUP BY V;": "Aggregate .*order of addition",
    "CREATE TABLE OUT AS SELECT K, COLLECT_LIST(V) AS S FROM A GROUP BY K;": "COLLECT_LIST has no equal",
    "CREATE STREAM OUT AS SELECT K, REGEXP_EXTRACT('a(.)', G, 1) AS S FROM A;": "Project .*REGEXP_EXTRACT has no exact form",
    "CREATE STREAM OUT AS SELECT A.K AS K, V, W FROM A LEFT JOIN B WITHIN 1 SECOND ON A.K = B.K;": "Join .*GRACE PERIOD",
    """CREATE TABLE C AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;
       CREATE STREAM OUT AS SELECT A.K AS K, N FROM A JOIN C ON A.K = C.K;""": "Join .*only the end is known",
    """CREATE TABLE C AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;
       CREATE TABLE OUT AS SELECT N, COUNT(*) AS M FROM C GROUP BY N;""": "Rekey .*earlier rows are unknown",
    """CREATE TABLE C AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;
       CREATE STREAM R (K BIGINT KEY, N BIGINT) WITH (KAFKA_TOPIC='C', VALUE_FORMAT='JSON');
       CREATE STREAM OUT AS SELECT * FROM R;""": "Scan .*stream of the changes of a table",
    """INSERT INTO A (K, V) VALUES (1, 2);
       CREATE STREAM OUT AS SELECT K, V FROM A;""": "INSERT INTO ... VALUES",
    """CREATE STREAM C WITH (VALUE_FORMAT='DELIMITED') AS SELECT K, V, G FROM A;
       CREATE STREAM OUT AS SELECT * FROM C;""": "through DELIMITED",
    'CREATE STREAM OUT AS SELECT K, V, G AS "v" FROM A;': "V and v differ only in case",
}


@pytest.mark.parametrize("sql", REFUSED)
def test_what_has_no_form_is_refused_by_name(empty: dict[str, DataFrame], sql: str) -> None:
    with pytest.raises(SparkUnsupported, match=f"(?s){REFUSED[sql]}") as raised:
        lower(compiled(sql), empty)
    assert raised.value.way_round


REFUSED_AS_STREAMS = {
    "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A WINDOW TUMBLING (SIZE 1 SECOND) GROUP BY K;": "Aggregate .*micro-batch after",
    "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A WINDOW SESSION (1 SECOND) GROUP BY K;": "Aggregate .*session windows",
    """CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A WINDOW TUMBLING (SIZE 1 SECOND, GRACE PERIOD 0 SECONDS)
       GROUP BY K EMIT FINAL;""": "Aggregate .*EMIT FINAL",
    "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A GROUP BY K HAVING COUNT(*) > 1;": "Filter .*no longer passes",
    "CREATE TABLE OUT AS SELECT K, LATEST_BY_OFFSET(V) AS V FROM A GROUP BY K;": "Aggregate .*needs all rows at once",
    "CREATE STREAM OUT AS SELECT A.K AS K, V, W FROM A JOIN B WITHIN 1 SECOND ON A.K = B.K;": "Join .*the times of both sides",
    "CREATE TABLE OUT AS SELECT K, NAME FROM D;": "Sink .*a table that changes",
    "CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM D GROUP BY V;": "Aggregate .*must remove earlier",
    """CREATE TABLE C AS SELECT K, COUNT(*) AS N FROM A GROUP BY K;
       CREATE TABLE OUT AS SELECT C.K AS K, N, NAME FROM C JOIN D ON C.K = D.K;""": "Join .*the times of both sides",
}


@pytest.fixture(scope="module")
def streaming(others: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, DataFrame]:
    """Streams of A and B, and D as it is."""
    folder, found = tmp_path_factory.mktemp("streams"), {}
    for name in ("A", "B", "D"):
        (folder / name).mkdir()
        frame = frame_of(others, name, [])
        reader = others.read if name == "D" else others.readStream
        found[name] = reader.schema(frame.schema).parquet(str(folder / name))
    return found


@pytest.mark.parametrize("sql", REFUSED_AS_STREAMS)
def test_what_streams_of_spark_mean_otherwise_is_refused_by_name(streaming: dict[str, DataFrame], sql: str) -> None:
    late = "exact" if "TUMBLING (SIZE 1 SECOND)" in sql else "none"
    with pytest.raises(SparkUnsupported, match=f"(?s){REFUSED_AS_STREAMS[sql]}") as raised:
        lower_streams(compiled(sql), streaming, late_rows=late)
    assert raised.value.way_round


def test_streams_are_streaming_frames_and_tables_batches(
    streaming: dict[str, DataFrame], empty: dict[str, DataFrame]
) -> None:
    """And what runs as a stream says how it is written, and by what its rows are known."""
    sql = """CREATE STREAM S AS SELECT A.K AS K, NAME FROM A LEFT JOIN D ON A.K = D.K;
      CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A WINDOW HOPPING (SIZE 4 SECONDS, ADVANCE BY 1 SECOND) GROUP BY K;"""
    made = lower_streams(compiled(sql), streaming, late_rows="none")
    assert {n: (r.mode, r.key, r.frame.isStreaming) for n, r in made.items()} == {
        "S": ("append", (), True), "OUT": ("update", ("K", "WINDOWSTART", "WINDOWEND"), True),
    }  # fmt: skip
    for name in ("A", "D"):
        other = empty[name] if name == "A" else streaming["A"].selectExpr("K", "G AS NAME", "V", "G AS OP", "ROWTIME")
        with pytest.raises(FrameUnfit, match=f"{name} is a (batch|streaming) frame"):
            lower_streams(compiled(sql), {**streaming, name: other})


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("K BIGINT, W INT", "no event time: no column ROWTIME"),
        ("K BIGINT, W INT, ROWTIME STRING", "event time ROWTIME .* is string"),
        ("K BIGINT, w INT, ROWTIME BIGINT", "no column W "),
        ("K BIGINT, W BIGINT, ROWTIME BIGINT", "column W .* is bigint, declared is INT"),
        ("K DOUBLE, W INT, ROWTIME BIGINT", "column K .* is double, declared is BIGINT"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(others: SparkSession, ddl: str, message: str) -> None:
    with pytest.raises(FrameUnfit, match=message):
        lower(compiled("CREATE STREAM OUT AS SELECT * FROM B;"), {"B": others.createDataFrame([], ddl)})


def test_a_frame_with_a_column_of_flowql_is_refused(others: SparkSession, tmp_path: Path) -> None:
    """It was taken for one that FlowQL has read from files: its row time, not that of ROWTIME, counted."""
    (tmp_path / "flowql.yaml").write_text("{name: own, sql: [own.sql]}")
    (tmp_path / "own.sql").write_text(
        "CREATE STREAM B (K BIGINT KEY, W INT) WITH (KAFKA_TOPIC='b', PARTITIONS=1, VALUE_FORMAT='JSON');\n"
        "CREATE STREAM OUT AS SELECT * FROM B;"
    )
    given = {"B": others.createDataFrame([], "K BIGINT, W INT, ROWTIME BIGINT, __rowtime BIGINT")}
    calls: list[Callable[[], object]] = [
        lambda: frames(tmp_path, given),
        lambda: project_faults(tmp_path, given),
        lambda: run(tmp_path, others, given),
        lambda: start(tmp_path, others, given, checkpoint=tmp_path / "c"),
    ]
    for call in calls:
        with pytest.raises(FrameUnfit, match="the frame of B has a column __rowtime"):
            call()


def test_names_that_the_plan_does_not_know_are_refused(empty: dict[str, DataFrame]) -> None:
    made = compiled("CREATE STREAM OUT AS SELECT * FROM B;")
    with pytest.raises(FrameUnfit, match="no stream or table X"):
        lower(made, {"X": empty["B"]})
    with pytest.raises(FrameUnfit, match="no frame is given for B"):
        lower(made, {})


def test_the_sessions_of_the_caller_stay_as_they_were(
    spark: SparkSession, others: SparkSession, empty: dict[str, DataFrame]
) -> None:
    """Settings, views and which one is active: after results, a refusal, and a frame that does not fit."""
    with active(spark):
        before = [session_state(s) for s in (spark, others)]
        assert lower(compiled("CREATE STREAM OUT AS SELECT * FROM B;"), empty)["OUT"].collect() == []
        with pytest.raises(SparkUnsupported):
            lower(compiled(next(iter(REFUSED))), empty)
        with pytest.raises(FrameUnfit):
            lower(compiled("CREATE STREAM OUT AS SELECT * FROM B;"), {"B": empty["A"]})
        assert [session_state(s) for s in (spark, others)] == before


def session_state(session: SparkSession) -> tuple[Any, ...]:
    current = session.getActiveSession()
    assert current is not None
    java = session._jvm.org.apache.spark.sql.classic.SparkSession.getActiveSession().get()
    return session.conf.getAll, current, java.hashCode(), session.catalog.listTables()


def test_rows_left_out_and_ties_are_counted(others: SparkSession, tmp_path: Path) -> None:
    """A row is counted once; equal rows are no tie, and one that is left out takes part in none."""
    a = [(k, 0, "", None, None, at) for k, at in ((1, 5), (1, None), (None, 5), (None, 2**62), (2, 5))]
    d = [(1, "a", 1, "u", 5), (1, "a", 1, "u", 5), (1, None, 1, "u", 6), (1, "b", 1, "u", 6), (1, "b", 1, "d", 6)]
    d += [(1, "a", 2, "u", None), (None, "x", 1, "u", 5), (2, "x", 1, "u", 5), (None, "x", 1, "u", 2**62)]
    e = [(1, 1, 7, 5), (1, 2, 7, 6), (1, 1, 8, 5), (2, 1, 7, 5)]
    given = {n: frame_of(others, n, rows) for n, rows in {"A": a, "D": d, "E": e}.items()}
    counts = faults(compiled(""), given, TABLES)
    assert counts.columns == ["SOURCE", "ROWS", "BAD_TIMES", "NO_KEY", "TIES"]
    assert list(map(tuple, counts.collect())) == [("A", 5, 2, 0, 0), ("D", 9, 2, 1, 1), ("E", 4, 0, 0, 1)]
    none = faults(compiled(""), {"D": given["D"].where("FALSE")}, TABLES)
    assert list(map(tuple, none.collect())) == [("D", 0, 0, 0, 0)]
    with pytest.raises(FrameUnfit, match="no stream or table X"):
        faults(compiled(""), {"X": given["A"]}, {})


def test_nothing_reaches_for_the_jvm() -> None:
    """Spark Connect has none."""
    folder = Path(__file__).parents[3] / "runtime/spark"
    for module in [*(folder / "frames").glob("*.py"), folder / "native/aggregates.py"]:
        assert not re.search(
            r"_j(vm|df|sc|sparkSession)\b|sparkContext|\.conf\b", module.read_text(encoding="utf-8")
        ), module


def test_a_project_folder_over_frames(others: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "flowql.yaml").write_text("name: shop\nsql: [shop.sql]\n", encoding="utf-8")
    sql = "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM B GROUP BY K;"
    (tmp_path / "shop.sql").write_text(SOURCES + sql, encoding="utf-8")
    frame = frame_of(others, "B", [(1, 2, 3), (1, 4, 5)])
    assert frames(tmp_path, {"B": frame})["OUT"].collect() == [(1, 2)]
    assert project_faults(tmp_path, {"B": frame}).collect() == [("B", 2, 0, 0, 0)]
    (tmp_path / "shop.sql").write_text(SOURCES + sql.replace("COUNT", "KOUNT"), encoding="utf-8")
    with pytest.raises(CompileError, match="KOUNT"):
        frames(tmp_path, {"B": frame})
