r"""Short strings, one at a time: Python's `re` for patterns that are shown not to backtrack far, at a tenth of the cost of a column of one string.

The text for `re` is written from the tree, with sets of characters as ranges, so no class or flag of Python has a meaning here; both engines try
alternatives and repetitions in the order of the pattern. `steps` is an upper bound of what a search may try. Groups are taken only where no
repetition and no alternative is around them, as `re` may give others wrongly, and all matches only of patterns without an empty one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flowql.compiler.functions.patterns import code_points as cp
from flowql.compiler.functions.patterns.re2 import Writer
from flowql.compiler.functions.patterns.shape import first, is_nullable, is_of_one_way, size
from flowql.compiler.functions.patterns.tree import (
    Alternation,
    Chars,
    Group,
    Node,
    Pattern,
    Position,
    Repeat,
    Sequence,
    children,
)

# A step takes up to 20 ns, and most searches make far fewer.
STEPS_MAX = 1_000_000
CHARS_MAX = 1_000  # longer strings cost more than what is saved
WAYS_MAX = 1_000  # of alternatives and repetitions with a limit
# Ranges of sets in a pattern: Python takes milliseconds to compile hundreds, so that these are written for strings of ASCII.
RANGES_MAX = 100
SIZE_MAX = 1_000  # of a program: Python compiles it in the interpreter


@dataclass(frozen=True, slots=True)
class _Cost:
    """ways: how many ways lead through a part, at most; steps: those of one way into it and all ways on within it."""

    ways: int
    steps: int


@dataclass(frozen=True, slots=True)
class Short:
    """chars_max: of the strings that `regex` may be given. ascii_only: these have no characters beyond ASCII."""

    regex: re.Pattern[str]
    chars_max: int
    ascii_only: bool


def short(pattern: Pattern, groups: frozenset[int]) -> Short | None:
    """None where `re` may take too long or may say something else. groups: that are taken, called `g` and the number."""
    root = pattern.root
    plain = {n.number for n in _always(root) if isinstance(n, Group)}
    if not groups - {0} <= plain or size(root) > SIZE_MAX:
        return None
    longest, ascii_only = chars_max(root), _ranges(root) > RANGES_MAX
    if not longest:
        return None
    return Short(re.compile(_Python(groups - {0}, "" if ascii_only else None).write(root)), longest, ascii_only)


def _always(node: Node) -> list[Node]:
    """The parts that are in each match once."""
    return [node, *(n for c in children(node) for n in _always(c))] if isinstance(node, Sequence | Group) else [node]


def _ranges(node: Node) -> int:
    if isinstance(node, Chars):
        return 0 if len(node.ranges) == 1 and node.ranges[0][0] == node.ranges[0][1] else len(node.ranges)
    return sum(map(_ranges, children(node)))


def chars_max(root: Node) -> int:
    """The longest string that is searched in at most `STEPS_MAX` steps, up to `CHARS_MAX`; 0: no string is."""
    low, high = 0, CHARS_MAX
    while low < high:
        middle = (low + high + 1) // 2
        found = steps(root, middle)
        low, high = (middle, high) if found is not None and found <= STEPS_MAX else (low, middle - 1)
    return low


def steps(root: Node, length: int) -> int | None:
    """The highest number of steps that a search of a string with `length` characters takes; None if no bound is known."""
    cost = _cost(root, Sequence(()), length)
    return None if cost is None else (1 if _is_anchored(root) else length + 1) * (1 + cost.steps)


def _is_anchored(node: Node) -> bool:
    if isinstance(node, Sequence):
        return bool(node.parts) and _is_anchored(node.parts[0])
    if isinstance(node, Alternation):
        return all(map(_is_anchored, node.options))
    return _is_anchored(node.body) if isinstance(node, Group) else node == Position("text_start")


def _cost(node: Node, rest: Node, length: int) -> _Cost | None:
    """rest: what follows within the pattern."""
    if isinstance(node, Chars | Position):
        return _Cost(1, 1)
    if isinstance(node, Group):
        return _cost(node.body, rest, length)
    if isinstance(node, Repeat):
        return _repeated(node, rest, length)
    parts = children(node)
    if isinstance(node, Alternation):
        costs = [_cost(p, rest, length) for p in parts]
        known = [c for c in costs if c is not None]
        return _Cost(sum(c.ways for c in known), 1 + sum(c.steps for c in known)) if len(known) == len(costs) else None
    ways, done = 1, 1
    for i, part in enumerate(parts):
        cost = _cost(part, Sequence((*parts[i + 1 :], rest)), length)
        if cost is None:
            return None
        ways, done = ways * cost.ways, done + ways * cost.steps
    return _Cost(ways, done)


def _repeated(node: Repeat, rest: Node, length: int) -> _Cost | None:
    body = _cost(node.body, Sequence(()), length)
    if body is None or is_nullable(node.body):
        return None
    if body.ways == 1 and is_of_one_way(node.body):
        most = length if node.most is None else min(node.most, length)
        once = (
            isinstance(node.body, Chars)
            and _begins_with_chars(rest)
            and not cp.intersection(node.body.ranges, first(rest))
        )
        # Where what follows begins otherwise, only the longest repetition goes on; a lazy one stops only there.
        return _Cost(1 if once or node.least == node.most else most + 1, 2 * (most + 1) * (body.steps + 1))
    if node.most is None or body.ways**node.most * (node.most + 1) > WAYS_MAX:
        return None
    ways = body.ways**node.most * (node.most + 1)
    return _Cost(ways, ways * (node.most + 1) * (body.steps + 1))


def _begins_with_chars(node: Node) -> bool:
    """Whether its first part is a set of characters, so that it fails in a step."""
    if isinstance(node, Sequence):
        for part in node.parts:
            if part != Sequence(()) and not isinstance(part, Position):
                return _begins_with_chars(part)
        return False
    if isinstance(node, Repeat):
        return node.least > 0 and _begins_with_chars(node.body)
    return _begins_with_chars(node.body) if isinstance(node, Group) else isinstance(node, Chars)


class _Python(Writer):
    """A tree as Python's `re` reads it."""

    def _position(self, node: Position) -> str:
        return _POSITIONS[node.where]

    @staticmethod
    def point(point: int) -> str:
        c = chr(point)
        return c if c.isascii() and c.isalnum() else rf"\U{point:08x}"


_POSITIONS = {
    "text_start": r"\A", "text_end": r"\Z", "line_start": "(?m:^)", "line_end": "(?m:$)", "word_edge": r"(?a:\b)", "no_word_edge": r"(?!(?a:\b))",
    "word_start": r"(?a:\b)", "word_end": r"(?a:\b)", "final": r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)", "final_unix": r"(?=\n?\Z)",
}  # fmt: skip
