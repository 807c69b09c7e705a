"""Errors of requests: the one JSON shape that every route answers with, and the HTTP status of each.

    {"error": {"code": "FQ5103", "message": ..., "position": {"line": 1, "column": 15} or null, "help": ..., "details": {...}}}

`details` lets the client in Python raise the error that the instance raised; other programs do not need it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from flowql.compiler.diagnostics.diagnostic import CompileError, Diagnostic, ParseError, UnsupportedError
from flowql.compiler.diagnostics.edits import Edit
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.errors import CommandError, ProjectError, RuntimeFailure
from flowql.query.errors import BUSY, NO_PROCESS, NO_ROOM, UNKNOWN, QueryError

KEY_REUSED = "FQ5316"
Failure = CommandError | CompileError | RuntimeFailure
INTERNAL, UNAUTHORIZED, MALFORMED, LIMITED, NO_QUERY, NO_ROUTE, FORBIDDEN = (
    "FQ5000", "FQ5301", "FQ5307", "FQ5308", "FQ5202", "FQ5314", "FQ5315",
)  # fmt: skip
_STATUS: Mapping[str, int] = {
    INTERNAL: 500,
    UNAUTHORIZED: 401,
    FORBIDDEN: 403,
    KEY_REUSED: 422,
    NO_ROUTE: 404,
    UNKNOWN: 404,
    NO_QUERY: 404,
    **dict.fromkeys((BUSY, NO_ROOM, NO_PROCESS, LIMITED), 503),
}
_COMPILE: Mapping[str, type[CompileError]] = {
    c.__name__: c for c in (CompileError, ParseError, UnsupportedError, ProjectError)
}


def status_of(error: Failure) -> int:
    """400 where the request is at fault and no other status says how; 500 for failures of the engine."""
    if isinstance(error, RuntimeFailure):
        return 500
    return 400 if isinstance(error, CompileError) else _STATUS.get(error.code, 400)


def to_wire(error: Failure) -> dict[str, Any]:
    """The public JSON."""
    if isinstance(error, CompileError):
        first = error.diagnostics[0] if error.diagnostics else Diagnostic(INTERNAL, str(error))
        kind = next(c.__name__ for c in type(error).__mro__ if c.__name__ in _COMPILE)
        details = {"diagnostics": [asdict(d) for d in error.diagnostics]}
        return _shaped(first.code, str(error), first.help, first.span, kind, details)
    if isinstance(error, RuntimeFailure):
        return _shaped(error.code, str(error), "", NOWHERE, "RuntimeFailure")
    kind = "QueryError" if isinstance(error, QueryError) else "CommandError"
    return _shaped(error.code, error.title, error.help, error.span, kind)


def _shaped(
    code: str, message: str, help_: str, span: Span, kind: str, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    position = {"line": span.line, "column": span.column} if span.line else None
    about = {"kind": kind, "span": asdict(span), **(details or {})}
    return {"error": {"code": code, "message": message, "position": position, "help": help_, "details": about}}


def of_wire(data: Mapping[str, Any]) -> Failure:
    """ValueError, KeyError or TypeError if it is none. Errors of the engine have the common class; the code tells them apart."""
    error, details = data["error"], data["error"].get("details", {})
    kind = details.get("kind")
    if kind in _COMPILE:
        return _COMPILE[kind](*map(_diagnostic, details["diagnostics"]))
    if kind == "RuntimeFailure":
        failure = RuntimeFailure(error["message"])
        failure.code = error["code"]
        return failure
    span = Span(**details["span"]) if "span" in details else NOWHERE
    made = QueryError if kind == "QueryError" else CommandError
    return made(error["message"], code=error["code"], help=error["help"], span=span)


def query_error_of_wire(data: Mapping[str, Any]) -> QueryError:
    """As `of_wire`; any failure as an interactive query that was not answered."""
    found = of_wire(data)
    if isinstance(found, QueryError):
        return found
    error = data["error"]
    span = found.span if isinstance(found, CommandError) else NOWHERE
    return QueryError(error["message"], code=error["code"], help=error["help"], span=span)


def _diagnostic(data: Mapping[str, Any]) -> Diagnostic:
    edit = data["edit"]
    spans = {"span": Span(**data["span"]), "edit": edit and Edit(Span(**edit["span"]), edit["text"], edit["inserted"])}
    return Diagnostic(**{**data, **spans})


def unauthorized() -> CommandError:
    """The error of a request without a valid token."""
    help_ = "send the header  Authorization: Bearer TOKEN  with `token` or one of `tokens` of `api` in flowql.yaml"
    return CommandError("the token is wrong or missing", code=UNAUTHORIZED, help=help_)


def last_answer(status: int, error: Failure) -> bytes:
    """The bytes of the last answer on a connection, where no route answers."""
    body = json.dumps(to_wire(error)).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    retry = "retry-after: 1\r\n" if status == 503 else ""
    return f"{head}{retry}connection: close\r\n\r\n".encode() + body
