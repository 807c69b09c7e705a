"""The result of a comparison, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SHOWN = 5  # rows of each kind a report keeps


class _Missing:
    """A column that one record has not, while the other has it (maybe NULL)."""

    def __repr__(self) -> str:
        return "(missing)"


MISSING = _Missing()
Row = Mapping[str, Any]  # columns by name; MISSING for one that is not written


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One place where two results differ.

    key: what the two sides share (key columns and window; of a stream also ROWTIME). first/second: the other columns of each
    side, None where that side has no such row. `first` and `second` of a stream are two rows that resemble each other.
    """

    key: Row
    first: Row | None
    second: Row | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that differ between two rows."""
        first, second = self.first or {}, self.second or {}
        return tuple(c for c in first if not _same(first[c], second.get(c, MISSING)))


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One result of two targets.

    rows: of the first. missing: in the first alone; extra: in the second alone; different: in both, with other values.
    A stream is compared as a multiset, so a row of it that changed is one missing and one extra row. examples: the first few.
    """

    name: str
    kind: Literal["stream", "table"]
    rows: int
    missing: int = 0
    extra: int = 0
    different: int = 0
    examples: tuple[RowDifference, ...] = ()

    @property
    def equal(self) -> bool:
        return not (self.missing or self.extra or self.different)


@dataclass(frozen=True, slots=True)
class Report:
    """All results of two targets."""

    targets: tuple[str, str]
    sinks: tuple[SinkReport, ...]

    @property
    def equal(self) -> bool:
        return all(s.equal for s in self.sinks)

    def to_data(self) -> dict[str, Any]:
        """The public JSON."""
        tables = [
            {"name": s.name, "rows": s.rows, "missing": s.missing, "extra": s.extra, "different": s.different}
            for s in self.sinks
        ]
        return {"equal": self.equal, "tables": tables}


def _same(a: Any, b: Any) -> bool:
    return (a is b) or (a is not MISSING and b is not MISSING and type(a) is type(b) and bool(a == b))
