"""Differences that are known: `ACCEPTED` ones stand in docs/reference/dialects.md, `OPEN` ones are to be mended."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """ways, kind, statement: what a difference of this kind matches, each by an expression. reason: short."""

    reason: str
    statement: str = ""
    ways: str = ""
    kind: str = ""

    def matches(self, text: str, ways: tuple[str, str], kind: str) -> bool:
        found = ((self.statement, text), (self.ways, " against ".join(ways)), (self.kind, kind))
        return all(re.search(pattern, of) for pattern, of in found)


ACCEPTED: tuple[Known, ...] = ()
OPEN = (
    Known("an interactive query has the types of DuckDB", ways="view against (asked|stopped)", kind="^types"),
    Known(
        "REGR and VAR of interactive queries are DuckDB's, in their last bits",
        r"REGR_|COVAR|VAR_|STDDEV",
        kind="bits of a double",
    ),
)


def reason_of(text: str, ways: tuple[str, str], kind: str) -> str:
    """Why a difference is known; empty if it is new."""
    return next((k.reason for k in ACCEPTED + OPEN if k.matches(text, ways, kind)), "")
