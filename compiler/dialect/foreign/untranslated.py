"""Why a construct of another dialect has no translation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

Node = Any  # sqlglot's nodes: the library is untyped here


@dataclass(frozen=True, slots=True)
class Problem:
    """construct: what is not translated, as people call it. why: the reason. help: what to write instead. start, end: its place in the text."""

    construct: str
    why: str
    help: str
    start: int
    end: int


class Untranslated(Exception):
    """Raised for a construct without a translation, with every problem found in it."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(p.construct for p in problems))


def refuse(node: Node, construct: str, why: str, help: str = "") -> NoReturn:
    """Raises Untranslated at the place of a node."""
    start, end = place(node)
    raise Untranslated(Problem(construct, why, help, start, end))


def place(node: Node) -> tuple[int, int]:
    """Offsets [start, end) of a node in the text: of its own token, the first one below it, or that of the nearest node above it."""
    while node is not None:
        meta = node.meta if "start" in node.meta else _first(node)
        if meta is not None:
            return meta["start"], meta["end"] + 1
        node = node.parent
    return 0, 0


def _first(node: Node) -> dict[str, int] | None:
    found = [n.meta for n in node.walk() if "start" in n.meta]
    return min(found, key=lambda m: m["start"]) if found else None


def shown(node: Node, dialect: Any) -> str:
    """The text of a node in its own dialect, cut to a length for a message."""
    text = " ".join(node.sql(dialect).split())
    return text if len(text) <= 60 else text[:57] + "..."
