"""Entries that read and write rows: queries, statements, streams and subscriptions."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from flowql.compiler.plan import codec
from flowql.config.api import CONNECTIONS_MAX
from flowql.query.answer import Answer, Begun, Done, returned
from flowql.query.errors import QueryError
from flowql.query.options import QueryEngine, QueryOptions
from flowql.query.parameters import COUNT_MAX, with_parameters
from flowql.query.push import Start
from flowql.query.tick_text import as_text
from flowql.server import event_stream
from flowql.server.access import authorize_action
from flowql.server.answers import answered
from flowql.server.arrow_bodies import read_rows
from flowql.server.bodies import Malformed, fields_of, json_documents
from flowql.server.change_stream import Form
from flowql.server.entries import COLUMNS, JSON, Call, Entry, Parameter
from flowql.server.event_stream import Events, Messages
from flowql.server.frames import MEDIA_TYPE
from flowql.server.lookup import select
from flowql.server.routes import Limit
from flowql.server.row_forms import FORMS, LINES
from flowql.server.row_service import RETRY_MAX, Statements
from flowql.server.statement_streams import done_streams
from flowql.server.streaming import ARROW
from flowql.server.subscriber import Subscriber
from flowql.topics.producing import Once, Written, source_named

PRODUCE_BYTES_MAX, JSON_BYTES_MAX = 64 << 20, 8 << 20  # JSON takes about ten times its size in memory
STATEMENTS_BYTES_MAX = 4 << 20
KEY_LENGTH_MAX = 255
LETTERS, LETTERS_MAX = 20, 1_000
_JSON_TYPES = (JSON, LINES, "application/jsonl", "application/ndjson")
_UNTYPED = ("", "text/plain", "application/x-www-form-urlencoded")  # what programs send that name no type
QUERIES = Limit(body_bytes=1 << 20, at_once=16, group="queries")
SUBSCRIPTIONS = Limit(body_bytes=1 << 20, at_once=CONNECTIONS_MAX, group="subscriptions")  # each has a connection
_WRITES = Limit(PRODUCE_BYTES_MAX, at_once=4)
_STATEMENTS = Limit(STATEMENTS_BYTES_MAX, at_once=64)
_ROWS = {
    "type": "object",
    "properties": {
        "commit": {"type": "integer"},
        "tick": {"type": "string"},
        "columns": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "type": {"type": "string"}}},
        },
        "rows": {"type": "array", "items": {"type": "object"}},
    },
}
_NAME = Parameter("name", "path", "The stream or table.", required=True)
_KEY = Parameter("idempotency-key", "header", "A request that is sent again with it within 24 hours writes nothing.")
_DONE = {
    "type": "object",
    "properties": {
        "rows": {"type": "integer"},
        "statements": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "statement": {"type": "string"},
                    "table": {"type": "string"},
                    "rows": {"type": "integer"},
                    "tick": {"type": "string"},
                },
            },
        },
    },
}
_COUNT = {"type": "object", "properties": {"rows": {"type": "integer"}, "tick": {"type": "string"}}}


@dataclass(frozen=True, slots=True)
class Query:
    """sql: a SELECT. parameters: values of $1, $2, ...: strings, numbers, booleans or null. engine: `duckdb` for DuckDB's SQL. at_least: the tick
    of a statement or an answer, which this answer has to show. allow_standby: standby copies answer for partitions whose owner does not.
    """

    sql: str
    parameters: list[Any] = field(default_factory=list)
    engine: QueryEngine | None = None
    at_least: str | None = None
    allow_standby: bool = False

    @property
    def options(self) -> QueryOptions:
        return QueryOptions(self.engine, self.at_least, self.allow_standby)


@dataclass(frozen=True, slots=True)
class ScriptStatements(Statements):
    """one_returns: exactly one of them must have RETURNING."""

    one_returns: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """sql: a SELECT, or the name of a stream or table. start: `latest` or `earliest`. limit: of changes; null: none."""

    sql: str
    start: Start = "latest"
    limit: int | None = None


def _query_of(body: Mapping[str, Any]) -> Query:
    made = Query(**fields_of(body, Query))
    if len(made.parameters) > COUNT_MAX:
        raise ValueError(f"`parameters` has {COUNT_MAX:,} values at most")
    return made


def _statements_of(body: Mapping[str, Any], kind: type[Statements] = Statements) -> Statements:
    made = kind(**fields_of(body, kind))
    if not 0 <= made.retry <= RETRY_MAX:
        raise ValueError(f"`retry` is from 0 to {RETRY_MAX}")
    return made


def _subscribe_of(body: Mapping[str, Any]) -> Subscribe:
    made = Subscribe(**fields_of(body, Subscribe))
    if made.limit is not None and made.limit < 0:
        raise ValueError("`limit` is at least 0")
    return made


async def _query(call: Call) -> Response:
    queries, asked = call.server.queries, call.body
    bound = with_parameters(asked.sql, asked.parameters)

    def ask(begun: Begun) -> Answer:
        try:
            return queries.query(bound.sql, begun, call.client, asked.options, **_only(call))
        except QueryError as error:
            raise bound.placed(error) from error

    if asked.at_least is not None:  # it may have to wait
        return await answered(call, ask)
    return await answered(call, ask, partial(queries.look_up, bound.sql, asked.engine, call.caller.visible("read")))


def _only(call: Call) -> dict[str, Any]:
    """Limits a query to what its caller may read."""
    visible = call.caller.visible("read")
    return {} if visible is None else {"visible": visible}


async def _execute(call: Call) -> Response:
    is_arrow = ARROW in call.request.headers.get("accept", "")
    if is_arrow:  # it has the rows of RETURNING
        authorize_action(call.caller, "read")
    done = await _carried_out(call, one_returns=call.body.one_returns)
    if is_arrow:
        return Response(done_streams(done), media_type=ARROW)
    statements = [{"statement": d.verb.lower(), "table": d.table, "rows": d.rows, "tick": d.tick} for d in done]
    return JSONResponse({"rows": sum(d.rows for d in done), "statements": statements})


async def _returning(call: Call) -> Response:
    found = returned(await _carried_out(call, one_returns=True))
    return await answered(call, lambda _: Answer.of(found))


async def _carried_out(call: Call, *, one_returns: bool = False) -> list[Done]:
    rows = call.server.rows
    begun = rows.begin(call.body, call.caller, one_returns=one_returns)
    if begun is not None:
        return [await asyncio.wrap_future(begun)]
    return await rows.run_statements(lambda: rows.carry_out(call.body, call.caller, one_returns=one_returns))


async def _write(call: Call) -> Response:
    rows, name, timestamp = call.server.rows, call.given["name"], call.given.get("timestamp")
    kind, data = (
        call.request.headers.get("content-type", "").partition(";")[0].strip().lower(),
        await call.request.body(),
    )
    once = _once(call, data)
    if kind == ARROW:
        written = await rows.run(lambda: rows.produce(name, read_rows(data, PRODUCE_BYTES_MAX), timestamp, once))
    elif kind in (*_JSON_TYPES, *_UNTYPED):
        written = await rows.run(lambda: rows.produce_json(name, _objects(data), timestamp, once, declared_only=False))
    else:
        raise Malformed(f"a body of type {kind[:80]} is not supported; send JSON, JSON lines or Arrow", 415)
    return _told(written)


async def _event(call: Call) -> Response:
    rows, name, data = call.server.rows, call.given["name"], await call.request.body()
    once = _once(call, data)
    return _told(await rows.run(lambda: rows.produce_json(name, _objects(data), None, once, declared_only=True)))


def _told(written: Written) -> Response:
    return JSONResponse({"rows": written.rows, "tick": as_text(written.ends)})


def _once(call: Call, data: bytes) -> Once | None:
    """The idempotency key of a request, for its result and caller. Raises Malformed."""
    key = call.given.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= KEY_LENGTH_MAX:
        raise Malformed(f"`Idempotency-Key` has 1 to {KEY_LENGTH_MAX} characters")
    of = json.dumps([call.caller.name, call.request.url.path.casefold(), key]).encode()
    asked = data + call.given.get("timestamp", "").encode()
    return Once(hashlib.sha256(of).digest()[:16], hashlib.sha256(asked).hexdigest()[:32])


def _objects(data: bytes) -> list[dict[str, Any]]:
    """The rows of a body: an array of objects, or objects one after the other. Raises Malformed."""
    if len(data) > JSON_BYTES_MAX:
        raise Malformed(f"rows in JSON have {JSON_BYTES_MAX:,} bytes at most; send fewer at once, or Arrow", 413)
    found = json_documents(data)
    if not found:
        raise Malformed("the body is empty")
    if len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    if odd := [row for row in found if not isinstance(row, dict)]:
        raise Malformed(f"a row is a JSON object, not {str(odd[0])[:40]}")
    return found


async def _look_up(call: Call) -> Response:
    queries, name = call.server.queries, call.given["name"]
    source = source_named(name, queries.plan)
    sql, at_least = select(source, call.given.get(COLUMNS, {})), call.given.get("at-least")
    options = QueryOptions(at_least=at_least, allow_standby=call.given.get("allow-standby", False))

    def ask(begun: Begun) -> Answer:
        return queries.query(sql, begun, call.client, options, **_only(call))

    if at_least is not None:  # it may have to wait
        return await answered(call, ask)
    return await answered(call, ask, partial(queries.look_up, sql, None, call.caller.visible("read")))


async def _dead_letters(call: Call) -> Response:
    rows, limit = call.server.rows, call.given.get("limit", LETTERS)
    if limit > LETTERS_MAX:
        raise Malformed(f"`limit` is at most {LETTERS_MAX:,}")
    letters, open_ = await rows.run(lambda: rows.dead_letters(limit, call.given.get("skip", 0)))
    return JSONResponse({"dead_letters": letters, "open": open_})


async def _source(call: Call) -> Response:
    rows, name = call.server.rows, call.given["name"]
    plan = await rows.run(lambda: rows.source(name))
    (source,) = plan.sources
    columns = [{"name": f.name, "type": str(f.type), "key": f.role == "key"} for f in source.shown]
    about = {"name": source.name, "kind": source.kind, "topic": source.topic, "columns": columns}
    return JSONResponse({**about, "plan": codec.line(plan)})


async def _changes(call: Call) -> Response:
    return await _begun(
        call.server.readers.subscriber(
            call.body.sql, call.body.start, call.body.limit, visible=call.caller.visible("read")
        ),
        MEDIA_TYPE,
    )


async def _events(call: Call) -> Response:
    return await _begun(_subscriber(call, Events()), event_stream.MEDIA_TYPE)


def _messages(call: Call) -> Subscriber:
    return _subscriber(call, Messages())


def _subscriber(call: Call, form: Form) -> Subscriber:
    given = call.given
    what, start, token = given["sql"], given.get("start", "latest"), given.get("last-event-id") or None
    return call.server.readers.subscriber(what, start, given.get("limit"), form, token, call.caller.visible("read"))


async def _begun(subscriber: Subscriber, media_type: str) -> Response:
    try:
        await subscriber.begin()
    except BaseException:
        subscriber.close()
        raise
    return Changes(subscriber, media_type)


class Changes(StreamingResponse):
    """A subscription on its way; it ends when the client leaves."""

    def __init__(self, subscriber: Subscriber, media_type: str) -> None:
        self._subscriber = subscriber
        super().__init__(subscriber.frames(), media_type=media_type, headers={"Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._subscriber.close()


ROWS: Sequence[Entry] = (
    Entry(
        "POST",
        "/v1/query",
        _query,
        "read",
        "Answers a SELECT over the newest commit.",
        body=Query,
        read=_query_of,
        answer=_ROWS,
        produces=tuple(FORMS),
        scope="sql",
        limit=QUERIES,
        from_log=True,
    ),
    Entry(
        "POST",
        "/v1/execute",
        _execute,
        "write",
        "Carries out INSERT, UPDATE and DELETE, and returns the number of changed rows.",
        body=ScriptStatements,
        read=partial(_statements_of, kind=ScriptStatements),
        answer=_DONE,
        produces=(JSON, ARROW),
        scope="sql",
        limit=_STATEMENTS,
    ),
    Entry(
        "POST",
        "/v1/returning",
        _returning,
        "write",
        "Carries out one statement with RETURNING, and returns its rows.",
        body=Statements,
        read=_statements_of,
        answer=_ROWS,
        produces=tuple(FORMS),
        scope="sql",
        also="read",
        limit=_STATEMENTS,
    ),
    Entry(
        "POST",
        "/v1/streams/{name}/rows",
        _write,
        "write",
        "Writes rows to a stream or table, in one transaction.",
        accepts=(JSON, LINES, ARROW),
        answer=_COUNT,
        parameters=(_NAME, Parameter("timestamp", "query", "The column with the event time."), _KEY),
        scope="result",
        limit=_WRITES,
    ),
    Entry(
        "POST",
        "/v1/streams/{name}/events",
        _event,
        "write",
        "Writes the JSON of a webhook: fields that are not columns are ignored.",
        accepts=(JSON,),
        answer=_COUNT,
        parameters=(_NAME, _KEY),
        scope="result",
        signed=True,
        limit=Limit(JSON_BYTES_MAX, at_once=4),
    ),
    Entry(
        "GET",
        "/v1/tables/{name}/rows",
        _look_up,
        "read",
        "Rows whose columns have these values. With the whole key, it is a look-up.",
        answer=_ROWS,
        produces=tuple(FORMS),
        parameters=(
            _NAME,
            Parameter("at-least", "header", "The tick to show."),
            Parameter("allow-standby", "header", "Standby copies answer for partitions whose owner does not.", bool),
        ),
        any_column=True,
        scope="result",
        limit=QUERIES,
        from_log=True,
    ),
    Entry(
        "GET",
        "/v1/dead-letters",
        _dead_letters,
        "read",
        "The last open dead letters, and how many are open.",
        parameters=(
            Parameter("limit", "query", f"The number of letters; default: {LETTERS}, at most {LETTERS_MAX:,}.", int),
            Parameter("skip", "query", "How many of the last ones to leave out.", int),
        ),
        limit=Limit(at_once=4),
    ),
    Entry(
        "GET",
        "/v1/subscribe",
        _events,
        "read",
        "Changes of a SELECT, a stream or a table, as server-sent events or over WebSocket.",
        parameters=(
            Parameter("sql", "query", "A SELECT, or the name of a stream or table.", required=True),
            Parameter("start", "query", "Where to begin; default: latest.", choices=("latest", "earliest")),
            Parameter("limit", "query", "The number of changes after which it ends.", int),
            Parameter("last-event-id", "query", "The id of the last event received: where to continue."),
            Parameter("last-event-id", "header", "The same; where both are given, this one counts."),
        ),
        scope="sql",
        produces=(event_stream.MEDIA_TYPE,),
        limit=SUBSCRIPTIONS,
        from_log=True,
        follow=_messages,
    ),
    Entry(
        "GET",
        "/v1/streams/{name}",
        _source,
        "read",
        "A stream or table: its columns, topic, and definition in a plan.",
        parameters=(_NAME,),
        scope="result",
    ),
    Entry(
        "POST",
        "/v1/subscribe",
        _changes,
        "read",
        "Changes of a SELECT, a stream or a table, as frames with Arrow.",
        body=Subscribe,
        read=_subscribe_of,
        produces=(MEDIA_TYPE,),
        scope="sql",
        limit=SUBSCRIPTIONS,
        from_log=True,
    ),
)
