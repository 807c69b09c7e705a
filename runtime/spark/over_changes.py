"""Operators that have no form in Spark's own: those over changes, asynchronous calls and processors.

They run in the runtime's tasks inside Spark, but not over complete history. Their results are the runtime's, to the last bit of a sum of doubles.
`TemporalFilter` does not run on Spark: its rows appear and expire with the clock, but Spark runs nothing until a record arrives.
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
from flowql.compiler.plan.logical import Spec
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed

WAY_ROUND = "run it on the runtime"
UNSUPPORTED = (TemporalFilter,)
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
    TemporalFilter: "rows appear and expire with the clock, but Spark runs nothing until a record arrives",
    AsyncMap: "rows wait for calls of asynchronous functions in the runtime's operator",
    Process: "processors of a project are run by the runtime's operator",
}


def why_not(spec: Spec) -> str:
    """Why an operator has no form in Spark's own; empty for those that may have one."""
    return _REASONS.get(type(spec), "")
