"""Changes of a subscription on their way to another machine, in frames: the beginning, rows, what was rebuilt, signs of life, and the end or
an error. docs/guide/http.md describes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from flowql.compiler.plan import codec
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.query.change import Rebuilt
from flowql.server.failures import Failure, of_wire, to_wire
from flowql.server.frames import arrow_stream, framed, read_frames

if TYPE_CHECKING:
    from flowql.server.following import Point

KEEP_ALIVE_S = 5.0  # without a change the instance sends a sign of life so often,
SILENCE_S = 20.0  # and a client that hears nothing for so long takes the connection for lost
ALIVE = framed({"kind": "alive"})
END = framed({"kind": "end"})


class Form(Protocol):
    """How changes travel. alive: a sign of life; end: the last piece of a subscription that ends by itself."""

    @property
    def alive(self) -> bytes: ...

    @property
    def end(self) -> bytes: ...

    def begun(self, point: Point) -> bytes:
        """The bytes sent before any change."""
        ...

    def rows(self, changes: pa.RecordBatch, after: Point) -> bytes:
        """changes: see `to_batch`."""
        ...

    def rebuilt(self, rebuilt: Rebuilt, after: Point) -> bytes: ...

    def reset(self, point: Point) -> bytes:
        """Tells that all rows follow again, for the reason of the point."""
        ...

    def error(self, error: Failure) -> bytes:
        """The last piece."""
        ...


class Frames:
    """The form for programs that take Arrow, such as FlowQL's client in Python."""

    alive, end = ALIVE, END

    def begun(self, point: Point) -> bytes:
        about = {"columns": list(point.columns), "table": point.result.kind == "table"}
        return framed({"kind": "begin", **about, "result": codec.line(Plan(sources=(point.result,)))})

    def rows(self, changes: pa.RecordBatch, after: Point) -> bytes:
        return framed({"kind": "rows", "part": after.is_part}, arrow_stream(changes))

    def reset(self, point: Point) -> bytes:
        return self.rebuilt(Rebuilt({}, point.result, point.columns), point)

    def rebuilt(self, rebuilt: Rebuilt, after: Point) -> bytes:
        result = codec.line(Plan(sources=(rebuilt.result,)))
        about = {"generations": dict(rebuilt.generations), "columns": list(rebuilt.columns), "result": result}
        return framed({"kind": "rebuilt", **about})

    def error(self, error: Failure) -> bytes:
        return framed({"kind": "error", "error": to_wire(error)})


@dataclass(frozen=True, slots=True)
class Begun:
    """The first frame. result, columns: of the rows that follow."""

    result: SourceDef
    columns: Sequence[str]


def decode(pieces: Iterator[bytes]) -> Iterator[Begun | Rebuilt | pa.RecordBatch]:
    """Until the end; a batch is for `of_batch` or `as_reference`. ValueError where it breaks off before; raises what was raised in the instance."""
    for about, data in read_frames(pieces):
        match about["kind"]:
            case "begin":
                (result,) = codec.loads(about["result"]).sources
                yield Begun(result, about["columns"])
            case "rows":
                yield from pa.ipc.open_stream(data)
            case "rebuilt":
                (result,) = codec.loads(about["result"]).sources
                yield Rebuilt(about["generations"], result, about["columns"])
            case "error":
                raise of_wire(about["error"])
            case "end":
                return
