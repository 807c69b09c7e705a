"""The buckets of a sketch of quantiles. Source: DDSketch (Masson, Rim and Lee, VLDB 2019), section 2.1."""

from __future__ import annotations

import math

from flowql.compiler.functions.registry import standard, takes
from flowql.compiler.plan.types import DOUBLE


def sketched(x: float, error: float) -> float:
    """The middle of the bucket of a number: no further from it than `error` times its size. Raises ValueError."""
    if not 0 < error < 1:
        raise ValueError(f"a relative error is between 0 and 1, not {error}")
    if not x or not math.isfinite(x):
        return x
    base = (1 + error) / (1 - error)
    bucket = math.ceil(math.log(abs(x)) / math.log(base))
    return math.copysign(2 * base**bucket / (base + 1), x)


standard("DDSKETCH_VALUE", takes(DOUBLE, DOUBLE, gives=DOUBLE), by=sketched)
