"""Interactive queries as they are answered in the process that `flowql.query.query_worker` is."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import IO

import pyarrow as pa

from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Plan
from flowql.query.answer import Answer
from flowql.query.committed import Commit
from flowql.query.database import QueryDatabase
from flowql.query.errors import TOO_LARGE, QueryError, to_data
from flowql.query.given_rows import GivenCommit, commit_of
from flowql.query.limits import QueryLimits
from flowql.query.options import QueryOptions
from flowql.query.query_process import CopyPlace, WorkerReply, WorkerRequest
from flowql.query.relations import Relation, StoreRelation
from flowql.query.room import Room
from flowql.query.session import answer
from flowql.query.statement import Condition
from flowql.runtime.app.allocator import UnusedMemory, resident_bytes
from flowql.runtime.budget import MIB
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.copy import StateCopy

UNUSED_BYTES = 8 * MIB  # that a query may leave to the next one
_WARMING = "SELECT COUNT(*) AS N, list_transform(range(3), lambda x: x) AS L FROM range(10)"


class Incoming:
    """The Arrow streams that follow a request, which are read in their order."""

    def __init__(self, data: IO[bytes]) -> None:
        self._data, self._left = data, 0
        self._open: Iterator[pa.RecordBatch] | None = None

    def expect(self, streams: int) -> None:
        self._left, self._open = streams, None

    def next_stream(self) -> Iterator[pa.RecordBatch]:
        """The batches of the next stream, after what is left of the one before."""
        for _ in self._open or ():
            pass
        self._left -= 1
        self._open = iter(pa.ipc.open_stream(pa.PythonFile(self._data, mode="r")))
        return self._open

    def drain(self) -> None:
        """Reads to the end what was not asked for."""
        while self._left:
            self.next_stream()
        for _ in self._open or ():
            pass


@dataclass(frozen=True, slots=True)
class SentRelation:
    """Rows that the parent sends. They can be read once, after those of relations that were sent before. incoming: None for no rows."""

    name: str
    schema: Schema
    incoming: Incoming | None = None

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """The rows that the parent read for the same conditions and columns."""
        del conditions, columns, room
        return iter(()) if self.incoming is None else self.incoming.next_stream()


class Server:
    """Answers requests with one DuckDB. incoming: where rows come from."""

    def __init__(self, limits: QueryLimits, incoming: IO[bytes]) -> None:
        self._incoming = Incoming(incoming)
        self._limits = limits
        self._database = QueryDatabase(limits, isolating=False)
        self._unused = UnusedMemory(0)
        if limits.settings.dialect == "standard":
            import_module("flowql.query.reference")
        for _ in range(2):
            self._read(WorkerRequest(_WARMING, 0, is_duckdbs=True)).table()
        self._unused.give_back()
        self._idle_bytes = resident_bytes()

    def answered(self, request: WorkerRequest, file: IO[bytes]) -> WorkerReply:
        """Writes the answer to the file."""
        self._incoming.expect(len(request.sent))
        try:
            _write(self._read(request), file, self._limits.settings.spill_bytes)
        except QueryError as error:
            return WorkerReply(refused=to_data(error))
        except Exception as error:
            return WorkerReply(failure=f"{type(error).__name__}: {error}")
        finally:
            if resident_bytes() > self._idle_bytes + UNUSED_BYTES:
                gc.collect()
                self._unused.give_back()
        return WorkerReply()

    def drain(self) -> None:
        """Reads rows that the query did not need."""
        self._incoming.drain()

    def _read(self, request: WorkerRequest) -> Answer:
        commit = self._copied(request.copied) if request.copied is not None else self._sent(request)
        offered, statement = request.functions, request.statement
        if statement is not None:
            from flowql.query.asked import bound_elsewhere  # of standard SQL, whose parts are loaded for it alone

            bound_elsewhere(statement, offered)
        return answer(
            request.sql,
            lambda _: commit,
            database=self._database,
            functions=lambda: offered,
            statement=statement,
            options=QueryOptions("duckdb" if request.is_duckdbs else None),
            looks_up=False,
        )

    def _copied(self, place: CopyPlace) -> Commit:
        snapshot = StateCopy(place.path, place.owned, remove=False)
        known: dict[str, Callable[[], Relation]] = {
            name: partial(lambda n, m, p: StoreRelation(n, m(), snapshot, p), name, make, present)
            for name, make, present in place.stores
        }
        return GivenCommit(Plan(), snapshot, MemoryLog(), "", known=known)

    def _sent(self, request: WorkerRequest) -> Commit:
        known: dict[str, Callable[[], Relation]] = {n: partial(SentRelation, n, s) for n, s in request.shown}
        known |= {n: partial(SentRelation, n, s, self._incoming) for n, s in request.sent}
        return commit_of(known, request.sequence)


def _write(found: Answer, file: IO[bytes], spill_bytes: int) -> None:
    """QueryError if it takes more of the disk than interactive queries may."""
    disk = os.fstatvfs(file.fileno())
    most = min(spill_bytes, disk.f_bavail * disk.f_frsize // 2)
    with closing(found), pa.ipc.new_stream(pa.PythonFile(file, mode="w"), found.schema) as stream:
        for batch in found.batches:
            stream.write_batch(batch)
            if file.tell() > most:
                title = f"the answer needs more than the {most / MIB:,.0f} MB on disk for interactive queries here"
                help_ = "ask for fewer rows or columns, or give the target more:  interactive_queries: {spill: 8 GB}   # in flowql.yaml"
                raise QueryError(title, code=TOO_LARGE, help=help_)
