"""The shared part of the parsers of patterns: a cursor over the text of a pattern."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

from flowql.compiler.functions.patterns.tree import (
    Node,
    PatternError,
    PatternNotSupported,
    PatternTooLarge,
    alternation,
)

REPEATED_MAX = 1_000  # times of a counted repetition: the limit of RE2
PATTERN_MAX = 5_000  # characters, which take milliseconds to read
DEPTH_MAX = 100  # of brackets in brackets
HEX, DIGITS, OCTAL = frozenset("0123456789abcdefABCDEF"), frozenset("0123456789"), frozenset("01234567")
_LOOKS = {"?=": "look-ahead (?=", "?!": "look-ahead (?!", "?<=": "look-behind (?<=", "?<!": "look-behind (?<!"}


class Reader(ABC):
    """A place in a pattern. depth: of open brackets."""

    def __init__(self, text: str) -> None:
        """Raises PatternTooLarge."""
        if len(text) > PATTERN_MAX:
            raise PatternTooLarge(text, f"it has more than {PATTERN_MAX:,} characters")
        self.text = text
        self.at = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> str:
        """The character there; empty behind the end."""
        place = self.at + ahead
        return self.text[place] if place < len(self.text) else ""

    def take(self) -> str:
        c = self.peek()
        self.at += 1
        return c

    def took(self, text: str) -> bool:
        """Whether it is there; then it is behind."""
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def digits(self, allowed: frozenset[str], most: int) -> str:
        start = self.at
        while self.at - start < most and self.peek() in allowed and self.peek():
            self.at += 1
        return self.text[start : self.at]

    def opened(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise PatternTooLarge(self.text, f"more than {DEPTH_MAX} brackets are within each other")

    @abstractmethod
    def branch(self) -> Node:
        """One alternative."""

    def alternatives(self) -> Node:
        """Up to a closing bracket or the end. Flags that are set within hold to its end."""
        self.opened()
        options = [self.branch()]
        while self.took("|"):
            options.append(self.branch())
        self.depth -= 1
        return alternation(options)

    def invalid(self, reason: str) -> NoReturn:
        raise PatternError(self.text, f"{reason} at character {min(self.at, len(self.text)) + 1}")

    def refuse(self, what: str, help: str = "") -> NoReturn:
        raise PatternNotSupported(self.text, what, help)

    def refuse_looks(self) -> None:
        """Behind an opening bracket."""
        for sign, name in _LOOKS.items():
            if self.text.startswith(sign, self.at):
                self.refuse(name, "compare the parts of the string in several conditions")

    def times(self, least: int, most: int | None) -> tuple[int, int | None]:
        if max(least, most or 0) > REPEATED_MAX:
            raise PatternTooLarge(self.text, f"a repetition of more than {REPEATED_MAX:,} times")
        return least, most
