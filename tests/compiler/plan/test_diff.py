"""What an edit rebuilds: over the graph of queries, decided before anything is done."""

from __future__ import annotations

from dataclasses import replace

from flowql.compiler.plan import codec
from flowql.compiler.plan.deployed import Deployed, groups_of, running_plan, swapped
from flowql.compiler.plan.diff import decide_change
from flowql.compiler.plan.generations import at_generation, runtime_name, topics_read, user_id
from flowql.compiler.plan.topology import Plan
from tests.flowql.query.harness import plan_of

SOURCE = "CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');\n"
A = "CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"
B = "CREATE STREAM B AS SELECT K, V FROM S WHERE V > {over};\n"
C = "CREATE TABLE C AS SELECT V, COUNT(*) AS N FROM B GROUP BY V;\n"
D = "CREATE TABLE D AS SELECT N, COUNT(*) AS M FROM C GROUP BY N;\n"
E = "CREATE STREAM E AS SELECT K, V + 1 AS W FROM S;\n"
ALL = SOURCE + A + B.format(over=0) + C + D


def serving(sql: str) -> Deployed:
    return decide_change(Deployed(), plan_of(sql)).deployed


def generations(plan: Plan) -> dict[str, int]:
    return {q.id: q.generation for q in plan.queries}


def test_the_first_deployment_serves_at_once() -> None:
    deployed = serving(ALL)
    assert deployed.wanted is None
    assert set(generations(deployed.serving).values()) == {1}
    assert groups_of(deployed) == ()


def test_every_transitive_reader_is_rebuilt_and_nothing_else() -> None:
    change = decide_change(serving(ALL), plan_of(ALL.replace("> 0", "> 1")))
    assert [(c.query, c.action, c.because) for c in change.changes] == [
        ("CTAS_A", "none", ""),
        ("CSAS_B", "change", ""),
        ("CTAS_C", "change", "CSAS_B"),
        ("CTAS_D", "change", "CTAS_C"),
    ]
    (group,) = groups_of(change.deployed)
    assert dict(group.topics) == {"B": 2, "C": 2, "D": 2}
    assert [q.id for q in group.gone] == ["CSAS_B", "CTAS_C", "CTAS_D"]
    staged = {q.id: q for q in running_plan(change.deployed).queries}
    assert set(staged) == {"CTAS_A", "CSAS_B", "CTAS_C", "CTAS_D", "CSAS_B@2", "CTAS_C@2", "CTAS_D@2"}
    assert (topics_read(staged["CTAS_C@2"]), staged["CTAS_C@2"].topic) == (("B@2",), "C@2")
    assert topics_read(staged["CSAS_B@2"]) == ("s",)
    assert staged["CSAS_B@2"].weight == 1, "beside what serves"


def test_a_query_that_stands_still_is_rebuilt_by_a_text_that_is_its_own() -> None:
    """Its input got other partitions while its text read another topic. With its old text again it was unchanged, and never ran again."""
    other = SOURCE.replace("STREAM S ", "STREAM S2 ").replace("'s'", "'s2'")
    before = serving(SOURCE + other + E)
    resized = SOURCE.replace("PARTITIONS=1", "PARTITIONS=2") + other
    partitions = {"s": 1, "s2": 1, "E": 1}
    moved = decide_change(before, plan_of(resized + E.replace("FROM S;", "FROM S2;")), partitions=partitions).deployed
    assert moved.lost == (("CSAS_E", ""),)
    again = decide_change(moved, plan_of(resized + E), partitions={**partitions, "s": 2})
    assert [(c.query, c.action) for c in again.changes] == [("CSAS_E", "change")]
    assert generations(again.deployed.plan) == {"CSAS_E": 3}
    later = decide_change(again.deployed, plan_of(resized + E), partitions={**partitions, "s": 2}).deployed
    assert generations(later.plan) == {"CSAS_E": 3}, "what is being built goes on"


def test_what_was_asked_for_and_has_swapped_in_is_not_built_once_more() -> None:
    """While another group was being built each deployment began a further generation; a pause did so without its topics, for ever."""
    plan = plan_of(ALL + E)
    after = decide_change(serving(ALL + E), plan, refresh=["CSAS_B", "CSAS_E"]).deployed
    half = swapped(after, groups_of(after)[0], {"C", "D"})
    assert half.refreshed == ("CSAS_E",)
    paused = decide_change(half, replace(plan, paused=("CTAS_A",))).deployed
    assert generations(paused.plan) == generations(half.plan)


def test_independent_changes_swap_apart() -> None:
    before = serving(ALL + E)
    after = decide_change(before, plan_of((ALL + E).replace("> 0", "> 1").replace("V + 1", "V + 2"))).deployed
    assert [[q.id for q in g.queries] for g in groups_of(after)] == [["CSAS_B", "CTAS_C", "CTAS_D"], ["CSAS_E"]]
    first, second = groups_of(after)
    half = swapped(after, first, {"C", "D"})
    assert generations(half.serving) == {"CTAS_A": 1, "CSAS_B": 2, "CTAS_C": 2, "CTAS_D": 2, "CSAS_E": 1}
    assert [g.name for g in groups_of(half)] == [second.name]
    whole = swapped(half, second, ())
    assert whole.wanted is None
    assert generations(whole.serving)["CSAS_E"] == 2
    assert [h.topic for h in whole.histories if h.mixed] == ["C", "D"]


