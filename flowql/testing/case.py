"""A test as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowql.compiler.diagnostics.source import NOWHERE, SourceText, Span
from flowql.compiler.plan.types import SqlType

Order = Literal["any", "exact"]
Arrival = Literal["time", "any"]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a source or a result. values: by column, as JSON or YAML has them; only those that were named.

    rowtime_ms: None when it was not named. tombstone: the row of this key is deleted. raw: bytes in place of a value. types: of the columns
    of a row of a result, by which it is shown.
    """

    values: Mapping[str, Any]
    rowtime_ms: int | None = None
    tombstone: bool = False
    raw: bytes | None = None
    span: Span = field(default=NOWHERE, compare=False)
    types: Mapping[str, SqlType] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Given:
    """Rows for one source, in the order in which they are written."""

    source: str
    rows: tuple[Row, ...]
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class Expected:
    """Rows of a stream or table. any: a stream's rows or a table's final rows, in any order; exact: every record, in order.

    at: where the list of rows stands in its file (first and last character, indentation), for `--update`.
    """

    name: str
    rows: tuple[Row, ...]
    order: Order = "any"
    span: Span = NOWHERE
    at: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """The error that the statements must give. Parts that are None or empty are not compared."""

    code: str
    line: int | None = None
    column: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One test. when: statements beside those of the project. arrival: `any` tries sources in any order, too."""

    name: str
    file: str
    line: int
    given: tuple[Given, ...] = ()
    when: SourceText | None = None
    expect: tuple[Expected, ...] = ()
    state: tuple[Expected, ...] = ()
    error: ExpectedError | None = None
    partitions: int = 1
    arrival: Arrival = "time"


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a test failed, in lines for a person."""

    title: str
    lines: tuple[str, ...] = ()
    expected: Expected | None = None
    actual: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judged test; it passed when there are no findings. hints: what may explain them."""

    case: Case
    findings: tuple[Finding, ...] = ()
    hints: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.findings
