"""The outcome of several statements as Arrow streams, one after the other: rows of RETURNING, and `statement`, `table`, `rows` and `tick` in the metadata."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from flowql.query.answer import Done
from flowql.server.frames import arrow_stream

_NO_COLUMNS = pa.schema([])
_VERB, _TABLE, _ROWS, _TICK, _RETURNS = b"statement", b"table", b"rows", b"tick", b"returning"


def done_streams(done: Sequence[Done]) -> bytes:
    return b"".join(map(_stream, done))


def _stream(done: Done) -> bytes:
    table = _NO_COLUMNS.empty_table() if done.returned is None else done.returned
    about = {_VERB: done.verb.lower(), _TABLE: done.table, _ROWS: str(done.rows), _TICK: done.tick}
    about[_RETURNS] = "false" if done.returned is None else "true"
    return arrow_stream(table.replace_schema_metadata({**(table.schema.metadata or {}), **about}))


def read_done(body: bytes) -> list[Done]:
    """The inverse of `done_streams`. Raises ValueError or KeyError."""
    found, source = [], pa.BufferReader(body)
    while source.tell() < len(body):
        with pa.ipc.open_stream(source) as stream:
            table = stream.read_all()
        about = dict(table.schema.metadata or {})
        verb, name, rows, tick, returns = (about.pop(k).decode() for k in (_VERB, _TABLE, _ROWS, _TICK, _RETURNS))
        returned = table.replace_schema_metadata(about) if returns == "true" else None
        found.append(Done(verb.upper(), name, int(rows), returned, tick))
    return found
