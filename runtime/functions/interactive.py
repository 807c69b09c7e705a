"""User-defined functions as interactive queries call them: over columns, always in processes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import pyarrow as pa

from flowql.compiler.functions.bounds import bounded
from flowql.compiler.functions.registry import AggregateFunction, ArrowCall, Function, resolver
from flowql.compiler.functions.signatures import AnyDecimal, Overload
from flowql.compiler.functions.user_rows import has_rows, naming, pattern_of
from flowql.compiler.functions.user_types import Limits
from flowql.compiler.functions.user_vectorized import as_declared
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

    def entry(self) -> Function | AggregateFunction:
        """The function as expressions of an interactive query call it: over columns in DuckDB, or for one row where operators compute them."""
        patterns = [
            AnyDecimal(f"D{i}") if i in self.decimals else pattern_of(t, f"R{i}") for i, t in enumerate(self.args)
        ]
        resolve = resolver(self.name, Overload(tuple(patterns), self.result))
        if self.kind == "aggregate":
            return AggregateFunction(
                self.key,
                lambda types, _: resolve(types),
                initial=lambda *_: (),
                add=lambda *_: lambda acc, *args: (*acc, args),
                result=lambda *_: self._of_rows,
                of_rows=lambda _: self._of_rows,
                takes_null=True,
            )
        return Function(
            self.key,
            resolve,
            lambda found: naming(
                bounded(self._of_row, array(self.result) if self.kind == "table" else self.result), found.result
            ),
            null_propagating=False,
            duckdb=lambda args, _: f'"{self.key}"({", ".join(self.as_columns(args))})',
            arrow=ArrowCall(self.columns, self.gives, self.call),
            table=self.kind == "table",
            folds=has_rows(self.result),
        )

    def as_columns(self, args: Sequence[str]) -> list[str]:
        """SQL of arguments of expressions, as its columns have them."""
        declared = as_declared(args, self.args)
        made = [f"CAST({a} AS VARCHAR)" if i in self.decimals else a for i, a in enumerate(declared)]
        return made or ["true"]

    def _of_row(self, *args: Any) -> Any:
        return workers_of(self.code).ask(Request(self.name, args), self.limits.timeout_s)

    def _of_rows(self, rows: Iterable[tuple[Any, ...]]) -> Any:
        return workers_of(self.code).ask(Request(self.name, (list(rows),), "of_rows"), self.limits.timeout_s)

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
