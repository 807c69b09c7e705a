"""A topic whose result becomes a table, or a stream: what its log may take away changes with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flowql.runtime.app.plan_topic import read_deployed
from flowql.runtime.errors import LogDenied, RebuildUnsupported
from flowql.runtime.log.base import TopicInfo
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.harness import InstanceHarness, plan_of
from tests.runtime.app.test_rebuilding import SOURCE, sent
from tests.runtime.app.test_swapping import ALONE, MEMBER, LikeKafka

AS_STREAM = SOURCE + "CREATE STREAM R AS SELECT K, V FROM S WHERE V > 20;\n"
AS_TABLE = SOURCE + "CREATE TABLE R AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"
everywhere = pytest.mark.parametrize(
    ("log", "config"), [(MemoryLog, {}), (LikeKafka, ALONE), (LikeKafka, MEMBER)], ids=["embedded", "alone", "member"]
)
on_kafka = pytest.mark.parametrize("config", [ALONE, MEMBER], ids=["alone", "member"])


class Denied(LikeKafka):
    """allowed: whether topics may be changed."""

    allowed = False

    def alter_topic(self, name: str, changes: Mapping[str, str | None]) -> TopicInfo:
        if not self.allowed:
            raise LogDenied(f"topic {name} cannot be changed: Topic authorization failed")
        return super().alter_topic(name, changes)


def made(sql: str, log: MemoryLog, config: dict[str, Any]) -> InstanceHarness:
    world = InstanceHarness(sql, log=log, tick_ms=10, **config)
    world.send("s", sent(0, 40))
    world.settle()
    return world


def become(world: InstanceHarness, sql: str) -> None:
    """The query has another id, by which its topic is known all the same."""
    world.instance.deploy(plan_of(SOURCE, world.instance.plan))
    world.deploy(sql)
    world.settle()


def policy(world: InstanceHarness) -> str:
    return world.log.topics()["R"].config.get("cleanup.policy", "delete")


@everywhere
def test_a_stream_that_becomes_a_table_is_compacted_from_then_on(log: type[MemoryLog], config: dict[str, Any]) -> None:
    world = made(AS_STREAM, log(), config)
    assert policy(world) == "delete"
    become(world, AS_TABLE)
    assert policy(world) == "compact"
    assert world.table("R") == made(AS_TABLE, log(), config).table("R")


@everywhere
@pytest.mark.parametrize("before", ["compact", "compact,delete"])
def test_a_table_that_becomes_a_stream_is_compacted_no_more(
    log: type[MemoryLog], config: dict[str, Any], before: str
) -> None:
    world = made(AS_TABLE, log(), config)
    world.log.alter_topic("R", {"cleanup.policy": before})
    become(world, AS_STREAM)
    assert policy(world) == "delete"
    assert sorted(v["V"] for v in world.values("R")) == list(range(21, 40))


@on_kafka
@pytest.mark.parametrize(("sql", "after"), [(AS_STREAM, AS_TABLE), (AS_TABLE, AS_STREAM)])
def test_without_the_right_it_is_refused_with_the_command(config: dict[str, Any], sql: str, after: str) -> None:
    log = Denied()
    world = made(sql, log, config)
    world.instance.deploy(plan_of(SOURCE, world.instance.plan))
    before = read_deployed(log, "flowql")
    with pytest.raises(RebuildUnsupported, match="kafka-configs --alter --entity-type topics --entity-name R"):
        world.deploy(after)
    assert read_deployed(log, "flowql") == before
    log.allowed = True
    world.deploy(after)
    world.settle()
    assert policy(world) == ("compact" if after == AS_TABLE else "delete")


def test_a_policy_that_somebody_chose_stays() -> None:
    """The kind of the result does not change, or the policy fits already: then no right is needed."""
    log = Denied()
    log.allowed = True
    world = made(AS_STREAM, log, ALONE)
    log.alter_topic("R", {"cleanup.policy": "compact,delete"})
    log.allowed = False
    world.deploy(AS_STREAM.replace("> 20", "> 30"))
    world.settle()
    assert policy(world) == "compact,delete"
    become(world, AS_TABLE)
    assert policy(world) == "compact,delete"


def test_a_right_that_is_taken_away_meanwhile_holds_up_no_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Denied()
    world = made(AS_STREAM, log, MEMBER)
    log.allowed = True
    world.instance.deploy(plan_of(SOURCE, world.instance.plan))
    world.deploy(AS_TABLE)
    log.allowed = False
    said: list[str] = []
    monkeypatch.setattr("flowql.runtime.app.swapping.say", lambda level, event, *text, **more: said.extend(text))
    world.settle()
    assert any("R is a table now" in text and "kafka-configs" in text for text in said)
    assert world.instance.deployer.rebuilt
