"""The order of a run against its definition, one row after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from flowql.runtime.task.merge import MergeInput, merge_order


def by_definition(inputs: list[MergeInput], rows_max: int) -> list[list[int]]:
    """At every step the lowest head goes next, unless an open input has none; tables win ties, then the lower input."""
    taken: list[list[int]] = [[] for _ in inputs]
    for seq in range(rows_max):
        if any(i.open and len(t) == len(i.rowtime) for i, t in zip(inputs, taken, strict=True)):
            break
        heads = [
            (int(i.rowtime[len(t)]), not i.is_table, n)
            for n, (i, t) in enumerate(zip(inputs, taken, strict=True))
            if len(t) < len(i.rowtime)
        ]
        if not heads:
            break
        taken[min(heads)[2]].append(seq)
    return taken


@pytest.mark.parametrize("seed", range(300))
def test_it_is_the_order_by_definition(seed: int) -> None:
    chance = random.Random(seed)
    spread = chance.choice([3, 20, 10_000])
    inputs = []
    for _ in range(chance.randint(1, 5)):
        times = [chance.randint(0, spread) for _ in range(chance.choice([0, 1, 5, 40]))]
        if chance.random() < 0.5:
            times.sort()
        inputs.append(MergeInput(np.array(times, np.int64), chance.random() < 0.3, chance.random() < 0.4))
    rows_max = chance.choice([1, 2, 7, 30, 1_000])
    assert [part.tolist() for part in merge_order(inputs, rows_max)] == by_definition(inputs, rows_max)
