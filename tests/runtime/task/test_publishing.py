"""What a task says of itself while it publishes."""

from __future__ import annotations

from typing import Any

from tests.runtime.app.world import World

SQL = """
CREATE STREAM S (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='s', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE TABLE OUT AS SELECT V, COUNT(*) AS N FROM S GROUP BY V;
CREATE STREAM T (K BIGINT KEY, V BIGINT) WITH (KAFKA_TOPIC='t', PARTITIONS=1, KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON');
CREATE STREAM COPY AS SELECT K, V + 1 AS W FROM T;
"""


def test_a_task_is_not_idle_while_it_publishes() -> None:
    """Its input was consumed and its output not in the exchange yet: the next task took what it had for all there was."""
    world = World(SQL)
    publish, seen = world.instance.publish, []

    def watched(task: Any, result: Any) -> None:
        seen.append((task.program.fused, task.idle))
        publish(task, result)
        seen.append((task.program.fused, task.idle))

    world.instance.publish = watched  # type: ignore[method-assign]
    for topic in ("s", "t"):
        world.send(topic, [(0, {"V": v}, v) for v in range(10)])
    world.settle()
    assert {fused for fused, _ in seen} == {False, True}, "both ways to consume and publish"
    assert not any(idle for _, idle in seen)
    assert all(task.idle for q in world.instance.queries.values() for task in q.built.tasks)
    assert [n for _, n in world.table("OUT")] == [1] * 10
