"""What is found once per plan, however many interactive queries ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from flowql.compiler.plan.topology import Plan

T = TypeVar("T")


class OfPlan(Generic[T]):
    """What is computed of a plan. It is kept for the plan that was asked for last: interactive queries do not take longer with more views beside them."""

    def __init__(self, make: Callable[[Plan], T]) -> None:
        self._make = make
        self._last: tuple[Plan, T] | None = None

    def __call__(self, plan: Plan) -> T:
        last = self._last
        if last is None or last[0] is not plan:
            self._last = last = plan, self._make(plan)
        return last[1]
