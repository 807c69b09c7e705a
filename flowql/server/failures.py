"""Errors of a request as they travel: the client raises what was raised in the instance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import Span
from flowql.errors import CommandError, ProjectError, RuntimeFailure
from flowql.query.errors import QueryError, query_error, to_data

Failure = CommandError | CompileError | RuntimeFailure
_COMPILE: Mapping[str, type[CompileError]] = {
    c.__name__: c for c in (CompileError, ParseError, UnsupportedError, ProjectError)
}


def to_wire(error: Failure) -> dict[str, Any]:
    """The public JSON: code, title, help and span, as a CommandError has them; `kind` and `diagnostics` have the class and the details of the error."""
    if isinstance(error, CompileError):
        first = error.diagnostics[0] if error.diagnostics else Diagnostic("FQ5000", str(error))
        kind = next(c.__name__ for c in type(error).__mro__ if c.__name__ in _COMPILE)
        shown = CommandError(str(error), code=first.code, help=first.help, span=first.span)
        return {**to_data(shown), "kind": kind, "diagnostics": [asdict(d) for d in error.diagnostics]}
    if isinstance(error, RuntimeFailure):
        return {**to_data(CommandError(str(error), code=error.code)), "kind": "RuntimeFailure"}
    return {**to_data(error), "kind": "QueryError" if isinstance(error, QueryError) else "CommandError"}


def of_wire(data: Mapping[str, Any]) -> Failure:
    """ValueError, KeyError or TypeError if it is none. Of the engine's errors the class is the common one, and the code tells them apart."""
    kind = str(data.get("kind"))
    if kind in _COMPILE:
        return _COMPILE[kind](*map(_diagnostic, data["diagnostics"]))
    found = query_error(data)
    if kind == "RuntimeFailure":
        failure = RuntimeFailure(found.title)
        failure.code = found.code
        return failure
    if kind == "QueryError":
        return found
    return CommandError(found.title, code=found.code, help=found.help, span=found.span)


def _diagnostic(data: Mapping[str, Any]) -> Diagnostic:
    edit = data["edit"]
    spans = {"span": Span(**data["span"]), "edit": edit and Edit(Span(**edit["span"]), edit["text"], edit["inserted"])}
    return Diagnostic(**{**data, **spans})
