"""One bad row among many: which rows a task takes at a time until it is found, and what of it is left out.

A run that failed for what is in its rows is tried again with half of them, down to one record. That becomes a dead letter, and
nothing else of it is published. Where it came as the change of a row (its values before, its values after), its values before still
leave.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from flowql.runtime.batch import DELETE, UPDATE_BEFORE, Batch
from flowql.runtime.errors import BadRecord, RecordRefused, RuntimeFailure
from flowql.runtime.functions.failures import described
from flowql.runtime.state.frozen import UnwritableState

BAD_VALUE = "FQ4031"
# Errors that values cause in code that is right for all others: numbers out of range, malformed texts, values that no column, no store and no topic
# takes, and what is nested too deeply or too large for one batch. All else that code raises (TypeError, KeyError, AssertionError ...)
# is a mistake in it: the query fails and is tried again, as records that are made dead letters for it would be lost for nothing. Of what
# functions of expressions raise, see `flowql.compiler.functions.registry.FAILURES`.
VALUE_ERRORS = (
    ArithmeticError,
    ValueError,  # UnicodeError and ArrowInvalid, too
    pa.ArrowTypeError,  # as a column of Arrow takes no other value
    pa.lib.ArrowCapacityError,
    struct.error,
    RecursionError,
    UnwritableState,
    RecordRefused,
    BadRecord,
)


PATIENCE = 16


class RowLimit:
    """How many rows a run may take: after a failure half, after a success twice as many, until there is no limit any more."""

    __slots__ = ("_patience", "_rows")

    def __init__(self) -> None:
        self._rows: int | None = None
        self._patience = 0  # successes until more rows are tried

    @property
    def is_open(self) -> bool:
        """There is no limit."""
        return self._rows is None

    def of(self, rows_max: int) -> int:
        return rows_max if self._rows is None else min(rows_max, self._rows)

    def failed(self, rows: int) -> bool:
        """A run of so many rows failed; whether fewer may be tried."""
        if self._rows == 1 or rows <= 1:
            self._rows = 1
            return False
        self._rows = max(1, rows // 2)
        return True

    def one_by_one(self) -> None:
        """A run took long to fail, and so may its other rows."""
        self._rows, self._patience = 1, PATIENCE

    def succeeded(self, rows_max: int) -> None:
        if self._patience:
            self._patience -= 1
        elif self._rows is not None:
            self._rows = self._rows * 2 if self._rows * 2 < rows_max else None


def letter_of(error: Exception) -> tuple[str, str]:
    """Code and message of the dead letter."""
    if isinstance(error, RuntimeFailure):
        return error.code, str(error)
    return BAD_VALUE, described(error)


def withdrawals(batches: Mapping[str, Batch]) -> dict[str, Batch]:
    """The values before changes of rows, which leave; empty where the rows are no changes."""
    found = {}
    for operator, batch in batches.items():
        old = np.flatnonzero(batch.op == UPDATE_BEFORE)
        if len(old):
            rows = batch.take(old)
            found[operator] = rows.with_op(np.full(len(old), DELETE, np.int8))
    return found


def failing(batches: Mapping[str, Batch]) -> Iterable[int]:
    """The `seq` of rows that dead letters are to be made of."""
    for batch in batches.values():
        yield from batch.seq[batch.op != UPDATE_BEFORE].tolist()
