"""Rows of a table that could not be added to the aggregates of their group, or not retracted from them: kept with the group."""

from __future__ import annotations

from typing import NamedTuple

from flowql.runtime.batch import Row
from flowql.runtime.state.values import decode_value, encode_value

NO_RESULT = b"?"  # entry of a group that has given no result yet
# First byte of an entry: the row could not be added, or could not be retracted although the table no longer has it.
NOT_ADDED, NOT_RETRACTED = b"-", b"+"


class Unapplied(NamedTuple):
    """The rows that a group keeps beside its accumulators. Rows are compared as they are encoded, so that a NaN equals itself."""

    entries: tuple[bytes, ...] = ()

    @property
    def has_no_result(self) -> bool:
        return NO_RESULT in self.entries

    @property
    def not_retracted(self) -> list[Row]:
        return [decode_value(e[1:]) for e in self.entries if e[:1] == NOT_RETRACTED]

    def with_result(self) -> Unapplied:
        return Unapplied(tuple(e for e in self.entries if e != NO_RESULT)) if self.has_no_result else self

    def with_row(self, kind: bytes, row: Row) -> Unapplied:
        return Unapplied((*self.entries, kind + encode_value(row)))

    def without_row(self, kind: bytes, row: Row) -> Unapplied | None:
        """Without one entry of this row; None if there is none."""
        entry = kind + encode_value(row) if self.entries else b""
        if entry not in self.entries:
            return None
        at = self.entries.index(entry)
        return Unapplied((*self.entries[:at], *self.entries[at + 1 :]))


ALL_APPLIED = Unapplied()
