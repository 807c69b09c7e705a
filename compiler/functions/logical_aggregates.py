"""BIT_AND, BIT_OR, BIT_XOR, BOOL_AND and BOOL_OR of standard SQL. They count how often each bit, or truth value, is there, so that what is added can be taken out again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowql.compiler.functions.aggregate_forms import Acc, Asked, Linear, OverRelations
from flowql.compiler.functions.change_aggregates import linear_aggregate
from flowql.compiler.plan.types import Kind, SqlType

Bits = tuple[int, int]  # values; how often each bit is set, the counts side by side in one whole number
_NO_BITS: Bits = (0, 0)
_COUNT_BITS = 64


def _bits(t: SqlType) -> Callable[[tuple[Any, ...], int], Bits | None]:
    """(value of a row, how many times it counts) -> its accumulator."""
    mask = (1 << _width(t)) - 1

    def part(row: tuple[Any, ...], weight: int) -> Bits | None:
        return None if row[0] is None else (weight, _spread(row[0] & mask) * weight)

    return part


def _added(a: Bits, b: Bits) -> Bits:
    return a[0] + b[0], a[1] + b[1]


def _bits_result(function: str, t: SqlType) -> Callable[[Bits], int | None]:
    width = _width(t)

    def result(acc: Bits) -> int | None:
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


def _bits_type(types: tuple[SqlType, ...]) -> SqlType | None:
    return types[0] if types[0].kind in (Kind.INT, Kind.BIGINT) else None


def _register_bits(function: str) -> None:
    def linear(args: tuple[SqlType, ...], _result: SqlType) -> Linear | None:
        return Linear(_NO_BITS, _bits(args[0]), _added, _bits_result(function, args[0])) if _bits_type(args) else None

    relation = OverRelations((function,), _bits_type, linear=linear)
    linear_aggregate(relation, takes="another argument")


for _name in ("BIT_AND", "BIT_OR", "BIT_XOR"):
    _register_bits(_name)


def _booleans(*, every: bool) -> Linear:
    """Accumulator: (how many are true, how many are false)."""

    def result(acc: Acc) -> Any:
        true, false = acc
        if not true and not false:
            return None
        return not false if every else bool(true)

    return Linear(
        (0, 0),
        lambda args, weight: None if args[0] is None else (weight, 0) if args[0] else (0, weight),
        lambda a, b: (a[0] + b[0], a[1] + b[1]),
        result,
    )


def _boolean_type(types: tuple[SqlType, ...]) -> SqlType | None:
    return types[0] if types[0].kind is Kind.BOOLEAN else None


def _register_booleans(*names: str, every: bool) -> None:
    def asked(call: Asked) -> str | None:
        is_taken = len(call.args) == 1 and call.types[0].kind is Kind.BOOLEAN
        return call.over(f"{names[0].lower()}({call.args[0]})") if is_taken else None

    relation = OverRelations(names, _boolean_type, linear=lambda _args, _result: _booleans(every=every), asked=asked)
    linear_aggregate(relation, takes="another argument")


_register_booleans("BOOL_AND", "EVERY", every=True)
_register_booleans("BOOL_OR", every=False)
