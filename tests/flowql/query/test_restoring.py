"""Interactive queries while state comes back from changelogs: an answer that is not about all rows says so."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.cli.results import partly
from flowql.query.session import answer
from flowql.runtime.app.driver import Driver
from flowql.runtime.app.instance import Instance
from flowql.runtime.app.restoration import RestorationStep
from flowql.runtime.state.memory import MemoryPhysical
from flowql.server.on_runtime import RuntimeEngine
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_rebuilding import SOURCE, sent
from tests.runtime.app.test_swapping import LikeKafka

TABLE = SOURCE + "CREATE TABLE R AS SELECT K, COUNT(*) AS N FROM S GROUP BY K;\n"


def asked(instance: Instance, sql: str) -> tuple[list[Any], str]:
    found = answer(sql, RuntimeEngine(instance).take)
    said = partly(found)
    return found.table().to_pylist(), said


def test_an_answer_from_half_restored_state_says_which_partitions_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(TABLE, log=LikeKafka(), tick_ms=10, changelogs=True)
    world.send("s", sent(0, 40))
    world.settle()
    whole = asked(world.instance, "SELECT SUM(N) AS n FROM R")
    assert whole == ([{"n": 40}], "")
    world.log.crash()
    with monkeypatch.context() as slow:
        slow.setattr(RestorationStep, "run_once", lambda step, now_ms: 1_000)
        instance = Instance(world.log, MemoryPhysical(), world.clock, world.instance.config)
        driver = Driver(instance, tick=world.tick)
        instance.resume()
        rows, said = asked(instance, "SELECT SUM(N) AS n FROM R")
        assert rows != [{"n": 40}]
        assert "0 of 2 partitions" in said
        assert "restored" in said
        assert asked(instance, "SELECT COUNT(*) AS n FROM S") == ([{"n": 40}], ""), "topics are whole"
    driver.run_until_caught_up()
    assert asked(instance, "SELECT SUM(N) AS n FROM R") == whole
