"""DECLARE, FETCH, MOVE and CLOSE: cursors of SQL, which read an answer forward."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flowql.pg.errors import PgError, unsupported
from flowql.pg.execution import Produced
from flowql.pg.portals import Rows
from flowql.pg.statements import Statement, split, syntax_error
from flowql.pg.subscribing import STEP_S
from flowql.pg.types import PgColumn

_DURATION, _UNITS = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(ms|s|m)?"), {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}
WAIT_S_MAX = 3_600.0
CURSORS_MAX = 100  # of a session
VERBS = frozenset(("DECLARE", "FETCH", "MOVE", "CLOSE"))
Open = Callable[[Statement], Awaitable[Produced]]


@dataclass(frozen=True, slots=True)
class Cursor:
    """holds: beyond the end of its transaction."""

    rows: Rows
    holds: bool


class Cursors:
    """Those of one session."""

    def __init__(self, call: Callable[..., Awaitable[Any]], pause: Callable[[float], Awaitable[None]]) -> None:
        """call: carries out what blocks. pause: waits so many seconds, or raises PgError."""
        self._call, self._pause = call, pause
        self._open: dict[str, Cursor] = {}

    def columns(self, statement: Statement) -> list[PgColumn] | None:
        """Those that FETCH gives; None for a cursor that does not exist."""
        cursor = self._open.get(_last_name(_without_timeout(statement)[0]))
        return None if cursor is None else cursor.rows.columns

    def end_transaction(self) -> None:
        """Closes those that do not hold."""
        for name in [n for n, c in self._open.items() if not c.holds]:
            self._close(name)

    def close_all(self) -> None:
        for name in list(self._open):
            self._close(name)

    async def run(self, statement: Statement, formats: Sequence[int], begin: Open, *, in_transaction: bool) -> Produced:
        """begin: begins a query. Raises PgError."""
        match statement.verb:
            case "DECLARE":
                return await self._declare(statement, begin, in_transaction=in_transaction)
            case "CLOSE":
                if statement.follows("CLOSE", "ALL"):
                    self.close_all()
                    return Produced("CLOSE CURSOR ALL")
                self._known(name := _last_name(statement))
                self._close(name)
                return Produced("CLOSE CURSOR")
        statement, wait_s = _without_timeout(statement)
        cursor, count = self._known(_last_name(statement)), _count(statement)
        await self._wait(cursor.rows, wait_s)
        if statement.verb == "MOVE":
            return Produced(f"MOVE {sum(b.num_rows for b in cursor.rows.taken(count))}")
        rows = Rows(cursor.rows.columns, cursor.rows.taken(count), lambda: None)
        rows.formats = (
            [formats[0] if len(formats) == 1 else 0] * len(rows.columns) if len(formats) < 2 else list(formats)
        )
        return Produced("FETCH", rows)

    async def _wait(self, rows: Rows, seconds: float) -> None:
        """Until a subscription has rows, for so long at most."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while seconds and not await self._call(rows.is_ready) and loop.time() < end:
            await self._pause(STEP_S)

    async def _declare(self, statement: Statement, begin: Open, *, in_transaction: bool) -> Produced:
        words = [w.upper for w in statement.words]
        if "FOR" not in words or len(words) < 4 or statement.words[1].name is None:
            raise syntax_error(statement, len(words))
        at = words.index("FOR")
        options, name = words[2:at], statement.words[1].name
        holds = options[-2:] == ["WITH", "HOLD"]
        if not in_transaction and not holds:
            raise PgError("25P01", "DECLARE CURSOR can only be used in transaction blocks")
        if "SCROLL" in options and options[max(0, options.index("SCROLL") - 1)] != "NO":
            raise unsupported("a cursor reads only forward", "declare it without SCROLL")
        if name in self._open:
            raise PgError("42P03", f'cursor "{name}" already exists')
        if len(self._open) >= CURSORS_MAX:
            raise PgError("54000", f"a session has {CURSORS_MAX} cursors at most")
        queries = split(statement.sql[statement.words[at].end :])
        if not queries or not (queries[0].is_read or queries[0].verb == "SUBSCRIBE") or queries[0].is_write:
            raise unsupported("a cursor is of a SELECT")
        produced = await begin(queries[0])
        assert produced.rows is not None, "a query has rows"
        self._open[name] = Cursor(produced.rows, holds)
        return Produced("DECLARE CURSOR")

    def _known(self, name: str) -> Cursor:
        if name not in self._open:
            raise PgError("34000", f'cursor "{name}" does not exist')
        return self._open[name]

    def _close(self, name: str) -> None:
        self._open.pop(name).rows.close()


def _without_timeout(statement: Statement) -> tuple[Statement, float]:
    """FETCH without `WITH (TIMEOUT = '1s')`, and the seconds for which it waits for rows of a subscription. Raises PgError."""
    words = [w.upper for w in statement.words]
    if "WITH" not in words:
        return statement, 0.0
    at = words.index("WITH")
    match words[at + 1 :]:
        case ["(", "TIMEOUT", "=", text, ")"] | ["(", "TIMEOUT", text, ")"]:
            found = _DURATION.fullmatch(text.strip("'"))
            if found is not None:
                seconds = float(found[1]) * _UNITS[found[2]]
                return replace(statement, words=statement.words[:at]), min(seconds, WAIT_S_MAX)
    raise syntax_error(statement, at)


def _last_name(statement: Statement) -> str:
    name = statement.words[-1].name
    if name is None or len(statement.words) < 2:
        raise syntax_error(statement, len(statement.words))
    return name


def _count(statement: Statement) -> int | None:
    """How many rows FETCH and MOVE take; None: all."""
    words = [w.upper for w in statement.words[1:-1] if w.upper not in ("FROM", "IN")]
    match words:
        case [] | ["NEXT"] | ["FORWARD"]:
            return 1
        case ["ALL"] | ["FORWARD", "ALL"]:
            return None
        case [number] | ["FORWARD", number] if number.isdecimal():
            return int(number)
    raise unsupported("a cursor reads only forward")
