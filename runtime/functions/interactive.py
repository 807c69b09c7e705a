"""User-defined functions as interactive queries call them: over columns, always in processes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from flowql.compiler.functions.user_types import Limits
from flowql.compiler.plan.types import BOOLEAN, SqlType, array, struct
from flowql.runtime.batch import to_python
from flowql.runtime.functions.workers import Code, Request, from_ipc, to_ipc, workers_of


@dataclass(frozen=True, slots=True)
class InteractiveFunction:
    """All that is needed to call the function, in a child process, too. key: its name in plans, which no other version has.

    args: of a call for one row, of an aggregate those of each row of a group. result: of a table function, that of one of its rows. decimals: which
    arguments are DECIMALs of any digits: columns have them as texts.
    """

    name: str
    key: str
    args: tuple[SqlType, ...]
    result: SqlType
    code: Code
    limits: Limits
    kind: Literal["scalar", "table", "aggregate"] = "scalar"
    decimals: frozenset[int] = frozenset()

    @property
    def columns(self) -> tuple[SqlType, ...]:
        """Types of the columns that `call` takes: the arguments, or the rows of groups. Without arguments one column has the number of calls."""
        args = self.args or (BOOLEAN,)
        return args if self.kind != "aggregate" else (array(struct(*((f"a{i}", t) for i, t in enumerate(args)))),)

    @property
    def gives(self) -> SqlType:
        """Type of the column that `call` returns."""
        return array(self.result) if self.kind == "table" else self.result

    def call(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Raises FunctionFailed with the reason of the first row, or group, that failed."""
        workers = workers_of(self.code)
        part: Literal["of_lists"] | None = "of_lists" if self.kind == "aggregate" else None
        data, failed = workers.ask(Request(self.name, to_ipc(columns), part), self.limits.timeout_s)
        if failed:
            first = [to_python(c.slice(failed[0], 1), t)[0] for c, t in zip(columns, self.columns, strict=True)]
            workers.ask(self._of_one(first), self.limits.timeout_s)  # which says why
        return from_ipc(data)[0]

    def _of_one(self, values: Sequence[Any]) -> Request:
        if self.kind != "aggregate":
            return Request(self.name, self._arguments(values))
        rows = [self._arguments(list(row.values())) for row in values[0] or ()]
        return Request(self.name, (rows,), "of_rows")

    def _arguments(self, values: Sequence[Any]) -> tuple[Any, ...]:
        if not self.args:
            return ()
        return tuple(Decimal(v) if i in self.decimals and v is not None else v for i, v in enumerate(values))
