"""Parts of deployments: names of staging topics, which of them are left over, and which records are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed, Swap, TopicHistory
from flowql.compiler.plan.topology import Plan
from flowql.runtime.app.deployer import _only_pauses
from flowql.runtime.app.deployment import (
    STAGING,
    WHOLE,
    _at_once,
    _has_begun,
    delete_leftovers,
    is_same,
    with_names_for,
)
from flowql.runtime.app.exchanges import rows_saved
from flowql.runtime.errors import Superseded, TableUnsupported
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task import dead_letters
from flowql.runtime.task.dead_letters import staging_topic
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_exchanges import batch
from tests.runtime.app.test_rebuilding import CHAIN, sent
from tests.runtime.app.test_replacing import put
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka
from tests.runtime.topology.test_table_writer import plan_of as standard_plan

KNOWN = Deployed(prefix="app-", histories=(TopicHistory("BIG", 3),), last=(("Q", 2),))


@pytest.mark.parametrize(
    ("topic", "more", "begun"),
    [
        ("app-BIG.g3-staging", 0, True),
        ("app-BIG.g4-staging", 0, False),
        ("app-BIG.g4-staging", 1, True),
        ("app-BIG.g5-staging", 1, False),
        ("app-BIG.g1-staging", 0, True),
        ("app-OTHER.g1-staging", 1, False),
        ("BIG.g3-staging", 0, False),
        ("app-dead-letters-of-Q.g2", 0, True),
        ("app-dead-letters-of-Q.g3", 0, False),
        ("app-dead-letters-of-Q.g3", 1, True),
        ("app-dead-letters-of-R.g1", 1, False),
        ("BIG", 1, False),
        ("app-BIG", 1, False),
    ],
)
def test_topics_of_generations_that_have_begun_are_known_by_their_names(topic: str, more: int, begun: bool) -> None:
    assert _has_begun(KNOWN, "app", topic, more) == begun


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_what_is_left_over_is_deleted_and_what_others_may_have_is_not(config: dict[str, Any]) -> None:
    """Only an instance that is alone may have begun the next generation without a record of it."""
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    for over in (15, 0):
        world.deploy(CHAIN.format(over=over))
        world.settle()
    kept = ["flowql-BIG.g5-staging", "BIG.g2-staging", "flowql-S.g1-staging"]
    left = ["flowql-BIG.g1-staging", "flowql-BIG.g3-staging", "flowql-dead-letters-of-CSAS_BIG.g2"]
    next_one = "flowql-BIG.g4-staging"
    for name in (*kept, *left, next_one):
        if name not in world.log.topics():
            world.log.create_topic(name, 1)
    delete_leftovers(world.instance)
    there = set(world.log.topics())
    assert there.issuperset(kept)
    assert not there & set(left)
    assert (next_one in there) == (config is MEMBER)


@pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])
def test_an_empty_staging_topic_of_a_result_that_was_never_recorded_is_deleted(config: dict[str, Any]) -> None:
    """A deployment that moved a query to another topic was killed before its record, and given up."""
    world = InstanceHarness(CHAIN.format(over=0), log=LikeKafka(), tick_ms=10, **config)
    for over in (15, 0):
        world.deploy(CHAIN.format(over=over))
        world.settle()
    delete_leftovers(world.instance)
    left, used, others = "flowql-MOVED.g2-staging", "flowql-USED.g2-staging", "flowql-b-MOVED.g2-staging"
    for name in (left, used, others, "flowql-MOVED.g2", "any-MOVED.g2-staging"):
        world.log.create_topic(name, 2, WHOLE)
    world.log.create_topic("flowql-PLAIN.g2-staging", 2)
    world.log.create_topic("flowql-b-plan", 1, {"cleanup.policy": "compact"})
    put(world.log, TopicPartition(used, 1), ("k", "v", 1))
    before = set(world.log.topics())
    delete_leftovers(world.instance)
    assert before - set(world.log.topics()) == ({left} if config is ALONE else set())


def test_a_topic_that_says_so_is_left_over_whatever_its_name() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.log.create_topic("any", 1, STAGING)
    world.log.create_topic("whole", 1, WHOLE)
    world.deploy(CHAIN.format(over=15))
    delete_leftovers(world.instance)
    assert ("any" in world.log.topics(), "whole" in world.log.topics()) == (False, True)
    assert "BIG@2" in world.log.topics(), "it is being built"
    assert STAGING.items() <= world.log.topics()["BIG@2"].config.items()


def test_staging_topics_have_the_partitions_of_what_they_replace_and_dead_letters_one() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.deploy(CHAIN.format(over=15))
    topics = world.log.topics()
    staging = {"BIG@2", "COUNTS@2", "SOME@2"}
    assert {n: topics[n].partitions for n in staging} == {n: topics[n.removesuffix("@2")].partitions for n in staging}
    letters = {n: t.partitions for n, t in topics.items() if "dead-letters" in n}
    ids = ("CSAS_BIG@2", "CTAS_COUNTS@2", "CTAS_SOME@2")
    assert letters == dict.fromkeys([dead_letters.topic_name("flowql"), *(staging_topic("flowql", q) for q in ids)], 1)


def test_names_of_staging_topics_have_a_prefix_where_others_use_the_log() -> None:
    assert with_names_for(MemoryLog(), KNOWN, "mine") is KNOWN
    assert with_names_for(LikeKafka(), KNOWN, "mine").prefix == "mine-"


def test_topics_that_begin_at_one_offset_do_so_in_each_partition() -> None:
    assert _at_once({"a": 7, "b": 9}, {"a": 2, "b": 1, "c": 3}) == {"a": (7, 7), "b": (9,)}


def test_records_that_differ_in_numbers_and_swaps_alone_are_the_same() -> None:
    plan = plan_of(CHAIN.format(over=0))
    one = Deployed(plan, id=1)
    other = replace(one, id=2, swaps=3, swap=Swap(3, "Q"), prefix="x-", last=(("Q", 1),), histories=KNOWN.histories)
    assert is_same(one, other)
    for differs in (
        replace(one, serving=replace(plan, paused=("CSAS_BIG",))),
        replace(one, wanted=plan),
        replace(one, held=("CSAS_BIG",)),
        replace(one, refreshed=("CSAS_BIG",)),
        replace(one, begins=(("s", (1,)),)),
    ):
        assert not is_same(one, differs)


def test_a_deployment_that_only_pauses_is_told_from_others() -> None:
    plan = plan_of(CHAIN.format(over=0))
    paused = replace(plan, paused=("CSAS_BIG",))
    assert (_only_pauses(Deployed(plan), paused), _only_pauses(Deployed(paused), plan)) == (True, True)
    assert not _only_pauses(Deployed(plan), plan)
    assert not _only_pauses(Deployed(plan), replace(plan_of(CHAIN.format(over=1)), paused=("CSAS_BIG",)))
    assert not _only_pauses(Deployed(), Plan(paused=("Q",))), "there may be no topic for the record"


def test_a_decision_on_a_record_that_is_not_in_force_is_refused() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    seen = world.instance.deployed
    world.deploy(CHAIN.format(over=15))
    with pytest.raises(Superseded, match="another deployment or the end of a rebuild came first"):
        world.instance.deploy(plan_of(CHAIN.format(over=30)), seen=seen)
    assert not world.instance.deployer.rebuilt
    assert not world.instance.deployer.at_rest
    world.settle()
    assert (world.instance.deployer.rebuilt, world.instance.deployer.at_rest) == (True, True)
    world.instance.deploy(plan_of(CHAIN.format(over=30), world.instance.plan), seen=world.instance.deployed)


def test_a_dry_run_decides_and_changes_nothing() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    before, topics = world.instance.deployed, set(world.log.topics())
    changes = world.instance.deploy(plan_of(CHAIN.format(over=15), world.instance.plan), dry_run=True)
    assert {c.query: c.action for c in changes}["CSAS_BIG"] == "change"
    assert (world.instance.deployed, set(world.log.topics())) == (before, topics)
    assert [c.action for c in world.instance.deploy(world.instance.plan)] == ["none"] * 4
    assert world.instance.deployed is before


def test_a_table_that_does_not_fit_its_rows_is_refused_before_anything_changes() -> None:
    world = InstanceHarness(CHAIN.format(over=0))
    world.log.create_topic("t", 1, {"cleanup.policy": "compact"})
    put(world.log, TopicPartition("t", 0), ("k", "{}", 0))
    before, topics = world.instance.deployed, set(world.log.topics())
    table = standard_plan("CREATE TABLE t (k INT PRIMARY KEY, n INT); CREATE TABLE more (k INT PRIMARY KEY);")
    for dry_run in (True, False):
        with pytest.raises(TableUnsupported, match="flowql topic delete t"):
            world.instance.deploy(table, dry_run=dry_run)
    assert (world.instance.deployed, set(world.log.topics())) == (before, topics)


def test_channels_of_tasks_that_others_replace_are_as_they_were_committed() -> None:
    """What was published since is not of a commit that the tasks in their place begin with: it was saved with the next one."""
    world = InstanceHarness("""CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, VALUE_FORMAT = 'JSON');
CREATE TABLE BY_VALUE AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;""")
    world.send("s", sent(0, 40))
    world.settle()
    instance = world.instance
    tasks = [t for t in instance.queries["CTAS_BY_VALUE"].built.tasks if t.exchanges]
    channel = min(tasks, key=lambda task: task.id).exchanges[min(tasks[0].exchanges)]
    instance.query_states.end(["CTAS_BY_VALUE"])
    with instance.state.epoch_lock:
        channel.push(batch(range(3)))
        instance.tasks.close_for_others(tasks)
        instance.commit.dirty = True
    world.driver.commit()  # type: ignore[union-attr]
    assert instance.exchanges.empty
    with instance.state.snapshot() as committed:
        assert rows_saved(committed) == {}