def test_a_rollback_abandons_what_is_built_and_numbers_are_not_used_again() -> None:
    building = decide_change(serving(ALL), plan_of(ALL.replace("> 0", "> 1"))).deployed
    back = decide_change(building, plan_of(ALL)).deployed
    assert back.wanted is None
    assert set(generations(back.serving).values()) == {1}
    again = decide_change(back, plan_of(ALL.replace("> 0", "> 1"))).deployed
    assert {t: n for g in groups_of(again) for t, n in g.topics.items()} == {"B": 3, "C": 3, "D": 3}


def test_a_second_edit_goes_on_with_what_is_still_wanted() -> None:
    building = decide_change(serving(ALL), plan_of(ALL.replace("> 0", "> 1"))).deployed
    more = plan_of(ALL.replace("> 0", "> 1").replace("AS M", "AS MM"))
    after = decide_change(building, more).deployed
    assert {t: n for g in groups_of(after) for t, n in g.topics.items()} == {"B": 2, "C": 2, "D": 3}
    assert decide_change(after, more).deployed.wanted == after.wanted, "the same again changes nothing"


def test_a_writer_that_comes_or_goes_renews_its_topic() -> None:
    two = SOURCE + B.format(over=0) + "INSERT INTO B SELECT K, V FROM S WHERE V < 0;\n" + C
    one = SOURCE + B.format(over=0) + C
    for before, after, why in (
        (one, two, "INSERT_B_1 writes to B, too"),
        (two, one, "INSERT_B_1 no longer writes to B"),
    ):
        change = decide_change(serving(before), plan_of(after))
        found = {c.query: (c.action, c.because) for c in change.changes}
        assert found["CSAS_B"] == ("change", why)
        assert found["CTAS_C"][0] == "change"
        (group,) = groups_of(change.deployed)
        assert {q.id for q in group.gone} >= {"CSAS_B", "CTAS_C"}


def test_a_removed_query_serves_until_who_read_it_does_not() -> None:
    before = serving(ALL)
    after = decide_change(
        before, plan_of(SOURCE + A + D.replace("FROM C", "FROM A").replace("M FROM", "M FROM"))
    ).deployed
    (group,) = groups_of(after)
    assert [q.id for q in group.queries] == ["CTAS_D"]
    assert {q.id for q in group.gone} == {"CTAS_D", "CTAS_C", "CSAS_B"}
    assert {s.name for s in after.serving.sources} == {"S", "A", "B", "C", "D"}
    assert {q.id for q in swapped(after, group, ()).serving.queries} == {"CTAS_A", "CTAS_D"}
    at_once = decide_change(before, plan_of(SOURCE + A + B.format(over=0) + C)).deployed
    assert at_once.wanted is None


def test_a_topic_that_queries_wrote_before_is_renewed_for_who_writes_it_again() -> None:
    gone = decide_change(serving(ALL), plan_of(SOURCE + A)).deployed
    back = decide_change(gone, plan_of(SOURCE + A + B.format(over=0)))
    assert [(c.query, c.action, c.generation) for c in back.changes] == [("CTAS_A", "none", 1), ("CSAS_B", "add", 2)]
    assert "CSAS_B" not in back.deployed.serving.by_id


def test_names_of_a_generation_are_taken_back() -> None:
    query = plan_of(ALL).queries[2]
    assert at_generation(at_generation(query, 3), 1) == query
    third = at_generation(query, 3)
    assert runtime_name(third) == "CTAS_C@3"
    assert user_id("CTAS_C@3", 3) == user_id("CTAS_C", 1) == "CTAS_C"
    assert all(s.name.endswith("@3") for sub in third.subtopologies for op in sub.operators for s in op.stores)
    assert all(t.endswith("@3") for t in third.repartitions)
    assert third.repartitions[0] in [t for sub in third.subtopologies for t in sub.topics]


def test_a_record_is_read_as_it_was_written_and_an_older_plan_serves() -> None:
    building = decide_change(serving(ALL), plan_of(ALL.replace("> 0", "> 1"))).deployed
    assert codec.loads_deployed(codec.line(building)) == building
    old = plan_of(ALL)
    assert codec.loads_deployed(codec.line(old)) == Deployed(old)
    change = decide_change(Deployed(old), plan_of(ALL.replace("> 0", "> 1")))
    assert {t: n for g in groups_of(change.deployed) for t, n in g.topics.items()} == {"B": 2, "C": 2, "D": 2}


def test_a_changed_latency_target_is_a_change_that_keeps_the_state() -> None:
    plan = plan_of(ALL)
    query = replace(plan.queries[0], latency_target_ms=500)
    change = decide_change(serving(ALL), replace(plan, queries=(query, *plan.queries[1:])))
    assert [(c.query, c.action, c.state) for c in change.changes][:2] == [
        ("CTAS_A", "priority", "kept"),
        ("CSAS_B", "none", "kept"),
    ]
    deployed = change.deployed.serving.by_id.get("CTAS_A")
    assert deployed is not None
    assert deployed.latency_target_ms == 500
