"""Errors as PostgreSQL's clients have them: an SQLSTATE, a message, a position in the statement."""

from __future__ import annotations

import re
from collections.abc import Callable

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.runtime.errors import LogError
from flowql.server.failures import FORBIDDEN

# Codes of FlowQL and the SQLSTATE that PostgreSQL has for the like (its documentation, appendix "PostgreSQL Error Codes").
_STATES = {
    "FQ2001": "42P01",
    "FQ2002": "42703",
    "FQ2003": "42702",
    "FQ2004": "42701",
    "FQ2005": "42804",
    "FQ2006": "42883",
    "FQ2007": "42804",
    "FQ2021": "42803",
    "FQ2020": "42803",
    "FQ2026": "22000",
    "FQ2040": "42804",
    "FQ2041": "42809",
    "FQ2061": "0A000",
    "FQ2062": "2201B",
    "FQ2063": "54000",
    "FQ2065": "54000",
    "FQ2066": "54001",
    "FQ2080": "22P02",
    "FQ2085": "42703",
    "FQ2087": "42703",
    "FQ2090": "0A000",
    "FQ4004": "53100",
    "FQ4044": "40001",
    "FQ4063": "40001",
    "FQ5101": "0A000",
    "FQ5102": "42000",
    "FQ5103": "42P01",
    "FQ5104": "40001",
    "FQ5105": "55000",
    "FQ5108": "53200",
    "FQ5109": "57014",
    "FQ5110": "53200",
    "FQ5111": "53000",
    "FQ5112": "55000",
    FORBIDDEN: "42501",
    "FQ5302": "57P03",
}
_OF_ROWS = ("FQ4030", "FQ4062")  # a value cannot be computed; a row cannot be written
# By what a message says, where the code says less.
_TOLD = tuple(
    (re.compile(words), state)
    for words, state in (
        (r"by zero", "22012"),
        # DuckDB's words, of projects in ksqlDB's dialect.
        (r"^Parser Error", "42601"),
        (r"^Binder Error: .*[Cc]olumn", "42703"),
        (r"^Binder Error: No function", "42883"),
        (r"^Binder Error", "42804"),
        (r"^Catalog Error: .*Function", "42883"),
        (r"^Catalog Error: Table", "42P01"),
        (r"^Conversion Error", "22P02"),
        (r"^Out of Range Error", "22003"),
        (r"malformed array literal|is not a number$", "22P02"),
        (r"time zone .* not recognized", "22023"),
        (r"field value out of range", "22008"),
        (r"does not fit DECIMAL", "22003"),
        (r"null character not permitted", "54000"),
        (r"has a row with the key", "23505"),
        (r"is NOT NULL|PRIMARY KEY: it has no NULL", "23502"),
        (r"would break", "23514"),
        (r"invalid input syntax for type (?:date|time)", "22007"),
        (r"invalid input syntax", "22P02"),
        (r"'[+-]?\d+' is not a whole number|out of (?:the )?range", "22003"),
        (r"is not a whole number|cannot be read as", "22P02"),
        (r"unsupported arithmetic types: .* TEXT|TEXT .* unsupported arithmetic", "22P02"),
        (r"unsupported arithmetic types", "42883"),
        (r"LIMIT must not be negative", "2201W"),
        (r"OFFSET must not be negative", "2201X"),
        (r"more than one row returned by a subquery", "21000"),
        (r"^unknown type", "42704"),
        (r"square root of a negative", "2201F"),
        (r"logarithm of", "2201E"),
    )
)


# The parser reads literals as well, and says of one that it is none.
_LITERALS = (("is not an interval", "22007"), ("is not a decimal number", "22P02"))
_VAGUE = (None, "42000", "42804", "42P01", "22000")


class PgError(Exception):
    """state: an SQLSTATE. position: of a character in the statement, from 1; 0 for none. at: its place as FlowQL has it, where no position is known yet."""

    def __init__(
        self, state: str, title: str, *, help: str = "", detail: str = "", position: int = 0, at: Span = NOWHERE
    ) -> None:
        super().__init__(title)
        self.state, self.title, self.help, self.detail, self.position, self.at = (
            state,
            title,
            help,
            detail,
            position,
            at,
        )

    def placed(self, sql: str, original: Callable[[int], int] = lambda at: at) -> PgError:
        """With the position in the statement that was sent. original: of an offset in `sql`, which was made of it."""
        if self.position or self.at is NOWHERE or not self.at.line:
            return self
        lines = sql.splitlines(keepends=True)
        if self.at.line > len(lines):
            return self
        offset = sum(map(len, lines[: self.at.line - 1])) + self.at.column - 1
        return PgError(self.state, self.title, help=self.help, detail=self.detail, position=original(offset) + 1)


class Violation(PgError):
    """A breach of the protocol itself: the session ends."""

    def __init__(self, title: str) -> None:
        super().__init__("08P01", title)


def unknown_outcome(why: str) -> PgError:
    title = f"whether the transaction was committed is not known: {why}"
    return PgError(
        "08007", title, help="before you repeat it, read its tables: it was committed as a whole or not at all"
    )


def pg_error(error: CommandError | CompileError | RuntimeFailure) -> PgError:
    """An error of FlowQL; its code is the detail."""
    if isinstance(error, LogError) and error.is_outcome_unknown:
        return unknown_outcome(str(error))
    if isinstance(error, CompileError):
        first = error.diagnostics[0]
        code, title, help_, span = first.code, first.title, first.help, first.span
        if first.unsupported:
            return PgError("0A000", title, help=help_, detail=code, at=span)
    elif isinstance(error, CommandError):
        code, title, help_, span = error.code, error.title, error.help, error.span
    else:
        code, title, help_, span = error.code, str(error), "", NOWHERE
    return PgError(_state(code, title), title, help=help_, detail=f"flowql explain {code}", at=span)


def _state(code: str, title: str) -> str:
    if code.startswith("FQ1"):
        return next((state for said, state in _LITERALS if title.endswith(said)), "42601")
    found = _STATES.get(code)
    if found in _VAGUE:
        found = next((state for words, state in _TOLD if words.search(title)), found)
    return found or ("22000" if code in _OF_ROWS else "58000" if code.startswith("FQ4") else "XX000")


def unsupported(title: str, help_: str = "") -> PgError:
    return PgError("0A000", title, help=help_)
