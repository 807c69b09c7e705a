"""Arithmetic that is lowered without a test for failures never fails: tried with the extremes of its columns, by the reference."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from random import Random

import pytest

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.types import BIGINT, DOUBLE, INT, Kind, decimal

COLUMNS = {
    "i": (INT, [-(2**31), 2**31 - 1, -1, 0, 1]),
    "b": (BIGINT, [-(2**63), 2**63 - 1, 2**53 + 1, -1, 0, 1]),
    "d": (decimal(20, 10), [Decimal("9999999999.9999999999"), Decimal("-0.0000000001"), Decimal(0)]),
}
CONSTANTS = [0.908, -1e-300, 1e300, 5e-324, 1.7e308, 0.0, 1.0]
OPERATORS = ["sql_add", "sql_sub", "sql_mul", "sql_div"]


def made(chance: Random, depth: int) -> Expr:
    """An expression of type DOUBLE."""
    if depth == 0 or chance.random() < 0.2:
        if chance.random() < 0.4:
            return Literal(DOUBLE, chance.choice(CONSTANTS))
        name = chance.choice(list(COLUMNS))
        return Call(DOUBLE, "cast", (Column(COLUMNS[name][0], name),))
    if chance.random() < 0.1:
        return Call(DOUBLE, "sql_neg", (made(chance, depth - 1),))
    return Call(DOUBLE, chance.choice(OPERATORS), (made(chance, depth - 1), made(chance, depth - 1)))


def failures(e: Expr) -> list[Exception]:
    """What the reference says over all rows of extremes."""
    found: list[Exception] = []
    compute = compile_row([e], list(COLUMNS), on_error=lambda _index, error: found.append(error))
    for row in product(*(values for _, values in COLUMNS.values())):
        compute(row)
    return found


def fails_on_spark(e: Expr) -> bool:
    lowered = lower(e)
    assert lowered is not None
    return lowered.fails is not None


@pytest.mark.parametrize("seed", range(3))
def test_no_row_fails_what_is_lowered_without_failures(seed: int) -> None:
    chance, without = Random(seed), 0
    for _ in range(150):
        e = made(chance, 3)
        if isinstance(e, Call) and not fails_on_spark(e):
            without += 1
            assert not failures(e), f"seed {seed}: {e}"
    assert without > 20


def test_prices_in_euros_cannot_fail_and_larger_products_can() -> None:
    price = Call(DOUBLE, "cast", (Column(BIGINT, "b"),))
    for constant, fails in ((0.908, False), (1e300, True), (1e-290, False), (0.0, True)):
        for op in ("sql_mul", "sql_div"):
            e = Call(DOUBLE, op, (price, Literal(DOUBLE, constant)))
            assert bool(failures(e)) <= fails_on_spark(e)
            if op == "sql_mul":
                assert fails_on_spark(e) == fails, constant
    assert not failures(Call(DOUBLE, "sql_mul", (price, Literal(DOUBLE, 0.908))))


@pytest.mark.parametrize(("divisor", "fails"), [(10_000, False), (-1, True), (0, True), (None, True)])
def test_a_division_of_integers_fails_by_its_divisor(divisor: int | None, fails: bool) -> None:
    e = Call(BIGINT, "sql_div", (Column(BIGINT, "b"), Literal(BIGINT, divisor)))
    assert fails_on_spark(e) == fails
    assert fails or not failures(e)
    assert e.type.kind is Kind.BIGINT
