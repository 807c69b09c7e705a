"""The sockets of an instance and the threads that answer on them.

Loads the compiler and HTTP, which take a third of the processor time of a start: `Host` does so once its queries run.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from flowql.compiler.plan import codec
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.database import QueryDatabase
from flowql.query.limits import QueryLimits
from flowql.query.push import Start
from flowql.runtime.app.member_topic import MemberAddress
from flowql.server.address import own_address, write_address
from flowql.server.app import LIMITS, Entry, limited, make_app, make_members_app, make_metrics_app, shared_routes
from flowql.server.arrow_bodies import read_rows
from flowql.server.bodies import Malformed, read_body, text_field, typed
from flowql.server.connections import TAKE_S, Connection, HttpServer
from flowql.server.engine import Engine
from flowql.server.frames import MEDIA_TYPE, arrow_stream
from flowql.server.limits import Limit, RequestCounts
from flowql.server.pg_process import PgProcess
from flowql.server.row_service import SUBSCRIPTIONS_MAX, RowService, Subscriber
from flowql.server.service import Service

SILENT = "FQ5304"
START_S = 10.0


class Listening:
    """What answers requests for an engine, from `begin` to `end` and `close`. request_stop: ends the instance."""

    def __init__(self, settings: Settings, engine: Engine, request_stop: Callable[[], None]) -> None:
        self.settings, self._engine, self._request_stop = settings, engine, request_stop
        self.servers: list[tuple[HttpServer, threading.Thread]] = []
        self.pg: PgProcess | None = None  # for clients of PostgreSQL's protocol
        self.rows: RowService | None = None  # for programs on other machines
        limits = QueryLimits.of(settings.memory_bytes, settings.interactive_queries, settings.data_dir)
        self.database = QueryDatabase(limits)
        self.service = Service(engine, self.database, settings.project_dir)

    def end(self) -> None:
        """Takes no more requests and ends those that run. `close` follows."""
        for server, _ in self.servers:
            server.end()
        if self.pg is not None:
            self.pg.end()
        if self.rows is not None:
            self.rows.stop()
        self.database.close()  # or their threads are waited for
        for _, thread in self.servers:
            thread.join(START_S)
        if self.rows is not None:
            self.rows.close()

    def begin(self) -> None:
        """When it returns the instance can be found by its directory. Raises CommandError."""
        token, running = secrets.token_urlsafe(32), RequestCounts()
        if (metrics := self.settings.metrics) is not None:
            app = make_metrics_app(self.service, metrics.called)
            self.serve(app, metrics.address, metrics.port, key="metrics")
        if (api := self.settings.api) is not None:
            self.rows = RowService(self.service, self.settings)
            app = make_remote_app(self.service, self.rows, api.token, api.called, running)
            self.serve(app, api.address, api.port, key="api", tls=(api.certificate, api.key))
        port = self.serve(make_app(self.service, token, self._request_stop, running), "127.0.0.1", 0)
        if self._engine.shared:
            self._join()
        if (pg := self.settings.pg) is not None:
            self.pg = PgProcess(self.settings, _bound(pg.address, pg.port, "pg"))
            self.pg.begin()
        write_address(self.settings.data_dir, own_address(port, token))

    def _join(self) -> None:
        """Answer other instances of the application, by a token of its own that lets them read rows alone."""
        listening, token = self.settings.members, secrets.token_urlsafe(32)
        port = self.serve(make_members_app(self.service, token, [listening.host]), listening.address, listening.port)
        self._engine.join(MemberAddress(listening.host, port, token))

    def serve(self, app: ASGIApp, address: str, port: int, *, key: str = "", tls: tuple[str, str] = ("", "")) -> int:
        """Answer requests in a thread of its own; the port. key: of the target that names the port. tls: files of certificate and key."""
        certificate, private = tls
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate or None,
            ssl_keyfile=private or None,
        )
        try:
            config.load()
        except OSError as error:  # SSLError is one
            title = f"the instance cannot use the certificate {certificate} with the key {private}: {error}"
            raise CommandError(
                title, code=SILENT, help="see `certificate` and `key` of `api` in flowql.yaml"
            ) from error
        listener = _bound(address, port, key)
        server = HttpServer(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
        self.servers.append((server, thread))
        thread.start()
        limit = time.monotonic() + START_S
        while not server.started:
            if time.monotonic() > limit or not thread.is_alive():
                raise CommandError(f"the instance cannot listen on {address}", code=SILENT)
            time.sleep(0.005)
        return int(listener.getsockname()[1])


def _bound(address: str, port: int, key: str) -> socket.socket:
    """A socket that may be bound again at once after the process has ended. key: of the target that names the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named: without it each answer on an open connection takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # a peer that is gone without a word; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(TAKE_S * 1000))
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        title = f"the instance cannot listen on {address}:{port}: {error.strerror or error}"
        help_ = f"another `{key}` port in flowql.yaml" if key else ""
        raise CommandError(title, code=SILENT, help=help_) from error
    return listener


# The port for programs on other machines: the routes of this machine that have a use elsewhere, and those for rows.
#
# Not there: `/stop`, as nothing elsewhere could start the instance again; `/backup` and `/append`, whose callers read the files or the log of
# the instance's machine.

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
