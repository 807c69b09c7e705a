"""The limit of what an aggregate keeps of one group: lists, sets, counts by value and accumulators of a project (rule R18).

A group is read, encoded and written as one value, in single calls that keep the lock of the interpreter, and its result is one value. So the
limit is that of a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flowql.compiler.functions.bounds import PART_BYTES, VALUE_BYTES_MAX, utf8_bytes
from flowql.compiler.functions.distinct_values import DistinctValues
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.state.rows import Key

GROUP_BYTES_MAX = VALUE_BYTES_MAX
_KEY_SHOWN = 200  # characters
_FEW = 8  # parts of an accumulator of fixed size: sums, counts, moments
_PARTS = (tuple, list, dict, DistinctValues)


class GroupTooLarge(RuntimeFailure, code="FQ4074"):
    """An aggregate keeps more of one group than the limit: its query fails, others go on."""


def check_group(operator: str, key: Key, names: Sequence[str], accumulators: Sequence[Any]) -> None:
    """Raises GroupTooLarge. names: of the aggregates, in the order of their accumulators."""
    for name, acc in zip(names, accumulators, strict=False):
        if isinstance(acc, _PARTS) and len(acc) > _FEW:
            check_kept(operator, key, name, kept_bytes(acc))


def check_kept(operator: str, key: Key, name: str, count: int) -> None:
    """Raises GroupTooLarge for an aggregate that keeps so many bytes."""
    if count <= GROUP_BYTES_MAX:
        return
    shown = repr(key if len(key) != 1 else key[0])
    shown = shown if len(shown) <= _KEY_SHOWN else f"{shown[:_KEY_SHOWN]}..."
    raise GroupTooLarge(
        f"{operator}: {name} keeps {count:,} bytes of the group {shown}, and at most {GROUP_BYTES_MAX:,} "
        f"({GROUP_BYTES_MAX >> 20} MiB) are allowed"
    )


def kept_bytes(value: Any) -> int:
    """The bytes of a value in the state, counted as `flowql.compiler.functions.bounds` counts them."""
    if isinstance(value, DistinctValues):
        return value.kept_bytes(_part)
    if isinstance(value, str):
        return utf8_bytes(value)
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, dict):
        return _parts(value.keys()) + _parts(value.values())
    return _parts(value) if isinstance(value, tuple | list) else 0


def _parts(values: Iterable[Any]) -> int:
    return sum(map(_part, values))


def _part(value: Any) -> int:
    return PART_BYTES + kept_bytes(value)
