"""Rows on their way from one instance to another: per part a frame with a line about it and an Arrow stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from flowql.errors import CommandError
from flowql.query.committed import Part, Wanted
from flowql.query.errors import query_error, to_data
from flowql.query.statement import Condition, Literal
from flowql.runtime.app.standby import CopyPosition
from flowql.server.frames import arrow_stream, framed, read_frames

MEDIA_TYPE = "application/vnd.flowql.parts"
END = {"end": True}  # the last line: without it the answer broke off


def encode(parts: Iterable[Part]) -> Iterator[bytes]:
    try:
        for part in parts:
            about = {"relation": part.relation, "task": part.task, "version": part.version}
            copy = {} if part.copy is None else {"copy": asdict(part.copy)}
            yield framed({**about, **copy}, arrow_stream(part.rows))
    except CommandError as error:
        yield framed({"error": to_data(error)})
        return
    yield framed(END)


def decode(pieces: Iterator[bytes]) -> Iterator[Part]:
    """ValueError if it breaks off, QueryError where the other one says so."""
    for about, data in read_frames(pieces):
        if about == END:
            return
        if "error" in about:
            raise query_error(about["error"])
        table = pa.ipc.open_stream(data).read_all()
        copy = CopyPosition(**about["copy"]) if "copy" in about else None
        yield Part(about["relation"], about["task"], about["version"], table, copy)


def wanted_to_data(wanted: Iterable[Wanted]) -> dict[str, Any]:
    found = []
    for w in wanted:
        conditions = [[c.column, c.operator, [[v.kind, v.text] for v in c.values]] for c in w.conditions]
        columns = None if w.columns is None else sorted(w.columns)
        about = {"relation": w.relation, "definition": w.definition, "conditions": conditions}
        found.append({**about, "columns": columns, "enough": w.enough, "tick": w.tick, "copies": w.copies})
    return {"wanted": found}


def wanted_of(data: Any) -> list[Wanted]:
    """ValueError, KeyError or TypeError if it is none."""
    found = []
    for w in data["wanted"]:
        conditions = tuple(
            Condition(str(column), str(operator), tuple(Literal(str(k), str(t)) for k, t in values))
            for column, operator, values in w["conditions"]
        )
        columns = None if w["columns"] is None else frozenset(map(str, w["columns"]))
        enough = w.get("enough")
        if enough is not None and not isinstance(enough, int):
            raise TypeError("`enough` is a number")
        found.append(
            Wanted(
                str(w["relation"]),
                str(w["definition"]),
                conditions,
                columns,
                enough,
                int(w.get("tick", 0)),
                bool(w.get("copies", False)),
            )
        )
    return found
