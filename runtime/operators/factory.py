"""From operator plans to runnable operators: those that keep state, and those that only move rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from compiler.plan.logical import Aggregate, Explode, Join, Materialise, Rekey, Union
from compiler.plan.topology import Operator
from compiler.plan.watermarks import AppendOnly, EmitClosed
from runtime.errors import PlanUnsupported
from runtime.operators.aggregate import AggregateOperator
from runtime.operators.append_only import AppendOnlyOperator
from runtime.operators.base import RuntimeOperator
from runtime.operators.changes.consolidate import ConsolidateOperator
from runtime.operators.changes.emit_closed import EmitClosedOperator
from runtime.operators.changes.equi_join import EquiJoinOperator
from runtime.operators.changes.group_aggregate import GroupAggregateOperator
from runtime.operators.changes.over import OverOperator
from runtime.operators.changes.set_operation import SetOperationOperator
from runtime.operators.changes.temporal_join import TemporalJoinOperator
from runtime.operators.changes.top_n import TopNOperator
from runtime.operators.changes.version_join import VersionJoinOperator
from runtime.operators.explode import ExplodeOperator
from runtime.operators.join_foreign_key import ForeignKeyJoinOperator
from runtime.operators.join_stream_table import StreamTableJoinOperator
from runtime.operators.join_streams import StreamStreamJoinOperator
from runtime.operators.join_tables import TableTableJoinOperator
from runtime.operators.materialise import MaterialiseOperator
from runtime.operators.rekey import RekeyOperator
from runtime.operators.session import SessionAggregateOperator
from runtime.operators.union import UnionOperator
from runtime.operators.windows import WindowedAggregateOperator

Factory = Callable[[Operator, Sequence[Operator]], RuntimeOperator]

_JOINS: dict[str, Factory] = {
    "stream-stream": StreamStreamJoinOperator,
    "stream-table": StreamTableJoinOperator,
    "table-table": TableTableJoinOperator,
    "foreign-key": ForeignKeyJoinOperator,
}
_PLAIN: dict[type, Factory] = {
    AppendOnly: AppendOnlyOperator,
    Consolidate: ConsolidateOperator,
    EmitClosed: EmitClosedOperator,
    EquiJoin: EquiJoinOperator,
    Explode: ExplodeOperator,
    GroupAggregate: GroupAggregateOperator,
    Materialise: MaterialiseOperator,
    Over: OverOperator,
    Rekey: RekeyOperator,
    SetOperation: SetOperationOperator,
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
    factory = _PLAIN.get(type(spec))
    if factory is None:
        raise PlanUnsupported(f"operator {plan.id}: {type(spec).__name__} is not made by this factory")
    return factory(plan, inputs)
