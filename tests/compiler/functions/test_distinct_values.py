"""Different values with a set beside them: the same as a search through all of them, at the same price for any number."""

from __future__ import annotations

import math
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from flowql.compiler.functions import builtin, collecting_aggregates
from flowql.compiler.functions.comparison import distinct
from flowql.compiler.functions.distinct_values import FEW, DistinctValues
from flowql.compiler.functions.registry import lookup_aggregate
from flowql.compiler.plan.types import STRING
from flowql.runtime.operators.fold import kept_bytes
from flowql.runtime.state.values import decode_value, encode_value

assert builtin.FAMILIES
SEED = 5
DOMAINS: dict[str, list[Any]] = {
    "numbers": [*range(60), None],
    "strings": [f"k{i}" for i in range(60)] + ["\ud800", None],
    "doubles": [float(i) for i in range(40)] + [0.0, -0.0, math.nan, float("nan"), math.inf],
    "decimals": [Decimal(i) / 4 for i in range(40)] + [Decimal("1.0"), Decimal("1.00")],
    "arrays": [[i % 7, None, float(i % 5)] for i in range(60)],
    "structs": [{"A": i % 9, "B": [i % 4]} for i in range(60)],
}


def naive(values: tuple[Any, ...], v: Any) -> tuple[Any, ...]:
    return values if any(not distinct(x, v) for x in values) else (*values, v)


def collect_set() -> Any:
    function = lookup_aggregate("COLLECT_SET")
    assert function is not None
    return function.add(function.resolve((STRING,), ()), (-1,))


@pytest.mark.parametrize("domain", DOMAINS)
def test_any_history_keeps_the_same_values_in_the_same_order(domain: str) -> None:
    """Accumulators that were left, as after a failure, stay as they are; a load makes the set again."""
    r, add = Random(SEED), collect_set()
    known: list[tuple[Any, tuple[Any, ...]]] = [((), ())]
    for _ in range(600):
        acc, expected = r.choice(known[-4:])
        v = r.choice(DOMAINS[domain])
        if r.random() < 0.1:
            (acc,) = decode_value(encode_value((acc,)))
        known.append((add(acc, v), naive(expected, v)))
    for acc, expected in known:
        assert repr(tuple(acc)) == repr(expected), f"seed {SEED}"
        assert encode_value((acc, 7)) == encode_value((expected, 7))
        assert kept_bytes(acc) == kept_bytes(expected)
    assert any(isinstance(acc, DistinctValues) for acc, _ in known)


def test_a_value_is_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was compared with all values of its group."""
    compared = 0

    def counted(a: Any, b: Any) -> bool:
        nonlocal compared
        compared += 1
        return distinct(a, b)

    monkeypatch.setattr(collecting_aggregates, "distinct", counted)
    add, acc, rows = collect_set(), (), 3_000
    for i in range(rows):
        acc = add(add(acc, f"k{i}"), "k0")
    assert len(acc) == rows
    assert compared <= 2 * FEW * FEW
