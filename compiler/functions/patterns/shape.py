"""Properties of a tree without a string: whether it matches nothing, how large it is, whether its matches can be found one after the other."""

from __future__ import annotations

from flowql.compiler.functions.patterns import code_points as cp
from flowql.compiler.functions.patterns.code_points import Ranges
from flowql.compiler.functions.patterns.tree import (
    Alternation,
    Chars,
    Group,
    Node,
    Position,
    Repeat,
    Sequence,
    children,
    walk,
)

FINAL = ("final", "final_unix")


def is_nullable(node: Node) -> bool:
    """Whether it may match an empty string."""
    if isinstance(node, Chars):
        return False
    if isinstance(node, Alternation):
        return any(map(is_nullable, node.options))
    if isinstance(node, Repeat) and node.least == 0:
        return True
    return all(map(is_nullable, children(node)))


def positions(node: Node) -> set[str]:
    return {n.where for n in walk(node) if isinstance(n, Position)}


def size(node: Node) -> int:
    """How many instructions its program has, about."""
    if isinstance(node, Chars):
        return 1 + min(len(node.ranges), 50)
    if isinstance(node, Repeat):
        return 1 + max(node.most or 0, node.least, 1) * size(node.body)
    return 1 + sum(map(size, children(node)))


def first(node: Node) -> Ranges:
    """The characters that a match may begin with."""
    if isinstance(node, Chars):
        return node.ranges
    if isinstance(node, Sequence):
        found: Ranges = cp.NONE
        for part in node.parts:
            found = cp.union(found, first(part))
            if not is_nullable(part):
                break
        return found
    if isinstance(node, Repeat) and node.most == 0:
        return cp.NONE
    return cp.union(*map(first, children(node)))


def is_unbounded(node: Node) -> bool:
    return any(isinstance(n, Repeat) and n.most is None for n in walk(node))


def finals_are_last(node: Node, *, last: bool = True) -> bool:
    """Whether each `$` is where nothing is read behind it."""
    if isinstance(node, Position):
        return last or node.where not in FINAL
    if isinstance(node, Sequence):
        made = True
        for part in reversed(node.parts):
            made = made and finals_are_last(part, last=last)
            last = last and (part == Sequence(()) or (isinstance(part, Position) and part.where in FINAL))
        return made
    if isinstance(node, Repeat):
        last = last and node.most == 1
    return all(finals_are_last(child, last=last) for child in children(node))


def reads_ahead(node: Node) -> bool:
    """Whether a match may be followed by a search of the rest of the string that adds nothing to it, as that of `a*b|a` in `aaaa`.

    Then all matches of a string may take the square of its length. True also for some that do not.
    """
    if isinstance(node, Alternation):
        options = node.options
        repeated = [o for o in options if not _is_at_start(o)]
        alone = all(
            not cp.intersection(first(a), first(b)) and not is_nullable(a) and not is_nullable(b)
            for i, a in enumerate(repeated)
            for b in repeated[:i]
        )
        return any((not alone and _goes_on(o)) or reads_ahead(o) for o in options)
    if isinstance(node, Repeat) and (node.least == 0 or node.most is None) and _goes_on(node.body):
        return True
    return any(map(reads_ahead, children(node)))


def _goes_on(node: Node) -> bool:
    """Whether something must follow what has no bound in it."""
    if isinstance(node, Sequence):
        for i, part in enumerate(node.parts):
            if _goes_on(part) or (is_unbounded(part) and not all(map(_is_free, node.parts[i + 1 :]))):
                return True
        return False
    return any(map(_goes_on, children(node)))


def _is_free(node: Node) -> bool:
    """Whether it is there everywhere: it may be empty and looks at no position."""
    return is_nullable(node) and not positions(node)


def _is_at_start(node: Node) -> bool:
    """Whether it matches only at the beginning of a string, so once."""
    if isinstance(node, Sequence) and node.parts:
        return _is_at_start(node.parts[0])
    return _is_at_start(node.body) if isinstance(node, Group) else node == Position("text_start")


def is_of_one_way(node: Node) -> bool:
    """Whether it has neither alternatives nor a choice how often something is repeated."""
    return not any(isinstance(n, Alternation) or (isinstance(n, Repeat) and n.least != n.most) for n in walk(node))


def empties_repeated(node: Node) -> bool:
    """Whether something is repeated that may be empty, and it matters how often: engines differ there."""
    for n in walk(node):
        if isinstance(n, Repeat) and n.most not in (0, 1) and is_nullable(n.body):
            inner = list(walk(n.body))
            if n.lazy or any(
                isinstance(i, Group | Alternation | Position) or (isinstance(i, Repeat) and i.lazy) for i in inner
            ):
                return True
    return False
