"""Which row of each group holds the least or greatest struct, found a field at a time in columns.

For structs of whole numbers and times, where fields that compare alike are alike, so that any of several equal rows will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.batch import Ints

_WHOLE = {Kind.INT: None, Kind.BIGINT: None, Kind.DATE: pa.int32(), Kind.TIME: pa.int32()} | dict.fromkeys(
    (Kind.TIMESTAMP, Kind.MICROS), pa.int64()
)


def can_win(t: SqlType) -> bool:
    """Whether `winners` is for structs of this type."""
    return t.kind is Kind.STRUCT and bool(t.fields) and all(f.kind in _WHOLE for _, f in t.fields)


def has_null_fields(column: pa.Array, t: SqlType) -> bool:
    """Fields that are NULL in a struct that is not; `winners` has no order for them."""
    return any(pc.struct_field(column, i).null_count > column.null_count for i in range(len(t.fields)))


def group_codes(columns: Sequence[pa.Array], *, sort: bool = True) -> tuple[Ints, int]:
    """A number from 0 per row, the same for rows alike in all columns, and how many numbers there are.

    sort: numbers rise with the values of the columns, as their dictionaries have them; without it they come as the rows do, which is faster.
    """
    codes, count = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        size = len(encoded.dictionary)
        if size > 1:
            codes = codes * size + encoded.indices.to_numpy()
            if count > 1 and not sort:
                combined = pa.array(codes).dictionary_encode()
                codes, size = combined.indices.to_numpy().astype(np.int64), len(combined.dictionary)
            elif count > 1:
                found, codes = np.unique(codes, return_inverse=True)
                size = len(found)
            count = size
    return codes, count


def winners(column: pa.Array, t: SqlType, codes: Ints, count: int, *, greatest: bool) -> pa.Array:
    """Per row its own number where no row of its group is better, else null. A group of null structs has no winner."""
    alive = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).astype(np.int64)
    better: Any = np.maximum if greatest else np.minimum
    for i, (_, f) in enumerate(t.fields):
        values = _numbers(pc.struct_field(column, i), f)[alive]
        groups = codes[alive]
        limits = np.iinfo(np.int64)
        best = np.full(count, limits.min if greatest else limits.max, np.int64)
        better.at(best, groups, values)
        alive = alive[values == best[groups]]
    lost = np.ones(len(column), bool)
    lost[alive] = False
    return pa.array(np.arange(len(column)), mask=lost)


def _numbers(column: pa.Array, t: SqlType) -> npt.NDArray[np.int64]:
    cast = _WHOLE[t.kind]
    whole = column if cast is None else column.cast(cast)
    return np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
