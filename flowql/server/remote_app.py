"""The port for programs on other machines: the routes of this machine that have a use elsewhere, and those for rows.

Not there: `/stop`, as nothing elsewhere could start the instance again; `/backup` and `/append`, whose callers read the files or the log of
the instance's machine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from flowql.compiler.plan import codec
from flowql.query.push import Start
from flowql.server.app import LIMITS, Entry, limited, shared_routes
from flowql.server.arrow_bodies import read_rows
from flowql.server.bodies import Malformed, read_body, text_field, typed
from flowql.server.frames import MEDIA_TYPE, arrow_stream
from flowql.server.limits import Limit, RequestCounts
from flowql.server.row_service import SUBSCRIPTIONS_MAX, RowService, Subscriber
from flowql.server.service import Service

PRODUCE_BYTES_MAX = 64 << 20
REMOTE_LIMITS = {
    **LIMITS,
    "/source": Limit(at_once=16),
    "/produce": Limit(PRODUCE_BYTES_MAX, at_once=4),
    "/execute": Limit(body_bytes=1 << 20, at_once=4),
    "/returning": Limit(body_bytes=1 << 20, at_once=4),
    "/changes": Limit(body_bytes=1 << 20, at_once=SUBSCRIPTIONS_MAX + 4),  # those beyond are refused by its own error
}


def make_remote_app(
    service: Service, rows: RowService, token: str, names: Collection[str], running: RequestCounts | None = None
) -> ASGIApp:
    """names: hosts by which it may be called. running: shared with other ports."""

    async def source(request: Request) -> Response:
        name = _parameter(request, "name")
        return JSONResponse({"plan": codec.line(await rows.run(lambda: rows.source(name)))})

    async def produce(request: Request) -> Response:
        name, timestamp = _parameter(request, "to"), request.query_params.get("timestamp")
        data = await request.body()
        written = await rows.run(lambda: rows.produce(name, read_rows(data, PRODUCE_BYTES_MAX), timestamp))
        return JSONResponse({"rows": written})

    async def execute(request: Request) -> Response:
        text, variables = await read_body(request, _statements)
        return JSONResponse({"rows": await rows.run(lambda: rows.execute(text, variables))})

    async def returning(request: Request) -> Response:
        text, variables = await read_body(request, _statements)
        returned = await rows.run(lambda: rows.returning(text, variables))
        return Response(arrow_stream(returned), media_type="application/vnd.apache.arrow.stream")

    async def changes(request: Request) -> Response:
        what, start, limit = await read_body(request, _subscription)
        subscriber = rows.subscriber(what, start, limit)
        try:
            await subscriber.begin()
        except BaseException:
            subscriber.close()
            raise
        return Changes(subscriber)

    entries = [
        *shared_routes(service),
        Entry("GET", "/source", source),
        Entry("POST", "/produce", produce),
        Entry("POST", "/execute", execute),
        Entry("POST", "/returning", returning),
        Entry("POST", "/changes", changes),
    ]
    return limited(entries, token, service, REMOTE_LIMITS, names, running)


class Changes(StreamingResponse):
    """A subscription on its way; it ends when the client leaves."""

    def __init__(self, subscriber: Subscriber) -> None:
        self._subscriber = subscriber
        super().__init__(subscriber.frames(), media_type=MEDIA_TYPE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscriber.close()


def _parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None:
        raise Malformed(f"the parameter `{name}` is missing")
    return value


def _statements(body: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """The statements, and the values of their variables, which may be left out."""
    return text_field(body, "statements"), typed(body.get("variables", {}), dict[str, str], "variables")


def _subscription(body: Mapping[str, Any]) -> tuple[str, Start, int | None]:
    what, start = text_field(body, "what"), typed(body["start"], Start, "start")
    limit = typed(body["limit"], int | None, "limit")
    if limit is not None and limit < 0:
        raise ValueError("`limit` is at least 0")
    return what, start, limit
