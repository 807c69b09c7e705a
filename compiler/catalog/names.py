"""Suggestions for names that were not found."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.diagnostics.suggest import closest


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean X?`, or an empty string. A name that differs only in case is asked for quotes."""
    candidates = list(known)
    same = [k for k in candidates if k != name and k.upper() == name.upper()]
    if same:
        hint = "wrap it in double quotes" if same[0] != same[0].upper() else "leave the quotes away"
        return f'did you mean "{same[0]}"? Names are case-sensitive inside quotes: {hint}'
    near = closest(name, candidates, count_max=2)
    found = [k for k in candidates if k in near]
    return f"did you mean {' or '.join(found)}?" if found else ""


def listing(names: Iterable[str], conjunction: str = "and") -> str:
    """`A`, `A and B`, `A, B and C`."""
    items = list(names)
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"
