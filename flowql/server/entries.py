"""The requests that an instance answers, as data. Routes, limits, checks of parameters and bodies, OpenAPI and tests are made from the entries.

An entry is one method of one path. Its handler gets a `Call`, whose parameters and body have been checked against the entry.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query.committed import SETTLE_S, SETTLE_STEP_S
from flowql.server.access import RELAYED, Action, Caller, Relayed, Tokens, authorize, authorize_action
from flowql.server.address import SEEN
from flowql.server.audit import AuditLog
from flowql.server.bodies import Malformed, fields_of, read_body
from flowql.server.connections import HOLDS_TOKEN
from flowql.server.failures import (
    INTERNAL,
    MALFORMED,
    NO_ROUTE,
    Failure,
    status_of,
    to_wire,
    unauthorized,
)
from flowql.server.routes import DEFAULT, WEBSOCKET, Limit
from flowql.server.signatures import signer

if TYPE_CHECKING:
    from flowql.server.readers import Queries, Readers
    from flowql.server.row_service import RowService
    from flowql.server.service import Service
    from flowql.server.subscriber import Subscriber

JSON = "application/json"
AUDITED = "flowql.audited"  # in the scope of a request: what the audit log tells of it in addition
COLUMNS = "*"  # among the parameters of a call: values by the names of columns
Scope = Literal["none", "result", "sql", "target"]
Where = Literal["path", "query", "header"]
_WORDS: Mapping[str, bool] = {"true": True, "1": True, "": True, "false": False, "0": False}


EVERYONE = Caller("")  # of a port without tokens


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter outside the body. about: a sentence. kind: of its value; a flag may stand without a value."""

    name: str
    where: Where
    about: str
    kind: type[str] | type[int] | type[bool] = str
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """What only the process of the instance has. request_stop: asks the process to end; returns at once."""

    service: Service
    rows: RowService
    request_stop: Callable[[], None] = lambda: None

    async def reach(self, commit: int) -> None:
        """Waits until queries see a commit: the log has it a moment earlier."""
        limit = time.monotonic() + SETTLE_S
        while self.service.applied < commit and time.monotonic() < limit:
            await asyncio.sleep(SETTLE_STEP_S)


@dataclass(frozen=True, slots=True)
class Server:
    """The process behind the routes. own: None in the gateway. secrets: of webhooks, by folded names of results."""

    queries: Queries
    readers: Readers
    own: Own | None = None
    audit: AuditLog | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def service(self) -> Service:
        assert self.own is not None, "called in the process of the instance"
        return self.own.service

    @property
    def rows(self) -> RowService:
        assert self.own is not None, "called in the process of the instance"
        return self.own.rows


@dataclass(frozen=True, slots=True)
class Call:
    """One request. given: its parameters by name, checked, without those left out. body: in the shape of the entry."""

    server: Server
    request: Request
    given: Mapping[str, Any]
    body: Any = None
    caller: Caller = EVERYONE

    @property
    def client(self) -> str:
        """The machine that asks, or the connection if it is this machine."""
        if self.request.client is None:
            return ""
        host, port = self.request.client
        return f"{host}:{port}" if host in ("127.0.0.1", "::1") else host


Handler = Callable[[Call], Awaitable[Response]]


