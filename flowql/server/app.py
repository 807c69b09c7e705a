"""HTTP routes of an instance. Every request carries the token; engine calls run in a worker thread."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from compiler.plan import codec
from compiler.plan.topology import Plan
from flowql.deploy.asked import Asked
from flowql.deploy.control import NewPriority
from flowql.errors import CommandError, RuntimeFailure
from flowql.query.answer import Answer
from flowql.query.errors import COVERAGE, to_data
from flowql.server import parts
from flowql.server.prometheus import CONTENT_TYPE, exposition
from flowql.server.service import Service
from flowql.server.streaming import ARROW, encode

REFUSED, FAILED, TOO_LARGE = 403, 400, 413
PARTITIONS_HEADER = "flowql-partitions"  # of an answer about many instances: `4 of 8 partitions`
WANTED_BYTES_MAX = 1 << 20
SHORT_PARTS = 3  # an answer of one batch has two
LOOK_S = 0.5  # how often to look whether somebody still waits for what is computed
INTERNAL = "FQ5000"
Handler = Callable[[Request], Awaitable[Response]]


def make_app(service: Service, token: str, request_stop: Callable[[], None]) -> Starlette:
    """The application. request_stop: ask the process to end; returns at once."""

    async def health(_: Request) -> Response:
        return JSONResponse({"pid": os.getpid()})

    async def status(request: Request) -> Response:
        detail = "detail" in request.query_params
        return JSONResponse(await run_in_threadpool(lambda: service.status(detail=detail)))

    async def metrics(_: Request) -> Response:
        return await scrape(service)

    async def plan(_: Request) -> Response:
        topics = await run_in_threadpool(service.topics)
        return JSONResponse({"deployed": codec.deployed_line(service.deployed), "topics": topics})

    async def deploy(request: Request) -> Response:
        body = await request.json()
        wanted = codec.loads(body["plan"])
        done = await run_in_threadpool(lambda: service.deploy(wanted, Asked.of(body)))
        return JSONResponse(done)

    async def deployments(request: Request) -> Response:
        """With their plans: `?plans=1`."""
        found = await run_in_threadpool(service.deployments)
        plans = "plans" in request.query_params
        shown = [e if plans else replace(e, plan=Plan()) for e in found]
        return JSONResponse({"deployments": [codec.entry_line(e) for e in shown]})

    async def priority(request: Request) -> Response:
        wanted = NewPriority(**await request.json())
        return JSONResponse(await run_in_threadpool(lambda: service.set_priority(wanted)))

    async def pause(request: Request) -> Response:
        body = await request.json()
        done = await run_in_threadpool(lambda: service.pause(body["queries"], paused=body["paused"]))
        return JSONResponse({"queries": done})

    async def pin(_: Request) -> Response:
        return JSONResponse({"state_commit": await run_in_threadpool(service.pin)})

    async def query(request: Request) -> Response:
        sql = (await request.body()).decode()
        breaks_off: list[Callable[[], None]] = []
        computing = asyncio.ensure_future(run_in_threadpool(lambda: Opened.of(service.query(sql, breaks_off.append))))
        while not computing.done():
            await asyncio.wait([computing], timeout=LOOK_S)
            if not computing.done() and await request.is_disconnected():
                for break_off in breaks_off:
                    break_off()
        return (await computing).response()

    async def stop(_: Request) -> Response:
        request_stop()
        return JSONResponse({"stopping": True}, 202)

    def route(path: str, handler: Handler, method: str) -> Route:
        return Route(path, _guarded(handler, token), methods=[method])

    return Starlette(
        routes=[
            route("/health", health, "GET"),
            route("/status", status, "GET"),
            route("/metrics", metrics, "GET"),
            route("/plan", plan, "GET"),
            route("/plan", deploy, "POST"),
            route("/deployments", deployments, "GET"),
            route("/priority", priority, "POST"),
            route("/pause", pause, "POST"),
            route("/backup", pin, "POST"),
            route("/query", query, "POST"),
            route("/stop", stop, "POST"),
        ]
    )


def make_metrics_app(service: Service) -> Starlette:
    """For Prometheus, which knows no token: figures and nothing else."""

    async def metrics(_: Request) -> Response:
        return await scrape(service)

    return Starlette(routes=[Route("/metrics", metrics, methods=["GET"])])


def make_members_app(service: Service, token: str) -> Starlette:
    """For other instances of the application: rows of the partitions that are here, and nothing else."""

    async def rows(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > WANTED_BYTES_MAX:
                return _failure("FQ5301", f"a request has {WANTED_BYTES_MAX:,} bytes at most", "", TOO_LARGE)
        try:
            wanted = parts.wanted_of(json.loads(body))
        except (ValueError, KeyError, TypeError) as error:
            return _failure("FQ5301", f"this is no request for rows: {error}", "", FAILED)
        found = parts.encode(service.rows(wanted))
        assert isinstance(found, Generator)
        return Rows((), found, parts.MEDIA_TYPE)

    return Starlette(routes=[Route("/rows", _guarded(rows, token), methods=["POST"])])


async def scrape(service: Service) -> Response:
    """The figures of now."""
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

    def response(self) -> Response:
        if len(self.first) < SHORT_PARTS:  # that was all
            return Response(b"".join(self.first), media_type=ARROW, headers=self.headers)
        return Rows(self.first, self.rest, ARROW, self.headers)


class Rows(StreamingResponse):
    """An answer on its way. Who leaves before its end ends its computation."""

    def __init__(
        self, first: Iterable[bytes], rest: Generator[bytes], media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._rest = rest
        super().__init__(chain(first, rest), media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._rest.close()


def _guarded(handler: Handler, token: str) -> Handler:
    """Only with the token; failures as JSON."""
    expected = f"Bearer {token}".encode()

    async def guarded(request: Request) -> Response:
        if not hmac.compare_digest(request.headers.get("authorization", "").encode(), expected):
            return _failure("FQ5301", "the token is wrong or missing", "", REFUSED)
        try:
            return await handler(request)
        except CommandError as error:
            return JSONResponse(to_data(error), FAILED)
        except RuntimeFailure as error:
            return _failure(error.code, str(error), "", FAILED)
        except Exception as error:  # the instance goes on; who asked is told
            return _failure(INTERNAL, f"internal error: {type(error).__name__}: {error}", "", 500)

    return guarded


def _failure(code: str, title: str, help_: str, status: int) -> Response:
    return JSONResponse(to_data(CommandError(title, code=code, help=help_)), status)
