"""The record of what is deployed: which plan serves, what belongs to it while another is built, and how it is written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.compiler.plan import codec, topology
from flowql.compiler.plan.deployed import (
    DEPLOY,
    FORWARDS_KEPT,
    Deployed,
    Entry,
    Forward,
    forwards_of,
    groups_of,
    is_held,
    swapped,
    takes_difference,
    without,
)
from flowql.compiler.plan.diff import ForwardRefused, decide_change
from flowql.compiler.plan.topology import PLAN_FORMAT, Plan
from tests.compiler.plan.test_diff import ALL, SOURCE, A, B, E, generations, serving
from tests.flowql.query.harness import plan_of

CHANGED = ALL.replace("> 0", "> 1")
OWN = "CREATE STREAM {0} (K STRING KEY, V INT) WITH (KAFKA_TOPIC='{0}', PARTITIONS=1, VALUE_FORMAT='JSON');\n"
INSERT = "INSERT INTO {} (K, V) VALUES ('k', {});\n"


def rows(plan: Plan) -> list[tuple[str, str]]:
    return [(i.target, codec.line(replace(Plan(), inserts=(i,)))) for i in plan.inserts]


def inserted(plan: Plan) -> list[str]:
    return [i.target for i in plan.inserts]


def test_of_those_who_write_a_topic_the_one_that_creates_it_comes_first() -> None:
    inserts = "".join(f"INSERT INTO R SELECT K, V FROM {n};\n" for n in ("T", "U"))
    plan = plan_of("".join(map(OWN.format, "STU")) + "CREATE STREAM R AS SELECT K, V FROM S;\n" + inserts)
    create, *others = (q.id for q in plan.queries)
    assert create == "CSAS_R"
    for queries in (plan.queries, plan.queries[1:] + plan.queries[:1]):
        (writers,) = replace(plan, queries=queries).writers.values()
        assert [q.id for q in writers] == [create, *others]


def test_a_group_that_is_built_leaves_the_serving_plan_of_its_topics_as_it_is() -> None:
    """Sources and inserted rows of a topic that swaps in later are those of before; all others are those that are wanted."""
    old = SOURCE + B.format(over=0) + INSERT.format("B", 1) + OWN.format("X") + INSERT.format("X", 1)
    new = SOURCE + B.format(over=1) + INSERT.format("B", 2) + OWN.format("X") + INSERT.format("X", 2)
    before = decide_change(Deployed(), plan_of(old)).deployed
    building = decide_change(before, plan_of(new)).deployed
    was, wanted = rows(plan_of(old)), rows(plan_of(new))
    assert rows(building.serving) == [wanted[1], was[0]]
    assert [s.name for s in building.serving.sources].count("B") == 1
    (group,) = groups_of(building)
    assert rows(swapped(building, group, ()).serving) == wanted
    assert {(t, i.target) for t, i in building.rows_inserted()} == {("B", "B"), ("X", "X")}


def test_rows_that_the_plan_no_longer_has_stay_on_record_while_no_query_writes_their_topic() -> None:
    old = SOURCE + OWN.format("X") + INSERT.format("X", 1) + INSERT.format("X", 2)
    after = decide_change(serving(old), plan_of(old.replace(INSERT.format("X", 1), ""))).deployed
    assert [t for t, _ in after.left] == ["X"]
    assert after.rows_inserted() == serving(old).rows_inserted()
    assert len(after.rows_inserted()) == 2


def test_a_group_is_held_by_any_of_its_queries_and_what_is_left_without_it_serves() -> None:
    building = decide_change(serving(ALL + E), plan_of(CHANGED + E.replace("V + 1", "V + 2"))).deployed
    first, second = groups_of(building)
    held = replace(building, held=("CTAS_D",))
    assert (is_held(held, first), is_held(held, second), is_held(building, first)) == (True, False, False)
    assert without(building, (first, second)) is building.serving
    assert generations(without(building, (first,))) == {**generations(building.serving), "CSAS_E": 2}
    assert generations(without(building, (second,))) == {**generations(building.plan), "CSAS_E": 1}
    gone = decide_change(serving(ALL), plan_of(CHANGED + E)).deployed
    assert "CSAS_E" in generations(without(gone, groups_of(gone)[:1])), "a query that is added belongs to what serves"


@pytest.mark.parametrize(
    ("before", "after", "difference"),
    [(A, A.replace("K, COUNT(*)", "K, SUM(V)"), True), (B.format(over=0), B.format(over=1), False)],
)
def test_tables_get_a_difference_and_streams_new_records(before: str, after: str, difference: bool) -> None:
    building = decide_change(serving(SOURCE + before + E), plan_of(SOURCE + after + E)).deployed
    (group,) = groups_of(building)
    (topic,) = group.topics
    assert takes_difference(building, group, topic) is difference
    assert not takes_difference(replace(building, histories=()), group, topic), "nothing is known of its records"
    other = replace(building.histories[0], topic=topic, kind="stream")
    assert not takes_difference(replace(building, histories=(other,)), group, topic), "its records are not a table"


def test_reasons_and_requests_of_a_rebuild_end_with_the_swap_of_the_query() -> None:
    plan = plan_of(ALL + E)
    building = decide_change(
        serving(ALL + E), plan, refresh=["CSAS_B", "CSAS_E"], why="its function was fixed"
    ).deployed
    assert dict(building.reasons) == {"CSAS_B": "its function was fixed", "CSAS_E": "its function was fixed"}
    half = swapped(building, groups_of(building)[0], ())
    assert (half.refreshed, dict(half.reasons)) == (("CSAS_E",), {"CSAS_E": "its function was fixed"})
    whole = swapped(half, groups_of(half)[0], ())
    assert (whole.refreshed, whole.reasons, whole.wanted) == ((), (), None)


def test_of_each_query_that_serves_the_newest_changes_without_a_rebuild_are_on_record() -> None:
    serves = plan_of(SOURCE + A + B.format(over=0))
    known = [Forward(q, n) for n in range(FORWARDS_KEPT + 2) for q in ("CTAS_A", "CSAS_B", "CSAS_GONE")]
    known = [f for f in known if f.query != "CSAS_B" or f.deployment < FORWARDS_KEPT]
    kept = forwards_of(known, serves)
    assert [f.deployment for f in kept if f.query == "CTAS_A"] == list(range(2, FORWARDS_KEPT + 2))
    assert [f.deployment for f in kept if f.query == "CSAS_B"] == list(range(FORWARDS_KEPT))
    assert [f.deployment for f in kept] == sorted(f.deployment for f in kept)
    assert {f.query for f in kept} == {"CTAS_A", "CSAS_B"}


def test_a_text_that_goes_forward_is_on_record_with_the_number_of_its_deployment() -> None:
    before = replace(serving(ALL), id=4)
    after = decide_change(before, plan_of(CHANGED), forward=["CSAS_B"]).deployed
    assert (after.id, after.forwards) == (5, (Forward("CSAS_B", 5),))
    assert (after.wanted, set(generations(after.serving).values())) == (None, {1})
    with pytest.raises(ForwardRefused, match="CTAS_C"):
        decide_change(before, plan_of(ALL.replace("V, COUNT", "V, SUM(V) AS Z, COUNT")), forward=["CTAS_C"])


def test_records_of_a_newer_format_or_of_something_else_are_refused() -> None:
    plan = plan_of(SOURCE + A)
    newer = replace(plan, format=PLAN_FORMAT + 1)
    entry = Entry(3, 5, DEPLOY, (("CTAS_A", "add", ""),), plan)
    assert codec.loads_entry(codec.line(entry)) == entry
    assert codec.loads(codec.dumps(plan)) == plan
    read = (codec.loads, codec.loads_deployed, codec.loads_entry)
    written = (newer, Deployed(newer), replace(entry, plan=newer))
    for loads, record in zip(read, written, strict=True):
        with pytest.raises(ValueError, match=f"plan format {PLAN_FORMAT + 1} is newer than {PLAN_FORMAT}"):
            loads(codec.line(record))
    for loads, record in zip(read, (Deployed(plan), entry, plan), strict=True):
        with pytest.raises(ValueError, match="not a"):
            loads(codec.line(record))
    with pytest.raises(ValueError, match="this version of FlowQL does not know"):
        codec.loads(codec.line(plan).replace('"$":"Sink"', '"$":"Teapot"'))


def test_plan_json_has_texts_as_they_are() -> None:
    plan = replace(Plan(), properties=(("who", "Jürgen 山田"),))
    assert "Jürgen 山田" in codec.dumps(plan)
    assert codec.loads(codec.dumps(plan)) == plan


def test_parts_of_records_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The history of a hundred deployments of a large project holds the same queries a hundred times."""
    plan, encoded, to_data = plan_of(SOURCE + A), list[str](), codec.to_data

    def counted(value: object) -> object:
        encoded.append(type(value).__name__)
        return to_data(value)

    monkeypatch.setattr(codec, "to_data", counted)
    first = codec.line(Deployed(plan))
    assert encoded.count("QueryPlan") == 1
    assert codec.line(Deployed(plan)) == first
    assert encoded.count("QueryPlan") == 1
    assert isinstance(codec.loads_deployed(first).serving, topology.Plan)
    assert codec.loads_deployed(first).serving.queries[0] == plan.queries[0]
    assert codec.loads_deployed(first).serving.queries[0] is codec.loads_deployed(first).serving.queries[0]
