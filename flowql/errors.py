"""Errors a user of FlowQL may see.

    CompileError            mistakes in SQL or project files; carries diagnostics (flowql.compiler.diagnostics)
      ParseError            not the grammar
      UnsupportedError      understood, not built yet
      ProjectError          flowql.yaml or a file it names
    RuntimeFailure          the log, the state or a record (flowql.runtime.errors)
    CommandError            a command cannot do what it was asked; code FQ5xxx

Anything else that escapes is a bug of FlowQL.
"""

from __future__ import annotations

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.runtime.errors import RuntimeFailure


class ProjectError(CompileError):
    """A mistake in `flowql.yaml` or a file that it names."""


class CommandError(Exception):
    """A command failed. `help`: the correction. `span`: the place in the command."""

    def __init__(self, title: str, *, code: str = "FQ5001", help: str = "", span: Span = NOWHERE) -> None:
        super().__init__(title)
        self.code, self.title, self.help, self.span = code, title, help, span
        self.add_note(self.diagnostic().note())

    def diagnostic(self) -> Diagnostic:
        return Diagnostic(self.code, self.title, self.span, help=self.help)


_HELP = {  # of errors of the engine, which knows no commands
    "FQ4002": "flowql topic ls  lists topics,  flowql topic create NAME  makes one",
    "FQ4005": "flowql status  shows it,  flowql stop  ends it",
}


def diagnostics_of(error: CompileError | CommandError | RuntimeFailure) -> tuple[Diagnostic, ...]:
    """The diagnostics of an error, for `render`."""
    match error:
        case CompileError():
            return error.diagnostics
        case CommandError():
            return (error.diagnostic(),)
    return (Diagnostic(error.code, str(error), help=_HELP.get(error.code, "")),)


__all__ = [
    "CommandError",
    "CompileError",
    "ParseError",
    "ProjectError",
    "RuntimeFailure",
    "UnsupportedError",
    "diagnostics_of",
]
