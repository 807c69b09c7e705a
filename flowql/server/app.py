"""The applications of ports, each made from entries. Engine calls run in worker threads."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import replace

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from flowql.server import parts
from flowql.server.access import Tokens
from flowql.server.answers import Rows
from flowql.server.entries import Call, Entry, Server, app_of, missing
from flowql.server.limits import Limited
from flowql.server.look_ups import LOOK_UPS
from flowql.server.openapi import document
from flowql.server.operations import METRICS, OPERATIONS
from flowql.server.routes import WEBSOCKET, Limit, Route, Routes, routed
from flowql.server.row_entries import QUERIES, ROWS
from flowql.server.streaming import paced
from flowql.server.subscription_sockets import socket_of
from flowql.server.topic_records import TOPIC_RECORDS


async def _openapi(_: Call) -> Response:
    return JSONResponse(document(ENTRIES))


OPENAPI = Entry(
    "GET",
    "/v1/openapi.json",
    _openapi,
    "read",
    "This list of requests, as an OpenAPI document.",
    scope="none",
    from_log=True,
)
HEADERS = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID")  # of requests by scripts of web pages
ENTRIES: Sequence[Entry] = (*ROWS, *OPERATIONS, *TOPIC_RECORDS, LOOK_UPS, OPENAPI)


def make_local_app(server: Server, token: str) -> ASGIApp:
    """For programs of this machine, and for the gateway."""
    return app_of_entries(ENTRIES, server, Tokens.local(token))


def make_metrics_app(server: Server, names: Collection[str] = ()) -> ASGIApp:
    """For Prometheus, which knows no token: metrics and nothing else."""
    return app_of_entries([METRICS], server, None, names)


def make_members_app(server: Server, token: str, names: Collection[str] = ()) -> ASGIApp:
    """For other instances of the application: rows of the partitions that are here, and nothing else."""
    return app_of_entries([MEMBER_ROWS], server, Tokens.single(token, "member"), names)


async def _member_rows(call: Call) -> Response:
    service = call.server.service
    found = parts.encode(service.rows(call.body))
    assert isinstance(found, Generator)
    time_s = service.database.limits.settings.time_ms / 1000
    return Rows((), paced(found, service.database.share), parts.MEDIA_TYPE, time_s)


MEMBER_ROWS = Entry(
    "POST",
    "/rows",
    _member_rows,
    "read",
    "Rows of the partitions of this instance.",
    read=parts.wanted_of,
    produces=(parts.MEDIA_TYPE,),
    limit=Limit(body_bytes=1 << 20, at_once=16),
    internal=True,
)


def app_of_entries(
    entries: Iterable[Entry],
    server: Server,
    tokens: Tokens | None,
    names: Collection[str] = (),
    origins: Sequence[str] = (),
) -> ASGIApp:
    """The application of a port. names: hosts by which it may be called. origins: of web pages whose scripts may send requests."""
    routes = list[Route]()
    for e in entries:
        limit = e.limit
        if limit is QUERIES:
            limit = replace(limit, at_once=server.queries.database.limits.settings.at_once)
        routes.append(Route(e.method, e.path, limit, app_of(e, server, tokens)))
        if e.follow is not None:
            routes.append(Route(WEBSOCKET, e.path, limit, socket_of(e, server, tokens)))
    app: ASGIApp = routed
    if origins:
        app = CORSMiddleware(
            app, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=HEADERS, expose_headers=["*"]
        )
    return Limited(app, Routes(routes, missing), names, origins)
