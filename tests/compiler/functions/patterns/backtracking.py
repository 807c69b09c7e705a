"""A matcher that backtracks as Python's `re` does, without its shortcuts, and counts what it tries."""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.functions.patterns.code_points import holds
from flowql.compiler.functions.patterns.tree import Alternation, Chars, Group, Node, Position, Repeat, Sequence


def tried(root: Node, s: str) -> int:
    """How many sets of characters, places and repetitions are tried until the first match, or until there is none."""
    count = 0

    def match(node: Node, at: int, then: Callable[[int], bool]) -> bool:
        nonlocal count
        if isinstance(node, Chars):
            count += 1
            return at < len(s) and holds(node.ranges, ord(s[at])) and then(at + 1)
        if isinstance(node, Position):
            count += 1
            return _is_at(node, s, at) and then(at)
        if isinstance(node, Group):
            return match(node.body, at, then)
        if isinstance(node, Alternation):
            return any(match(o, at, then) for o in node.options)
        if isinstance(node, Sequence):
            return in_a_row(node.parts, at, then)
        return again(node, 0, at, then)

    def in_a_row(parts: tuple[Node, ...], at: int, then: Callable[[int], bool]) -> bool:
        return match(parts[0], at, lambda end: in_a_row(parts[1:], end, then)) if parts else then(at)

    def again(node: Repeat, done: int, at: int, then: Callable[[int], bool]) -> bool:
        nonlocal count
        count += 1
        more = node.most is None or done < node.most

        def once() -> bool:
            return more and match(node.body, at, lambda end: again(node, done + 1, end, then))

        if done < node.least:
            return once()
        return (then(at) or once()) if node.lazy else (once() or then(at))

    any(match(root, start, lambda end: True) for start in range(len(s) + 1))
    return count


def _is_at(node: Position, s: str, at: int) -> bool:
    if node.where == "text_start":
        return at == 0
    if node.where in ("word_edge", "no_word_edge"):
        edge = _is_word(s, at - 1) != _is_word(s, at)
        return edge == (node.where == "word_edge")
    return at == len(s) or (node.where == "final" and s[at:] in ("\n", "\r", "\r\n"))


def _is_word(s: str, at: int) -> bool:
    return 0 <= at < len(s) and s[at].isascii() and (s[at].isalnum() or s[at] == "_")
