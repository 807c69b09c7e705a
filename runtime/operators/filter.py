"""Filter: rows for which a predicate is true."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.plan.logical import Filter
from flowql.compiler.plan.topology import Operator
from flowql.runtime.operators.stages import StageChain


class FilterOperator(StageChain):
    """One filter. Streams lose rows (null values too); a table's row that stops passing becomes a DELETE."""

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Filter)
        super().__init__([plan], inputs[0].schema, inputs[0].change)