class Elsewhere(Response):
    """An answer that the instance gives to a request of the gateway. It also writes the line of the audit log."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request that the instance answers.

    action, scope: the role that it needs, and what that concerns: the result in the parameter `name`, the relations of SQL, which the handler sees
    to, the whole target, or nothing (any token will do). also: another role that it needs. signed: a signature of the body replaces the token.
    about: a sentence. body: the dataclass of a JSON body; read: makes the body from JSON if the dataclass alone does not say how. accepts: media
    types of a body that the handler reads. any_column: parameters of other names are values of columns. answer: JSON schema of the answer; produces: its media types. from_log: where the log suffices, the gateway
    answers it. follow: begins a subscription, for clients that upgrade the request to WebSocket. internal: only for FlowQL's own programs of the same version, without a promise. local: only on the port for programs of this machine.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: Handler
    action: Action
    about: str
    body: type | None = None
    read: Callable[[Mapping[str, Any]], Any] | None = None
    accepts: tuple[str, ...] = ()
    answer: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    produces: tuple[str, ...] = (JSON,)
    parameters: tuple[Parameter, ...] = ()
    any_column: bool = False
    scope: Scope = "target"
    also: Action | None = None
    signed: bool = False
    limit: Limit = DEFAULT
    from_log: bool = False
    follow: Callable[[Call], Subscriber] | None = None
    internal: bool = False
    local: bool = False


def app_of(entry: Entry, server: Server, tokens: Tokens | None) -> ASGIApp:
    """Answers requests of an entry, for those with a token that permits it. None: for everyone."""
    guarded = _guarded(entry, server, tokens)

    async def app(scope: AsgiScope, receive: Receive, send: Send) -> None:
        answer = await guarded(Request(scope, receive, send))
        await answer(scope, receive, send)

    return app


def response(error: Failure, status: int | None = None) -> Response:
    """status: by default that of the error."""
    status = status_of(error) if status is None else status
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(status)
    return JSONResponse(to_wire(error), status, headers)


def refusal(code: str, message: str, help_: str = "", status: int | None = None) -> Response:
    """The response to a request that is refused before it does anything."""
    return response(CommandError(message, code=code, help=help_), status)


def _guarded(entry: Entry, server: Server, tokens: Tokens | None) -> Callable[[Request], Awaitable[Response]]:
    """The handler, for those who may; failures as JSON; changes and refusals in the audit log."""

    async def guarded(request: Request) -> Response:
        try:
            caller = caller_of(tokens, request, request.headers.get("authorization", ""))
        except Malformed as error:
            return response(*failed(error))
        if caller is None and entry.signed:
            caller = await signer(server.secrets, request)
        if caller is None:
            return response(unauthorized())
        if tokens is not None:
            request.scope[HOLDS_TOKEN] = True
        try:
            if tokens is not None and tokens.relays and server.own is not None:
                await server.own.reach(int(request.headers.get(SEEN, "0")))
            answer = await _answered(entry, server, request, caller)
        except ClientDisconnect:  # within the body: nothing was done, and no answer is read
            return Response(status_code=400)
        except Exception as error:  # the instance continues, and the client gets the error
            answer = response(*failed(error))
        if not isinstance(answer, Elsewhere) and (entry.action != "read" or answer.status_code == 403):
            code = json.loads(bytes(answer.body))["error"]["code"] if answer.status_code >= 400 else None
            await audit(entry, server, request, caller, answer.status_code, code)
        return answer

    return guarded


def caller_of(tokens: Tokens | None, request: Request, authorization: str) -> Caller | None:
    """The caller of a request. None for a wrong token. For a request that the gateway sends on, the client of the request becomes its sender."""
    if tokens is None:
        return EVERYONE
    caller = tokens.caller(authorization)
    if caller is None or not tokens.relays or (told := request.headers.get(RELAYED)) is None:
        return caller
    try:
        relayed = Relayed.of_header(told)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Malformed(f"the header `{RELAYED}` names no sender") from error
    request.scope["client"] = relayed.client
    return relayed.caller


def failed(error: Exception) -> tuple[Failure, int]:
    """The error that a client gets for an exception, and the status."""
    if isinstance(error, Malformed):
        return CommandError(f"this request cannot be read: {error}", code=MALFORMED), error.status
    if isinstance(error, CommandError | CompileError | RuntimeFailure):
        return error, status_of(error)
    return CommandError(f"internal error: {type(error).__name__}: {error}", code=INTERNAL), 500


async def _answered(entry: Entry, server: Server, request: Request, caller: Caller) -> Response:
    if entry.scope in ("none", "sql", "target"):
        permit(entry, caller, None)
    given = given_of(entry, request)
    if entry.scope == "result":
        permit(entry, caller, given["name"])
    return await entry.handler(Call(server, request, given, await _body_of(entry, request), caller))


def permit(entry: Entry, caller: Caller, result: str | None) -> None:
    """Raises CommandError if the caller may not send the request. result: that it concerns, if its scope is one."""
    if entry.scope == "none":
        return
    for action in (entry.action, *([entry.also] if entry.also is not None else [])):
        if entry.scope == "sql":
            authorize_action(caller, action)
        else:
            authorize(caller, action, result)


async def audit(entry: Entry, server: Server, request: Request, caller: Caller, status: int, error: str | None) -> None:
    """Writes who did what, and what came of it; no rows and no statements, which may hold what is private. error: a code."""
    if server.audit is None:
        return
    about = {
        "who": caller.name,
        "from": request.client.host if request.client is not None else "",
        "action": entry.action,
        "request": f"{entry.method} {request.url.path}",
        "status": status,
        "error": error,
        **request.scope.get(AUDITED, {}),
    }
    run = partial(asyncio.get_running_loop().run_in_executor, None)
    await asyncio.wrap_future(server.audit.begin(about, run))


def given_of(entry: Entry, request: Request) -> dict[str, Any]:
    """The parameters of a request. Raises Malformed for one that is missing, unknown, given twice or of another kind."""
    known = {p.name for p in entry.parameters if p.where == "query"}
    names = [name for name, _ in request.query_params.multi_items()]
    unknown = [name for name in names if name not in known]
    if unknown and not entry.any_column:
        there = f"; there are {', '.join(sorted(known))}" if known else ""
        raise Malformed(f"the parameter `{unknown[0]}` is unknown{there}")
    if twice := [name for name in names if names.count(name) > 1]:
        raise Malformed(f"the parameter `{twice[0]}` is given twice")
    found: dict[str, Any] = {COLUMNS: {name: request.query_params[name] for name in unknown}} if unknown else {}
    for p in entry.parameters:
        text = _written(p, request)
        if text is not None:
            found[p.name] = _value(p, text)
        elif p.required:
            raise Malformed(f"the parameter `{p.name}` is missing")
    return found


def _written(parameter: Parameter, request: Request) -> str | None:
    match parameter.where:
        case "path":
            return str(request.path_params[parameter.name])
        case "header":
            return request.headers.get(parameter.name)
    return request.query_params.get(parameter.name)


def _value(parameter: Parameter, text: str) -> Any:
    if parameter.kind is bool:
        if text not in _WORDS:
            raise Malformed(f"`{parameter.name}` is true or false")
        return _WORDS[text]
    if parameter.kind is int:
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise Malformed(f"`{parameter.name}` is a whole number from 0 to 999,999,999")
        return int(text)
    if parameter.choices and text not in parameter.choices:
        raise Malformed(f"`{parameter.name}` is {' or '.join(parameter.choices)}")
    return text


async def _body_of(entry: Entry, request: Request) -> Any:
    cls = entry.body
    if entry.read is not None:
        return await read_body(request, entry.read)
    return None if cls is None else await read_body(request, lambda body: cls(**fields_of(body, cls)))


def missing(method: str, path: str, methods: Sequence[str]) -> Response:
    """The answer for a path or method that does not exist; a WebSocket gets it before the handshake ends. methods: that the path has."""
    what = "WebSocket" if method == WEBSOCKET else method
    help_ = "GET /v1/openapi.json  lists the requests"
    refused = refusal(NO_ROUTE, f"there is no {what} {path[:200]}", help_, 405 if methods else 404)
    if methods:
        refused.headers["Allow"] = ", ".join(methods)
    return refused
