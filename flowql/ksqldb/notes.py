"""Notes about an import, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.diagnostics.source import NOWHERE, Span

Kind = Literal["left out", "changed", "differs", "check"]
MEANING: dict[Kind, str] = {
    "left out": "is not in the project",
    "changed": "is in the project in another form",
    "differs": "is in the project and behaves differently",
    "check": "needs a look before the project runs in earnest",
}


@dataclass(frozen=True, slots=True)
class Note:
    """text: what it is about, and what became of it. help: what to do, most often what to type."""

    kind: Kind
    text: str
    span: Span = NOWHERE
    help: str = ""

    @property
    def short_place(self) -> str:
        """As `place`, by the file's name alone."""
        return self.place.rpartition("/")[2]

    @property
    def place(self) -> str:
        """`file:line`, or nothing for a note about the whole."""
        return f"{self.span.path}:{self.span.line}" if self.span.line else ""
