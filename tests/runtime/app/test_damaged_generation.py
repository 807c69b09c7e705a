"""Records of a generation that is being built were damaged, and readers leave them out: it does not serve without them."""

from __future__ import annotations

import pytest

from flowql.compiler.plan.deployed import Hold
from flowql.runtime.app.query_state import STOPPED
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.verify import Damage
from flowql.runtime.task.dead_letters import staging_topic
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import CHAIN, as_from_the_beginning, same, sent
from tests.simulated_disk import SimulatedDisk

LETTERS = staging_topic("flowql", "CSAS_BIG@2")


@pytest.mark.parametrize("topic", ["BIG@2", "COUNTS@2", LETTERS])
def test_a_generation_with_damaged_records_is_refused_until_it_is_computed_again(topic: str) -> None:
    """It swapped in without those rows, and nothing said so."""
    world = InstanceHarness(CHAIN.format(over=0), log=EmbeddedLog("/log", SimulatedDisk()))
    world.send("s", sent(0, 40))
    world.settle()
    before = world.table("COUNTS")
    held, wanted = Hold(hold=True), plan_of(CHAIN.format(over=10), world.instance.plan)
    world.instance.deploy(wanted, swap=held)
    world.send("s", [(1, b"{", 40)])
    world.driver.run_until_caught_up()
    tp = next(TopicPartition(topic, p) for p in range(2) if world.log.end_offset(TopicPartition(topic, p)))
    world.log.skip_damaged([Damage(tp, "", 0, 0, 1, "")])
    world.instance.deploy(wanted, swap=Hold(hold=False))
    for _ in range(200):
        world.driver.round()
    assert world.table("COUNTS") == before, "the old generation serves"
    why = world.instance.deployer.swaps.why["CSAS_BIG@2"]
    assert f"damaged records of {tp} are left out" in why
    assert "flowql deploy --full-refresh CSAS_BIG" in why
    assert world.instance.query_states.having(STOPPED) == ["CSAS_BIG@2", "CTAS_COUNTS@2", "CTAS_SOME@2"]
    world.instance.deploy(wanted, refresh=["CSAS_BIG"])
    world.settle()
    assert {q.id: q.generation for q in world.instance.plan.queries}["CTAS_COUNTS"] == 3
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 40))


def test_a_generation_whose_segment_is_gone_does_not_hold_up_commits() -> None:
    """Every commit of the instance failed to link it, and no query went on."""
    world = InstanceHarness(CHAIN.format(over=0), log=EmbeddedLog("/log", SimulatedDisk()))
    world.send("s", sent(0, 40))
    world.settle()
    before = world.table("COUNTS")
    wanted = plan_of(CHAIN.format(over=10), world.instance.plan)
    world.instance.deploy(wanted, swap=Hold(hold=True))
    world.driver.run_until_caught_up()
    tp = next(tp for p in range(2) if world.log.end_offset(tp := TopicPartition("COUNTS@2", p)))
    for segment in world.log._partition(tp).segments:
        world.log._files.unlink(segment.path)
    world.instance.deploy(wanted, swap=Hold(hold=False))
    for _ in range(200):
        world.driver.round()
    assert world.table("COUNTS") == before, "the old generation serves"
    assert not world.instance.commit.blocked
    assert f"records of {tp} are gone" in world.instance.deployer.swaps.why["CSAS_BIG@2"]
    assert world.instance.query_states.of("CTAS_COUNTS").may_run
    world.instance.deploy(wanted, refresh=["CSAS_BIG"])
    world.settle()
    assert same(world, as_from_the_beginning(CHAIN.format(over=10), 40))
