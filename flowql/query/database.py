"""The DuckDB database that all interactive queries of a process share, and their common limits. No other module opens DuckDB for them.

DuckDB counts its own memory. `flowql.query.room` counts the rows that queries hold outside it: rows of relations until DuckDB has read them, rows
of other members of a group, and rows of answers until the client has taken them. The limit of both is the same.
"""

from __future__ import annotations

import atexit
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Protocol

import duckdb
import pyarrow as pa

from flowql.compiler.functions.registry import FAILED, arrow_call
from flowql.compiler.functions.user_rows import folded
from flowql.compiler.plan.types import BOOLEAN, SqlType, arrow_type, duckdb_type
from flowql.query.bound_plans import BoundPlans
from flowql.query.catalogue import offers
from flowql.query.kept import KeptTopics
from flowql.query.limits import QueryLimits
from flowql.query.own_functions import macros
from flowql.query.pace import Share
from flowql.query.point_lookups import PointLookups
from flowql.query.query_pool import QueryPool
from flowql.query.room import QueryMemory
from flowql.query.shared_answers import SharedAnswers
from flowql.query.spilling import SpillFolder, remove_left
from flowql.runtime.functions.interactive import InteractiveFunction
from flowql.runtime.operators.kernels import calls_in, failures_of, over_chunks

HEAVY_AT_ONCE = (
    1  # queries of more than `registered_bytes`, until their first rows: continuous queries need processors, too
)
DEFAULT_LIMITS = QueryLimits()
# Order matters: the last one forbids to change the others.
_LOCKS = ("SET GLOBAL TimeZone = 'UTC'", "SET enable_external_access = false", "SET lock_configuration = true")


class BreaksOff(Protocol):
    """An interactive query that is being answered."""

    def break_off(self) -> None: ...


