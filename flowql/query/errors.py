"""Why an interactive query was not answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.errors import CommandError

REFUSED = "FQ5101"  # it would write, or reach outside
INVALID = "FQ5102"  # not SQL, or SQL about columns and types that are not there
UNKNOWN = "FQ5103"  # no such table, stream or store
BUSY = "FQ5104"
NOTHING = "FQ5105"  # nothing was ever deployed here
TOO_LARGE = "FQ5108"  # it needs more memory and disk than interactive queries have
NO_ROOM = "FQ5110"  # other interactive queries hold the memory that it needs
NO_PROCESS = "FQ5111"  # it needs a child process, and none can be started
BEHIND = "FQ5112"  # its views do not show the tick that is asked for
TOO_LONG = "FQ5109"  # more rows or time than an answer may have

SEQUENCE = b"flowql.sequence"  # in the metadata of an answer: the number of its commit
COVERAGE = b"flowql.partitions"  # the same, of one of many instances: `4 of 8 partitions`; MISSING: why not all of them
MISSING = b"flowql.missing"
STANDBY = b"flowql.standby"  # the same: `1 of 8 partitions: ...`, for which standby copies answer, and their positions
MOMENTS = b"flowql.moments"  # the same: what it combines though it may be of different moments (`flowql.query.moments`)
APART = b"flowql.apart"  # in the metadata of an answer: why its relations are not at the same offsets of their input

TICK = b"flowql.tick"  # the same, where a tick was asked for: the tick that it shows (`flowql.query.tick_text`)

TYPES = b"flowql.types"  # in the metadata of an answer in standard SQL: the types of its columns, as plans have them
NAMES = (
    b"flowql.names"  # in the metadata of an answer: the names of its columns as they are written, where some are equal
)
ENGINE = b"flowql.engine"  # in the metadata of an answer: whose SQL the statement is in, if not the dialect's


class QueryError(CommandError):
    """An interactive query that cannot be answered: refused, wrong, or about something that is not there."""


def no_process(why: Exception) -> QueryError:
    """The error of an interactive query that needs a process of its own."""
    title = f"no process can be started for this interactive query: {why}"
    help_ = "ask again in a moment; lists and strings that grow, lambdas and recursion need a process"
    return QueryError(title, code=NO_PROCESS, help=help_)


def broken_off() -> QueryError:
    title = "the interactive query was cancelled: its client disconnected, or the instance is stopping"
    return QueryError(title, code=TOO_LONG)


def to_data(error: CommandError) -> dict[str, Any]:
    """An error as it travels; `query_error` makes it one again."""
    return {"code": error.code, "title": error.title, "help": error.help, "span": asdict(error.span)}


def query_error(data: Mapping[str, Any]) -> QueryError:
    return QueryError(data["title"], code=data["code"], help=data["help"], span=Span(**data["span"]))


def place(sql: str, start: int, length: int) -> Span:
    """Characters of a statement, as a message shows them."""
    before = sql[:start]
    line = before.count("\n") + 1
    column = start - (before.rfind("\n") + 1) + 1
    return Span("", line, column, length, sql.splitlines()[line - 1] if sql else "")


def place_of_word(sql: str, word: str) -> Span:
    """The span of a name in a message's statement; NOWHERE if it is not unique."""
    found = list(re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", sql, re.IGNORECASE))
    return place(sql, found[0].start(), len(word)) if len(found) == 1 else NOWHERE
