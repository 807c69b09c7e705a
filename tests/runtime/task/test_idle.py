"""What it costs to ask whether a task waits for those before it."""

from __future__ import annotations

import pytest

from flowql.runtime.task.input_buffer import ExchangeInput
from tests.slt.world import Shape, World


def test_a_task_upstream_is_asked_once_however_many_ways_lead_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stages over 8 partitions have 8^3 ways to the first stage, and 64 channels between two stages."""
    world = World(Shape(partitions=8))
    try:
        world.execute("CREATE TABLE t (a INT, b INT)")
        query = "(SELECT b, COUNT(*) AS a FROM (SELECT a AS b, COUNT(*) AS a FROM t GROUP BY a) GROUP BY b)"
        world.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a, COUNT(*) AS n FROM {query} GROUP BY a")
        world.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 1)")
        asked: list[ExchangeInput] = []
        plain = ExchangeInput.idle_with

        def counted(lane: ExchangeInput, known: dict[object, bool]) -> bool:
            asked.append(lane)
            return plain(lane, known)  # type: ignore[arg-type]

        monkeypatch.setattr(ExchangeInput, "idle_with", counted)
        (query,) = world._instance.queries.values()
        last = query.built.tasks[-1]
        assert last.idle
        assert len(asked) == len({id(lane) for lane in asked}) > 64, "every channel before it, each once"
        assert world.ask("SELECT a, n FROM v").to_pylist() == [{"a": 1, "n": 2}]
    finally:
        world.close()
