"""Changes of a subscription as server-sent events (WHATWG, HTML, section "Server-sent events").

One event has all changes between two places at which a subscription can continue, and the second place as its id: a client that connects again
sends the id of the last event that it has received whole, so it gets each change once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from flowql.query.arrow_changes import to_batch
from flowql.query.change import Change, Rebuilt
from flowql.server.failures import Failure, to_wire
from flowql.server.following import Following
from flowql.server.row_text import json_objects

MEDIA_TYPE = "text/event-stream"
RETRY_MS = 1_000
_HEAD = 2  # columns of `to_batch` before those of the row


class Events:
    """The form for browsers and other clients of server-sent events: `begin`, `reset`, `changes`, `error` and `end`."""

    alive, end = b": alive\n\n", b"event: end\ndata: {}\n\n"

    def begun(self, following: Following) -> bytes:
        columns = list(following.subscription.columns)
        begin = _event("begin", {"columns": columns}, following, retry=True)
        return (
            begin
            if not following.reset
            else _event("reset", {"reason": following.reset, "columns": columns}, following, retry=True)
        )

    def rows(self, changes: Sequence[Change], following: Following) -> bytes:
        batch = to_batch(changes, following.query.result.schema)
        names = batch.schema.names[_HEAD:]
        row = pa.StructArray.from_arrays(batch.columns[_HEAD:], names)
        shown = pa.RecordBatch.from_arrays([*batch.columns[:_HEAD], row], names=["op", "rowtime", "row"])
        is_cut = (
            following.limit is not None and following.rows >= following.limit
        )  # the place is behind changes left out
        return _lines("changes", b"[" + json_objects(shown, ",") + b"]", None if is_cut else following)

    def rebuilt(self, rebuilt: Rebuilt, following: Following) -> bytes:
        return _event("reset", {"reason": str(rebuilt), "columns": list(rebuilt.columns)}, following)

    def error(self, error: Failure) -> bytes:
        return _lines("error", json.dumps(to_wire(error)).encode(), None)


def _event(name: str, about: dict[str, Any], following: Following, *, retry: bool = False) -> bytes:
    head = f"retry: {RETRY_MS}\n".encode() if retry else b""
    return head + _lines(name, json.dumps(about, ensure_ascii=False).encode(), following)


def _lines(name: str, data: bytes, following: Following | None) -> bytes:
    """JSON has no line breaks: strings in it are escaped."""
    place = f"id: {following.place().token()}\n" if following is not None else ""
    return f"event: {name}\n{place}data: ".encode() + data + b"\n\n"
