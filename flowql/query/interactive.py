"""One interactive query while it is answered: its connection, its memory outside DuckDB, its time limit and its cancellation."""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Literal

import duckdb
import pyarrow as pa

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.functions import builtin as _builtin  # noqa: F401 - fills the function catalogue
from flowql.compiler.functions.registry import lookup, lookup_aggregate
from flowql.compiler.plan.topology import Plan
from flowql.query.database import QueryDatabase
from flowql.query.errors import INVALID, REFUSED, TOO_LONG, QueryError, broken_off, place_of_word
from flowql.query.own_functions import rejected, with_aggregates
from flowql.query.query_process import QueryProcess
from flowql.query.room import Room, too_large
from flowql.query.statement import LOADING, Statement, check_table_function, first_line, invalid, is_open_table_function
from flowql.runtime.budget import MIB
from flowql.runtime.errors import remedy_when_full
from flowql.runtime.functions.interactive import InteractiveFunction

_AGAIN_S = 0.2
_FAILED = re.compile(r"Python exception occurred while executing the UDF: (?:ProcessLost: |QueryFailure: )?(.*)")
Language = Literal["ksql", "standard", "duckdb"]
Offered = Callable[[], Mapping[str, InteractiveFunction]]


class Heavy(Exception):
    """The interactive query starts again: it has to wait for others, during which it holds no commit (that would hold memory), or a child process answers it."""


class Isolated(Exception):
    """The interactive query starts again in a child process: what it makes has no bound, or the operators of views are to compute it.

    by_operators: why they are; empty: they are not.
    """

    def __init__(self, by_operators: str = "") -> None:
        super().__init__(by_operators)
        self.by_operators = by_operators


class QueryLocation(Enum):
    """Which process answers an interactive query, and what it reads. HERE: this one, from a snapshot. ELSEWHERE: a child process, from a copy of
    the state. ISOLATED: a child process, to which this one sends the rows of a snapshot.

    UNDECIDED: this one, until continuous queries have to wait for it.
    """

    UNDECIDED = auto()
    HERE = auto()
    ELSEWHERE = auto()
    ISOLATED = auto()


