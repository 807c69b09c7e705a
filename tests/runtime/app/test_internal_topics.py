"""Changelogs and repartition topics go with the queries and generations they belong to."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.deployed import running_plan
from flowql.runtime.app import group
from flowql.runtime.app.application_topics import topics_of
from flowql.runtime.app.internal_topics import internal_topics
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import LogDenied
from flowql.runtime.state.changelog import ChangelogWriter
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka
from tests.runtime.state.support import manager_on

REGROUPED = """
CREATE TABLE BY_V WITH (KAFKA_TOPIC='BY_V') AS SELECT V, COUNT(*) AS N FROM S GROUP BY V EMIT CHANGES;
"""


@pytest.fixture(autouse=True)
def tidied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "TIDY_MS", 0)
    monkeypatch.setattr(group, "AGAIN_MS", 100)


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


def commits(world: InstanceHarness, *, applied: int) -> None:
    """Another member commits, and says which deployment it has applied."""
    sequence = world.log.last_sequence("flowql-two") + 1
    describe = world.log.admin().describe_topics
    changelog = ChangelogWriter(
        "flowql", complete=True, describe=describe, writer="flowql-two", applied=lambda: applied
    )
    producer = world.log.producer("flowql-two")
    producer.begin()
    for tp, records in changelog.records(manager_on(changelog=lambda _: True).cut(), sequence, 5):
        producer.send(tp, records)
    producer.commit()
    producer.close()


def member(monkeypatch: pytest.MonkeyPatch, silent_ms: int) -> tuple[InstanceHarness, set[str]]:
    """A member that has pruned a query while another one had an older plan; the topics of before."""
    monkeypatch.setattr(group, "SILENT_MS", silent_ms)
    world = InstanceHarness(CHAIN.format(over=0) + REGROUPED, log=LikeKafka(), tick_ms=10, **MEMBER)
    before = internal(world)
    commits(world, applied=world.instance.deployed.id)
    world.deploy(CHAIN.format(over=0))
    return world, before


def test_a_member_keeps_them_until_the_others_have_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another member may still write to them; `flowql app delete` lists them."""
    world, before = member(monkeypatch, 1 << 40)
    assert internal(world) == before
    assert before <= topics_of(world.log, "flowql", world.instance.deployed).keys()
    commits(world, applied=world.instance.deployed.id)
    assert internal(world) == needed(world) < before


def test_a_member_that_never_comes_back_keeps_them_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world, before = member(monkeypatch, 5_000)
    assert internal(world) == before
    assert isinstance(world.clock, VirtualClock)
    world.clock.advance(5_000)
    assert internal(world) == needed(world) < before


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
