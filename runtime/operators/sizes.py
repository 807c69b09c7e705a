"""How large computed values and batches are (rule R18): the limit of a value in columns, and of what one batch makes.

`flowql.compiler.functions.bounds` has the limit of a value and what its bytes are; row kernels apply it in each call. Here are the same
bytes in columns, and the limit of all values that a batch makes together: a row may have many values, and a batch many rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.functions.bounds import ELEMENTS_MAX, PART_BYTES, SIZED, VALUE_BYTES_MAX, ValueTooLarge, size_of
from flowql.compiler.plan.expr import Column, Expr, Literal
from flowql.compiler.plan.logical import Project
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.plan.types import SqlType
from flowql.runtime.batch import Row
from flowql.runtime.errors import RuntimeFailure

BATCH_BYTES_MAX = (
    4 * VALUE_BYTES_MAX
)  # values of one batch that functions made; with more, fewer rows are taken at a time
INPUT_BYTES_MAX = (
    64 << 10
)  # of a text that a statement of DuckDB computes with: its functions make any text that memory holds
_LARGE = 16 << 10  # characters or elements of values that are counted
_SMALL_BYTES = VALUE_BYTES_MAX // (
    8 * PART_BYTES
)  # a column of fewer bytes has no value above the limit: an element takes a bit at least

ROWS_MAX = ELEMENTS_MAX  # that one batch becomes where each row becomes many
Bools = npt.NDArray[np.bool_]
Sizes = npt.NDArray[np.int64]


class BatchTooLarge(RuntimeFailure, ValueError):
    """A batch makes more than its limit: fewer rows are tried, and a record that does so alone becomes a dead letter."""

    code = ValueTooLarge.code


class MadeBytes:
    """Counts the large values that functions make of the rows of one batch.

    places: of these values in a row. Raises BatchTooLarge above the limit.
    """

    __slots__ = ("_places", "_total")

    def __init__(self, places: Sequence[tuple[int, SqlType]]) -> None:
        self._places = [(i, size_of(t)) for i, t in places]
        self._total = 0

    def __bool__(self) -> bool:
        return bool(self._places)

    def begin(self) -> None:
        self._total = 0

    def add(self, row: Row) -> None:
        for i, size in self._places:
            value = row[i]
            if value is not None and len(value) > _LARGE:
                self._total += size(value)
        if self._total > BATCH_BYTES_MAX:
            raise batch_too_large(self._total)


class RowsTooLarge(BatchTooLarge, code="FQ4077"):
    """A batch becomes too many rows, or rows that are too large together."""


class ExplodedRows:
    """Counts what the rows of one batch become where each becomes many, with all its columns.

    carried: the columns that each of these rows has from the row before. Raises RowsTooLarge above the limits, before the rows are made.
    """

    __slots__ = ("_bytes", "_carried", "_rows")

    def __init__(self, carried: Schema) -> None:
        self._carried = [(i, size_of(f.type)) for i, f in enumerate(carried.fields) if f.type.kind in SIZED]
        self._rows = self._bytes = 0

    def begin(self) -> None:
        self._rows = self._bytes = 0

    def add(self, row: Row, count: int) -> None:
        """A row that becomes `count` rows."""
        if count > 1:
            self._rows += count
            self._bytes += count * sum(size(row[i]) for i, size in self._carried if row[i] is not None)
            self._check()

    def add_columns(self, columns: Sequence[pa.Array], count: int) -> None:
        """Rows as columns, each of which becomes `count` rows."""
        self._rows += count * len(columns[0])
        self._bytes += count * sum(int(row_bytes(columns[i]).sum()) for i, _ in self._carried)
        self._check()

    def _check(self) -> None:
        if self._rows > ROWS_MAX or self._bytes > BATCH_BYTES_MAX:
            raise RowsTooLarge(
                f"the lists of one record give {self._rows:,} rows with {self._bytes:,} bytes in their other columns; "
                f"at most {ROWS_MAX:,} rows and {BATCH_BYTES_MAX:,} bytes ({BATCH_BYTES_MAX >> 20} MiB) are allowed"
            )


def batch_too_large(count: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"functions make {count:,} bytes of one record; its values together may have {BATCH_BYTES_MAX:,} ({BATCH_BYTES_MAX >> 20} MiB)"
    )


def made_places(operators: Sequence[Operator]) -> list[tuple[int, SqlType]]:
    """Which columns of a chain's result are made by functions and may be large, with their types."""
    made: set[str] = set()
    for operator in operators:
        if isinstance(operator.spec, Project):
            made = {c.name for c in operator.spec.columns if _is_made(c.expr, made)}
    fields = enumerate(operators[-1].schema.fields)
    return [(i, f.type) for i, f in fields if f.name in made and f.type.kind in SIZED]


def _is_made(e: Expr, before: set[str]) -> bool:
    return e.name in before if isinstance(e, Column) else not isinstance(e, Literal)


def too_large(columns: Sequence[pa.Array]) -> Bools | None:
    """The rows with a value above the limit; None if there are none."""
    return _above(columns, _SMALL_BYTES, VALUE_BYTES_MAX)


def large_inputs(columns: Sequence[pa.Array]) -> Bools | None:
    """The rows with a value that no statement of DuckDB computes with; None if there are none."""
    return _above(columns, INPUT_BYTES_MAX, INPUT_BYTES_MAX)


def _above(columns: Sequence[pa.Array], small: int, most: int) -> Bools | None:
    """small: columns of at most so many bytes are not looked at."""
    rows = [row_bytes(c) > most for c in columns if c.nbytes > small]
    found: Bools = np.logical_or.reduce(rows) if rows else np.zeros(0, bool)
    return found if found.any() else None


def without(column: pa.Array, rows: Bools) -> pa.Array:
    """The column with NULL in some rows."""
    return pc.if_else(pa.array(rows), pa.scalar(None, column.type), column)


def row_bytes(column: pa.Array) -> Sizes:
    """The bytes of each value, as `flowql.compiler.functions.bounds` counts them; NULL has none."""
    t = column.type
    if pa.types.is_map(t) or pa.types.is_list(t):
        parts = [column.keys, column.items] if pa.types.is_map(t) else [column.values]
        each: Sizes = np.zeros(len(parts[0]), np.int64)
        for part in parts:
            each += PART_BYTES + row_bytes(part)
        ends = np.concatenate([[0], np.cumsum(each)])
        offsets = column.offsets.to_numpy()
        return np.where(_is_null(column), 0, np.diff(ends[offsets]))
    if pa.types.is_struct(t):
        fields: Sizes = np.full(len(column), PART_BYTES * t.num_fields, np.int64)
        for part in column.flatten():
            fields += row_bytes(part)
        return np.where(_is_null(column), 0, fields)
    if pa.types.is_string(t) or pa.types.is_binary(t):
        return _filled(pc.binary_length(column))
    return np.zeros(len(column), np.int64)


def _filled(lengths: pa.Array) -> Sizes:
    found: Sizes = lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _is_null(column: pa.Array) -> Bools:
    found: Bools = column.is_null().to_numpy(zero_copy_only=False)
    return found
