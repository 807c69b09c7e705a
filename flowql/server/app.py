"""HTTP routes of an instance. Every request carries the token; engine calls run in a worker thread."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain, islice
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan
from flowql.deploy.control import NewPriority
from flowql.deploy.request import DeployRequest
from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.query.answer import Answer, QueryEngine
from flowql.query.errors import COVERAGE, to_data
from flowql.query.pace import Share
from flowql.runtime.events import WARNING, say
from flowql.runtime.log.appending import redelivery_of
from flowql.server import parts
from flowql.server.bodies import Malformed, fields_of, read_body, text_field, typed
from flowql.server.client import PROTOCOL
from flowql.server.connections import HOLDS_TOKEN
from flowql.server.failures import to_wire
from flowql.server.limits import Limit, Limited, RequestCounts
from flowql.server.prometheus import CONTENT_TYPE, exposition
from flowql.server.service import Service
from flowql.server.streaming import ARROW, encode, gathered, paced

REFUSED, FAILED = 403, 400
PARTITIONS_HEADER = "flowql-partitions"  # of an answer about many instances: `4 of 8 partitions`
SHORT_PARTS = 3  # an answer of one batch has two
LOOK_S = 0.5  # how often to check that the client is still connected
INTERNAL = "FQ5000"
MALFORMED = "FQ5307"
# Of the 40 threads that answer requests, queries and what waits for a deployment take 36 at most: status and metrics always answer.
LIMITS = {
    "/query": Limit(body_bytes=1 << 20, at_once=16),
    "/append": Limit(64 << 20, at_once=1),
    **dict.fromkeys(("/diff", "/pause", "/promote", "/abandon", "/priority", "/backup"), Limit(at_once=2)),
    "/plan": Limit(body_bytes=64 << 20, at_once=8),
    "/rows": Limit(body_bytes=1 << 20, at_once=16),
    "/status": Limit(at_once=32),
}
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A handler and what it answers."""

    method: str
    path: str
    handler: Handler


def make_app(
    service: Service, token: str, request_stop: Callable[[], None], running: RequestCounts | None = None
) -> ASGIApp:
    """The application of this machine. request_stop: ask the process to end; returns at once. running: shared with other ports."""

    async def append(request: Request) -> Response:
        wanted = await read_body(request, lambda body: [redelivery_of(record) for record in body["records"]])
        return JSONResponse(await run_in_threadpool(lambda: service.append(wanted)))

    async def pin(_: Request) -> Response:
        return JSONResponse({"state_commit": await run_in_threadpool(service.pin)})

    async def stop(_: Request) -> Response:
        request_stop()
        return JSONResponse({"stopping": True}, 202)

    routes = [
        *shared_routes(service),
        Entry("POST", "/append", append),
        Entry("POST", "/backup", pin),
        Entry("POST", "/stop", stop),
    ]
    return limited(routes, token, service, LIMITS, running=running)