class InteractiveQuery:
    """An interactive query from its start until `end`. Only the thread that computes the answer calls it; any thread may call `break_off`."""

    def __init__(
        self,
        sql: str,
        database: QueryDatabase,
        functions: Offered = dict,
        client: str = "",
        *,
        language: Language = "duckdb",
    ) -> None:
        """functions: gives the user-defined functions that it may call, by their names in SQL. client: as of `QueryPool.lease`. language: in which it
        is written.
        """
        self._database, self._offered, self.pool = database, functions, database.pool
        self.client = client
        self.functions: list[InteractiveFunction] = []  # those it calls
        self.sql, self.given, self.limits = sql, sql, database.limits  # sql: as DuckDB is to have it
        self.language = language
        self.allow_standby = False  # standby copies answer for partitions whose owner does not
        self.by_operators = ""  # why the operators of views are to compute it
        self.connection, self.plans = database.connection(), database.plans
        self.room, self.share = Room(database.memory, self.check), database.share
        self._time_s = self.limits.settings.time_ms / 1000
        self._limit = time.monotonic() + self._time_s
        self._ended, self._over = threading.Event(), threading.Event()  # over: it ended, or is to be broken off
        self._heavy, self._is_heavy = database.heavy, False
        self.location = QueryLocation.HERE
        self.process: QueryProcess | None = None  # the child process, while it has one
        self.contended_s = 0.0  # processor time, while UNDECIDED, for which continuous queries had to wait
        self._broken: QueryError | None = None
        self._running = database.running
        self._running.add(self)
        self._watch = threading.Thread(target=self._watched, name="interactive-query", daemon=True)
        self._watch.start()

    def check_from(self, name: str) -> None:
        """Whether FROM may call a function. name: folded. Raises CommandError."""
        function = next(iter(self._own([name])), None)
        if function is not None and function.kind == "table":
            return
        if function is not None:
            title = f"{function.name} gives one value, and FROM takes rows"
            place = place_of_word(self.sql, name)
            raise QueryError(title, code=INVALID, help=f"SELECT {function.name}(...), or @udtf", span=place)
        if is_open_table_function(name) or not self._database.unknown(frozenset([name])):
            return check_table_function(name)
        help_ = did_you_mean(name, [n for n, f in self._offered().items() if f.kind == "table"])
        title = f"there is no table function {name}"
        raise QueryError(title, code=INVALID, help=help_, span=place_of_word(self.sql, name))

    def prepare(self, statement: Statement) -> Statement:
        """Makes the user-defined functions that it calls callable. Raises CommandError."""
        self.functions = self._own(sorted(statement.functions))
        if self.language == "ksql":
            self._database.offer_catalogue(statement.functions - {f.name.casefold() for f in self.functions})
        for function in self.functions:
            self._database.offer(function, self.connection)
        # A process of its own makes what a function of the project gives, within a limit; of an aggregate DuckDB makes a list first.
        bounded = {f.name.casefold() for f in self.functions if f.kind != "aggregate"}
        if self.pool is not None and statement.unbounded - bounded:
            self.location = QueryLocation.ISOLATED
        return with_aggregates(statement, self.functions, self.connection)

    def saw(self, plan: Plan) -> None:
        """The plan of the commit that it reads."""
        self._database.lookups.saw(plan)

    @property
    def is_other_engine(self) -> bool:
        """Whether it is in DuckDB's SQL in a project of standard SQL."""
        return self.language == "duckdb" and self.limits.settings.dialect == "standard"

    def isolate(self, statement: Statement) -> None:
        """Raises Isolated where another process is to answer it."""
        is_here = self.pool is not None and self.location is not QueryLocation.ISOLATED
        if is_here and statement.asked is not None and (statement.by_operators or statement.unbounded):
            raise Isolated(statement.by_operators)

    def have_functions(self, sql: str) -> None:
        """Makes functions over columns callable that the statement calls."""
        self._database.offer_calls(sql, self.functions)

    def offered(self, names: frozenset[str]) -> dict[str, InteractiveFunction]:
        """Those functions of the project that a statement calls. names: folded."""
        self.functions = self._own(sorted(names))
        return {f.name: f for f in self.functions}

    def _own(self, names: Sequence[str]) -> list[InteractiveFunction]:
        """The functions of the project among names (folded) that stand in the statement as written: functions that syntax calls is DuckDB's."""
        called = {n for n in names if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", self.given, re.IGNORECASE)}
        if all(
            lookup(n.upper()) or lookup_aggregate(n.upper()) for n in called
        ):  # no function of a project has such a name
            return []
        return [f for name, f in self._offered().items() if name.casefold() in called]

    def begin_heavy(self) -> None:
        """It needs more than a moment: until `end_heavy` few others do so at the same time. Raises Heavy if it has to wait for that."""
        self._is_heavy = self._is_heavy or self._heavy.acquire(blocking=False)
        if not self._is_heavy:
            raise Heavy

    def wait_heavy(self) -> None:
        """Gives its memory back and waits until it may be heavy."""
        self.room.back()
        while not self._is_heavy:
            self.check()
            self._is_heavy = self._heavy.acquire(timeout=_AGAIN_S)

    def end_heavy(self) -> None:
        if self._is_heavy:
            self._heavy.release()
            self._is_heavy = False

    def end(self) -> None:
        self.end_heavy()
        self._ended.set()
        self._over.set()
        self._running.discard(self)
        self.room.back()
        self.connection.close()

    def break_off(self) -> None:
        """Cancels it: the client disconnected, or the instance is stopping. Any thread, and more than once."""
        self._break_off(broken_off())

    def check(self) -> None:
        """Between two pieces of work. Raises QueryError if it was broken off."""
        if self._broken is not None:
            raise self._broken

    def error(self, error: Exception) -> QueryError:
        """An error of DuckDB or Arrow in terms of the user's statement, without paths of this machine. (Arrow's reader wraps errors of
        DuckDB as OSError.)
        """
        found, folder = self._meaning(error), str(self.limits.folder)
        if self.limits.folder is None or folder not in found.title:
            return found
        title = found.title.replace(folder, "the data directory")
        return QueryError(title, code=found.code, help=found.help, span=found.span)

    def _meaning(self, error: Exception) -> QueryError:
        if self._broken is not None:
            return self._broken
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "Out of Memory" in str(error):
            return self._too_large(str(error))
        if isinstance(error, duckdb.ConnectionException):  # it began just as the database was closed
            return broken_off()
        if isinstance(error, duckdb.PermissionException):
            title = "files, the network and extensions are out of reach of an interactive query"
            return QueryError(title, code=REFUSED, help=LOADING)
        if "IO Error" in str(error) and (remedy := remedy_when_full(str(error))):
            said = first_line(error).removeprefix("IO Error: ")
            return too_large(self.limits.memory_bytes, f"rows could not be written to disk ({said})", remedy)
        if failed := _FAILED.search(first_line(error)):
            return QueryError(f"a function failed: {failed[1]}", code=INVALID)
        said = str(error)
        return rejected(said, self.functions, self.sql) or invalid(self.sql, error)

    def _too_large(self, said: str) -> QueryError:
        """said: by DuckDB, which mostly names the setting where it was the room on disk that did not suffice."""
        limits, is_disk = self.limits, "max_temp_directory_size" in said
        if limits.folder is None or not limits.folder.is_dir():
            return too_large(limits.memory_bytes)
        most, free = limits.settings.spill_bytes, shutil.disk_usage(limits.folder).free
        if is_disk and most <= free // 2:
            spill = "raise  interactive_queries: {spill: ...}  of the target in flowql.yaml"
            return too_large(limits.memory_bytes, f"than the {most / MIB:,.0f} MB that it may write to disk", spill)
        if is_disk or free // 2 < limits.memory_bytes:
            disk = f"the disk of {limits.folder} has {free / MIB:,.0f} MB left, of which it may use half"
            return too_large(limits.memory_bytes, disk, "make room on that disk")
        return too_large(limits.memory_bytes)

    def counted(self, rows: int) -> None:
        """Checks the number of rows of the answer so far. Raises QueryError beyond the limit."""
        most = self.limits.settings.rows
        if rows > most:
            title = f"the answer has more than {most:,} rows"
            raise QueryError(
                title, code=TOO_LONG, help="LIMIT, or  interactive_queries: {rows: ...}  of the target in flowql.yaml"
            )

    def _break_off(self, why: QueryError) -> None:
        self._broken = self._broken or why
        self._over.set()

    def _watched(self) -> None:
        """Interrupts DuckDB until it notices: it forgets an interruption that comes between two statements."""
        if not self._over.wait(max(0.0, self._limit - time.monotonic())):
            title = f"the interactive query was not answered within {self._time_s:g} s"
            help_ = "ask for less, or  interactive_queries: {time: ...}  of the target in flowql.yaml"
            self._break_off(QueryError(title, code=TOO_LONG, help=help_))
        while not self._ended.is_set():
            with suppress(duckdb.Error):  # it has just ended
                self.connection.interrupt()
            self._ended.wait(_AGAIN_S)


class Rows:
    """A relation on its way into DuckDB, read no further than DuckDB asks. It is what Arrow calls a stream.

    make: gives its rows from the beginning, each time they are scanned. trouble: why reading failed, which DuckDB would know as a
    text only.
    """

    def __init__(self, schema: pa.Schema, make: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self._schema, self._make = schema, make
        self.trouble: Exception | None = None

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._make()
        except Exception as error:
            self.trouble = error
            raise
