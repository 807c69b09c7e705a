"""The syntax of SUBSCRIBE: Materialize's grammar, with its clauses in any order, and the option RESUME.

`SUBSCRIBE [TO] name [ENVELOPE UPSERT | DEBEZIUM [(KEY (column, ...))]] [WITH (SNAPSHOT, PROGRESS, RESUME = 'token')] [AS OF [AT LEAST] tick]
[UP TO tick]`. Grammar: Materialize's documentation, page "SUBSCRIBE".
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from flowql.pg.errors import PgError, unsupported
from flowql.pg.statements import Statement, Word, name_after, syntax_error

Envelope = Literal["", "UPSERT", "DEBEZIUM"]
_SWITCHES = {"TRUE": True, "ON": True, "1": True, "FALSE": False, "OFF": False, "0": False}
_TICK_MAX = (1 << 63) - 1
_TICK_DIGITS = 19  # Python refuses to convert strings of thousands of digits


@dataclass(frozen=True, slots=True)
class Subscribe:
    """snapshot: begin with the existing rows. progress: tell how far the changes are complete. envelope: the form of rows; empty: differences. keys:
    columns that the envelope names; empty: the key of the table. as_of, up_to: changes have ticks from the first on and below the second; None: any.
    at_least: a tick that is over is not an error. resume: the token of an earlier subscription, which this one continues.
    """

    name: str
    snapshot: bool = True
    progress: bool = False
    envelope: Envelope = ""
    keys: tuple[str, ...] = ()
    as_of: int | None = None
    at_least: bool = False
    up_to: int | None = None
    resume: str | None = None


def subscribe_of(statement: Statement) -> Subscribe:
    """Raises PgError."""
    at = 2 if statement.words[1:2] and statement.words[1].upper == "TO" else 1
    if statement.words[at : at + 1] and statement.words[at].text == "(":
        raise unsupported("SUBSCRIBE takes the name of a table, view or stream", "make a view of the query")
    name, rest = name_after(statement, at)
    reading = _Clauses(statement, len(statement.words) - len(rest))
    found = Subscribe(name.removeprefix("public."))
    while not reading.at_end:
        found = reading.clause(found)
    if found.resume is not None and (found.as_of is not None or "SNAPSHOT" in reading.options):
        raise PgError("22023", "RESUME tells where the subscription begins: leave out AS OF and SNAPSHOT")
    if found.as_of is not None and found.up_to is not None:
        check_bounds(found.as_of, found.up_to)
    return found


def check_bounds(first: int, up_to: int) -> None:
    """Raises PgError for an end before the beginning."""
    if up_to < first:
        raise PgError("22023", f"the subscription would end (UP TO {up_to}) before it begins (AS OF {first})")


@dataclass(slots=True)
class _Clauses:
    """The words of a statement from a place on. options: names of those that were read."""

    statement: Statement
    at: int
    options: set[str] = field(default_factory=set)
    _seen: set[str] = field(default_factory=set)

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.statement.words)

    def clause(self, found: Subscribe) -> Subscribe:
        """Reads the next clause, and adds it."""
        begun = self.at
        match self._word().upper:
            case "WITH":
                found = self._options(found)
            case "ENVELOPE":
                found = self._envelope(found)
            case "AS":
                self._expect("OF")
                at_least = self._taken("AT")
                if at_least:
                    self._expect("LEAST")
                found = replace(found, as_of=self._tick(), at_least=at_least)
            case "UP":
                self._expect("TO")
                found = replace(found, up_to=self._tick())
            case "WITHIN":
                raise unsupported("WITHIN TIMESTAMP ORDER BY is not supported", "sort the rows of a tick in the client")
            case _:
                raise syntax_error(self.statement, begun)
        clause = self.statement.words[begun].upper
        if clause in self._seen:
            raise syntax_error(self.statement, begun)
        self._seen.add(clause)
        return found

    def _options(self, found: Subscribe) -> Subscribe:
        in_brackets = self._taken("(")
        while True:
            at, name = self.at, self._word().upper
            match name:
                case "SNAPSHOT":
                    found = replace(found, snapshot=self._switch())
                case "PROGRESS":
                    found = replace(found, progress=self._switch())
                case "RESUME":
                    self._taken("=")
                    found = replace(found, resume=self._value())
                case _:
                    raise syntax_error(self.statement, at)
            self.options.add(name)
            if not self._taken(","):
                break
        if in_brackets:
            self._expect(")")
        return found

    def _envelope(self, found: Subscribe) -> Subscribe:
        at = self.at
        match self._word().upper:
            case "UPSERT" | "DEBEZIUM" as envelope:
                return replace(found, envelope=envelope, keys=self._keys() if self._taken("(") else ())
        raise syntax_error(self.statement, at)

    def _keys(self) -> tuple[str, ...]:
        self._expect("KEY")
        self._expect("(")
        found = list[str]()
        while True:
            at, name = self.at, self._word().name
            if name is None or name in found:
                raise syntax_error(self.statement, at)
            found.append(name)
            if not self._taken(","):
                break
        self._expect(")")
        self._expect(")")
        return tuple(found)

    def _switch(self) -> bool:
        """The value of an option; TRUE if none follows."""
        if not self._taken("=") and (self.at_end or self.statement.words[self.at].text in (",", ")")):
            return True
        value = self._value()
        if value.upper() not in _SWITCHES:
            raise PgError("22023", f'"{value}" is neither true nor false')
        return _SWITCHES[value.upper()]

    def _tick(self) -> int:
        at, value = self.at, self._value()
        if not (value.isascii() and value.isdecimal() and len(value) <= _TICK_DIGITS) or int(value) > _TICK_MAX:
            raise PgError("22023", f'"{value[:40]}" is not a tick: a tick is the number of a commit', position=self.statement.words[at].start + 1)  # fmt: skip
        return int(value)

    def _value(self) -> str:
        """A word, number or string, also as the value of a parameter is written: `CAST(5 AS BIGINT)`."""
        casts = 0
        while (word := self._word()).upper == "CAST":
            self._expect("(")
            casts += 1
        for _ in range(casts):
            self._expect("AS")
            self._word()
            self._expect(")")
        return word.value if word.kind == "string" else word.text

    def _word(self) -> Word:
        if self.at_end:
            raise syntax_error(self.statement, self.at)
        self.at += 1
        return self.statement.words[self.at - 1]

    def _taken(self, text: str) -> bool:
        found = not self.at_end and self.statement.words[self.at].upper == text
        self.at += found
        return found

    def _expect(self, text: str) -> None:
        if not self._taken(text):
            raise syntax_error(self.statement, self.at)
