"""Operators that have no form in Spark's own: those over changes, asynchronous calls and processors.

Those over changes do not run on Spark at all: its streams retract nothing, and its batches would have to be asked for the end alone. The others run in
the runtime's tasks inside Spark, and not over complete history.
"""

from __future__ import annotations

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.logical import Node, Spec
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed

WAY_ROUND = "run it on the runtime"
# One per class of the union `flowql.compiler.plan.logical.ChangeSpec`, and processors; a test looks.
_REASONS: dict[type, str] = {
    GroupAggregate: "aggregates that follow updates and deletions, and those that no order of rows changes, are kept by the runtime's operator",
    EquiJoin: "a join that follows updates and deletions of both sides is kept by the runtime's operator",
    TemporalJoin: "a join with the rows that are there at the moment is kept by the runtime's operator",
    VersionJoin: "a join with the version of a row's own time waits for watermarks in the runtime's operator",
    SetOperation: "DISTINCT, INTERSECT and EXCEPT over rows that are updated and deleted are kept by the runtime's operator",
    TopN: "ranks that change when a row comes or goes are kept by the runtime's operator",
    Over: "window functions over rows that are updated and deleted are kept by the runtime's operator",
    Consolidate: "updates and deletions of single rows are put together by the runtime's operator",
    AppendOnly: "rows that are late by the watermark of their partition are left out by the runtime's operator",
    EmitClosed: "rows that wait for a watermark are kept by the runtime's operator",
    TemporalFilter: "rows that come and go with the clock are kept by the runtime's operator",
    AsyncMap: "rows wait for calls of asynchronous functions in the runtime's operator",
    Process: "processors of a project are run by the runtime's operator",
}


ADDED = (AppendOnly, Consolidate)  # by the planner, around others
_WRITTEN: dict[type, str] = {
    EquiJoin: "JOIN",
    TemporalJoin: "FOR SYSTEM_TIME AS OF PROCTIME()",
    VersionJoin: "FOR SYSTEM_TIME AS OF a time",
    TopN: "ORDER BY with LIMIT",
    EmitClosed: "EMIT ON WINDOW CLOSE",
    TemporalFilter: "a condition on NOW()",
}


def written(node: Node) -> str:
    """What of the statement an operator is.

    Of aggregates their names, with the types of their arguments; the name of the operator if no statement has it.
    """
    match node.spec:
        case GroupAggregate():
            of = {f.name: str(f.type) for f in node.inputs[0].schema}
            calls = (
                f"{c.function}({'DISTINCT ' * c.distinct}{', '.join(of[a] for a in c.args) or '*'})"
                for c in node.spec.calls
            )
            return ", ".join(dict.fromkeys(calls)) or "GROUP BY"
        case Over():
            return ", ".join(dict.fromkeys(f"{c.function} OVER" for c in node.spec.calls)) or "OVER"
        case SetOperation(kind=kind):
            return "DISTINCT or UNION" if kind == "distinct" else kind.upper()
    return _WRITTEN.get(type(node.spec), type(node.spec).__name__)


def why_not(spec: Spec) -> str:
    """Why an operator has no form in Spark's own; empty for those that may have one."""
    return _REASONS.get(type(spec), "")
