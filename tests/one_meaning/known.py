"""Differences that are known: `ACCEPTED` ones stand in docs/reference/dialects.md, `OPEN` ones are to be mended."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """statement, ways, kind, shown: what a difference of this kind matches, each by an expression. reason: short."""

    reason: str
    statement: str = ""
    ways: str = ""
    kind: str = ""
    shown: str = ""

    def matches(self, text: str, ways: tuple[str, str], kind: str, shown: str) -> bool:
        found = ((self.statement, text), (self.ways, " against ".join(ways)), (self.kind, kind), (self.shown, shown))
        return all(re.search(pattern, of) for pattern, of in found)


ACCEPTED: tuple[Known, ...] = (
    Known(
        "one letter becomes two in another case", r"\b(UPPER|LOWER|INITCAP)\b", "against postgres", shown="[ßẞİǄ\u0307]"
    ),
    Known(
        "of equal values of JSONB one is shown", kind="^other values: str", ways="against postgres", shown=r"\b1\.50\b"
    ),
    Known(
        "NUMERIC has no NaN and no Infinity",
        r"(\.d\b|DOUBLE PRECISION).* AS (DECIMAL|NUMERIC)",
        "against postgres",
        "^fails against rows",
    ),
    Known(
        "a row failed before others came that leave it out",
        r"\bVALUES\b.*\b(NOT IN|NOT EXISTS|ALL|EXCEPT)\b",
        "^(view|stream|watermark) against",
        "^fails against rows",
        r"^[a-z]+: \d+ dead letters",
    ),
    Known(
        "a constant that fails is an error of a query where there is a row",
        ways="^asked.* against postgres",
        kind="^rows against fails",
        shown=r"^asked[a-z ]*: *(\[.*\])?\n",
    ),
    Known("PostgreSQL adds doubles in the order of rows", r"\bsums\b", "against postgres", "^other values: .*double"),
)
OPEN: tuple[Known, ...] = ()


def reason_of(text: str, ways: tuple[str, str], kind: str, shown: str) -> str:
    """Why a difference is known; empty if it is new."""
    return next((k.reason for k in ACCEPTED + OPEN if k.matches(text, ways, kind, shown)), "")
