"""Union: rows of all inputs in the order of the run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flowql.compiler.plan.logical import Union
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import Batch, concat
from flowql.runtime.operators.base import MicroBatchContext


class UnionOperator:
    """Merges its inputs by `seq`; rows made from the same record keep the order of the inputs."""

    def __init__(self, plan: Operator, inputs: Sequence[Operator]) -> None:
        assert isinstance(plan.spec, Union)
        self.plan = plan

    def process(self, inputs: Sequence[Batch | None], run: MicroBatchContext) -> Batch | None:
        batches = [b for b in inputs if b is not None and len(b)]
        if not batches:
            return None
        merged = concat(self.plan.schema, batches)
        if len(batches) == 1:
            return _of(self, merged)
        order = np.argsort(merged.seq, kind="stable")
        return _of(self, merged.take(order))


def _of(operator: UnionOperator, batch: Batch) -> Batch:
    """The batch under the union's own schema (roles may differ between inputs, names and types do not)."""
    schema = operator.plan.schema
    return batch if batch.schema == schema else batch.select(schema)
