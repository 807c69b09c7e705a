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


ACCEPTED = (
    Known(
        "JSONB keeps no zeros at the end of a fraction",
        ways="against postgres",
        kind="values: (str|tuple)",
        shown=r"1\.50",
    ),
)
OPEN = (
    Known(
        "an interactive query casts a text to a number as DuckDB does",
        r"->>'a' AS INT",
        "view against (asked|stopped|remote)",
        "^(fails|rows) against",
    ),
    Known("CARDINALITY of an interactive query has no sign", "CARDINALITY", kind="against fails", shown="in negation"),
    Known(
        "a frame of an interactive query overflows at the limit of INT",
        "RANGE BETWEEN",
        kind="against fails",
        shown="Overflow in",
    ),
    Known("an interactive query has the types of DuckDB", ways="view against (asked|stopped)", kind="^types"),
    Known(
        "REGR and VAR of interactive queries are DuckDB's, in their last bits",
        r"REGR_|COVAR|VAR_|STDDEV",
        kind="bits of a double",
    ),
)


def reason_of(text: str, ways: tuple[str, str], kind: str, shown: str) -> str:
    """Why a difference is known; empty if it is new."""
    return next((k.reason for k in ACCEPTED + OPEN if k.matches(text, ways, kind, shown)), "")
