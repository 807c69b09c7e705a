"""A finding about the user's project as data; `render` turns it into text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import NOWHERE, Span

Severity = Literal["error", "warning", "hint"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One error, warning (it loses something) or hint (it may not be what was meant).

    code:  stable, `FQ` and four digits (see `flowql.compiler.diagnostics.codes`).
    title: what is wrong, in one sentence, naming the things involved.
    span:  where; `NOWHERE` for a finding about the project as a whole.
    label: short text behind the caret.
    why:   the reason it matters.
    help:  what to type instead.
    edit:  the same as a change of the text, where that is certain enough to be applied by a program.
    unsupported: the construct is understood but not built yet; never used for a user's mistake.
    query: id of the query that a warning or hint concerns; empty if it concerns no single query.
    """

    code: str
    title: str
    span: Span = NOWHERE
    label: str = ""
    why: str = ""
    help: str = ""
    severity: Severity = "error"
    unsupported: bool = False
    edit: Edit | None = None
    query: str = ""

    def note(self) -> str:
        """The lines below the title in a traceback: place, label and help."""
        place = f"  --> {self.span.path or '<text>'}:{self.span.line}:{self.span.column} {self.label}".rstrip()
        lines = [place] if self.span.line else []
        return "\n".join([*lines, *([f"help: {self.help}"] if self.help else []), f"more: flowql explain {self.code}"])


class CompileError(Exception):
    """One or more mistakes in a project, with all diagnostics."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        self.diagnostics = diagnostics
        super().__init__("; ".join(d.title for d in diagnostics))
        for d in diagnostics:
            self.add_note(d.note())


class ParseError(CompileError):
    """The text is not FlowQL's grammar."""


class UnsupportedError(CompileError):
    """FlowQL understands the construct and does not build it yet. Its own class: not the user's mistake."""
