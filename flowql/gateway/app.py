"""The application of the port for programs on other machines: tokens, rights, and the shape of requests are checked here.

The gateway answers what the log suffices for. It sends the other requests to the instance.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from starlette.responses import Response
from starlette.types import ASGIApp

from flowql.gateway.look_ups import LookUps
from flowql.gateway.queries import LogQueries
from flowql.gateway.relay import Relay, relayed
from flowql.pg.reading import NeedsInstance, Reading
from flowql.query.errors import NOTHING, QueryError
from flowql.query.point_lookups import Shape
from flowql.server.access import Tokens
from flowql.server.answers import given
from flowql.server.app import ENTRIES, app_of_entries
from flowql.server.entries import Call, Entry, Handler, Server
from flowql.server.row_entries import QUERIES


def make_app(
    server: Server,
    reading: Reading,
    relay: Relay,
    tokens: Tokens,
    names: Collection[str] = (),
    origins: Sequence[str] = (),
) -> ASGIApp:
    """It has no `/stop`, as other machines could not start the instance again, and nothing that reads the instance's files.

    names: hosts by which the port may be called. origins: of web pages whose scripts may send requests.
    """
    look_ups = LookUps(relay)
    entries = [replace(e, handler=_handler(e, reading, relay, look_ups)) for e in ENTRIES if not e.local]
    return app_of_entries(entries, server, tokens, names, origins)


def _handler(entry: Entry, reading: Reading, relay: Relay, look_ups: LookUps) -> Handler:
    async def sent_on(call: Call) -> Response:
        return await relayed(relay, entry, call)

    async def in_state(call: Call, queries: LogQueries) -> Response:
        """As a point look-up in the state of the instance, if it is one."""
        found = None
        if queries.asked is not None and Shape.of(queries.asked[0]) is not None:
            found = await look_ups.ask(*queries.asked)
        return await sent_on(call) if found is None else given(call, found)

    async def from_log(call: Call) -> Response:
        queries = None
        if entry.limit is QUERIES and not reading.is_local:
            return await sent_on(call)
        try:
            plan = reading.plan_if_known()
            if plan is None:
                plan = await call.server.readers.run(reading.plan)
            queries = LogQueries(reading, plan)
            return await entry.handler(replace(call, server=replace(call.server, queries=queries)))
        except NeedsInstance:
            return await sent_on(call) if queries is None else await in_state(call, queries)
        except QueryError as error:
            if error.code != NOTHING:  # the instance has another error for that
                raise
            return await sent_on(call)

    return from_log if entry.from_log else sent_on