class QueryDatabase:
    """One empty database for all interactive queries of a process: opening one takes as long as answering a small query, 19 ms. Each query
    has a connection of its own, and with it tables of its own.
    """

    def __init__(
        self, limits: QueryLimits = DEFAULT_LIMITS, *, isolating: bool = True, beside_continuous: bool = True
    ) -> None:
        """isolating: queries that make values without a bound are answered by child processes. beside_continuous: in the process of an instance."""
        self.limits = limits
        self.pool = QueryPool(limits) if isolating else None
        self._lock = threading.Lock()  # guards the making of connections
        self._root: duckdb.DuckDBPyConnection | None = None
        self._spill: SpillFolder | None = None
        self.memory = QueryMemory(limits.memory_bytes)
        self.heavy, self.share = threading.Semaphore(HEAVY_AT_ONCE), Share(yields=beside_continuous)
        self.shared = SharedAnswers(self.share)
        self.plans = BoundPlans()  # of standard SQL
        self.lookups = PointLookups()
        # An instance shares its memory with continuous queries.
        self.kept = KeptTopics(limits.memory_bytes // (8 if beside_continuous else 2), self.share)
        self.running: set[BreaksOff] = set()  # interactive queries; adding and removing are atomic
        self._functions: frozenset[str] = frozenset()  # DuckDB's own, folded
        self._offered: set[str] = set()  # user-defined ones, by their names in plans

    def connection(self) -> duckdb.DuckDBPyConnection:
        """A connection for one interactive query, which closes it after its answer."""
        with self._lock:
            if self._root is None:
                self._root = self._opened()
                atexit.register(self.close)  # or what was spilled would stay
            return self._root.cursor()

    def unknown(self, functions: frozenset[str]) -> frozenset[str]:
        """The functions that DuckDB does not have. functions: folded names."""
        if functions and not self._functions:
            with closing(self.connection()) as connection:
                found = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
            self._functions = frozenset(str(name).casefold() for (name,) in found)
        return functions - self._functions

    def offer(self, function: InteractiveFunction, connection: duckdb.DuckDBPyConnection) -> None:
        """Makes a user-defined function callable by its name on this connection. Other connections may have another version of that name."""
        with self._lock:
            if function.key not in self._offered and self._root is not None:
                constant = function.kind == "aggregate"  # HAVING may name the value of an aggregate
                gives = folded(function.gives, str.lower if self.is_standard else str.upper)  # as in deployed queries
                call = partial(_renamed, function, arrow_type(gives))
                _create(self._root, function.key, function.columns, gives, call, constant=constant)
                self._offered.add(function.key)
        for macro in macros(function):
            connection.execute(macro)

    def offer_calls(self, sql: str, functions: Sequence[InteractiveFunction]) -> None:
        """Makes the functions over columns callable that a bound statement calls. functions: those of the project among them."""
        own = {f.key: f for f in functions}
        with self._lock:
            for name in calls_in(sql):
                if name in self._offered or self._root is None:
                    continue
                if name in own:
                    f = own[name]
                    _create(self._root, name, f.columns, f.gives, f.call, constant=False)
                else:
                    arrow = arrow_call(name.removesuffix(FAILED))
                    assert arrow is not None, name
                    if name.endswith(FAILED):
                        _create(self._root, name, arrow.args, BOOLEAN, failures_of(arrow), constant=True)
                    else:
                        _create(self._root, name, arrow.args, arrow.result, arrow.call, constant=True)
                self._offered.add(name)

    def offer_catalogue(self, names: frozenset[str]) -> None:
        """Makes ksqlDB's functions callable that DuckDB lacks, for all connections. names: folded, of functions that are called."""
        with self._lock:
            for name, offer in offers(names):
                if name in self._offered or self._root is None:
                    continue
                for f in offer.functions:
                    _create(self._root, f.key, f.args, f.result, f.call, constant=True)
                self._root.execute(offer.macro)
                self._offered.add(name)

    @property
    def is_standard(self) -> bool:
        """Whether interactive queries are in standard SQL."""
        return self.limits.settings.dialect == "standard"

    def break_off(self) -> None:
        """Ends all interactive queries with an error."""
        for query in list(self.running):
            query.break_off()

    def close(self) -> None:
        """Break off what is still being answered, end the child processes, and remove what was spilled."""
        self.break_off()
        if self.pool is not None:
            self.pool.close()
        with self._lock:
            if self._root is not None:
                with suppress(duckdb.Error):  # a query is just being broken off: its own connection closes with it
                    self._root.close()
                self._root = None
                atexit.unregister(self.close)
                self._offered.clear()
                if self._spill is not None:
                    self._spill.remove()
                self._spill = None
        if self.pool is not None and self.limits.folder is not None:
            remove_left(self.limits.folder)  # of child processes

    def _opened(self) -> duckdb.DuckDBPyConnection:
        limits = self.limits
        settings: dict[str, str | bool | int | float | list[str]] = {
            "threads": "1",
            "python_enable_replacements": "false",
            "memory_limit": f"{limits.memory_bytes}B",
            "temp_directory": "",
        }
        data_dir = limits.folder
        if data_dir is not None and data_dir.is_dir():
            remove_left(data_dir)
            self._spill = SpillFolder.made(data_dir)
        if self._spill is not None:
            free = shutil.disk_usage(self._spill.path).free
            settings["temp_directory"] = str(self._spill.files)
            settings["max_temp_directory_size"] = f"{min(limits.settings.spill_bytes, free // 2)}B"
        root = duckdb.connect(":memory:", config=settings)
        for statement in _LOCKS:
            root.execute(statement)
        return root


def _renamed(function: InteractiveFunction, to: pa.DataType, columns: Sequence[pa.Array]) -> pa.Array:
    return function.call(columns).view(to)


def _create(
    root: duckdb.DuckDBPyConnection,
    key: str,
    args: Sequence[SqlType],
    result: SqlType,
    call: Callable[[Sequence[pa.Array]], pa.Array],
    *,
    constant: bool,
) -> None:
    """On the root: closing a connection frees the Python functions that it created, and DuckDB goes on calling them.

    constant: equal arguments give equal values.
    """
    root.create_function(
        key,
        over_chunks(args, result, call),
        [duckdb_type(t) for t in args],
        duckdb_type(result),
        type="arrow",
        null_handling="special",
        side_effects=not constant,
    )


DEFAULT = QueryDatabase()
