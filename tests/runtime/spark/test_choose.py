"""Which way each node takes, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.logical import ChangeSpec, Node
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed
from flowql.runtime.spark.choose import Mode, NodeChoice, choose, explain_lines, is_native
from flowql.runtime.spark.errors import FilesUnfit, SparkUnsupported
from flowql.runtime.spark.history import complete_queries, refuse_overwriting, refuse_shared_files, refuse_unfit_files
from flowql.runtime.spark.settings import SparkSettings, TopicFiles
from tests.runtime.app.harness import plan_of
from tests.runtime.spark.stage_world import SHAPES, SOURCES

FILES = {t: TopicFiles("parquet", f"/data/{t}") for t in "abd"}
TYPED = SparkSettings(files=FILES)
ARRIVAL = SparkSettings(files=FILES, history="arrival")
PROMISED = SparkSettings(files=FILES, late_rows="none", history="arrival")


def plan(sql: str) -> Plan:
    return plan_of(SOURCES + sql)


def chosen(sql: str, settings: SparkSettings = TYPED, mode: str = "bounded") -> list[NodeChoice]:
    made = plan(sql)
    return choose(made, made.queries[0], settings, mode)  # type: ignore[arg-type]


def reasons(sql: str, settings: SparkSettings = TYPED, mode: str = "bounded") -> str:
    return "; ".join(c.reason for c in chosen(sql, settings, mode))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_batch_over_files_is_native(shape: str) -> None:
    """Whatever their format: history is complete."""
    assert {c.how for c in chosen(SHAPES[shape])} == {"native"}
    text = SparkSettings(files={t: TopicFiles("json", f"/data/{t}") for t in "abd"})
    assert {c.how for c in chosen(SHAPES[shape], text)} == {"native"}


def test_history_is_complete_where_all_rows_come_from_files() -> None:
    """Also through results of others; not beside a topic, and not where the target or its files say otherwise."""
    made = plan(
        """CREATE STREAM S AS SELECT K, V FROM A;
        CREATE TABLE T AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;
        CREATE STREAM J AS SELECT A.K AS K, NAME FROM A LEFT JOIN D ON A.K = D.K;
        CREATE STREAM L AS SELECT * FROM J;"""
    )
    complete = {"CSAS_S", "CTAS_T", "CSAS_J", "CSAS_L"}
    assert complete_queries(made, TYPED) == complete
    assert complete_queries(made, ARRIVAL) == set()
    beside = SparkSettings(files={"a": FILES["a"]})
    assert complete_queries(made, beside) == {"CSAS_S", "CTAS_T"}
    apart = SparkSettings(files={**FILES, "d": replace(FILES["d"], history="arrival")})
    assert complete_queries(made, apart) == {"CSAS_S", "CTAS_T"}
    results = SparkSettings(files={"S": FILES["a"]})
    assert complete_queries(made, results) == set()


def test_complete_history_of_a_topic_is_refused() -> None:
    with pytest.raises(SparkUnsupported, match="topic b come in the order of arrival"):
        chosen("CREATE STREAM OUT AS SELECT * FROM B;", SparkSettings(files={"a": FILES["a"]}, history="complete"))


@pytest.mark.parametrize(
    "path", ["/data/a", "file:///data/a/", "/data/a/out", "/data", "/data//a/.", "/data/a/day=1/*.parquet"]
)
def test_results_take_the_place_of_no_other_files(path: str) -> None:
    """`mode("overwrite")` deleted the files that a query reads, where its result was to be written to their folder or around it."""
    made = plan("CREATE STREAM S AS SELECT K, V FROM A;")
    with pytest.raises(FilesUnfit, match=r"results of topic S .* files of topic a"):
        refuse_overwriting(made, SparkSettings(files={"a": FILES["a"], "S": TopicFiles("parquet", path)}))
    refuse_overwriting(made, SparkSettings(files={"a": FILES["a"], "S": TopicFiles("parquet", "/data/a2")}))


@pytest.mark.parametrize("given", [{"sequence_by": ("V",)}, {"delete_when": "V = 1"}])
def test_files_of_a_stream_have_no_versions_of_rows(given: dict[str, Any]) -> None:
    """A stream took the rows that `delete_when` names as any others, without a word."""
    made = plan("CREATE STREAM S AS SELECT K, V FROM A;")
    with pytest.raises(FilesUnfit, match=r"topic a .* A is a stream: its rows replace and remove none"):
        refuse_unfit_files(made, SparkSettings(files={"a": TopicFiles("parquet", "/data/a", **given)}))
    refuse_unfit_files(made, SparkSettings(files=FILES))


def test_files_do_not_stand_for_a_table_that_statements_change() -> None:
    """Their rows passed by CHECK, NOT NULL and the form of JSONB."""
    text = SourceText("t.sql", "CREATE TABLE o (id INT PRIMARY KEY, k INT, CHECK (k > 0));")
    made = compile_project([text], dialect="standard").plan
    with pytest.raises(FilesUnfit, match="/data/o cannot be used for the table o"):
        refuse_unfit_files(made, SparkSettings(files={"o": TopicFiles("json", "/data/o")}))


def test_files_of_streams_are_of_one_query() -> None:
    """Each counts its epochs by itself: folder `epoch=0` of one took the place of that of the other, and epoch 0 emptied the folder."""
    made = plan("CREATE STREAM S AS SELECT K, V FROM A; INSERT INTO S SELECT K, V FROM A;")
    with pytest.raises(FilesUnfit, match=r"CSAS_S and INSERT\w+ write topic S as streams"):
        refuse_shared_files(made, SparkSettings(files={"S": TopicFiles("parquet", "/out")}))
    refuse_shared_files(made, SparkSettings(files=FILES))


def test_tables_of_a_catalogue_are_told_apart_by_name() -> None:
    made = plan("CREATE STREAM S AS SELECT K, V FROM A;")
    given = {"a": TopicFiles("table", table="lake.a"), "S": TopicFiles("table", table="Lake.A")}
    with pytest.raises(FilesUnfit, match=r"results of topic S .* files of topic a"):
        refuse_overwriting(made, SparkSettings(files=given))
    refuse_overwriting(made, SparkSettings(files={**given, "S": TopicFiles("table", table="lake.a2")}))


def test_what_is_refused_over_files_runs_by_arrival() -> None:
    sql = "CREATE TABLE OUT AS SELECT K, COLLECT_LIST(V) AS S FROM A GROUP BY K;"
    with pytest.raises(SparkUnsupported, match=r"COLLECT_LIST[\s\S]*history: arrival"):
        chosen(sql)
    assert {c.how for c in chosen(sql, ARRIVAL)} == {"stateful python"}


@pytest.mark.parametrize("shape", ["stateless", "rekey"])
@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        (ARRIVAL, "bounded"),
        (SparkSettings(files={"OUT": TopicFiles("parquet", "/out")}), "bounded"),  # of its results
    ],
)
def test_other_files_are_read_as_the_topic_is(shape: str, settings: SparkSettings, mode: str) -> None:
    assert {c.how for c in chosen(SHAPES[shape], settings, mode)} == {"stateless python"}


@pytest.mark.parametrize("shape", ["stateless", "rekey"])
def test_streams_without_state_are_native_too(shape: str) -> None:
    made = chosen(SHAPES[shape], SparkSettings(files=FILES), "streaming")
    assert {c.how for c in made} == {"native"}
    assert [type(c.node.spec).__name__ for c in made if c.reason] == ["Scan", "Sink"], (
        "who decodes and encodes is named"
    )
    exact = SparkSettings(streams="exact")
    assert {c.how for c in chosen(SHAPES[shape], exact, "streaming")} == {"stateless python"}


def test_a_stream_keeps_its_state_as_the_runtime_where_the_target_asks_for_it() -> None:
    native, exact = SparkSettings(), SparkSettings(streams="exact")
    assert {c.how for c in chosen(SHAPES["count"], native, "streaming")} == {"native"}
    assert {c.how for c in chosen(SHAPES["count"], exact, mode="streaming")} == {"stateful python"}
    assert "streams: exact" in reasons(SHAPES["count"], exact, mode="streaming")
    decimal = "CREATE TABLE OUT AS SELECT K, SUM(CAST(V AS DECIMAL(9, 2))) AS S FROM A GROUP BY K;"
    assert "SUM of DECIMAL overflows" in reasons(decimal, native, "streaming")
    assert {c.how for c in chosen(decimal, native, "bounded")} == {"stateful python"}
    read = "CREATE STREAM U (K STRING KEY, N BIGINT) WITH (KAFKA_TOPIC='OUT', VALUE_FORMAT='JSON');"
    assert "every update" in reasons(SHAPES["count"] + read, native, "streaming")


def test_a_query_in_hash_buckets_keeps_its_state_as_the_runtime() -> None:
    named, sql = (
        SparkSettings(hash_buckets={"CTAS_OUT": 16}),
        "CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM A GROUP BY V;",
    )
    assert {c.how for c in chosen(sql, SparkSettings(), "streaming")} == {"native"}
    assert {c.how for c in chosen(sql, named, "streaming")} == {"stateful python"}
    assert "hash_buckets" in reasons(sql, SparkSettings(hash_buckets={"OUT": 16}), "streaming")
    assert {c.how for c in chosen(SHAPES["count"], named, "bounded")} == {"native"}


@pytest.mark.parametrize("shape", ["count", "stream-table", "lookup"])
def test_tasks_that_share_the_partitions_of_topics_have_no_hash_buckets(shape: str) -> None:
    """A lookup meets repartitioned rows with a table whose partitions the topic decides."""
    with pytest.raises(SparkUnsupported, match=r"query C.AS_OUT .* hash_buckets cannot say"):
        chosen(SHAPES[shape], SparkSettings(hash_buckets={"OUT": 4}), "streaming")


def test_topics_stay_with_the_runtimes_kernels_unless_they_are_aggregated() -> None:
    topics = SparkSettings()
    assert {c.how for c in chosen(SHAPES["stateless"], topics)} == {"stateless python"}
    assert {c.how for c in chosen(SHAPES["count"], topics)} == {"native"}
    failing = "CREATE TABLE OUT AS SELECT K, SUM(12 / V) AS N FROM A GROUP BY K;"
    assert {c.how for c in chosen(failing)} == {"native"}
    assert "dead letters" in reasons(failing, topics)


def test_the_order_of_arrival_is_that_of_one_partition() -> None:
    latest = "CREATE TABLE OUT AS SELECT {0}, LATEST_BY_OFFSET(V) AS L FROM A GROUP BY {0};"
    assert {c.how for c in chosen(latest.format("K"), SparkSettings())} == {"native"}
    assert "order of arrival" in reasons(latest.format("G"), SparkSettings())
    assert {c.how for c in chosen(latest.format("K"))} == {"native"}  # over files the latest by time


@pytest.mark.parametrize("shape", ["tumbling", "hopping"])
def test_windows_need_a_promise(shape: str) -> None:
    assert "late_rows" in reasons(SHAPES[shape], ARRIVAL)
    made = plan(SHAPES[shape])
    assert is_native(made, made.queries[0], PROMISED, "bounded")
    assert "watermark" in reasons(SHAPES[shape], PROMISED, "streaming")


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("CREATE TABLE OUT AS SELECT K, SUM(CAST(V AS DOUBLE)) AS S FROM A GROUP BY K;", "order of addition"),
        ("CREATE TABLE OUT AS SELECT K, COLLECT_LIST(V) AS S FROM A GROUP BY K;", "COLLECT_LIST"),
        ("CREATE TABLE OUT AS SELECT G, LATEST_BY_OFFSET(V) AS S FROM A GROUP BY G;", "order of arrival"),
        (SHAPES["session"], "sessions"),
        (SHAPES["stream-table"], "table"),
        (SHAPES["stream-stream"], "unmatched"),
        (SHAPES["table"], "newest of each key"),
    ],
)
def test_what_is_not_native_says_why(sql: str, word: str) -> None:
    assert {c.how for c in chosen(sql, PROMISED)} == {"stateful python"}
    assert word in reasons(sql, PROMISED)


def test_what_may_fail_is_not_native_in_a_stream() -> None:
    sql = "CREATE STREAM OUT AS SELECT K, 12 / V AS Q FROM A;"
    assert {c.how for c in chosen(sql)} == {"native"}
    assert {c.how for c in chosen(sql, mode="streaming")} == {"stateless python"}
    assert "dead letters" in reasons(sql, mode="streaming")


def test_an_expression_without_a_lowering_is_an_arrow_udf() -> None:
    sql = "CREATE TABLE OUT AS SELECT K, COUNT(REGEXP_EXTRACT('.', G)) AS N FROM A GROUP BY K;"
    assert {c.how for c in chosen(sql)} == {"native"}
    assert "REGEXP_EXTRACT in an Arrow UDF" in reasons(sql)


def test_having_in_a_stream_removes_rows() -> None:
    sql = "CREATE TABLE OUT AS SELECT K, COUNT(*) AS N FROM A GROUP BY K HAVING COUNT(*) > 2;"
    assert {c.how for c in chosen(sql)} == {"native"}
    assert "removed" in reasons(sql, mode="streaming")


def test_a_function_of_the_user_is_unsupported() -> None:
    from flowql.compiler.functions.registry import lookup, register, unregister

    like = lookup("UCASE")
    assert like is not None
    register(replace(like, name="MINE"))
    try:
        made = plan("CREATE STREAM OUT AS SELECT K, MINE(G) AS Q FROM A;")
    finally:
        unregister("MINE")
    with pytest.raises(SparkUnsupported, match=r"MINE is not a built-in function[\s\S]*run it on the runtime"):
        choose(made, made.queries[0], TYPED, "bounded")


OVER_CHANGES = (
    GroupAggregate((), ()),
    EquiJoin("inner", (), ()),
    TemporalJoin("inner", (), ()),
    VersionJoin("inner", (), (), "", "", 1),
    SetOperation("distinct"),
    TopN((), (), 1),
    Over((), (), ()),
    Consolidate(),
    AppendOnly(),
    EmitClosed(()),
    TemporalFilter(),
)


def _over(spec: ChangeSpec) -> tuple[Plan, QueryPlan]:
    made = plan(SHAPES["count"])
    below = made.queries[0].logical
    return made, replace(made.queries[0], logical=Node(spec, (below,), below.schema, "retract"))


@pytest.mark.parametrize("mode", ["bounded", "streaming"])
def test_every_operator_over_changes_is_kept_as_on_the_runtime(mode: Mode) -> None:
    """All but the one that follows the clock; over complete history there is none, and the advice says how it runs."""
    assert {type(s) for s in OVER_CHANGES} == set(get_args(ChangeSpec))
    for spec in OVER_CHANGES:
        made, query = _over(spec)
        if isinstance(spec, TemporalFilter):
            with pytest.raises(SparkUnsupported, match=r"a condition on NOW\(\) of query[\s\S]*run it on the runtime"):
                choose(made, query, ARRIVAL, mode)
            continue
        found = choose(made, query, ARRIVAL, mode)
        assert {c.how for c in found} == {"stateful python"}
        assert "the runtime's operator" in found[-1].reason
        with pytest.raises(SparkUnsupported, match=r"runtime's operator[\s\S]*history: arrival"):
            choose(made, query, TYPED, "bounded")


def test_a_plan_with_a_label_per_node() -> None:
    made = plan("CREATE TABLE OUT AS SELECT K, MAX(CAST(V AS DOUBLE)) AS M FROM A GROUP BY K;")
    assert explain_lines(made, made.queries[0], ARRIVAL, "bounded") == [
        "[native] Sink table OUT (topic OUT, KAFKA/JSON)",
        "└─ [native] Project K, M",
        "   └─ [native] Aggregate M := MAX(__arg_1)",
        "         differs: M: 0.0 and -0.0 are equal, and the result may show either",
        "      └─ [native] Rekey K, null keys dropped",
        "         └─ [native] Project K, __arg_1 := CAST(V AS DOUBLE)",
        "            └─ [native] Scan stream A (topic a, KAFKA/JSON)",
    ]


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT g, SUM(x) AS a, COUNT(*) AS n FROM r GROUP BY g", "no order of rows changes"),
        ("SELECT DISTINCT g FROM r", "DISTINCT"),
        ("SELECT r.g FROM r JOIN t ON r.g = t.k", "both sides"),
    ],
)
def test_a_view_of_standard_sql_runs_and_says_why_it_is_not_native(sql: str, word: str) -> None:
    sources = """CREATE STREAM r (g INT, x DOUBLE) WITH (KAFKA_TOPIC='r', VALUE_FORMAT='JSON', PARTITIONS=1);
        CREATE TABLE t (k INT PRIMARY KEY) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON', PARTITIONS=1);"""
    made = compile_project([SourceText("v.sql", f"{sources} CREATE VIEW v AS {sql};")], dialect="standard").plan
    found = choose(made, made.queries[0], SparkSettings(), "streaming")
    assert {c.how for c in found} == {"stateful python"}
    assert word in "; ".join(c.reason for c in found)
