"""Changelogs and repartition topics go with the queries and generations they belong to."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.deployed import running_plan
from flowql.runtime.app import group
from flowql.runtime.app.application_topics import topics_of
from flowql.runtime.app.internal_topics import internal_topics
from flowql.runtime.errors import LogDenied
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka

REGROUPED = """
CREATE TABLE BY_V WITH (KAFKA_TOPIC='BY_V') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;
"""


@pytest.fixture(autouse=True)
def tidied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "TIDY_MS", 0)


def internal(world: InstanceHarness) -> set[str]:
    """When there was time to delete what is of no more use."""
    assert world.driver is not None
    world.settle()
    for _ in range(40):
        world.driver.round()
    return {t for t in world.log.topics() if "-changelog" in t or "-repartition" in t} - {"flowql-__exchange-changelog"}


def needed(world: InstanceHarness) -> set[str]:
    queries = running_plan(world.instance.deployed).queries
    found = {t for q in queries for t in internal_topics(q, "flowql")}
    return found if world.instance.config.shared else {t for t in found if "-repartition" not in t}


def test_a_query_that_is_pruned_leaves_no_changelog() -> None:
    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=LikeKafka(), tick_ms=10, **ALONE)
    world.send("s", sent(0, 40))
    before = internal(world)
    assert before == needed(world)
    assert any("CTAS_BY_V" in t for t in before)
    world.deploy(CHAIN.format(over=0))
    after = internal(world)
    assert after == needed(world)
    assert not any("CTAS_BY_V" in t for t in after)


def test_a_generation_that_was_replaced_leaves_none() -> None:
    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=LikeKafka(), tick_ms=10, **ALONE)
    world.send("s", sent(0, 40))
    world.settle()
    for over in (15, 0):
        world.deploy(CHAIN.format(over=over) + REGROUPED)
        assert internal(world) == needed(world), over
    assert any(".g3" in t for t in internal(world))


def test_a_member_of_a_group_leaves_them() -> None:
    """Another member may still write to them; `flowql app delete` lists them."""
    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=LikeKafka(), tick_ms=10, **MEMBER)
    before = internal(world)
    world.deploy(CHAIN.format(over=0))
    assert internal(world) == before
    assert before <= topics_of(world.log, "flowql", world.instance.deployed).keys()


def test_a_query_comes_back_after_it_was_pruned() -> None:
    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=LikeKafka(), tick_ms=10, **ALONE)
    world.send("s", sent(0, 40))
    before = internal(world)
    world.deploy(CHAIN.format(over=0))
    world.deploy(CHAIN.format(over=0) + REGROUPED)
    assert {t for t in internal(world) if "CTAS_BY_V" in t}
    assert internal(world) == needed(world)
    assert len(before) == len(internal(world))


def test_topics_that_may_be_of_others_stay() -> None:
    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=LikeKafka(), tick_ms=10, **ALONE)
    others = {
        "flowql-CTAS_UNKNOWN-aggregate-1-changelog",  # no query of this application
        "flowql-CTAS_BY_V-eu-CTAS_A-aggregate-1-changelog",  # of the application that has the next topic
        "flowql-CTAS_BY_V-aggregate-1.g2-changelog",  # a generation that has not begun
        "CTAS_BY_V-aggregate-1-changelog",
        "flowql-CTAS_BY_V-results",
    }
    for topic in (*others, "flowql-CTAS_BY_V-eu-plan"):
        world.log.create_topic(topic, 1)
    world.deploy(CHAIN.format(over=0))
    internal(world)
    assert others <= set(world.log.topics())


def test_a_topic_that_may_not_be_deleted_fails_no_deployment(caplog: pytest.LogCaptureFixture) -> None:
    class Guarded(LikeKafka):
        def delete_topic(self, name: str) -> None:
            raise LogDenied(f"topic {name} cannot be deleted")

    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=Guarded(), tick_ms=10, **ALONE)
    world.deploy(CHAIN.format(over=0))
    assert any("CTAS_BY_V" in t for t in internal(world))
    assert any("is of no more use" in r.getMessage() for r in caplog.records)
