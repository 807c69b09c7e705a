"""A test as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowql.compiler.diagnostics.source import NOWHERE, SourceText, Span
from flowql.compiler.functions.temporal import (
    date_text,
    micros_text,
    parse_date,
    parse_micros,
    parse_time,
    parse_timestamp,
    time_text,
    timestamp_text,
)
from flowql.compiler.plan.types import Kind, SqlType

# --- Dates and times in tests: a person writes them as texts, and records of JSON hold numbers ---

_PARSE: Mapping[Kind, Callable[[str], int]] = {
    Kind.DATE: parse_date,
    Kind.TIME: parse_time,
    Kind.TIMESTAMP: parse_timestamp,
    Kind.MICROS: parse_micros,
}

_TEXT: Mapping[Kind, Callable[[int], str]] = {
    Kind.DATE: date_text,
    Kind.TIME: time_text,
    Kind.TIMESTAMP: timestamp_text,
    Kind.MICROS: micros_text,
}


def as_shown(value: Any, type_: SqlType) -> Any:
    """A value as records of JSON hold it, with its dates and times as ISO texts. A number that is none stays.

    >>> from flowql.compiler.plan.types import DATE, array
    >>> as_shown([1, "1970-01-06", None], array(DATE))
    ['1970-01-02', '1970-01-06', None]
    """

    def shown(value: Any, kind: Kind) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or kind not in _TEXT:
            return value
        try:
            return _TEXT[kind](value)
        except (ValueError, OverflowError):
            return value

    return _converted(value, type_, shown)


def as_declared(value: Any, type_: SqlType) -> Any:
    """A value of a row with ISO texts in columns of dates and times as JSON has them. Raises ValueError.

    >>> from flowql.compiler.plan.types import DATE, array
    >>> as_declared(["1970-01-02", 5, None], array(DATE))
    [1, 5, None]
    """
    return _converted(value, type_, lambda v, kind: _PARSE[kind](v) if isinstance(v, str) and kind in _PARSE else v)


def _converted(value: Any, type_: SqlType, convert: Callable[[Any, Kind], Any]) -> Any:
    """A value with all values within it converted by their kinds. Fields of a STRUCT are found in any case."""
    if isinstance(value, list) and type_.kind is Kind.ARRAY:
        return [_converted(v, type_.element, convert) for v in value]
    if isinstance(value, dict) and type_.kind is Kind.MAP:
        return {k: _converted(v, type_.element, convert) for k, v in value.items()}
    if isinstance(value, dict) and type_.kind is Kind.STRUCT:
        known = {n.upper(): f for n, f in type_.fields} | dict(type_.fields)
        types = {k: known.get(k) or known.get(k.upper()) for k in value}
        return {k: v if (t := types[k]) is None else _converted(v, t, convert) for k, v in value.items()}
    return convert(value, type_.kind)


def is_time(text: str, number: int) -> bool:
    """Whether a number is the date, time or timestamp that an ISO text says."""
    for parse in _PARSE.values():
        try:
            if parse(text) == number:
                return True
        except ValueError:
            continue
    return False


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

    code: str = ""
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
