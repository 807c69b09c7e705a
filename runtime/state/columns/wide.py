"""Whole numbers of 128 bits as columns: two limbs each, as Arrow keeps a DECIMAL.

Sums wrap. Callers know that they fit, or check with `size_of` first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flowql.runtime.batch import Ints
from flowql.runtime.state.columns.packed import Flags, Words

WIDE = np.dtype([("low", "<u8"), ("high", "<i8")])
WIDE_BYTES = 16
Wides = npt.NDArray[Any]  # of WIDE
_MASK = (1 << 64) - 1
_HALF, _LOWER = np.uint64(32), np.uint64(0xFFFF_FFFF)
_SHIFT = 63
LARGEST_DIVISOR = 1 << 32


def wide(low: Words, high: Ints) -> Wides:
    found = np.empty(len(low), WIDE)
    found["low"], found["high"] = low, high
    return found


def widened(numbers: Ints | Wides) -> Wides:
    """Numbers of 64 bits, or of 128 as they are."""
    if numbers.dtype == WIDE:
        return numbers
    return wide(numbers.view(np.uint64), numbers >> _SHIFT)


def fits(numbers: Wides) -> Flags:
    """Whether the lower limb says all."""
    same: Flags = numbers["high"] == numbers["low"].view(np.int64) >> _SHIFT
    return same


def narrowed(numbers: Wides) -> Ints:
    """Numbers that fit into 64 bits."""
    low: Ints = np.ascontiguousarray(numbers["low"]).view(np.int64)
    return low


def from_ints(numbers: Sequence[int]) -> Wides | None:
    """None if one of them needs more than 128 bits."""
    try:
        high = np.array([n >> 64 for n in numbers], np.int64)
    except OverflowError:
        return None
    return wide(np.array([n & _MASK for n in numbers], np.uint64), high)


def to_ints(numbers: Wides) -> list[int]:
    if fits(numbers).all():
        return narrowed(numbers).tolist()
    return [h << 64 | n for h, n in zip(numbers["high"].tolist(), numbers["low"].tolist(), strict=True)]


def from_decimals(column: pa.Array) -> Wides:
    """A DECIMAL column without NULLs, in its scale."""
    found: Wides = np.frombuffer(column.buffers()[1], WIDE)[column.offset : column.offset + len(column)]
    return found


def added(a: Wides, b: Wides) -> Wides:
    low = a["low"] + b["low"]
    return wide(low, a["high"] + b["high"] + (low < b["low"]))


def negated(a: Wides, where: Flags) -> Wides:
    """The numbers, with the other sign where `where` says so."""
    low = np.where(where, ~a["low"] + np.uint64(1), a["low"])
    return wide(low, np.where(where, ~a["high"] + (low == 0), a["high"]))


def less(a: Wides, b: Wides) -> Flags:
    found: Flags = (a["high"] < b["high"]) | ((a["high"] == b["high"]) & (a["low"] < b["low"]))
    return found


def size_of(a: Wides) -> npt.NDArray[np.float64]:
    """Absolute values, to 15 digits."""
    size = negated(
        a, a["high"] < 0
    )  # first: the limbs of a small negative number are large, and their sum has few digits of it
    found: npt.NDArray[np.float64] = size["high"].view(np.uint64) * 2.0**64 + size["low"]
    return found


def times(a: Wides, factor: int) -> Wides:
    """Numbers from 0 on, times one from 0 to 2**32."""
    f = np.uint64(factor)
    lower = (a["low"] & _LOWER) * f
    upper = (a["low"] >> _HALF) * f + (lower >> _HALF)
    return wide((upper << _HALF) | (lower & _LOWER), a["high"] * factor + (upper >> _HALF).view(np.int64))


def quotients(a: Wides, divisors: Words) -> tuple[Wides, Words]:
    """Whole quotients and remainders of numbers from 0 on, by divisors from 1 to below LARGEST_DIVISOR."""
    remainder = np.zeros(len(a), np.uint64)
    limbs = []
    for limb in (a["high"].view(np.uint64), a["low"]):
        for digit in (limb >> _HALF, limb & _LOWER):
            at = (remainder << _HALF) | digit
            limbs.append(at // divisors)
            remainder = at % divisors
    high = (limbs[0] << _HALF) | limbs[1]
    return wide((limbs[2] << _HALF) | limbs[3], high.view(np.int64)), remainder


def in_bytes(a: Wides) -> npt.NDArray[np.uint8]:
    """16 bytes each, the highest first."""
    found = np.empty((len(a), 2), ">u8")
    found[:, 0], found[:, 1] = a["high"].view(np.uint64), a["low"]
    return found.view(np.uint8).reshape(len(a), WIDE_BYTES)
