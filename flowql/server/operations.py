"""Entries that show and change what runs: status, plan, deployments, priorities and pauses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan
from flowql.deploy.control import NewPriority
from flowql.deploy.request import DeployRequest
from flowql.runtime.log.appending import Redelivery, redelivery_of
from flowql.server.bodies import Malformed, fields_of, text_field, typed
from flowql.server.client import PROTOCOL
from flowql.server.entries import Call, Entry, Parameter
from flowql.server.logs import LEVELS, Wanted, parsed
from flowql.server.prometheus import CONTENT_TYPE, exposition
from flowql.server.replays import Part
from flowql.server.routes import Limit
from flowql.server.service import Service

T = TypeVar("T")
LOG_LINES, LOG_LINES_MAX = 100, 10_000
_POSITION = re.compile(r"[0-9]{1,20}-[0-9]{1,15}")
_CHANGE = Limit(at_once=2)  # each waits for a commit
_PLAN = Limit(body_bytes=64 << 20, at_once=8, group="plans")
_IDS = {"type": "object", "properties": {"queries": {"type": "array", "items": {"type": "string"}}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment(DeployRequest):
    """A deployment. plan: the compiled project, as `flowql compile` prints it, in a string."""

    plan: str


@dataclass(frozen=True, slots=True)
class Pause:
    """queries: query ids or sink names. paused: false resumes them."""

    queries: list[str]
    paused: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """query: its id, or the name of its result; null: all that have a built generation."""

    query: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """result: a stream or table with a built generation."""

    result: str


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """A record of a topic. key, value: as queries are to read it, in base64. timestamp: event time in ms. repaired: false if that is as it was written. queries: ids."""

    topic: str
    partition: int
    offset: int
    key: str | None
    value: str | None
    timestamp: int
    repaired: bool
    queries: list[str]


@dataclass(frozen=True, slots=True)
class Redeliveries:
    """records: each with the queries that could not process it."""

    records: list[DeadRecord]


@dataclass(frozen=True, slots=True)
class Replay:
    """records: each with the queries that could not process it. replay: any name; requests with the same name are parts of one replay. more: true if
    another part follows; nothing happens before the last part.
    """

    records: list[DeadRecord]
    replay: str = ""
    more: bool = False


async def _done(call: Call, operation: Callable[[Service], T]) -> T:
    """The result of a blocking operation."""
    return await run_in_threadpool(lambda: operation(call.server.service))


async def _health(_: Call) -> Response:
    return JSONResponse({"pid": os.getpid(), "version": metadata.version("flowql"), "protocol": PROTOCOL})


async def _status(call: Call) -> Response:
    detail = call.given.get("detail", False)
    return JSONResponse(await _done(call, lambda service: service.status(detail=detail)))


async def _metrics(call: Call) -> Response:
    return await scrape(call.server.service)


async def scrape(service: Service) -> Response:
    """The metrics of now."""
    text = await run_in_threadpool(lambda: exposition(service.status(detail=True)))
    return Response(text, media_type=CONTENT_TYPE)


async def _plan(call: Call) -> Response:
    topics = await _done(call, Service.topics)
    return JSONResponse({"deployed": codec.line(call.server.service.deployed), "topics": topics})


async def _deploy(call: Call) -> Response:
    wanted, request = call.body
    return JSONResponse(await _done(call, lambda service: service.deploy(wanted, request)))


async def _planned(call: Call) -> Response:
    wanted, request = call.body
    return JSONResponse(await _done(call, lambda service: service.planned(wanted, request)))


async def _deployments(call: Call) -> Response:
    found = await _done(call, Service.deployments)
    plans = call.given.get("plans", False)
    shown = [e if plans else replace(e, plan=Plan()) for e in found]
    return JSONResponse({"deployments": [codec.line(e) for e in shown]})


async def _priority(call: Call) -> Response:
    return JSONResponse(await _done(call, lambda service: service.set_priority(call.body)))


async def _pause(call: Call) -> Response:
    names, paused = call.body.queries, call.body.paused
    return JSONResponse({"queries": await _done(call, lambda service: service.pause(names, paused=paused))})


async def _promote(call: Call) -> Response:
    return JSONResponse({"queries": await _done(call, lambda service: service.promote(call.body.query))})


async def _abandon(call: Call) -> Response:
    return JSONResponse({"queries": await _done(call, lambda service: service.abandon(call.body.query))})


async def _diff(call: Call) -> Response:
    return JSONResponse(await _done(call, lambda service: service.diff(call.body.result)))


async def _append(call: Call) -> Response:
    return JSONResponse(await _done(call, lambda service: service.append(call.body)))


async def _replay(call: Call) -> Response:
    part, rows = call.body, call.server.rows
    wanted = rows.replays.whole(part)
    if wanted is None:
        return JSONResponse({"records": rows.replays.waiting})
    return JSONResponse(await run_in_threadpool(lambda: rows.replay(wanted)))


async def _logs(call: Call) -> Response:
    given, rows = call.given, call.server.rows
    if (count := given.get("lines", LOG_LINES)) > LOG_LINES_MAX:
        raise Malformed(f"`lines` is at most {LOG_LINES_MAX:,}")
    if (after := given.get("after")) is not None and not _POSITION.fullmatch(after):
        raise Malformed("`after` is the `position` of an earlier answer")
    wanted = Wanted(given.get("level", "debug"), given.get("query", ""))
    lines, position = await run_in_threadpool(lambda: rows.log_lines(wanted, count, after))
    return JSONResponse({"lines": [parsed(line) for line in lines], "position": position})


async def _backup(call: Call) -> Response:
    return JSONResponse({"state_commit": await _done(call, Service.pin)})


async def _ends(call: Call) -> Response:
    topics = [topic for topic in call.given["topics"].split(",") if topic]
    ends = await _done(call, lambda service: service.whole_ends(*topics))
    return JSONResponse({"ends": None if ends is None else [[*tp, end] for tp, end in ends.items()]})


async def _copied(call: Call) -> Response:
    path = await _done(call, lambda service: service.copied())
    return JSONResponse({"path": None if path is None else str(path)})


async def _stop(call: Call) -> Response:
    assert call.server.own is not None
    call.server.own.request_stop()
    return JSONResponse({"stopping": True}, 202)


def _deployment_of(body: Mapping[str, Any]) -> tuple[Plan, DeployRequest]:
    fields_of({name: value for name, value in body.items() if name != "about"}, Deployment)
    if "about" in body:
        typed(body["about"]["how"], str, "how")
        typed(body["about"]["files"], list[list[str]], "files")
    return codec.loads(text_field(body, "plan")), DeployRequest.of(body)


def _priority_of(body: Mapping[str, Any]) -> NewPriority:
    wanted = NewPriority(**fields_of(body, NewPriority))
    if wanted.weight is not None and wanted.weight < 1:
        raise ValueError("`weight` is at least 1")
    if wanted.latency_target_ms is not None and wanted.latency_target_ms < 0:
        raise ValueError("`latency_target_ms` is at least 0")
    return wanted


def _redeliveries_of(body: Mapping[str, Any], others: Sequence[str] = ()) -> list[Redelivery]:
    known = ("records", *others)
    if unknown := [name for name in body if name not in known]:
        raise TypeError(f"the field `{unknown[0]}` is unknown; known fields: {', '.join(known)}")
    return [redelivery_of(record) for record in body["records"]]


def _replay_of(body: Mapping[str, Any]) -> Part:
    replay, more = body.get("replay", ""), body.get("more", False)
    typed(replay, str, "replay")
    typed(more, bool, "more")
    if more and not replay:
        raise ValueError("`more` needs a name in `replay`")
    return Part(_redeliveries_of(body, ("replay", "more")), replay, more=more)


HEALTH = Entry("GET", "/health", _health, "read", "Process id, version and protocol of the instance.", scope="none")
METRICS = Entry(
    "GET", "/metrics", _metrics, "read", "Metrics in the text format of Prometheus.", produces=(CONTENT_TYPE,)
)
OPERATIONS: Sequence[Entry] = (
    HEALTH,
    METRICS,
    Entry(
        "GET",
        "/v1/status",
        _status,
        "read",
        "The document of `flowql status -o json`.",
        parameters=(Parameter("detail", "query", "Adds the figures of /metrics.", bool),),
        limit=Limit(at_once=32),
    ),
    Entry("GET", "/v1/plan", _plan, "read", "The deployed plan, and the partitions of topics.", limit=_PLAN),
    Entry(
        "POST",
        "/v1/plan",
        _planned,
        "read",
        "Shows what the deployment of a compiled project would change, and changes nothing.",
        body=Deployment,
        read=_deployment_of,
        limit=_PLAN,
    ),
    Entry(
        "GET",
        "/v1/deployments",
        _deployments,
        "read",
        "Recent deployments, the newest last.",
        parameters=(Parameter("plans", "query", "With their plans.", bool),),
    ),
    Entry(
        "POST",
        "/v1/deployments",
        _deploy,
        "deploy",
        "Deploys a compiled project.",
        body=Deployment,
        read=_deployment_of,
        limit=_PLAN,
    ),
    Entry(
        "POST",
        "/v1/promote",
        _promote,
        "deploy",
        "Lets built generations serve.",
        body=Decision,
        answer=_IDS,
        limit=_CHANGE,
    ),
    Entry(
        "POST", "/v1/abandon", _abandon, "deploy", "Drops built generations.", body=Decision, answer=_IDS, limit=_CHANGE
    ),
    Entry(
        "POST",
        "/v1/diff",
        _diff,
        "read",
        "Compares the serving and the built generation of a result.",
        body=Comparison,
        limit=_CHANGE,
    ),
    Entry(
        "POST",
        "/v1/priority",
        _priority,
        "operate",
        "Sets the priority of a query until the next deployment.",
        body=NewPriority,
        read=_priority_of,
        limit=_CHANGE,
    ),
    Entry("POST", "/v1/pause", _pause, "operate", "Pauses or resumes queries.", body=Pause, answer=_IDS, limit=_CHANGE),
    Entry(
        "POST",
        "/v1/dead-letters/append",
        _append,
        "operate",
        "Gives records to queries once more, in one commit.",
        body=Redeliveries,
        read=_redeliveries_of,
        limit=Limit(64 << 20, at_once=1),
    ),
    Entry(
        "POST",
        "/v1/dead-letters/replay",
        _replay,
        "operate",
        "Repairs records and rebuilds the queries that could not process them.",
        body=Replay,
        read=_replay_of,
        limit=Limit(64 << 20, at_once=1),
    ),
    Entry(
        "GET",
        "/v1/logs",
        _logs,
        "operate",
        "Lines of the instance's log, and the position behind them.",
        parameters=(
            Parameter("lines", "query", f"The number of lines, the last ones; default: {LOG_LINES}.", int),
            Parameter("level", "query", "This level and more serious ones.", choices=tuple(LEVELS)),
            Parameter("query", "query", "Only this query."),
            Parameter("after", "query", "The `position` of an earlier answer: only later lines."),
        ),
        limit=Limit(at_once=4),
    ),
    Entry(
        "POST",
        "/backup",
        _backup,
        "operate",
        "Holds the files still for a backup.",
        limit=_CHANGE,
        internal=True,
        local=True,
    ),
    Entry(
        "GET",
        "/ends",
        _ends,
        "read",
        "Ends of results as of one tick.",
        parameters=(Parameter("topics", "query", "Only these, with commas; empty for all."),),
        internal=True,
        local=True,
    ),
    Entry("POST", "/state-copy", _copied, "read", "Copies the state.", limit=_CHANGE, internal=True, local=True),
    Entry("POST", "/stop", _stop, "operate", "Ends the process.", internal=True, local=True),
)
