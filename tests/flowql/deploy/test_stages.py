"""What a deployment does is decided before it is done."""

from __future__ import annotations

import pytest

from flowql.deploy.stages import decide, select
from flowql.errors import CommandError
from tests.flowql.query.world import plan_of

SOURCE = """
CREATE STREAM S (K STRING KEY, V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
"""
A = "CREATE TABLE A AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;"
B = "CREATE STREAM B AS SELECT K, V FROM S WHERE V > 0;"
C = "CREATE TABLE C AS SELECT V, COUNT(*) AS N FROM B GROUP BY V;"


def changes(before: str, after: str, *, prune: bool = False) -> list[tuple[str, str, str | None]]:
    found = decide(plan_of(before), plan_of(after), prune=prune)
    return [(c.query, c.action, c.state) for c in found.changes]


def test_each_kind_of_change() -> None:
    assert changes(SOURCE + A, SOURCE + A) == [("CTAS_A", "none", "kept")]
    assert changes(SOURCE + A, SOURCE + A + B) == [("CTAS_A", "none", "kept"), ("CSAS_B", "add", None)]
    assert changes(SOURCE + A, SOURCE + A.replace("COUNT(*)", "SUM(V)")) == [("CTAS_A", "change", "rebuilt")]
    high = A.replace("TABLE A", "TABLE A WITH (PRIORITY = 'high')")
    assert changes(SOURCE + A, SOURCE + high) == [("CTAS_A", "priority", "kept")]


def test_what_a_project_pauses_begins_so_and_goes_on_when_it_was_resumed() -> None:
    paused = plan_of(SOURCE + A + "PAUSE CTAS_A;")
    assert decide(plan_of(""), paused, prune=False).plan.paused == ("CTAS_A",)
    assert decide(plan_of(SOURCE + A), paused, prune=False).plan.paused == ()
    assert decide(paused, plan_of(SOURCE + A), prune=False).plan.paused == ("CTAS_A",)


def test_removal_needs_prune() -> None:
    running, wanted = plan_of(SOURCE + A + B + C), plan_of(SOURCE + A)
    kept = decide(running, wanted, prune=False)
    assert kept.withheld == ("CSAS_B", "CTAS_C")
    assert [c.state for c in kept.changes] == ["kept", "kept", "kept"]
    assert not kept.applicable
    assert {q.id for q in kept.plan.queries} == {"CTAS_A", "CSAS_B", "CTAS_C"}
    assert {s.name for s in kept.plan.sources} == {"S", "A", "B", "C"}
    pruned = decide(running, wanted, prune=True)
    assert pruned.plan == wanted
    assert [(c.query, c.state) for c in pruned.applicable] == [("CSAS_B", "dropped"), ("CTAS_C", "dropped")]


def test_withheld_removals_are_decided_again_each_time() -> None:
    running, wanted = plan_of(SOURCE + A + B), plan_of(SOURCE + A)
    first = decide(running, wanted, prune=False)
    assert decide(first.plan, wanted, prune=False) == first


def test_a_query_that_no_longer_fits_is_a_conflict() -> None:
    other = SOURCE + "CREATE STREAM B (X INT) WITH (KAFKA_TOPIC = 'x', PARTITIONS = 1, VALUE_FORMAT = 'JSON');"
    with pytest.raises(CommandError, match="CSAS_B still runs"):
        decide(plan_of(SOURCE + B), plan_of(other), prune=False)
    assert decide(plan_of(SOURCE + B), plan_of(other), prune=True).applicable


def test_a_selection_brings_what_it_needs() -> None:
    plan = plan_of(SOURCE + A + B + C)
    assert [q.id for q in select(plan, ["c"]).queries] == ["CSAS_B", "CTAS_C"]
    assert [s.name for s in select(plan, ["CTAS_A"]).sources] == ["S", "A"]
    assert select(plan, []) is plan
    with pytest.raises(CommandError, match="no query CTAS_D"):
        select(plan, ["CTAS_D"])


def test_a_selection_brings_who_writes_a_declared_topic() -> None:
    declared = (
        "CREATE STREAM CHANGES (ID INT KEY, N BIGINT) WITH (KAFKA_TOPIC = 'A', VALUE_FORMAT = 'JSON');"
        "CREATE STREAM D AS SELECT ID, N FROM CHANGES;"
    )
    plan = plan_of(SOURCE + A + declared)
    assert [q.id for q in select(plan, ["D"]).queries] == ["CTAS_A", "CSAS_D"]


def test_a_selection_leaves_out_who_writes_the_same_topic() -> None:
    same = A.replace(" AS ", " WITH (KAFKA_TOPIC = 'out') AS ", 1) + B.replace(
        " AS ", " WITH (KAFKA_TOPIC = 'out') AS ", 1
    )
    assert [q.id for q in select(plan_of(SOURCE + same), ["B"]).queries] == ["CSAS_B"]
    into = SOURCE + B + "INSERT INTO B SELECT K, V FROM S WHERE V < 0;"
    assert len(select(plan_of(into), [plan_of(into).queries[1].id]).queries) == 2
