"""Facts about a plan that all interactive queries over it share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from flowql.compiler.plan.topology import Plan

T = TypeVar("T")


class OfPlan(Generic[T]):
    """Computes a fact once per plan and keeps it for the latest plan, so that more views do not slow each interactive query."""

    def __init__(self, make: Callable[[Plan], T]) -> None:
        self._make = make
        self._last: tuple[Plan, T] | None = None

    def __call__(self, plan: Plan) -> T:
        last = self._last
        if last is None or last[0] is not plan:
            self._last = last = plan, self._make(plan)
        return last[1]
