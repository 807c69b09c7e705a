"""User-defined functions as interactive queries call them: over columns, always in processes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from flowql.compiler.functions.user_types import Limits
from flowql.compiler.plan.types import SqlType
from flowql.runtime.batch import to_python
from flowql.runtime.functions.workers import Code, Request, from_ipc, to_ipc, workers_of


@dataclass(frozen=True, slots=True)
class AskedFunction:
    """What another process needs to call it, too. key: its name in plans, which no other version has."""

    name: str
    key: str
    args: tuple[SqlType, ...]
    result: SqlType
    code: Code
    limits: Limits

    def call(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Columns of `args`, of one length, to one of `result`. Raises FunctionFailed with the reason of the first row that failed."""
        workers = workers_of(self.code)
        data, failed = workers.ask(Request(self.name, to_ipc(columns)), self.limits.timeout_s)
        if failed:
            first = (to_python(c.slice(failed[0], 1), t)[0] for c, t in zip(columns, self.args, strict=True))
            workers.ask(Request(self.name, tuple(first)), self.limits.timeout_s)  # which says why
        return from_ipc(data)[0]


@dataclass(frozen=True, slots=True)
class NotAsked:
    """A function of the project that interactive queries cannot call. name: in SQL. help: what to do instead."""

    name: str
    why: str
    help: str
