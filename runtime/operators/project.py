"""Project: columns computed from each row."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.logical import Project
from flowql.compiler.plan.topology import Operator
from flowql.runtime.operators.stages import StageChain


class ProjectOperator(StageChain):
    """One projection. A null value of a stream, and the removal of a table's row, keep key columns only."""

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Project)
        super().__init__([plan], inputs[0].schema, inputs[0].change)
