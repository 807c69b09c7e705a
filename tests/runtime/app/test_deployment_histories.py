"""A history that could not be taken over leaves nothing to the next generation of that number."""

from __future__ import annotations

from typing import Any, cast

import pytest

from flowql.compiler.plan.topology import QueryPlan
from flowql.runtime.app import handover
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.errors import HandoverUnfit
from flowql.runtime.state.layout import TaskRecord
from flowql.runtime.state.values import encode_metadata
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import COPY, GOOD, SOURCE, rows

pytestmark = pytest.mark.turns("instances")

LEFT = "CTAS_GOOD@2/0_0"


def test_state_of_a_history_that_was_refused_is_dropped_by_the_next_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY + GOOD)
    world.send("s", rows(0, 20))
    world.settle()
    instance, before, taken = world.instance, world.table("GOOD"), list[tuple[str, bool]]()

    def half(host: Any, query: QueryPlan, history: object, brought: object, *, staged: bool) -> Coroutine:
        """The state is here, and then something differs."""
        assert history == "a history"
        taken.append((query.id, staged))
        host.state.rebuild({LEFT: TaskRecord(0, (), encode_metadata({"positions": {"s": 20}}))})
        host.state.end_restore(LEFT)
        yield None
        raise HandoverUnfit("it is of another query")

    monkeypatch.setattr(handover, "taken_over", half)
    with pytest.raises(HandoverUnfit, match="it is of another query"):
        instance.deploy(instance.plan, refresh=["CTAS_GOOD"], histories={"CTAS_GOOD": cast(Any, "a history")})
    assert taken == [("CTAS_GOOD@2", True)]
    assert LEFT in instance.state.committed_tasks()
    world.settle()
    assert (instance.plan.queries[1].generation, world.table("GOOD")) == (1, before)
    instance.deploy(instance.plan, refresh=["CTAS_GOOD"])
    world.settle()
    assert {q.id: q.generation for q in instance.plan.queries} == {"CSAS_COPY": 1, "CTAS_GOOD": 2}
    assert world.table("GOOD") == before, "computed from the first record on"
    assert taken == [("CTAS_GOOD@2", True)]


def test_only_queries_with_a_history_take_one_over(monkeypatch: pytest.MonkeyPatch) -> None:
    world = InstanceHarness(SOURCE.format(n=1) + COPY + GOOD)
    world.send("s", rows(0, 20))
    world.settle()
    instance, before, taken = world.instance, world.table("GOOD"), list[str]()

    def nothing(host: Any, query: QueryPlan, *_: object, **__: object) -> Coroutine:
        taken.append(query.id)
        yield None

    monkeypatch.setattr(handover, "taken_over", nothing)
    histories = {"CTAS_GOOD": cast(Any, "a history")}
    instance.deploy(instance.plan, refresh=["CTAS_GOOD", "CSAS_COPY"], histories=histories)
    assert taken == ["CTAS_GOOD@2"]
    world.settle()
    assert {q.id: q.generation for q in instance.plan.queries} == {"CSAS_COPY": 2, "CTAS_GOOD": 2}
    assert world.table("GOOD") == before
