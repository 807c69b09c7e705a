"""A regular expression as a tree, whatever the syntax it was written in. Flags are gone: sets of characters say what they mean. Also the errors of patterns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from flowql.compiler.functions.bounds import RowFailure
from flowql.compiler.functions.patterns.code_points import Ranges


class PatternFailure(RowFailure):
    """A row that a function of patterns fails for."""

    code = "FQ4071"


class PatternError(PatternFailure):
    """A pattern that is not valid. constant_code: of the diagnostic where it is a constant. reason: without the pattern."""

    constant_code = "FQ2062"
    label = "is not valid"

    def __init__(self, pattern: str, reason: str, help: str = "") -> None:
        super().__init__(f"the pattern {shown(pattern)} {self._problem}: {reason}")
        self.reason, self.help = reason, help

    _problem = "is not valid"


class PatternNotSupported(PatternError):
    """A construct that an engine of linear time does not have, by its name."""

    constant_code = "FQ2061"
    label = "is not supported"
    _problem = "has a construct that is not supported"


class PatternTooLarge(PatternError):
    """The engine does not compile it within its limit of memory."""

    constant_code = "FQ2063"
    label = "is too large"
    _problem = "is too large"


class PatternAmbiguous(PatternError):
    """PostgreSQL would choose another one of several matches."""

    constant_code = "FQ2064"
    label = "is not supported"
    _problem = "has several matches at one place"


class StringTooLong(PatternFailure):
    """The string would take too long to be compared with the pattern."""

    code = "FQ4070"


def shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")


# final: the end of the text, and before its last line terminator as Java has it; final_unix: where that is a line feed.
# word_start and word_end are edges with the word behind and before them.
Where = Literal[
    "text_start", "text_end", "final", "final_unix", "line_start", "line_end", "word_edge", "no_word_edge", "word_start", "word_end"
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    ranges: Ranges


@dataclass(frozen=True, slots=True)
class Position:
    """A place between characters, which is no character itself."""

    where: Where


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other; empty: nothing."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """The first of them that leads to a match."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """body, `least` times to `most` times; None: any number. lazy: as few as possible."""

    body: Node
    least: int
    most: int | None
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A group whose match is kept. number: from 1."""

    body: Node
    number: int


Node = Chars | Position | Sequence | Alternation | Repeat | Group
EMPTY = Sequence(())


@dataclass(frozen=True, slots=True)
class Pattern:
    """names: of groups that have one -> number. stale: groups that Java leaves behind where it has given up what they were in."""

    text: str
    root: Node
    groups: int
    names: tuple[tuple[str, int], ...] = ()
    stale: frozenset[int] = frozenset()


def sequence(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def alternation(options: list[Node]) -> Node:
    return options[0] if len(options) == 1 else Alternation(tuple(options))


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Alternation):
        return node.options
    return (node.body,) if isinstance(node, Repeat | Group) else ()


def walk(node: Node) -> Iterator[Node]:
    """It and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)
