"""One interactive query answered from a copy of the state, in the process that `flowql.query.query_worker` is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from flowql.compiler.plan.topology import Plan
from flowql.query.answer import Answer
from flowql.query.committed import Commit
from flowql.query.database import QueryDatabase
from flowql.query.errors import TOO_LARGE, QueryError, to_data
from flowql.query.query_process import WorkerReply, WorkerRequest
from flowql.query.relations import Relation, StoreRelation
from flowql.query.session import answer
from flowql.runtime.budget import MIB
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.copy import StateCopy


@dataclass(frozen=True, slots=True)
class CopiedCommit(Commit):
    """A commit whose stores, and no topics, can be read."""

    request: WorkerRequest | None = None

    def relations(self) -> dict[str, Callable[[], Relation]]:
        assert self.request is not None
        return {
            name: partial(lambda n, m, p: StoreRelation(n, m(), self.snapshot, p), name, make, present)
            for name, make, present in self.request.stores
        }


def answered(request: WorkerRequest) -> WorkerReply:
    """Writes the answer to the file of the request."""
    database = QueryDatabase(request.limits)
    try:
        snapshot = StateCopy(request.path, request.owned, remove=False)
        commit = CopiedCommit(Plan(), snapshot, MemoryLog(), "", request=request)
        _write(request, answer(request.sql, lambda _: commit, database=database, functions=lambda: request.functions))
    except QueryError as error:
        return WorkerReply(refused=to_data(error))
    except Exception as error:  # the parent answers it by itself
        return WorkerReply(failure=f"{type(error).__name__}: {error}")
    finally:
        database.close()
    return WorkerReply()


def _write(request: WorkerRequest, found: Answer) -> None:
    """QueryError if it takes more of the disk than interactive queries may."""
    free = shutil.disk_usage(request.answer.parent).free
    most = min(request.limits.settings.spill_bytes, free // 2)
    with pa.OSFile(str(request.answer), "wb") as file, pa.ipc.new_stream(file, found.schema) as stream:
        for batch in found.batches:
            stream.write_batch(batch)
            if file.tell() > most:
                title = f"the answer needs more than the {most / MIB:,.0f} MB on disk for interactive queries here"
                help_ = "ask for fewer rows or columns, or give the target more:  interactive_queries: {spill: 8 GB}   # in flowql.yaml"
                raise QueryError(title, code=TOO_LARGE, help=help_)
