"""What a deployment does is decided before it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowql.cli.deployment import show_deployment
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.diff import QueryChange
from flowql.compiler.plan.topology import Plan
from flowql.deploy.decision import Deployment
from flowql.deploy.decision import decide as decide_on
from flowql.deploy.request import DeployRequest
from flowql.deploy.selection import chosen, select
from flowql.errors import CommandError
from tests.flowql.query.harness import plan_of


def decide(running: Plan, wanted: Plan, *, prune: bool, selected: tuple[str, ...] | None = None) -> Deployment:
    return decide_on(Deployed(running), wanted, DeployRequest(selected, prune))


def applicable(deployment: Deployment) -> tuple[QueryChange, ...]:
    """The changes that the engine has to make."""
    return tuple(c for c in deployment.changes if c.action != "none" and c.query not in deployment.withheld)


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
    assert not applicable(kept)
    assert {q.id for q in kept.plan.queries} == {"CTAS_A", "CSAS_B", "CTAS_C"}
    assert {s.name for s in kept.plan.sources} == {"S", "A", "B", "C"}
    pruned = decide(running, wanted, prune=True)
    assert pruned.plan == wanted
    assert [(c.query, c.state) for c in applicable(pruned)] == [("CSAS_B", "dropped"), ("CTAS_C", "dropped")]


def test_withheld_removals_are_decided_again_each_time() -> None:
    running, wanted = plan_of(SOURCE + A + B), plan_of(SOURCE + A)
    first = decide(running, wanted, prune=False)
    assert decide(first.plan, wanted, prune=False) == first


def test_a_query_that_no_longer_fits_is_a_conflict() -> None:
    other = SOURCE + "CREATE STREAM B (X INT) WITH (KAFKA_TOPIC = 'x', PARTITIONS = 1, VALUE_FORMAT = 'JSON');"
    with pytest.raises(CommandError, match="CSAS_B still runs"):
        decide(plan_of(SOURCE + B), plan_of(other), prune=False)
    assert applicable(decide(plan_of(SOURCE + B), plan_of(other), prune=True))


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


# -- selection

D = "CREATE STREAM D AS SELECT K, V FROM S WHERE V < 0;"
ROWS = "INSERT INTO B (K, V) VALUES ('x', 1); INSERT INTO D (K, V) VALUES ('y', 2);"


def ids(names: list[str], project: str, running: str = "") -> list[str]:
    wanted = plan_of(SOURCE + project)
    found = chosen(names, wanted, plan_of(SOURCE + running))
    assert found is not None
    return sorted(found)


def test_a_name_and_what_it_brings() -> None:
    assert ids(["C"], A + B + C) == ["CSAS_B", "CTAS_C"]
    assert ids(["C"], A + B + C, running=B) == ["CTAS_C"], "what it needs runs"
    assert ids(["+C"], A + B + C, running=B) == ["CSAS_B", "CTAS_C"]
    assert ids(["B+"], A + B + C, running=A + B + C) == ["CSAS_B", "CTAS_C"]
    assert ids(["+B+"], A + B + C) == ["CSAS_B", "CTAS_C"]
    assert ids(["d"], A, running=A + D) == ["CSAS_D"], "removed from the project"
    with pytest.raises(CommandError, match="no query E"):
        ids(["E"], A, running=A + D)


def test_what_is_not_selected_stays_as_it_runs() -> None:
    """`deploy -s ONE --prune` removed every other query, and rows and sources of what went on were lost."""
    running = plan_of(SOURCE + A + B + D + ROWS)
    wanted = plan_of(SOURCE + A.replace("COUNT(*)", "SUM(V)") + B.replace("V > 0", "V > 1"))
    found = decide(running, wanted, prune=True, selected=("CTAS_A",))
    assert [(c.query, c.action) for c in applicable(found)] == [("CTAS_A", "change")]
    assert [found.plan.by_id.get(q) == running.by_id.get(q) for q in ("CSAS_B", "CSAS_D")] == [True, True]
    assert {s.name for s in found.plan.sources} == {"S", "A", "B", "D"}
    assert found.plan.inserts == running.inserts
    assert found.withheld == ()
    pruned = decide(running, wanted, prune=True, selected=("CSAS_D",))
    assert [(c.query, c.action) for c in applicable(pruned)] == [("CSAS_D", "remove")]
    assert {s.name for s in pruned.plan.sources} == {"S", "A", "B"}
    assert decide(running, wanted, prune=False, selected=("CSAS_D",)).withheld == ("CSAS_D",)


def test_rows_of_what_is_withheld_stay() -> None:
    """They were lost from the plan, which is to say taken out of the topic."""
    running = plan_of(SOURCE + B + D + ROWS)
    found = decide(running, plan_of(SOURCE + B + ROWS.partition(";")[0] + ";"), prune=False)
    assert found.plan.inserts == running.inserts
    assert [(c.query, c.action, c.state) for c in found.changes] == [
        ("CSAS_B", "none", "kept"),
        ("CSAS_D", "remove", "kept"),
    ]


def test_what_is_new_and_not_selected_does_not_begin() -> None:
    found = decide(plan_of(SOURCE + A), plan_of(SOURCE + A + B + D + ROWS), prune=False, selected=("CSAS_B",))
    assert [q.id for q in found.plan.queries] == ["CTAS_A", "CSAS_B"]
    assert [i.target for i in found.plan.inserts] == ["B"]
    assert {s.name for s in found.plan.sources} == {"S", "A", "B"}


def test_pauses_stay_whatever_is_selected() -> None:
    running = replace(plan_of(SOURCE + A + B), paused=("CTAS_A", "CSAS_B"))
    assert decide(running, plan_of(SOURCE + A + B), prune=True, selected=("CTAS_A",)).plan.paused == (
        "CTAS_A",
        "CSAS_B",
    )


def test_readers_that_are_not_selected_are_rebuilt_as_they_are() -> None:
    running = plan_of(SOURCE + B + C)
    wanted = plan_of(SOURCE + B.replace("V > 0", "V > 1") + C.replace("COUNT(*)", "SUM(V)"))
    found = decide(running, wanted, prune=False, selected=("CSAS_B",))
    assert [(c.query, c.action, c.because) for c in found.changes] == [
        ("CSAS_B", "change", ""),
        ("CTAS_C", "change", "CSAS_B"),
    ]
    after, before = found.change.deployed.plan.by_id.get("CTAS_C"), running.by_id.get("CTAS_C")
    assert after is not None
    assert before is not None
    assert after.definition == before.definition


def test_two_halves_that_do_not_go_together_are_refused() -> None:
    """The column would be NULL in every row."""
    wide = B.replace("K, V", "K, V, V * 2 AS W")
    reads = C.replace("SELECT V, COUNT(*)", "SELECT W AS V, COUNT(*)").replace("GROUP BY V", "GROUP BY W")
    with pytest.raises(CommandError, match="CTAS_C reads W of B as the project defines it") as refused:
        decide(plan_of(SOURCE + B), plan_of(SOURCE + wide + reads), prune=False, selected=("CTAS_C",))
    assert refused.value.code == "FQ5207"
    made = decide(plan_of(SOURCE + B), plan_of(SOURCE + wide + reads), prune=False, selected=("CSAS_B", "CTAS_C"))
    assert applicable(made)
    with pytest.raises(CommandError, match="CTAS_C reads W of B as it was"):
        decide(plan_of(SOURCE + wide + reads), plan_of(SOURCE + B + C), prune=False, selected=("CSAS_B",))
    with pytest.raises(CommandError, match="CTAS_C reads W of B as it was"):
        decide(plan_of(SOURCE + wide + reads), plan_of(SOURCE + B), prune=False)


def test_what_others_read_is_not_removed_alone() -> None:
    """The reader went on running, and got no more rows."""
    with pytest.raises(CommandError, match="CTAS_C keeps running and reads B, which would get no more rows") as refused:
        decide(plan_of(SOURCE + A + B + C), plan_of(SOURCE + A), prune=True, selected=("CSAS_B",))
    assert (refused.value.code, refused.value.help) == ("FQ5207", "flowql deploy --prune --select CSAS_B+")
    found = decide(plan_of(SOURCE + A + B + C), plan_of(SOURCE + A), prune=True, selected=("CSAS_B", "CTAS_C"))
    assert [q.id for q in found.plan.queries] == ["CTAS_A"]
    assert applicable(decide(plan_of(SOURCE + A + B + C), plan_of(SOURCE + A), prune=True, selected=("CTAS_C",)))


def test_a_rebuild_that_is_under_way_is_compared_with_what_is_wanted() -> None:
    first, second = plan_of(SOURCE + A + B), plan_of(SOURCE + A.replace("COUNT(*)", "SUM(V)") + B)
    building = decide(first, second, prune=False).change.deployed
    assert [q.id for q in building.building] == ["CTAS_A"]
    again = decide_on(building, second)
    assert [(c.query, c.action) for c in applicable(again)] == [("CTAS_A", "change")]
    assert again.change.deployed.building == building.building, "it goes on"
    beside = decide_on(building, plan_of(SOURCE + A + B.replace("V > 0", "V > 1")), DeployRequest(("CSAS_B",)))
    assert {q.id for q in beside.change.deployed.building} == {"CTAS_A", "CSAS_B"}, "the other rebuild goes on"


def test_what_becomes_of_a_generation_that_is_being_built_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """An edit that was taken back while it was being built was "unchanged", and "no changes" was the answer."""
    edited = SOURCE + A.replace("COUNT(*)", "SUM(V)") + B.replace("V > 0", "V > 1")
    building = decide(plan_of(SOURCE + A + B), plan_of(edited), prune=False).change.deployed

    def said(sql: str, *, shadow: bool = False) -> tuple[dict[str, str], str]:
        found = decide_on(building, plan_of(sql), DeployRequest(None, prune=True, shadow=shadow))
        show_deployment(found.to_data(applied=True))
        return {f.change.query: f"{f.kind}: {f.why}" for f in found.fates}, capsys.readouterr().err.splitlines()[-1]

    fates, last = said(edited)
    assert fates["CTAS_A"] == "rebuilt: its text has changed; it is being built already"
    assert last == "no changes"
    assert said(edited, shadow=True)[1] == "2 changed"
    fates, last = said(SOURCE + A + B.replace("V > 0", "V > 2"))
    dropped = "its new generation is dropped"
    assert (fates["CTAS_A"], fates["CSAS_B"]) == (f"unchanged: {dropped}", f"rebuilt: its text has changed; {dropped}")
    assert last == "2 changed"
    staged = decide(plan_of(SOURCE + B), plan_of(SOURCE + B.replace("V > 0", "V > 1") + C), prune=False)
    building = staged.change.deployed
    assert said(SOURCE + B)[0] == {"CSAS_B": f"unchanged: {dropped}", "CTAS_C": f"removed: {dropped}"}


def test_what_stays_comes_before_its_readers() -> None:
    """Topics are made in the order of queries: `CTAS_C reads B, which does not exist`."""
    running = plan_of(SOURCE + B + C)
    found = decide(
        running,
        plan_of(SOURCE + B.replace("B AS", "E AS") + C.replace("FROM B", "FROM E")),
        prune=False,
        selected=("CSAS_E",),
    )
    assert [q.id for q in found.plan.queries] == ["CSAS_E", "CSAS_B", "CTAS_C"]
