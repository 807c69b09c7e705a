"""A tree as RE2 reads it: sets of characters are written as ranges, so that no class or flag of RE2 has a meaning of its own here.

The positions of Java that RE2 lacks are written for a kind of string (`Ending`): one that ends with a line terminator has two places for `$`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from flowql.compiler.functions.patterns.code_points import (
    ASCII,
    EVERY,
    Ranges,
    chars,
    complement,
    holds,
    intersection,
    union,
)
from flowql.compiler.functions.patterns.tree import Alternation, Chars, Group, Node, Position, Repeat, Sequence

END = "end"  # groups that stand where a match ends although more is read are called so, with a number
_POSITIONS = {
    "text_start": r"\A", "text_end": r"\z", "line_start": "(?m:^)", "line_end": "(?m:$)", "word_edge": r"\b", "no_word_edge": r"\B",
    "word_start": r"\b", "word_end": r"\b",
}  # fmt: skip
_TERMINATORS = r"[\n\r\x{85}\x{2028}\x{2029}]"


class Ending(Enum):
    """How a string ends: without a line terminator, with a carriage return and a line feed, or with another terminator."""

    PLAIN = ""
    BOTH = r"\r\n"
    ONE = _TERMINATORS


@dataclass(slots=True)
class Writer:
    """groups: numbers of the groups that are kept, as `g` and the number.

    alphabet: the characters beyond ASCII that the strings have; None: any. Sets of thousands of letters would take RE2 milliseconds to compile.
    """

    groups: Collection[int]
    alphabet: str | None
    ending: Ending = Ending.PLAIN
    ends: int = 0

    def write(self, node: Node) -> str:
        if isinstance(node, Chars):
            return self._chars(node.ranges)
        if isinstance(node, Position):
            return self._position(node)
        if isinstance(node, Sequence):
            return "".join(f"(?:{t})" if isinstance(p, Alternation) else t for p in node.parts for t in [self.write(p)])
        if isinstance(node, Alternation):
            return "|".join(map(self.write, node.options))
        if isinstance(node, Group):
            name = f"?P<g{node.number}>" if node.number in self.groups else "?:"
            return f"({name}{self.write(node.body)})"
        return self._repeat(node)

    def _repeat(self, node: Repeat) -> str:
        body = self.write(node.body)
        simple = isinstance(node.body, Chars | Group)
        return f"{body if simple else f'(?:{body})'}{_times(node)}{'?' if node.lazy else ''}"

    def _position(self, node: Position) -> str:
        if node.where not in ("final", "final_unix"):
            return _POSITIONS[node.where]
        before = r"\n" if node.where == "final_unix" and self.ending is not Ending.PLAIN else self.ending.value
        if not before:
            return r"\z"
        self.ends += 1
        return rf"(?P<{END}{self.ends}>)(?:{before})?\z"

    def _chars(self, ranges: Ranges) -> str:
        every = EVERY
        if self.alphabet is not None:
            wide = tuple((ord(c), ord(c)) for c in self.alphabet if holds(ranges, ord(c)))
            ranges = union(intersection(ranges, ASCII), wide)
            every = union(ASCII, chars(self.alphabet))
        if ranges == every:
            return "(?s:.)"
        if not ranges:
            return f"[^{self._ranges(EVERY)}]"
        if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
            return self.point(ranges[0][0])
        others = intersection(complement(ranges), every)
        if len(others) < len(ranges):
            return f"[^{self._ranges(others)}]"
        return f"[{self._ranges(ranges)}]"

    def _ranges(self, ranges: Ranges) -> str:
        return "".join(self.point(a) if a == b else f"{self.point(a)}-{self.point(b)}" for a, b in ranges)

    @staticmethod
    def point(point: int) -> str:
        """A character, also in brackets."""
        c = chr(point)
        return c if c.isascii() and c.isalnum() else rf"\x{{{point:x}}}"


def _times(node: Repeat) -> str:
    plain = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    if plain is not None:
        return plain
    if node.most == node.least:
        return f"{{{node.least}}}"
    return f"{{{node.least},{'' if node.most is None else node.most}}}"
