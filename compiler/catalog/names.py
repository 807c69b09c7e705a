"""Suggestions for names that were not found."""

from __future__ import annotations

from collections.abc import Iterable

from flowql.compiler.diagnostics.edits import Edit, quoted, renamed
from flowql.compiler.diagnostics.source import Span
from flowql.compiler.diagnostics.suggest import closest


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or an empty string. A name that differs only in case is asked for quotes."""
    candidates = list(dict.fromkeys(known))
    same = [k for k in candidates if k != name and k.upper() == name.upper()]
    if same:
        hint = "wrap it in double quotes" if same[0] != same[0].upper() else "leave the quotes away"
        return f'did you mean "{same[0]}"? Names are case-sensitive inside quotes: {hint}'
    near = closest(name, candidates, count_max=2)
    found = [k for k in candidates if k in near]
    return f"did you mean {' or '.join(found)}?" if found else ""


def correction(span: Span, name: str, known: Iterable[str], *, first: bool = False) -> Edit | None:
    """The nearest known name in the place of the last (or first) one that the span covers; None when nothing is near."""
    near = closest(name, known)
    return renamed(span, name, quoted(near[0]), first=first) if near else None


def listing(names: Iterable[str], conjunction: str = "and") -> str:
    """`A`, `A and B`, `A, B and C`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"
