"""Why queries are rebuilt, what of a rebuild goes on when another deployment comes, and what waits until it is promoted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed, Hold, groups_of, swapped
from flowql.compiler.plan.diff import STANDS_STILL, ForwardRefused, decide_change
from tests.compiler.plan.test_diff import ALL, SOURCE, A, B, C, D, E, generations, serving
from tests.flowql.query.harness import plan_of

CHANGED = ALL.replace("> 0", "> 1")
BUILT = ("CSAS_B", "CTAS_C", "CTAS_D")


def fates(before: Deployed, sql: str, **how: Any) -> dict[str, tuple[str, str]]:
    return {c.query: (c.action, c.because) for c in decide_change(before, plan_of(sql), **how).changes}


@pytest.mark.parametrize(
    ("held", "swap", "after"),
    [
        ((), Hold(), ()),
        ((), Hold(hold=True), BUILT),
        ((), Hold(hold=False), ()),
        (BUILT, Hold(), BUILT),
        (BUILT, Hold(hold=True), BUILT),
        (BUILT, Hold(hold=False), ()),
        (("CSAS_B",), Hold(), ("CSAS_B",)),
        (BUILT, Hold(promoted=("CTAS_C",)), ("CSAS_B", "CTAS_D")),
        ((), Hold(hold=True, promoted=BUILT), ()),
        (("CTAS_A",), Hold(), ()),
    ],
)
def test_a_deployment_decides_what_waits_until_it_is_promoted(
    held: tuple[str, ...], swap: Hold, after: tuple[str, ...]
) -> None:
    """A shadow stays one at a deployment that says nothing of it; only what is built can wait."""
    building = decide_change(serving(ALL), plan_of(CHANGED)).deployed
    assert decide_change(replace(building, held=held), plan_of(CHANGED), swap=swap).deployed.held == after


def test_a_rebuild_that_was_asked_for_ends_when_it_is_abandoned() -> None:
    building = decide_change(serving(ALL), plan_of(ALL), refresh=["CTAS_C"], why="its function was fixed").deployed
    assert generations(building.plan) == {"CTAS_A": 1, "CSAS_B": 1, "CTAS_C": 2, "CTAS_D": 2}
    after = decide_change(building, plan_of(ALL), swap=Hold(abandoned=("CTAS_C",))).deployed
    assert (after.wanted, set(generations(after.serving).values())) == (None, {1})
    other = decide_change(building, plan_of(ALL), swap=Hold(abandoned=("CTAS_A",))).deployed
    assert generations(other.plan) == generations(building.plan)


def test_why_a_query_is_rebuilt_is_said_by_each_deployment_until_it_is() -> None:
    refreshed = decide_change(serving(ALL), plan_of(ALL), refresh=["CTAS_C"], why="its function was fixed").deployed
    assert fates(refreshed, ALL)["CTAS_C"] == ("change", "its function was fixed")
    assert fates(refreshed, ALL)["CTAS_D"] == ("change", "CTAS_C")
    asked = decide_change(serving(ALL), plan_of(ALL), refresh=["CTAS_C"]).deployed
    assert (asked.refreshed, asked.reasons) == (("CTAS_C",), ())
    assert fates(asked, ALL)["CTAS_C"] == ("change", "requested")
    both = decide_change(asked, plan_of(ALL), refresh=["CTAS_A"], why="its function was fixed").deployed
    assert dict(both.reasons) == {"CTAS_A": "its function was fixed"}
    assert {q: fates(both, ALL)[q][1] for q in ("CTAS_A", "CTAS_C")} == {
        "CTAS_A": "its function was fixed",
        "CTAS_C": "requested",
    }


def test_a_deployment_says_what_becomes_of_the_generation_that_is_being_built() -> None:
    building = decide_change(serving(ALL), plan_of(CHANGED)).deployed

    def becomes(sql: str, **how: Any) -> dict[str, tuple[str, int]]:
        change = decide_change(building, plan_of(sql), **how)
        return {c.query: (c.building, c.generation) for c in change.changes}

    assert becomes(CHANGED) == {"CTAS_A": ("", 1), **dict.fromkeys(BUILT, ("continued", 2))}
    assert becomes(ALL) == {"CTAS_A": ("", 1), **dict.fromkeys(BUILT, ("dropped", 1))}
    assert becomes(CHANGED.replace("AS M", "AS MM"))["CTAS_D"] == ("dropped", 3)
    assert becomes(CHANGED, refresh=["CSAS_B"]) == {"CTAS_A": ("", 1), **dict.fromkeys(BUILT, ("dropped", 3))}
    assert becomes(SOURCE + A)["CTAS_D"] == ("dropped", 1), "what serves of it goes, and what was built of it"
    two = decide_change(serving(ALL + E), plan_of(CHANGED + E.replace("V + 1", "V + 2"))).deployed
    again = decide_change(two, plan_of(CHANGED + E.replace("V + 1", "V + 3")))
    assert {c.query: c.building for c in again.changes} == {
        "CTAS_A": "",
        **dict.fromkeys(BUILT, "continued"),
        "CSAS_E": "dropped",
    }


def test_a_new_reader_of_a_topic_with_a_mixed_history_has_its_writer_rebuilt() -> None:
    """As a table the topic is exact; its records are of several generations, and a reader from the beginning would count both."""
    building = decide_change(serving(ALL), plan_of(CHANGED)).deployed
    mixed = swapped(building, groups_of(building)[0], {"C"})
    reader = "CREATE TABLE R AS SELECT N, COUNT(*) AS Z FROM C GROUP BY N;\n"
    found = fates(mixed, CHANGED + reader)
    assert found["CTAS_C"] == ("change", "CTAS_R needs its history from the beginning")
    assert found["CTAS_R"] == ("add", "CTAS_C")
    assert found["CSAS_B"] == ("none", "")
    whole = swapped(building, groups_of(building)[0], ())
    assert fates(whole, CHANGED + reader)["CTAS_C"] == ("none", "")
    assert fates(mixed, CHANGED)["CTAS_D"] == ("none", ""), "its readers of today are at the end of it"


def test_a_row_that_is_taken_out_of_a_topic_renews_it_and_one_that_is_added_does_not() -> None:
    rows = [f"INSERT INTO B (K, V) VALUES ('k', {n});\n" for n in (1, 2)]
    two, one = (SOURCE + B.format(over=0) + C + "".join(r) for r in (rows, rows[:1]))
    assert fates(serving(two), one) == {
        "CSAS_B": ("change", "a row was taken out of B"),
        "CTAS_C": ("change", "CSAS_B"),
    }
    assert fates(serving(one), two) == {"CSAS_B": ("none", ""), "CTAS_C": ("none", "")}
    building = decide_change(serving(one), plan_of(two.replace("> 0", "> 1"))).deployed
    assert decide_change(building, plan_of(one.replace("> 0", "> 1"))).changes[0].building == "dropped"
    assert decide_change(building, plan_of(two.replace("> 0", "> 1"))).changes[0].building == "continued"


def test_a_topic_that_gets_other_partitions_renews_its_writers_and_readers() -> None:
    own = "CREATE STREAM B (K STRING KEY, V INT) WITH (KAFKA_TOPIC='B', PARTITIONS={}, VALUE_FORMAT='JSON');\n"
    writes = "INSERT INTO B SELECT K, V FROM S WHERE V > 0;\n" + C + A
    found = fates(serving(SOURCE + own.format(1) + writes), SOURCE + own.format(2) + writes)
    (writer,) = found.keys() - {"CTAS_C", "CTAS_A"}
    assert found == {writer: ("change", "B gets 2 partitions"), "CTAS_C": ("change", writer), "CTAS_A": ("none", "")}
    topics = {"s": 1, "A": 1, "B": 1, "C": 1, "D": 1, "E": 1}
    resized = decide_change(
        serving(ALL + E), plan_of((ALL + E).replace("PARTITIONS=1", "PARTITIONS=2")), partitions=topics
    )
    assert {c.query: c.because for c in resized.changes} == {
        "CTAS_A": "s gets 2 partitions",
        "CSAS_B": "s gets 2 partitions",
        "CTAS_C": "CSAS_B",
        "CTAS_D": "CTAS_C",
        "CSAS_E": "s gets 2 partitions",
    }
    assert dict(resized.deployed.lost) == {"CTAS_A": "", "CSAS_B": "", "CSAS_E": ""}, "they serve, and cannot go on"
    assert set(resized.deployed.refreshed) == {"CTAS_A", "CSAS_B", "CSAS_E"}


def test_a_query_that_cannot_go_on_is_rebuilt_by_any_deployment_and_one_whose_state_is_lost_is_not() -> None:
    still = replace(serving(ALL), lost=(("CTAS_C", ""), ("CTAS_GONE", "")))
    assert fates(still, ALL)["CTAS_C"] == ("change", STANDS_STILL)
    assert decide_change(still, plan_of(ALL)).deployed.lost == (("CTAS_C", ""),)
    why = replace(serving(ALL), lost=(("CTAS_C", "its inputs are gone"),))
    assert fates(why, ALL)["CTAS_C"] == ("none", "")
    assert decide_change(why, plan_of(ALL)).deployed.lost == why.lost
    with pytest.raises(ForwardRefused, match="CTAS_C: its state is lost"):
        decide_change(
            why,
            plan_of(ALL.replace("V, COUNT(*) AS N FROM B", "V, COUNT(*) AS N FROM B WHERE V > 3")),
            forward=["CTAS_C"],
        )


def test_what_is_not_to_be_rebuilt_may_be_rebuilt_with_what_was_asked_for() -> None:
    """`--forward` forbids a rebuild that was not asked for; a refresh of its input asks for it, over however many queries."""
    done = decide_change(serving(ALL), plan_of(ALL), refresh=["CSAS_B"], forward=["CTAS_D"])
    assert [c.query for c in done.changes if c.action == "change"] == list(BUILT)
    with pytest.raises(ForwardRefused, match="CTAS_D: it would be rebuilt: because of CTAS_C"):
        decide_change(serving(ALL), plan_of(CHANGED), forward=["CTAS_D"])
    circle = SOURCE + B.format(over=0) + "INSERT INTO B SELECT K, V FROM S WHERE V < 0;\n" + C + D
    with pytest.raises(ForwardRefused, match="CTAS_D: it would be rebuilt"):
        decide_change(serving(circle), plan_of(circle.replace("> 0", "> 1")), forward=["CTAS_D"])


def test_numbers_of_generations_rise_also_over_those_that_never_served() -> None:
    record = serving(ALL)
    for n in (2, 3, 4):
        record = decide_change(record, plan_of(ALL.replace("> 0", f"> {n}"))).deployed
        assert generations(record.plan)["CSAS_B"] == n
    assert record.history("B") is not None
    gone = decide_change(record, plan_of(SOURCE + A)).deployed
    assert dict(gone.last)["CSAS_B"] == 4
    assert generations(decide_change(gone, plan_of(ALL)).deployed.plan)["CSAS_B"] == 5
    renamed = (SOURCE + B.format(over=0)).replace("STREAM B AS", "STREAM OTHER WITH (KAFKA_TOPIC='B') AS")
    assert generations(decide_change(gone, plan_of(renamed)).deployed.plan) == {"CSAS_OTHER": 5}, "of the topic, too"


def test_what_is_being_built_goes_on_only_over_the_input_that_it_has_read() -> None:
    """A reader of a topic that begins anew begins anew, too; what feeds it goes on, and so does what is built over what serves."""
    both = CHANGED + E.replace("V + 1", "V + 2")
    building = decide_change(serving(ALL + E), plan_of(both)).deployed
    again = decide_change(
        building, plan_of(both.replace("SELECT V, COUNT(*) AS N FROM B", "SELECT V, COUNT(*) AS N FROM B WHERE V < 9"))
    )
    assert generations(again.deployed.plan) == {"CTAS_A": 1, "CSAS_B": 2, "CTAS_C": 3, "CTAS_D": 3, "CSAS_E": 2}
    served = decide_change(serving(ALL), plan_of(ALL.replace("AS M", "AS MM"))).deployed
    assert generations(served.plan)["CTAS_D"] == 2
    upstream = decide_change(served, plan_of(ALL.replace("AS M", "AS MM").replace("> 0", "> 1"))).deployed
    assert generations(upstream.plan) == {"CTAS_A": 1, "CSAS_B": 2, "CTAS_C": 2, "CTAS_D": 3}


def test_what_is_being_built_begins_anew_when_its_topic_or_its_input_gets_other_partitions() -> None:
    own = "CREATE STREAM B (K STRING KEY, V INT) WITH (KAFKA_TOPIC='B', PARTITIONS={}, VALUE_FORMAT='JSON');\n"
    writes = "INSERT INTO B SELECT K, V FROM S WHERE V > {};\n" + C
    building = decide_change(
        serving(SOURCE + own.format(1) + writes.format(0)), plan_of(SOURCE + own.format(1) + writes.format(1))
    ).deployed
    same = decide_change(building, plan_of(SOURCE + own.format(1) + writes.format(1)))
    other = decide_change(building, plan_of(SOURCE + own.format(2) + writes.format(1)))
    assert [{c.building for c in change.changes} for change in (same, other)] == [{"continued"}, {"dropped"}]
    topics = {"s": 1, "A": 1, "B": 1, "C": 1, "D": 1}
    resized = decide_change(
        decide_change(serving(ALL), plan_of(CHANGED)).deployed,
        plan_of(CHANGED.replace("PARTITIONS=1", "PARTITIONS=2")),
        partitions=topics,
    )
    assert {c.query: c.building for c in resized.changes if c.building} == dict.fromkeys(BUILT, "dropped")
