"""BIT_AND, BIT_OR and BIT_XOR over relations that change: how often each bit is set, so that what is added can be taken out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.plan.types import Kind, SqlType

FUNCTIONS = ("BIT_AND", "BIT_OR", "BIT_XOR")
Acc = tuple[int, int]  # values; how often each bit is set, the counts side by side in one whole number
ZERO: Acc = (0, 0)
_COUNT_BITS = 64


def bits(t: SqlType) -> Callable[[tuple[Any, ...], int], Acc | None]:
    """(value of a row, how many times it counts) -> its accumulator."""
    mask = (1 << _width(t)) - 1

    def part(row: tuple[Any, ...], weight: int) -> Acc | None:
        return None if row[0] is None else (weight, _spread(row[0] & mask) * weight)

    return part


def added(a: Acc, b: Acc) -> Acc:
    return a[0] + b[0], a[1] + b[1]


def result_of(function: str, t: SqlType) -> Callable[[Acc], int | None]:
    width = _width(t)

    def result(acc: Acc) -> int | None:
        n, packed = acc
        if not n:
            return None
        counts = [packed >> _COUNT_BITS * i & (1 << _COUNT_BITS) - 1 for i in range(width)]
        wanted = n if function == "BIT_AND" else 1
        value = sum(1 << i for i, c in enumerate(counts) if (c % 2 if function == "BIT_XOR" else c >= wanted))
        return value - (1 << width) if value >> width - 1 else value

    return result


def _width(t: SqlType) -> int:
    return 32 if t.kind is Kind.INT else 64


def _spread(value: int) -> int:
    packed = 0
    while value:
        lowest = value & -value
        packed |= 1 << _COUNT_BITS * (lowest.bit_length() - 1)
        value ^= lowest
    return packed
