"""The page of an error code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodePage:
    """One code explained: `explanation` in a few sentences; `wrong` and `right` are examples, possibly empty."""

    title: str
    explanation: str
    wrong: str = ""
    right: str = ""
