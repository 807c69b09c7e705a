"""The text of a request: its statements, what kind each is, and parameters in place."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from flowql.compiler.dialect.standard.tokens import TOKEN, comment_end
from flowql.pg.errors import PgError

_READS = frozenset(
    ("SELECT", "WITH", "VALUES", "TABLE", "EXPLAIN", "DESCRIBE", "SUMMARIZE", "FROM", "PIVOT", "UNPIVOT", "(")
)
_WRITES = frozenset(("INSERT", "UPDATE", "DELETE"))
PARAMETERS_MAX = 65_535


class Word(NamedTuple):
    """kind: word, quoted, string, escaped, dollar, number, parameter or op. upper: of a word, without regard to case; else the text itself."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text

    @property
    def name(self) -> str | None:
        """The name that it is, folded to lower case unless it is in quotes."""
        if self.kind == "word":
            return self.text.lower()
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else None

    @property
    def value(self) -> str:
        """The string that it is."""
        return self.text[1:-1].replace("''", "'")


@dataclass(frozen=True)
class Statement:
    """One statement of a request. start: where it begins there. A prepared statement is asked the same for each execution, so answers are kept."""

    sql: str
    start: int
    words: tuple[Word, ...]

    @cached_property
    def uppers(self) -> tuple[str, ...]:
        """`Word.upper` of its words."""
        return tuple(w.upper for w in self.words)

    @cached_property
    def names(self) -> frozenset[str]:
        """Those of its words that are names, folded."""
        return frozenset(w.name for w in self.words if w.name is not None)

    @property
    def verb(self) -> str:
        """Its first word; empty if it has none."""
        return self.uppers[0] if self.words else ""

    @property
    def is_read(self) -> bool:
        return self.verb in _READS

    @cached_property
    def is_write(self) -> bool:
        return self.verb in _WRITES or (
            self.verb == "WITH" and any(w.upper in _WRITES and w.kind == "word" for w in self.words)
        )

    def follows(self, *words: str) -> bool:
        """Whether it begins with these words."""
        return self.uppers[: len(words)] == words

    @cached_property
    def parameters(self) -> int:
        """The highest number of a parameter."""
        return max((int(w.text[1:]) for w in self.words if w.kind == "parameter"), default=0)


def split(text: str) -> list[Statement]:
    """The statements between semicolons, without empty ones. Raises PgError for a quote or comment without an end."""
    found, begun, start = list[Statement](), list[Word](), 0
    for word in _words(text):
        if word.kind == "op" and word.text == ";":
            found += _statement(text, start, word.start, begun)
            begun, start = [], word.end
        else:
            begun.append(word)
    return found + _statement(text, start, len(text), begun)


def _statement(text: str, start: int, end: int, words: list[Word]) -> list[Statement]:
    if not words:
        return []
    if start:
        words = [Word(w.kind, w.text, w.start - start, w.end - start) for w in words]
    return [Statement(text[start:end], start, tuple(words))]


def _words(text: str) -> list[Word]:
    found, at = list[Word](), 0
    while at < len(text):
        match, start = TOKEN.match(text, at), at
        assert match is not None, "the pattern takes any character"
        kind, at = str(match.lastgroup), match.end()
        if kind == "space":
            continue
        if kind == "comment":
            at = comment_end(text, at)
        if kind == "open" or at < 0:
            what = "comment" if at < 0 else "quoted string" if match[0] == "'" else "quoted identifier"
            raise PgError("42601", f"unterminated {what}", position=start + 1)
        if kind == "comment":
            continue
        last = found[-1] if found else None
        if kind == "number" and last is not None and last.text == "$" and last.end == start and match[0].isdecimal():
            found[-1] = _parameter(match[0], last.start, at)
        else:
            found.append(Word("dollar" if kind == "tag" else kind, match[0], start, at))
    return found


def _parameter(digits: str, start: int, end: int) -> Word:
    if not 1 <= int(digits) <= PARAMETERS_MAX:
        raise PgError("42P02", f"there is no parameter ${digits}", position=start + 1)
    return Word("parameter", f"${digits}", start, end)


@dataclass(frozen=True, slots=True)
class Filled:
    """A statement with values in place of its parameters. edits: where each begins in `sql`, and how far it has moved what follows."""

    sql: str
    begins: tuple[int, ...] = ()
    origins: tuple[int, ...] = ()

    def original(self, at: int) -> int:
        """The offset in the statement as it was sent."""
        n = bisect_right(self.begins, at) - 1
        return at if n < 0 else at - self.begins[n] + self.origins[n]


def filled(statement: Statement, literals: Sequence[str]) -> Filled:
    """literals: the values as SQL writes them. Raises PgError for a parameter without a value."""
    parts, begins, origins = list[str](), list[int](), list[int]()
    at = size = 0
    for word in statement.words:
        if word.kind != "parameter":
            continue
        number = int(word.text[1:])
        if number > len(literals):
            raise PgError("42P02", f"there is no parameter ${number}", position=word.start + 1)
        for part, begin in ((statement.sql[at : word.start], None), (literals[number - 1], word.start)):
            if begin is not None:
                begins.append(size)
                origins.append(begin)
            parts.append(part)
            size += len(part)
        begins.append(size)
        origins.append(word.end)
        at = word.end
    return Filled("".join(parts) + statement.sql[at:], tuple(begins), tuple(origins))


def name_after(statement: Statement, count: int) -> tuple[str, Sequence[Word]]:
    """A name with dots after so many words, folded, and what follows it."""
    words = statement.words[count:]
    taken = list(takewhile(lambda w: w.name is not None or w.text == ".", words))
    if not taken:
        raise syntax_error(statement, count)
    parts, used = [taken[0].name or ""], 1
    while used + 1 < len(taken) and taken[used].text == ".":
        parts.append(taken[used + 1].name or "")
        used += 2
    return ".".join(parts), words[used:]


def syntax_error(statement: Statement, at: int) -> PgError:
    """At the word of this number."""
    if at < len(statement.words):
        word = statement.words[at]
        return PgError("42601", f'syntax error at or near "{word.text}"', position=word.start + 1)
    return PgError("42601", "syntax error at end of input", position=len(statement.sql) + 1)
