"""Whether the first match in the order of a pattern is the one that PostgreSQL takes.

PostgreSQL takes the longest match at a place, or the shortest one where the first quantifier is lazy, and of its parts from left to right the longest
or shortest ones. RE2 takes what the pattern tries first. They agree where a part, once it may end, does not go on with a character that what
follows it may begin with: then there is one way to go on. Patterns that may disagree are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.functions.patterns import code_points as cp
from flowql.compiler.functions.patterns.code_points import Ranges
from flowql.compiler.functions.patterns.shape import first, is_nullable
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

Order = Literal["longest", "shortest", "one", "unknown"]


@dataclass(frozen=True, slots=True)
class _Ends:
    """The ends of a part's matches at one place, in the order in which they are tried. goes_on: characters with which a longer one goes on behind a shorter one.

    fixed: their length in characters, if that is known.
    """

    order: Order
    goes_on: Ranges = cp.NONE
    fixed: int | None = None


_UNKNOWN = _Ends("unknown", cp.EVERY)


def reordered(node: Node) -> Node:
    """Alternatives of fixed lengths with the longest ones first, which PostgreSQL prefers."""
    if isinstance(node, Alternation):
        options = [reordered(o) for o in node.options]
        sizes = [_ends(o).fixed for o in options]
        if all(s is not None for s in sizes):
            order = sorted(range(len(options)), key=lambda i: -(sizes[i] or 0))
            options = [options[i] for i in order]
        return Alternation(tuple(options))
    if isinstance(node, Sequence):
        return Sequence(tuple(map(reordered, node.parts)))
    if isinstance(node, Repeat):
        return Repeat(reordered(node.body), node.least, node.most, node.lazy)
    return Group(reordered(node.body), node.number) if isinstance(node, Group) else node


def disagreement(root: Node) -> str:
    """Why PostgreSQL may take another match, or nothing. root: as `reordered` gives it."""
    if any(isinstance(n, Repeat) and n.most != 1 and _changes_groups(n.body) for n in walk(root)):
        return "a group is left out in some repetitions of what is around it"
    lazy = _preference(root)
    ends = _ends(root)
    if ends.order == "unknown":
        return "parts that follow each other may both match the same characters"
    if ends.order != "one" and ends.order != ("shortest" if lazy else "longest"):
        return "greedy and lazy quantifiers are mixed"
    return ""


def _changes_groups(body: Node) -> bool:
    """Whether a group within a repetition is not part of every one."""
    inner = [n for n in walk(body) if isinstance(n, Alternation) or (isinstance(n, Repeat) and n.least == 0)]
    return any(isinstance(g, Group) for n in inner for c in children(n) for g in walk(c))


def _preference(node: Node) -> bool:
    """Whether it prefers the shortest match: its first quantifier is lazy. Alternatives prefer the longest one."""
    return _quantified(node) is True


def _quantified(node: Node) -> bool | None:
    """Whether its first quantifier is lazy; None without one."""
    if isinstance(node, Alternation):
        return False
    if isinstance(node, Repeat):
        if node.least == node.most:
            return _quantified(node.body)
        return node.lazy
    for child in children(node):
        found = _quantified(child)
        if found is not None:
            return found
    return None


def _ends(node: Node) -> _Ends:
    if isinstance(node, Chars):
        return _Ends("one", fixed=1)
    if isinstance(node, Position):
        return _Ends("one", fixed=0)
    if isinstance(node, Group):
        return _ends(node.body)
    if isinstance(node, Repeat):
        return _repeated(node)
    if isinstance(node, Alternation):
        return _one_of(node)
    return _in_a_row(node.parts)


def _in_a_row(parts: tuple[Node, ...]) -> _Ends:
    made = _Ends("one", fixed=0)
    rest: Node = Sequence(())
    for part in reversed(parts):
        made = _pair(_ends(part), made, rest)
        rest = Sequence((part, *(rest.parts if isinstance(rest, Sequence) else (rest,))))
    return made


def _pair(a: _Ends, b: _Ends, rest: Node) -> _Ends:
    """a, then b, which is `rest`."""
    if "unknown" in (a.order, b.order):
        return _UNKNOWN
    fixed = a.fixed + b.fixed if a.fixed is not None and b.fixed is not None else None
    goes_on = cp.union(b.goes_on, cp.union(a.goes_on, first(rest)) if is_nullable(rest) else cp.NONE)
    if a.order == "one":
        return _Ends(b.order, b.goes_on if not a.goes_on else goes_on, fixed)
    if _stops_at_end(rest, greedy=a.order == "longest"):
        return _Ends("one", cp.NONE, fixed)
    if b.fixed is not None:
        return _Ends(a.order, cp.union(a.goes_on, first(rest), cp.EVERY if b.fixed else cp.NONE), fixed)
    if cp.intersection(a.goes_on, first(rest)):
        return _UNKNOWN
    if is_nullable(rest):
        return _Ends(a.order, goes_on, fixed) if b.order in ("one", a.order) else _UNKNOWN
    return _Ends(b.order, goes_on, fixed)  # one end of `a` alone leads on


def _stops_at_end(rest: Node, *, greedy: bool) -> bool:
    """Whether it ends at the end of the text, wherever it begins. greedy: what is before it prefers the longest match, which is then that of all."""
    if isinstance(rest, Sequence) and rest.parts:
        return _stops_at_end(rest.parts[-1], greedy=greedy)
    if isinstance(rest, Repeat):
        to_end = not rest.lazy and rest.most is None and isinstance(rest.body, Chars) and rest.body.ranges == cp.EVERY
        return greedy and to_end
    return _stops_at_end(rest.body, greedy=greedy) if isinstance(rest, Group) else rest == Position("text_end")


def _repeated(node: Repeat) -> _Ends:
    body = _ends(node.body)
    if body.order == "unknown":
        return _UNKNOWN
    if node.least == node.most and body.fixed is not None:
        return _Ends("one", cp.NONE, body.fixed * node.least)
    if is_nullable(node.body):
        return _UNKNOWN
    if body.order != "one" and cp.intersection(body.goes_on, first(node.body)):
        return _UNKNOWN
    order: Order = "shortest" if node.lazy else "longest"
    if body.order not in ("one", order) and node.most != 1:
        return _UNKNOWN
    if body.order not in ("one", order):
        return _UNKNOWN
    return _Ends(order, cp.union(body.goes_on, first(node.body)) if node.most != 1 or node.least == 0 else body.goes_on)


def _one_of(node: Alternation) -> _Ends:
    parts = [_ends(o) for o in node.options]
    sizes = [p.fixed for p in parts]
    known = [s for s in sizes if s is not None]
    if len(known) == len(sizes):
        if len(set(known)) == 1:
            return _Ends("one", fixed=known[0])
        return _Ends("longest", _longer(node.options))  # the longest one is tried first
    firsts = [first(o) for o in node.options]
    for i, a in enumerate(firsts):
        if any(cp.intersection(a, b) for b in firsts[:i]) or (is_nullable(node.options[i]) and i < len(firsts) - 1):
            return _UNKNOWN
    if any(p.order not in ("one", "longest") for p in parts):
        return _UNKNOWN
    return _Ends("longest", cp.union(*(p.goes_on for p in parts), *(firsts if is_nullable(node) else ())))


def _longer(options: tuple[Node, ...]) -> Ranges:
    """The characters with which longer alternatives of fixed lengths go on behind the end of shorter ones."""
    columns = [_columns(o) for o in options]
    if any(c is None for c in columns):
        return cp.EVERY
    sizes = {len(c) for c in columns if c is not None}
    return cp.union(*(c[size] for c in columns if c is not None for size in sizes if size < len(c)))


def _columns(node: Node) -> list[Ranges] | None:
    """The characters at each place of a part of a fixed length; None where lengths differ within it."""
    if isinstance(node, Chars):
        return [node.ranges]
    if isinstance(node, Repeat):
        body = _columns(node.body) if node.least == node.most else None
        return None if body is None else body * node.least
    parts = [_columns(c) for c in children(node)]
    if any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    if isinstance(node, Alternation):
        return [cp.union(*at) for at in zip(*known, strict=True)] if len({len(p) for p in known}) == 1 else None
    return [ranges for p in known for ranges in p]
