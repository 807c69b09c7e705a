"""From operator plans to runnable operators: those that keep state, and those that only move rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from flowql.compiler.plan.logical import Aggregate, Explode, Join, Materialise, Rekey, Union
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.watermarks import AppendOnly, EmitClosed
from flowql.runtime.errors import PlanUnsupported
from flowql.runtime.operators.aggregate import AggregateOperator
from flowql.runtime.operators.append_only import AppendOnlyOperator
from flowql.runtime.operators.asynchronous.operator import AsyncMapOperator
from flowql.runtime.operators.base import RuntimeOperator
from flowql.runtime.operators.changes.closing import EmitClosedOperator
from flowql.runtime.operators.changes.consolidate import ConsolidateOperator
from flowql.runtime.operators.changes.equi_join import EquiJoinOperator
from flowql.runtime.operators.changes.group_aggregate import GroupAggregateOperator, SessionGroupsOperator
from flowql.runtime.operators.changes.over import OverOperator
from flowql.runtime.operators.changes.set_operation import SetOperationOperator
from flowql.runtime.operators.changes.temporal_filter import TemporalFilterOperator
from flowql.runtime.operators.changes.temporal_join import TemporalJoinOperator
from flowql.runtime.operators.changes.top_n import TopNOperator
from flowql.runtime.operators.changes.version_join import VersionJoinOperator
from flowql.runtime.operators.explode import ExplodeOperator
from flowql.runtime.operators.join_foreign_key import ForeignKeyJoinOperator
from flowql.runtime.operators.join_stream_table import StreamTableJoinOperator
from flowql.runtime.operators.join_streams import StreamStreamJoinOperator
from flowql.runtime.operators.join_tables import TableTableJoinOperator
from flowql.runtime.operators.materialise import MaterialiseOperator
from flowql.runtime.operators.processors.operator import ProcessOperator
from flowql.runtime.operators.rekey import RekeyOperator
from flowql.runtime.operators.session import SessionAggregateOperator
from flowql.runtime.operators.union import UnionOperator
from flowql.runtime.operators.windows import WindowedAggregateOperator

Factory = Callable[[Operator, Sequence[Operator]], RuntimeOperator]

_JOINS: dict[str, Factory] = {
    "stream-stream": StreamStreamJoinOperator,
    "stream-table": StreamTableJoinOperator,
    "table-table": TableTableJoinOperator,
    "foreign-key": ForeignKeyJoinOperator,
}
_PLAIN: dict[type, Factory] = {
    AppendOnly: AppendOnlyOperator,
    AsyncMap: AsyncMapOperator,
    Consolidate: ConsolidateOperator,
    EmitClosed: EmitClosedOperator,
    EquiJoin: EquiJoinOperator,
    Explode: ExplodeOperator,
    GroupAggregate: GroupAggregateOperator,
    Materialise: MaterialiseOperator,
    Over: OverOperator,
    Process: ProcessOperator,
    Rekey: RekeyOperator,
    SetOperation: SetOperationOperator,
    TemporalFilter: TemporalFilterOperator,
    TemporalJoin: TemporalJoinOperator,
    TopN: TopNOperator,
    Union: UnionOperator,
    VersionJoin: VersionJoinOperator,
}


def build(plan: Operator, inputs: Sequence[Operator]) -> RuntimeOperator:
    """The runnable operator of `plan`; `inputs` are the plans of its inputs, in order.

    Raises PlanUnsupported for specs that are made elsewhere (sources, sinks, projections, filters).
    """
    spec = plan.spec
    if isinstance(spec, Join):
        return _JOINS[spec.shape](plan, inputs)
    if isinstance(spec, Aggregate):
        if spec.window is None:
            return AggregateOperator(plan, inputs)
        if spec.window.kind == "session":
            return SessionAggregateOperator(plan, inputs)
        return WindowedAggregateOperator(plan, inputs)
    if isinstance(spec, GroupAggregate) and spec.sessions is not None:
        return SessionGroupsOperator(plan, inputs)
    factory = _PLAIN.get(type(spec))
    if factory is None:
        raise PlanUnsupported(f"operator {plan.id}: {type(spec).__name__} is not made by this factory")
    return factory(plan, inputs)


def why_by_row(plan: Operator, inputs: Sequence[Operator]) -> str:
    """The reason why it processes all rows one by one (`MicroBatchContext.took_by_row`); empty if large batches are processed by columns, and for operators
    that are not counted. Raises as `build` does.
    """
    counted = isinstance(plan.spec, (Aggregate, GroupAggregate, Join, Materialise))
    reason: str = getattr(build(plan, inputs), "by_row", "") if counted else ""
    return reason
