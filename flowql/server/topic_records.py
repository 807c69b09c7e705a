"""Records of topics over HTTP, as `PRINT` of the shell shows them."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from starlette.responses import Response

from flowql.server.bodies import Malformed
from flowql.server.entries import JSON, Call, Entry, Parameter
from flowql.server.routes import Limit
from flowql.topics.records import is_position

RECORDS, RECORDS_MAX = 100, 1_000


async def _records(call: Call) -> Response:
    given, rows = call.given, call.server.rows
    if (limit := given.get("limit", RECORDS)) > RECORDS_MAX:
        raise Malformed(f"`limit` is at most {RECORDS_MAX:,}")
    after, beginning = given.get("after"), given.get("start") == "earliest"
    if after is not None and not is_position(after):
        raise Malformed("`after` is the `position` of an earlier answer")
    found, position = await rows.run(lambda: rows.records(given["name"], after, limit, beginning=beginning))
    said = b'{"records":[' + b",".join(found) + b'],"position":' + orjson.dumps(position) + b"}"
    return Response(said, media_type=JSON)


TOPIC_RECORDS: Sequence[Entry] = (
    Entry(
        "GET",
        "/v1/topics/{name}/records",
        _records,
        "read",
        "Records of a topic, and the position behind them.",
        parameters=(
            Parameter("name", "path", "The topic.", required=True),
            Parameter("start", "query", "Where to begin; default: latest.", choices=("latest", "earliest")),
            Parameter("after", "query", "The `position` of an earlier answer: only later records."),
            Parameter("limit", "query", f"The number of records; default: {RECORDS}, at most {RECORDS_MAX:,}.", int),
        ),
        limit=Limit(at_once=4),
    ),
)
