"""Which new texts may go on from where the old one is, and why others may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.compiler.plan.deployed import Deployed, groups_of, swapped
from flowql.compiler.plan.diff import ForwardRefused, decide_change
from flowql.compiler.plan.expr import Call, Expr
from flowql.compiler.plan.forward import why_not
from flowql.compiler.plan.generations import at_generation
from flowql.compiler.plan.priorities import OnChange
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.visit import map_expr, map_nodes, map_spec

COLUMNS = "(ID INT KEY, G STRING, V INT, X INT)"
SOURCES = "".join(
    f"CREATE STREAM {n} {COLUMNS} WITH (KAFKA_TOPIC='{n}', PARTITIONS=2, VALUE_FORMAT='JSON');\n" for n in ("S", "S2")
) + "".join(
    f"CREATE TABLE {n} (ID INT PRIMARY KEY, G STRING, V INT) WITH (KAFKA_TOPIC='{n}', PARTITIONS=2, VALUE_FORMAT='JSON');\n"
    for n in ("T", "T2")
)


def plan_of(sql: str, previous: Plan | None = None) -> Plan:
    topics = {"S": 2, "S2": 2, "T": 2, "T2": 2}
    compiled = compile_project([SourceText("a.sql", SOURCES + sql)], previous=previous, topic_partitions=topics)
    assert compiled.ok, compiled.diagnostics
    return compiled.plan


def why(old: str, new: str) -> str:
    """Also of a later generation, whose stores have other names."""
    (before,), (after,) = plan_of(old).queries, plan_of(new).queries
    found = why_not(before, after)
    assert why_not(at_generation(before, 3), at_generation(after, 3)) == found
    return found


F = "CREATE STREAM F AS SELECT ID, V * 2 AS W FROM S WHERE X > 3;"
C = "CREATE TABLE C AS SELECT G, COUNT(*) AS N, SUM(V) AS A FROM S WHERE X > 3 GROUP BY G;"
H = "CREATE TABLE H AS SELECT G, COUNT(*) AS N FROM S GROUP BY G HAVING COUNT(*) > 1;"
TF = "CREATE TABLE TF AS SELECT ID, G, V + 1 AS W FROM T WHERE V > 3;"
TP = "CREATE TABLE TP AS SELECT ID, G, V + 1 AS W FROM T;"
TA = "CREATE TABLE TA AS SELECT G, SUM(V) AS A FROM T WHERE V > 3 GROUP BY G;"
TJ = "CREATE TABLE TJ AS SELECT T.ID AS ID, T.V + T2.V AS Z FROM T JOIN T2 ON T.ID = T2.ID;"
SJ = "CREATE STREAM SJ AS SELECT S.ID AS ID, S.V + T.V AS Z FROM S JOIN T ON S.ID = T.ID WHERE T.V > 3 AND S.X > 1;"
SS = "CREATE STREAM SS AS SELECT S.ID AS ID, S.V + S2.V AS Z FROM S JOIN S2 WITHIN 1 HOUR GRACE PERIOD 1 MINUTE ON S.ID = S2.ID;"
W = "CREATE TABLE W AS SELECT G, COUNT(*) AS N FROM S WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY G EMIT FINAL;"


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (F, "X > 3", "X > 4 AND V > 1"),
        (F, " WHERE X > 3", ""),
        (F, "V * 2 AS W", "V * 3 AS W, G"),
        (F, ", V * 2 AS W", ", G"),
        (C, "X > 3", "X > 4 AND ID > 1"),
        (C, "WHERE X > 3 ", ""),
        (TP, "V + 1", "V + 2"),
        (TJ, "T.V + T2.V", "T.V - T2.V"),
        (SJ, "S.X > 1", "S.X > 2"),
        (SJ, "T.V > 3", "T.V > 4"),
        (SJ, "S.V + T.V AS Z", "S.V - T.V AS Z, S.X AS X"),
        (SS, "S.V + S2.V", "S.V - S2.V"),
        (SS, ";", " WHERE S.V > 2;"),
        (W, "GROUP BY", "WHERE V > 2 GROUP BY"),
    ],
)
def test_what_the_state_permits(text: str, old: str, new: str) -> None:
    assert why(text, text.replace(old, new)) == ""


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        (F, "V * 2", "CAST(V AS DOUBLE)", "columns of F have another type: W is DOUBLE and was INT"),
        (F, "FROM S", "FROM S2", "it reads S2 anew and S no longer"),
        (F, "F AS", "F WITH (KAFKA_TOPIC='other') AS", "its results go to the topic other, and were in F"),
        (F, "F AS", "F WITH (VALUE_FORMAT='DELIMITED') AS", "values of F are written in another format"),
        (F, "ID, V * 2 AS W FROM S WHERE X > 3", "ID, V, X FROM S PARTITION BY X", "the key of F is another one"),
        (C, "SUM(V)", "SUM(X)", "C-aggregate-1 would mean something else: its aggregates: COUNT(*), SUM(X), was COUNT(*), SUM(V)"),
        (C, "SUM(V)", "SUM(V * 2)", "its aggregates: COUNT(*), SUM((V * 2)), was COUNT(*), SUM(V)"),
        (C, ", SUM(V) AS A", "", "the store CTAS_C-aggregate-1 has other columns: A"),
        (C, "SUM(V) AS A", "SUM(V) AS A, MAX(V) AS B", "the store CTAS_C-aggregate-1 has other columns: B"),
        (C.replace("G,", "UCASE(G) AS G,").replace("BY G", "BY UCASE(G)"), "UCASE", "LCASE", "its key: LCASE(G), was UCASE(G)"),
        (H, "> 1", "> 2", "rows of H that the old text has shown could never be taken back: the condition on a table: (N > 2), was"),
        (H, " HAVING COUNT(*) > 1", "", "the condition on a table is gone"),
        (TF, "V > 3", "V > 4", "rows of TF that the old text has shown could never be taken back: the condition on a table"),
        (TF, "V + 1", "V + 2", "what is selected"),
        (TA, "V > 3", "V > 4", "CTAS_TA-aggregate-1 would mean something else: the condition on a table: (V > 4), was (V > 3)"),
        (TJ, "T.V + T2.V", "T.V", "the store CTAS_TJ-join-1-right has other columns: T2_V"),
        (SJ, "S.V + T.V AS Z", "S.V + T.V AS Z, T.G AS TG", "the store CSAS_SJ-join-1-right has other columns: T_G"),
        (SS, "1 HOUR", "2 HOURS", "the store CSAS_SS-join-1-left keeps its rows for another time"),
        (W, "SIZE 1 HOUR", "SIZE 1 HOUR, GRACE PERIOD 1 MINUTE", "the store CTAS_W-aggregate-1 keeps its rows for another time"),
        (W, "EMIT FINAL", "EMIT CHANGES", "its window"),
    ],
)  # fmt: skip
def test_what_it_does_not_permit(text: str, old: str, new: str, reason: str) -> None:
    assert old in text
    assert reason in why(text, text.replace(old, new))


STANDARD = "CREATE TABLE t (id INT PRIMARY KEY, g TEXT, v INT, w INT);\n"
UNNESTED = (
    "CREATE VIEW v AS SELECT u.e AS e, count(*) AS n FROM t CROSS JOIN UNNEST(ARRAY[v, w, 1]) AS u (e) GROUP BY u.e;"
)
DIVIDED = "CREATE VIEW v AS SELECT q, count(*) AS n FROM (SELECT 10 / v AS q FROM t) AS s GROUP BY q;"
SUMMED = "CREATE VIEW v AS SELECT g, sum(v) AS s FROM t WHERE w > 1 GROUP BY g;"
JOINED = "CREATE VIEW v AS SELECT a.id AS id, b.g AS g FROM t AS a JOIN t AS b ON a.v = b.w;"


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        (UNNESTED, "w, 1", "w, 1", ""),
        (UNNESTED, "w, 1", "w, 2", "groupaggregate-1 would mean something else: its table functions have changed"),
        (DIVIDED, "10", "20", "would mean something else: the expressions that leave rows of a table out"),
        (SUMMED, "w > 1", "w > 2", "would mean something else: the condition on a table: (w > 2), was (w > 1)"),
        (SUMMED, "sum(v) AS", "sum(v + w) AS", "CTAS_v-groupaggregate-1 would mean something else: the expressions that leave rows of a table out is new"),
        (SUMMED, "sum(v) AS", "sum(v) FILTER (WHERE v > w) AS", "CTAS_v-groupaggregate-1 would mean something else"),
        (JOINED, "JOIN", "LEFT JOIN", "CTAS_v-equijoin-1 would mean something else: the operator equijoin-1: EquiJoin left"),
        (JOINED, "a.v = b.w", "a.v = b.w AND a.id < b.w", "EquiJoin inner on v = w_2 if (id < w_2), was EquiJoin inner on v = w_2"),
    ],
)  # fmt: skip
def test_what_a_view_over_rows_that_change_does_not_permit(text: str, old: str, new: str, reason: str) -> None:
    plans = [
        compile_project([SourceText("a.sql", STANDARD + sql)], dialect="standard", topic_partitions={"t": 1}).plan
        for sql in (text, text.replace(old, new))
    ]
    found = why_not(plans[0].queries[0], plans[1].queries[0])
    assert reason in found
    assert bool(found) == bool(reason)


def test_records_by_the_order_of_their_columns_keep_them() -> None:
    text = F.replace("F AS", "F WITH (VALUE_FORMAT='DELIMITED') AS")
    assert why(text, text.replace("X > 3", "X > 4")) == ""
    assert "read by the order of their columns" in why(text, text.replace("AS W", "AS W, G"))


def deployed(sql: str) -> Deployed:
    return decide_change(Deployed(), plan_of(sql)).deployed


def test_nobody_is_rebuilt_because_of_a_text_that_goes_forward() -> None:
    reader = "CREATE TABLE R AS SELECT W, COUNT(*) AS N FROM F GROUP BY W;"
    change = decide_change(deployed(F + reader), plan_of(F.replace("> 3", "> 4") + reader), forward=["CSAS_F"])
    assert [(c.query, c.action, c.generation) for c in change.changes] == [
        ("CSAS_F", "forward", 1),
        ("CTAS_R", "none", 1),
    ]
    assert change.deployed.wanted is None
    assert [f.query for f in change.deployed.forwards] == ["CSAS_F"]


def test_a_reader_is_judged_by_the_columns_it_reads() -> None:
    reads_all, reads_one = "CREATE STREAM R AS SELECT * FROM F;", "CREATE STREAM R AS SELECT ID, W FROM F;"
    more = F.replace("AS W", "AS W, G")
    before = deployed(F + reads_one)
    assert [c.action for c in decide_change(before, plan_of(more + reads_one), forward=["CSAS_F"]).changes] == [
        "forward",
        "none",
    ]
    before = deployed(F + reads_all)
    alone = decide_change(before, plan_of(more + reads_all), forward=["CSAS_F"]).changes
    assert [c.action for c in alone] == ["forward", "change"], "it has another text, and is not asked to go forward"
    both = decide_change(before, plan_of(more + reads_all), forward=["CSAS_F", "CSAS_R"]).changes
    assert [c.action for c in both] == ["forward", "forward"]


def test_what_cannot_go_forward_is_refused_with_all_reasons() -> None:
    wanted = plan_of((C + F).replace("SUM(V)", "SUM(X)").replace("V * 2", "G"))
    with pytest.raises(ForwardRefused) as refused:
        decide_change(deployed(C + F), wanted, forward=["CTAS_C", "CSAS_F"])
    assert [q for q, _ in refused.value.reasons] == ["CTAS_C", "CSAS_F"]


def test_a_query_that_reads_a_rebuilt_result_cannot_go_forward() -> None:
    reader = "CREATE STREAM R AS SELECT ID, W FROM F WHERE W > 1;"
    before, wanted = deployed(F + reader), plan_of((F + reader).replace("> 1", "> 2"))
    with pytest.raises(ForwardRefused, match="CSAS_R: it would be rebuilt: because of CSAS_F"):
        decide_change(before, wanted, refresh=["CSAS_F"], forward=["CSAS_R"])


def test_nothing_is_rebuilt_silently_where_it_was_not_to_be() -> None:
    writer = "INSERT INTO F SELECT ID, V AS W FROM S2;"
    with pytest.raises(ForwardRefused, match="CSAS_F: it would be rebuilt: INSERT_F_1 writes to F, too"):
        decide_change(deployed(F), plan_of(F + writer), forward=["CSAS_F"])
    refreshed = decide_change(deployed(F), plan_of(F), refresh=["CSAS_F"], forward=["CSAS_F"])
    assert [c.action for c in refreshed.changes] == ["change"], "that was asked for"


def test_a_property_of_the_query_says_it() -> None:
    text = F.replace("F AS", "F WITH (ON_CHANGE='forward') AS")
    before = deployed(text)
    assert before.serving.queries[0].on_change == "forward"
    (change,) = decide_change(before, plan_of(text.replace("> 3", "> 4"))).changes
    assert (change.action, change.because) == ("forward", "ON_CHANGE = 'forward'")
    (change,) = decide_change(before, plan_of(text.replace("> 3", "> 4")), refresh=["CSAS_F"]).changes
    assert change.action == "change"
    (change,) = decide_change(before, plan_of(F)).changes
    assert change.action == "none", "the property alone changes nothing"


def test_texts_of_a_replaced_generation_are_forgotten() -> None:
    before = decide_change(deployed(F), plan_of(F.replace("> 3", "> 4")), forward=["CSAS_F"]).deployed
    rebuilding = decide_change(before, plan_of(F.replace("> 3", "> 5"))).deployed
    assert len(rebuilding.forwards) == 1, "its results still serve"
    (group,) = groups_of(rebuilding)
    assert swapped(rebuilding, group, set()).forwards == ()


def test_a_query_without_its_state_cannot_go_forward() -> None:

    before = replace(deployed(F), lost=(("CSAS_F", "its input is gone"),))
    with pytest.raises(ForwardRefused, match="CSAS_F: its state is lost"):
        decide_change(before, plan_of(F.replace("> 3", "> 4")), forward=["CSAS_F"])


def test_another_version_of_a_function_that_gives_other_values_each_time_rebuilds_nothing() -> None:
    """As long as the query does not say what an edit of it means."""
    plan = plan_of("CREATE STREAM F AS SELECT ID, ABS(V) AS W FROM S;")
    (query,) = plan.queries

    def calling(function: str, on_change: OnChange | None = None) -> Plan:
        def call(e: Expr) -> Expr:
            return replace(e, name=function) if isinstance(e, Call) else e

        logical = map_nodes(query.logical, lambda n: replace(n, spec=map_spec(n.spec, lambda e: map_expr(e, call))))
        made = replace(query, logical=logical, unrepeatable=("dice",), on_change=on_change, definition=function)
        return replace(plan, queries=(made,))

    def action(wanted: Plan) -> str:
        (change,) = decide_change(Deployed(calling("dice@m:1")), wanted).changes
        return change.action

    assert action(calling("dice@m:2")) == "forward"
    assert action(calling("dice@m:2", "rebuild")) == action(calling("cards@m:2")) == "change"
    assert action(calling("dice@m:1")) == "none"