def shared_routes(service: Service) -> list[Entry]:
    """Routes that programs of this machine and of other machines may use."""

    async def health(_: Request) -> Response:
        return JSONResponse({"pid": os.getpid(), "version": metadata.version("flowql"), "protocol": PROTOCOL})

    async def status(request: Request) -> Response:
        detail = "detail" in request.query_params
        return JSONResponse(await run_in_threadpool(lambda: service.status(detail=detail)))

    async def metrics(_: Request) -> Response:
        return await scrape(service)

    async def plan(_: Request) -> Response:
        topics = await run_in_threadpool(service.topics)
        return JSONResponse({"deployed": codec.line(service.deployed), "topics": topics})

    async def deploy(request: Request) -> Response:
        wanted, deployment = await read_body(request, _deployment)
        done = await run_in_threadpool(lambda: service.deploy(wanted, deployment))
        return JSONResponse(done)

    async def deployments(request: Request) -> Response:
        """With their plans: `?plans=1`."""
        found = await run_in_threadpool(service.deployments)
        plans = "plans" in request.query_params
        shown = [e if plans else replace(e, plan=Plan()) for e in found]
        return JSONResponse({"deployments": [codec.line(e) for e in shown]})

    async def priority(request: Request) -> Response:
        wanted = await read_body(request, _priority)
        return JSONResponse(await run_in_threadpool(lambda: service.set_priority(wanted)))

    async def pause(request: Request) -> Response:
        names, paused = await read_body(request, _pause)
        done = await run_in_threadpool(lambda: service.pause(names, paused=paused))
        return JSONResponse({"queries": done})

    async def promote(request: Request) -> Response:
        name = await read_body(request, _query)
        return JSONResponse({"queries": await run_in_threadpool(lambda: service.promote(name))})

    async def abandon(request: Request) -> Response:
        name = await read_body(request, _query)
        return JSONResponse({"queries": await run_in_threadpool(lambda: service.abandon(name))})

    async def diff(request: Request) -> Response:
        name = await read_body(request, lambda body: text_field(body, "result"))
        return JSONResponse(await run_in_threadpool(lambda: service.diff(name)))

    async def query(request: Request) -> Response:
        try:
            sql = (await request.body()).decode()
        except UnicodeDecodeError as error:
            raise Malformed(str(error)) from error
        breaks_off: list[Callable[[], None]] = []
        client = _client(request)
        engine: QueryEngine | None = "duckdb" if request.query_params.get("engine") == "duckdb" else None
        answered = run_in_threadpool(lambda: Opened.of(service.query(sql, breaks_off.append, client, engine)))
        computing = asyncio.ensure_future(answered)
        while not computing.done():
            await asyncio.wait([computing], timeout=LOOK_S)
            if not computing.done() and await request.is_disconnected():
                for break_off in breaks_off:
                    break_off()
        opened = await computing
        return opened.response(service.database.limits.settings.time_ms / 1000, service.database.share)

    return [
        Entry("GET", "/health", health),
        Entry("GET", "/status", status),
        Entry("GET", "/metrics", metrics),
        Entry("GET", "/plan", plan),
        Entry("POST", "/plan", deploy),
        Entry("GET", "/deployments", deployments),
        Entry("POST", "/priority", priority),
        Entry("POST", "/pause", pause),
        Entry("POST", "/promote", promote),
        Entry("POST", "/abandon", abandon),
        Entry("POST", "/diff", diff),
        Entry("POST", "/query", query),
    ]


def _client(request: Request) -> str:
    """Who asks: a machine, or a connection of this machine."""
    if request.client is None:
        return ""
    host, port = request.client
    return f"{host}:{port}" if host in ("127.0.0.1", "::1") else host


def limited(
    entries: Iterable[Entry],
    token: str,
    service: Service,
    limits: Mapping[str, Limit],
    names: Collection[str] = (),
    running: RequestCounts | None = None,
) -> ASGIApp:
    """An application of these routes, each for requests with the token. names, running: see `Limited`."""
    app = Starlette(routes=[Route(e.path, _guarded(e.handler, token), methods=[e.method]) for e in entries])
    queries = replace(limits["/query"], at_once=service.database.limits.settings.at_once)
    return Limited(app, {**limits, "/query": queries}, names, running)


def make_metrics_app(service: Service, names: Collection[str] = ()) -> ASGIApp:
    """For Prometheus, which knows no token: metrics and nothing else."""

    async def metrics(_: Request) -> Response:
        return await scrape(service)

    return Limited(Starlette(routes=[Route("/metrics", metrics, methods=["GET"])]), LIMITS, names)


def make_members_app(service: Service, token: str, names: Collection[str] = ()) -> ASGIApp:
    """For other instances of the application: rows of the partitions that are here, and nothing else."""

    async def rows(request: Request) -> Response:
        wanted = await read_body(request, parts.wanted_of)
        found = parts.encode(service.rows(wanted))
        assert isinstance(found, Generator)
        return Rows(
            (),
            paced(found, service.database.share),
            parts.MEDIA_TYPE,
            service.database.limits.settings.time_ms / 1000,
        )

    return Limited(Starlette(routes=[Route("/rows", _guarded(rows, token), methods=["POST"])]), LIMITS, names)


