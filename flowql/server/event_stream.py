"""Changes of a subscription as events in JSON: server-sent events (WHATWG, HTML, section "Server-sent events"), and messages of a WebSocket.

One event has all changes between two places at which a subscription can continue, and the second place as its id: a client that connects again
sends the id of the last event that it has received whole, so it gets each change once.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
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


class JsonEvents(ABC):
    """`begin`, `reset`, `changes`, `error` and `end`. Subclasses write an event."""

    @abstractmethod
    def written(self, name: str, data: bytes, place: str | None, *, first: bool = False) -> bytes:
        """data: JSON without line breaks. place: the id. first: of a connection."""

    @property
    def end(self) -> bytes:
        return self.written("end", b"{}", None)

    def begun(self, following: Following) -> bytes:
        about = {"columns": list(following.subscription.columns)}
        if following.reset:
            return self._told("reset", {"reason": following.reset, **about}, following, first=True)
        return self._told("begin", about, following, first=True)

    def rows(self, changes: Sequence[Change], following: Following) -> bytes:
        batch = to_batch(changes, following.query.result.schema)
        names = batch.schema.names[_HEAD:]
        row = pa.StructArray.from_arrays(batch.columns[_HEAD:], names)
        shown = pa.RecordBatch.from_arrays([*batch.columns[:_HEAD], row], names=["op", "rowtime", "row"])
        is_cut = (
            following.limit is not None and following.rows >= following.limit
        )  # the place is behind changes left out
        place = None if is_cut else following.place().token()
        return self.written("changes", b"[" + json_objects(shown, ",") + b"]", place)

    def rebuilt(self, rebuilt: Rebuilt, following: Following) -> bytes:
        return self._told("reset", {"reason": str(rebuilt), "columns": list(rebuilt.columns)}, following)

    def error(self, error: Failure) -> bytes:
        return self.written("error", json.dumps(to_wire(error)).encode(), None)

    def _told(self, name: str, about: dict[str, Any], following: Following, *, first: bool = False) -> bytes:
        data = json.dumps(about, ensure_ascii=False).encode()
        return self.written(name, data, following.place().token(), first=first)


class Events(JsonEvents):
    """The form for clients of server-sent events."""

    alive = b": alive\n\n"

    def written(self, name: str, data: bytes, place: str | None, *, first: bool = False) -> bytes:
        retry = f"retry: {RETRY_MS}\n" if first else ""
        id_ = "" if place is None else f"id: {place}\n"
        return f"{retry}event: {name}\n{id_}data: ".encode() + data + b"\n\n"


class Messages(JsonEvents):
    """The form for clients of WebSocket: each event is one message in JSON. Tokens have only characters that JSON leaves as they are."""

    alive = b'{"event":"alive"}'

    def written(self, name: str, data: bytes, place: str | None, *, first: bool = False) -> bytes:
        id_ = "" if place is None else f'"id":"{place}",'
        return f'{{"event":"{name}",{id_}"data":'.encode() + data + b"}"
