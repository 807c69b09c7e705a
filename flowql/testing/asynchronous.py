"""Asynchronous functions in tests of projects: their calls are really made, and their results are always the same."""

from __future__ import annotations

import time
from dataclasses import replace

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.topology import Operator, Plan
from flowql.runtime.app.instance import Instance
from flowql.runtime.clock import VirtualClock

LOOK_S = 0.001


def in_input_order(plan: Plan) -> Plan:
    """The plan with rows that do not overtake each other: which one of two calls ends first is chance."""

    def ordered(op: Operator) -> Operator:
        return replace(op, spec=replace(op.spec, order="input")) if isinstance(op.spec, AsyncMap) else op

    queries = [
        replace(q, subtopologies=tuple(replace(s, operators=tuple(map(ordered, s.operators))) for s in q.subtopologies))
        for q in plan.queries
    ]
    return replace(plan, queries=tuple(queries))


def await_calls(instance: Instance, clock: VirtualClock) -> None:
    """Time stands still in tests, but for rows that wait: for calls under way, as long as these take; for the next attempt no time at all."""
    tasks = [task for q in list(instance.queries.values()) for task in q.built.tasks if task.program.waiting]
    facts = [f for task in tasks for f in task.program.waiting if f.rows]
    if not facts:
        return
    if any(f.in_flight for f in facts):
        time.sleep(LOOK_S)
        return
    due = [ms for task in tasks if (ms := task.program.due_ms) is not None]
    clock.advance(max(0, min(due, default=0) - clock.wall_ms()))
