"""What a swap moves and how, whose cleanup policy changes with it, and what is gone or not to be seen yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed, Hold, Move, SwapGroup, TopicHistory, groups_of
from flowql.compiler.plan.diff import decide_change
from flowql.runtime.app.swapping import (
    BUILT,
    ChangedKinds,
    all_wait,
    begun,
    changed_kinds,
    compact_tables,
    group_of_swap,
    let_delete,
    missing_topics,
    moves_of,
    results_are_seen,
    taken_back,
)
from flowql.runtime.errors import LogDenied
from flowql.runtime.log.base import TopicInfo, TopicPartition
from tests.runtime.app.harness import plan_of
from tests.runtime.app.test_rebuilding import CHAIN
from tests.runtime.app.test_replacing import put
from tests.runtime.app.test_swapping import LikeKafka

pytestmark = pytest.mark.turns("instances")

APP = "flowql"


class Site:
    """BIG (a stream), COUNTS and SOME (tables) are rebuilt; their topics, with two partitions, and their staging topics."""

    def __init__(self) -> None:
        serving = plan_of(CHAIN.format(over=0))
        first = decide_change(Deployed(prefix="flowql-"), serving).deployed
        self.deployed = decide_change(first, plan_of(CHAIN.format(over=15), serving)).deployed
        (self.group,) = groups_of(self.deployed)
        self.log = LikeKafka()
        policies = {q.topic: "compact" for q in self.group.queries[1:]}
        for topic, staging in self.group.staging.items():
            self.log.create_topic(topic, 2, {"cleanup.policy": policies[topic]} if topic in policies else {})
            self.log.create_topic(staging, 2)

    def kind(self, topic: str, kind: str) -> None:
        """What the topic is on record to hold."""
        histories = [h for h in self.deployed.histories if h.topic != topic]
        of: Any = TopicHistory(topic, 1, kind)  # type: ignore[arg-type]
        self.deployed = replace(self.deployed, histories=(*histories, of))


@pytest.fixture
def site() -> Site:
    return Site()


def how(moves: tuple[Move, ...]) -> dict[tuple[str, int], tuple[str, int, int, tuple[int, ...]]]:
    return {(m.topic, m.partition): (m.how, m.end, m.staged_end, m.readers) for m in moves}


def test_a_stream_is_replaced_a_table_gets_its_difference_and_an_empty_topic_all(site: Site) -> None:
    put(site.log, TopicPartition("BIG", 1), ("k", "1", 1), ("k", "2", 2))
    put(site.log, TopicPartition("COUNTS", 0), ("k", "1", 1))
    put(site.log, TopicPartition("flowql-BIG.g2-staging", 0), ("k", "3", 3))
    tasks = [
        ("CTAS_COUNTS@2", 0, {"flowql-BIG.g2-staging": 1}),
        ("CTAS_X@2", 0, {"flowql-BIG.g2-staging": 0, "s": 9}),
        ("CTAS_Y@2", 0, {"flowql-BIG.g2-staging": 1}),
        ("CTAS_COUNTS@2", 1, {"flowql-BIG.g2-staging": 7}),
    ]
    moves = moves_of(site.deployed, site.group, site.log, APP, tasks)
    assert how(moves) == {
        ("BIG", 0): ("replace", 0, 1, (0, 1)),
        ("BIG", 1): ("replace", 2, 0, (7,)),
        ("COUNTS", 0): ("difference", 1, 0, ()),
        ("COUNTS", 1): ("difference", 0, 0, ()),
        ("SOME", 0): ("append", 0, 0, ()),
        ("SOME", 1): ("append", 0, 0, ()),
    }
    site.log.create_topic("flowql-dead-letters-of-CSAS_BIG.g2", 1)
    put(site.log, TopicPartition("flowql-dead-letters-of-CSAS_BIG.g2", 0), ("k", "letter", 1))
    (*_, letters) = moves_of(site.deployed, site.group, site.log, APP, tasks)
    assert letters == Move("flowql-dead-letters-of-CSAS_BIG.g2", "flowql-dead-letters", 0, "append", 0, 1)


KINDS: Mapping[str, tuple[str, str, str, ChangedKinds]] = {
    "a stream as before": ("BIG", "stream", "delete", ChangedKinds((), ())),
    "a table that becomes a stream": ("BIG", "table", "compact", ChangedKinds(("BIG",), ())),
    "whose policy deletes already": ("BIG", "table", "delete", ChangedKinds((), ())),
    "a table as before": ("COUNTS", "table", "compact", ChangedKinds((), ())),
    "a stream that becomes a table": ("COUNTS", "stream", "delete", ChangedKinds((), ("COUNTS",))),
    "whose policy compacts already": ("COUNTS", "stream", "compact", ChangedKinds((), ())),
    "a table with a policy of its own": ("COUNTS", "table", "delete", ChangedKinds((), ())),
}


@pytest.mark.parametrize("case", KINDS)
def test_a_cleanup_policy_changes_where_the_kind_of_the_result_does(case: str, site: Site) -> None:
    topic, was, policy, expected = KINDS[case]
    site.kind(topic, was)
    site.log.alter_topic(topic, {"cleanup.policy": policy})
    assert changed_kinds(site.deployed, site.group, site.log) == expected
    let_delete(site.deployed, site.group, site.log)
    compact_tables(site.deployed, site.group, site.log)
    after = site.log.topics()[topic].config.get("cleanup.policy")
    assert after == (None if expected.streams else "compact" if expected.tables else policy)


def test_nothing_is_known_of_topics_that_are_gone_or_had_no_result(site: Site) -> None:
    site.deployed = replace(site.deployed, histories=())
    assert changed_kinds(site.deployed, site.group, site.log) == ChangedKinds((), ())
    site.kind("BIG", "table")
    site.log.delete_topic("BIG")
    assert changed_kinds(site.deployed, site.group, site.log) == ChangedKinds((), ())


def test_records_of_a_topic_that_is_only_compacted_can_be_deleted_where_they_must(site: Site) -> None:
    """Brokers delete nothing from it."""
    site.log.alter_topic("BIG", {"cleanup.policy": "compact"})
    let_delete(replace(site.deployed, prefix=""), site.group, site.log)
    assert site.log.topics()["BIG"].config["cleanup.policy"] == "compact"
    let_delete(site.deployed, site.group, site.log)
    assert "cleanup.policy" not in site.log.topics()["BIG"].config
    assert site.log.topics()["COUNTS"].config["cleanup.policy"] == "compact", "it gets a difference"


def test_a_table_that_may_not_be_compacted_is_said_and_the_swap_goes_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.kind("COUNTS", "stream")
    site.log.alter_topic("COUNTS", {"cleanup.policy": "delete"})

    def denied(name: str, changes: object) -> TopicInfo:
        raise LogDenied("not allowed")

    monkeypatch.setattr(site.log, "alter_topic", denied)
    compact_tables(site.deployed, site.group, site.log)
    (said,) = [r.getMessage() for r in caplog.records]
    assert said.startswith("COUNTS is a table now and would lose rows by retention: not allowed; type  kafka-configs")


def test_topics_that_are_gone_are_named_in_their_order(site: Site) -> None:
    assert missing_topics(site.log, site.group) == []
    site.log.delete_topic("SOME")
    site.log.delete_topic("flowql-BIG.g2-staging")
    assert missing_topics(site.log, site.group) == ["SOME", "flowql-BIG.g2-staging"]


def test_results_are_seen_when_all_that_is_written_is(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results_are_seen(site.log, site.group)
    written = site.log.written_offset
    last = TopicPartition("flowql-SOME.g2-staging", 1)
    monkeypatch.setattr(site.log, "written_offset", lambda tp: written(tp) + (tp == last))
    assert not results_are_seen(site.log, site.group)
    site.log.delete_topic("flowql-SOME.g2-staging")
    assert results_are_seen(site.log, site.group), "there is nothing to be seen"


def test_swaps_are_numbered_and_those_without_moves_taken_back(site: Site) -> None:
    one = begun(site.deployed, site.group)
    assert (one.swap and (one.swap.id, one.swap.group, one.swap.moves), one.swaps) == ((1, "CSAS_BIG@2", None), 1)
    assert group_of_swap(one) == site.group
    assert group_of_swap(site.deployed) is None
    back = taken_back(one)
    assert (back.swap, back.swaps) == (None, 1), "its number is not used again"
    assert begun(back, site.group).swaps == 2
    assert one.swap is not None
    with pytest.raises(AssertionError, match="no way back"):
        taken_back(replace(one, swap=replace(one.swap, moves=())))
    with pytest.raises(AssertionError, match="nothing swaps in"):
        taken_back(back)


def test_only_promotion_is_waited_for_where_all_that_is_built_is_held(site: Site) -> None:
    held = decide_change(site.deployed, site.deployed.plan, swap=Hold(hold=True)).deployed
    group: SwapGroup
    (group,) = groups_of(held)
    assert all_wait(held, {group.name: BUILT})
    assert not all_wait(held, {group.name: "7 records behind"})
    assert not all_wait(held, {})
    assert not all_wait(site.deployed, {group.name: BUILT}), "it is not held"
    assert not all_wait(begun(held, group), {group.name: BUILT})