async def scrape(service: Service) -> Response:
    """The metrics of now."""
    text = await run_in_threadpool(lambda: exposition(service.status(detail=True)))
    return Response(text, media_type=CONTENT_TYPE)


@dataclass(frozen=True, slots=True)
class Opened:
    """The first pieces of an answer, made in the thread that computed it: one that is short needs no other turn of threads."""

    first: list[bytes]
    rest: Generator[bytes]
    headers: Mapping[str, str]

    @classmethod
    def of(cls, answer: Answer) -> Opened:
        coverage = (answer.schema.metadata or {}).get(COVERAGE)
        found = encode(answer)
        headers = {PARTITIONS_HEADER: coverage.decode()} if coverage is not None else {}
        return cls(list(islice(found, SHORT_PARTS)), found, headers)

    def response(self, time_s: float, share: Share) -> Response:
        """time_s: for what comes after the first pieces, however slowly they are read. share: what they may take of the interpreter."""
        if len(self.first) < SHORT_PARTS:  # that was all
            return Response(b"".join(self.first), media_type=ARROW, headers=self.headers)
        return Rows(self.first, paced(gathered(self.rest), share), ARROW, time_s, self.headers)


class Rows(StreamingResponse):
    """Streams an answer. If the client disconnects, the computation ends; if it does not read in time, the answer is aborted."""

    def __init__(
        self,
        first: Iterable[bytes],
        rest: Generator[bytes],
        media_type: str,
        time_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._rest, self._time_s = rest, time_s
        super().__init__(chain(first, rest), media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(self._time_s):
                await super().__call__(scope, receive, send)
        except TimeoutError:  # the server closes the connection of an answer without an end
            say(WARNING, "interactive_query.slow", f"an answer was not read within {self._time_s:,.0f} s")
        finally:
            self._rest.close()


def _guarded(handler: Handler, token: str) -> Handler:
    """Only with the token; failures as JSON."""
    expected = f"Bearer {token}".encode()

    async def guarded(request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
            return _failure("FQ5301", "the token is wrong or missing", "", REFUSED)
        request.scope[HOLDS_TOKEN] = True
        try:
            return await handler(request)
        except Malformed as error:
            return _failure(MALFORMED, f"this request cannot be read: {error}", "", FAILED)
        except (CommandError, CompileError, RuntimeFailure) as error:
            return JSONResponse(to_wire(error), FAILED)
        except Exception as error:  # the instance continues, and the client gets the error
            return _failure(INTERNAL, f"internal error: {type(error).__name__}: {error}", "", 500)

    return guarded


def _deployment(body: Mapping[str, Any]) -> tuple[Plan, DeployRequest]:
    fields_of({name: value for name, value in body.items() if name != "about"}, DeployRequest, ignore=True)
    if "about" in body:
        typed(body["about"]["how"], str, "how")
        typed(body["about"]["files"], list[list[str]], "files")
    return codec.loads(text_field(body, "plan")), DeployRequest.of(body)


def _priority(body: Mapping[str, Any]) -> NewPriority:
    wanted = NewPriority(**fields_of(body, NewPriority))
    if wanted.weight is not None and wanted.weight < 1:
        raise ValueError("`weight` is at least 1")
    if wanted.latency_target_ms is not None and wanted.latency_target_ms < 0:
        raise ValueError("`latency_target_ms` is at least 0")
    return wanted


def _pause(body: Mapping[str, Any]) -> tuple[list[str], bool]:
    return typed(body["queries"], list[str], "queries"), typed(body["paused"], bool, "paused")


def _query(body: Mapping[str, Any]) -> str | None:
    name: str | None = typed(body["query"], str | None, "query")
    return name


def _failure(code: str, title: str, help_: str, status: int) -> Response:
    return JSONResponse(to_data(CommandError(title, code=code, help=help_)), status)
