"""Statements that have answers: in which way each is carried out, and in a thread of which pool; one `Execution` for each session."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import ref

import pyarrow as pa

from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, Plan
from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.pg import commands, commit_point, messages
from flowql.pg.catalogue import SYSTEM_COLUMNS, Catalogue
from flowql.pg.commit_point import CommitPoint
from flowql.pg.copying import Copy, copy_of
from flowql.pg.errors import PgError, pg_error, unknown_outcome, unsupported
from flowql.pg.incoming import BYTES_MAX, CopyMemory, Held, Incoming, copies_from
from flowql.pg.outcomes import Outcomes
from flowql.pg.parameters import inferred, literal, sample
from flowql.pg.portals import Rows
from flowql.pg.reading import Reading
from flowql.pg.settings import REPORTED, SessionSettings
from flowql.pg.statements import Statement, filled, name_after, split, syntax_error
from flowql.pg.subscribe_statement import subscribe_of
from flowql.pg.subscribing import LiveRows
from flowql.pg.transactions import Transaction
from flowql.pg.types import PgColumn, PgType, columns_of, pg_type
from flowql.pg.writes import Pinned, Write
from flowql.query.answer import Done
from flowql.query.errors import TOO_LONG, QueryError
from flowql.query.of_plan import OfPlan
from flowql.server.access import Action, Caller, authorize, authorize_action
from flowql.server.audit import AuditLog

LOOK_S = 0.5  # how often to check that the client is still connected
ABANDON_S = 5.0  # for a query that was cancelled to end
THREADS = 16
SUBSCRIPTIONS_MAX = 16  # each holds the rows of its table
# Statements that PostgreSQL has and that change what FlowQL's deployments change, or have no use here.
_UNSUPPORTED = frozenset(
    [
        "ALTER",
        "CALL",
        "CLUSTER",
        "COMMENT",
        "CREATE",
        "DO",
        "DROP",
        "EXECUTE",
        "GRANT",
        "IMPORT",
        "LOAD",
        "LOCK",
        "MERGE",
        "NOTIFY",
        "PREPARE",
        "REASSIGN",
        "REFRESH",
        "REINDEX",
        "REVOKE",
        "SECURITY",
        "TRUNCATE",
    ]
)
_READS = frozenset(
    ("FROM", "JOIN", "TABLE", "SUBSCRIBE", "TABLES", "COPY")
)  # without one of these a query reads no relation
COPY_SHARE = 2  # of the memory of the target, rows of COPY take a half at most
AT_ONCE_MAX = 8  # statements that begin at the same time; more wait


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement of the extended protocol. types: of its parameters. returns: it is a write with RETURNING."""

    statement: Statement
    types: Sequence[PgType]
    returns: bool = False
    is_duckdbs: bool = False  # it is carried out as DuckDB's SQL


@dataclass(frozen=True, slots=True)
class Produced:
    """The outcome of a statement: rows, or a tag alone. tag: the number of rows is added to that of a query."""

    tag: str
    rows: Rows | None = None
    copy: Copy | None = None

    def finished(self) -> str:
        """The tag of CommandComplete."""
        return (
            f"{self.tag} {self.rows.rows}"
            if self.rows is not None and self.tag in ("SELECT", "COPY", "FETCH")
            else self.tag
        )


class Shared:
    """State that all sessions of the process share."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.catalogue = Catalogue(reading)
        self.audit = AuditLog(reading.settings.data_dir)
        self.lock = threading.Lock()  # guards the subscriptions
        self.subscriptions: list[ref[LiveRows]] = []
        self.threads = ThreadPoolExecutor(THREADS, "pg")
        self.at_once = asyncio.Semaphore(min(AT_ONCE_MAX, reading.settings.interactive_queries.at_once))
        self._plan: Plan | None = None  # in this turn of the loop
        self._outcomes: Outcomes[Done] | None = None  # from the first write on
        self.copies = CopyMemory(reading.settings.memory_bytes // COPY_SHARE)

    def plan_of_now(self) -> Plan | None:
        """The serving plan; None if it would have to be read. The loop's thread. One look at the log is for all statements of a turn of the loop:
        each of them was received before it.
        """
        if self._plan is None:
            self._plan = self.reading.plan_if_known()
            asyncio.get_running_loop().call_soon(self._forget_plan)
        return self._plan

    def _forget_plan(self) -> None:
        self._plan = None

    def outcomes(self) -> Outcomes[Done]:
        """The outcomes of writes, for the loop. Called in the loop's thread."""
        if self._outcomes is None:
            self._outcomes = Outcomes(asyncio.get_running_loop())
        return self._outcomes

    def tell(self) -> None:
        """Writes the waiting lines of the audit log, then tells the sessions the outcomes of these writes. Any thread that may block."""
        self.audit.flush()
        if self._outcomes is not None:
            self._outcomes.wake()


@dataclass(slots=True, eq=False)
class Execution:
    """The statements of one session, one at a time. is_gone: whether the client has disconnected. caller, address: who it is, and from where."""

    shared: Shared
    is_gone: Callable[[], bool]
    caller: Caller = field(default_factory=lambda: Caller("", kind="user"))
    address: str = ""
    number: int = 0  # by which a client cancels
    _break_off: Callable[[], None] | None = None
    _cancelled: str = ""  # why
    _told: dict[str, str] = field(default_factory=dict)
    _is_running: bool = False

    @property
    def is_standard(self) -> bool:
        return self.shared.reading.is_standard

    def cancel(self, why: str = "canceling statement due to user request") -> None:
        """Ends the statement that runs, if any. The loop's thread."""
        if self._is_running:
            self._cancelled = self._cancelled or why
            if self._break_off is not None:
                self._break_off()

    async def run(self, call: Callable[..., Any], *arguments: Any, timeout_ms: int = 0) -> Any:
        """The result of a blocking call. Raises PgError 57014 if it is cancelled, and 08007 if it may be written all the same."""
        self._is_running, self._cancelled, self._break_off = True, "", None
        try:
            async with self.shared.at_once:
                point, context = CommitPoint(), copy_context()
                context.run(commit_point.begin, point)
                running = self.shared.threads.submit(context.run, call, *arguments)
                return await self._awaited(asyncio.wrap_future(running), running, point, timeout_ms)
        finally:
            self._is_running = False

    async def look_up(
        self, statement: Statement, sql: str, formats: Sequence[int], transaction: Transaction, *, takes_all: bool
    ) -> Produced | None:
        """The rows of a point look-up that waits for nothing; a turn of threads would take longer than the look-up. None for any other statement, which
        `produce` is for. Raises as it does. takes_all: the client takes all rows without a break.
        """
        if not statement.is_read or transaction.is_open:
            return None
        plan = self.shared.plan_of_now()
        found = None if plan is None else self.shared.reading.look_up(sql, plan, self._visible)
        if found is None or self.shared.catalogue.has(statement, self._visible):
            return None
        self._authorize(statement)
        rows = Rows.of(found, formats)
        if takes_all:
            rows.read_ahead()
        return Produced("SELECT", rows)

    async def write(
        self, statement: Statement, sql: str, formats: Sequence[int], transaction: Transaction, timeout_ms: int
    ) -> Produced | None:
        """Carries out a write whose form is known, without a thread that waits for its table. None for any other statement, which `produce` is
        for. Raises as it does, and PgError 08007 if it is cancelled, since it is written all the same.
        """
        if not statement.is_write or transaction.is_open or self.caller.visible("write") is not None:
            return None
        self._authorize(statement)
        plan = self.shared.plan_of_now()
        outcomes = self.shared.outcomes()
        begun = None if plan is None else self.shared.reading.begin(sql, plan, self.shared.tell)
        if begun is None:
            return None
        waiting: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        begun.add_done_callback(partial(self._note_outcome, statement.verb, outcomes, waiting))
        point = CommitPoint()
        point.enter()
        self._is_running, self._cancelled, self._break_off = True, "", None
        try:
            done: Done = await self._awaited(waiting, begun, point, timeout_ms)
        finally:
            self._is_running = False
        return _done(done.verb, done.rows, done.returned, formats)

    def _note_outcome(
        self, verb: str, outcomes: Outcomes[Done], waiting: asyncio.Future[Done], begun: Future[Done]
    ) -> None:
        """Adds the line of the audit log about a write that has ended. Its outcome is told once the line is written."""
        error = begun.exception()
        results = [] if error is not None else [begun.result().table]
        self.shared.audit.add(self._about("write", verb, results, error), partial(outcomes.add, waiting, begun))
        if outcomes.is_own_thread:  # the write had ended, and its group may have called `tell` already
            self.shared.threads.submit(self.shared.tell)

    async def _awaited(
        self, waiting: asyncio.Future[Any], running: Future[Any], point: CommitPoint, timeout_ms: int
    ) -> Any:
        """The outcome of a call or a write. waiting: receives it in the loop. running: the same outcome, in any thread."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_ms / 1000 if timeout_ms else None
        abandoned_at: float | None = None
        while not waiting.done():
            step = LOOK_S if end is None else max(0.0, min(LOOK_S, end - loop.time()))
            await asyncio.wait([waiting], timeout=step)
            if waiting.done():
                break
            if end is not None and loop.time() >= end:
                self.cancel("canceling statement due to statement timeout")
                end = None
            if self.is_gone():
                self.cancel("the client has disconnected")
            if self._cancelled:
                self.cancel()
                abandoned_at = abandoned_at or loop.time() + ABANDON_S
                if loop.time() >= abandoned_at:
                    running.cancel()  # if no thread has begun it
                    running.add_done_callback(_closed)
                    waiting.add_done_callback(_heard)
                    if not point.abandon():
                        raise unknown_outcome(f"{self._cancelled}, and it is still being written")
                    raise PgError("57014", self._cancelled)
        try:
            return waiting.result()
        except QueryError as error:
            if self._cancelled and error.code == TOO_LONG:
                raise PgError("57014", self._cancelled) from error
            raise

    async def pause(self, seconds: float) -> None:
        """Between two looks at what may come. Raises PgError 57014 if it is cancelled, or the client has disconnected."""
        self._is_running = True  # a request to cancel that came as the last look ended counts as well
        try:
            await asyncio.sleep(0.0 if self._cancelled else seconds)
        finally:
            self._is_running = False
        if self._cancelled or self.is_gone():
            raise PgError("57014", self._cancelled or "the client has disconnected")

    def _begun(self, break_off: Callable[[], None]) -> None:
        """In the thread of a query."""
        self._break_off = break_off
        if self._cancelled:
            break_off()

    def reports(self, settings: SessionSettings) -> list[bytes]:
        """Messages about settings that have changed since the last call."""
        found = list[bytes]()
        for name, shown in REPORTED.items():
            value = settings.get(name)
            if self._told.get(name) != value:
                self._told[name] = value
                found.append(messages.parameter(shown, value))
        return found

    # In threads

    def prepare(self, statement: Statement, oids: Sequence[int]) -> Prepared:
        """Raises PgError."""
        returns = statement.is_write and any(w.upper == "RETURNING" for w in statement.words)
        if not statement.parameters and not oids:
            return Prepared(statement, (), returns)
        plan = self._plan()
        if self.shared.catalogue.has(statement, self._visible):
            return Prepared(statement, inferred(statement, oids, SYSTEM_COLUMNS, ()), is_duckdbs=True)
        types = inferred(statement, oids, _columns(plan, statement), _targets(plan, statement))
        return Prepared(statement, types, returns, is_duckdbs=not self.is_standard)

    def columns(self, prepared: Prepared, settings: SessionSettings) -> list[PgColumn] | None:
        """Those of its rows, before it has values; None for no rows. Raises PgError, CommandError."""
        statement = prepared.statement
        if commands.transaction_verb(statement) or (statement.is_write and not prepared.returns) or not statement.words:
            return None
        if statement.verb == "SHOW":
            done = commands.run(statement, settings, lambda _: None)
            return None if done is None or done.shown is None else done.shown[0]
        if statement.verb == "SUBSCRIBE":
            return self.shared.reading.subscribe(subscribe_of(statement), self._visible).columns
        if not (statement.is_read or prepared.returns):
            return None
        standard = not prepared.is_duckdbs
        values = [
            literal(sample(t) if prepared.returns else None, t, standard=standard, adapts=prepared.returns)
            for t in prepared.types
        ]
        sql = filled(statement, values)
        try:
            if prepared.returns:
                return self._returned_columns(sql.sql)
            if self.shared.catalogue.has(statement, self._visible):
                return self.shared.catalogue.rows(sql.sql, settings, (), visible=self._visible).columns
            return columns_of(self.shared.reading.describe(sql.sql, self._visible))
        except PgError as error:
            raise error.placed(sql.sql, sql.original) from None
        except (CommandError, CompileError, RuntimeFailure) as error:
            raise pg_error(error).placed(sql.sql, sql.original) from error

    def produce(
        self,
        statement: Statement,
        sql: str,
        formats: Sequence[int],
        transaction: Transaction,
        settings: SessionSettings,
    ) -> Produced:
        """Begins a statement. sql: with the values of its parameters. Raises PgError, CommandError, CompileError, RuntimeFailure."""
        self._authorize(statement)
        if statement.is_write:
            return self._write(statement, sql, formats, transaction)
        if statement.verb == "COPY":
            copy = copy_of(statement)
            (inner,) = split(copy.sql)
            if inner.verb == "SUBSCRIBE":
                return Produced("COPY", self._subscribed(inner, ()), copy)
            return Produced("COPY", self._rows(statement, copy.sql, (), transaction, settings), copy)
        if statement.verb == "SUBSCRIBE":
            return Produced("SUBSCRIBE", self._subscribed(split(sql)[0], formats))
        if statement.is_read or statement.verb == "SHOW":
            return Produced("SELECT", self._rows(statement, sql, formats, transaction, settings))
        if statement.verb not in _UNSUPPORTED:
            raise syntax_error(statement, 0)
        from flowql.compiler.dialect.standard.foreign_statements import remedy

        help_ = remedy(statement.verb) or "queries and tables change by  flowql deploy"
        raise unsupported(f"{statement.verb} is not supported", help_)

    def produce_all(self, *arguments: Any) -> Produced:
        """As `produce`, for a client that takes all rows without a break."""
        produced = self.produce(*arguments)
        if produced.rows is not None and produced.copy is None:
            try:
                produced.rows.read_ahead()
            except BaseException:
                produced.rows.close()
                raise
        return produced

    @property
    def _visible(self) -> frozenset[str] | None:
        """Folded names of the relations that it may read; None: all."""
        return self.caller.visible("read")

    def _authorize(self, statement: Statement) -> None:
        """Raises CommandError 42501 for a statement that no role of the user permits. Names are limited where they are looked up."""
        action: Action = "read"
        if statement.is_write or copies_from(statement):
            action = "write"
        elif statement.verb in _UNSUPPORTED:
            action = "deploy"
        elif _READS.isdisjoint(statement.uppers) or self.shared.catalogue.has(statement, self._visible):
            return
        try:
            if action == "deploy":
                authorize(self.caller, action, None)
            else:
                authorize_action(self.caller, action)
        except CommandError as error:
            self._note(action, statement.verb, (), error)
            raise

    def _note(self, action: Action, verb: str, results: Sequence[str], error: Exception | None) -> None:
        """Writes a line of the audit log."""
        self.shared.audit.write(self._about(action, verb, results, error))

    def _about(self, action: Action, verb: str, results: Sequence[str], error: BaseException | None) -> dict[str, Any]:
        """A line of the audit log: no rows and no statements."""
        found = None
        if error is not None:
            known = isinstance(error, CommandError | CompileError | RuntimeFailure)
            found = pg_error(error) if known else error if isinstance(error, PgError) else PgError("XX000", "")  # type: ignore[arg-type]
        return {
            "who": self.caller.name,
            "from": self.address,
            "action": action,
            "request": f"postgres {verb}",
            "status": "00000" if found is None else found.state,
            "error": getattr(error, "code", None),
            **({"results": sorted(set(results))} if results else {}),
        }

    @contextmanager
    def _noted(self, verb: str, results: list[str]) -> Iterator[None]:
        """Notes a write when its outcome is known. results: the tables and streams, once they are known."""
        try:
            yield
        except Exception as error:
            self._note("write", verb, results, error)
            raise
        self._note("write", verb, results, None)

    def _subscribed(self, statement: Statement, formats: Sequence[int]) -> LiveRows:
        with self.shared.lock:
            self.shared.subscriptions = [s for s in self.shared.subscriptions if s() is not None]
            if len(self.shared.subscriptions) >= SUBSCRIPTIONS_MAX:
                raise PgError(
                    "53300", f"at most {SUBSCRIPTIONS_MAX} subscriptions run at the same time", help="end one of them"
                )
            changes = self.shared.reading.subscribe(subscribe_of(statement), self._visible)
            rows = LiveRows(changes, formats)
            self.shared.subscriptions.append(ref(rows))
        try:
            changes.begin()
        except BaseException:
            rows.close()
            raise
        return rows

    def _rows(
        self,
        statement: Statement,
        sql: str,
        formats: Sequence[int],
        transaction: Transaction,
        settings: SessionSettings,
    ) -> Rows:
        if self.shared.catalogue.has(statement, self._visible):
            return self.shared.catalogue.rows(sql, settings, formats, self._begun, self.number, self._visible)
        self._check_reads_no_write(statement, transaction)
        return Rows.of(self.shared.reading.ask(sql, self._begun, transaction.holder, self._visible), formats)

    def _check_reads_no_write(self, statement: Statement, transaction: Transaction) -> None:
        """Raises PgError for a query of relations after a write."""
        if transaction.has_written and _reads(self._plan(), statement):
            title = "a query after a write in the same transaction is not supported: the rows are written at COMMIT"
            raise unsupported(title, "COMMIT first")

    def _write(self, statement: Statement, sql: str, formats: Sequence[int], transaction: Transaction) -> Produced:
        if transaction.is_open:
            return self._rehearsed(sql, formats, transaction)
        results = list[str]()
        with self._noted(statement.verb, results):
            (done,) = self.shared.reading.execute(sql, self._begun, self._visible, self.caller.visible("write"))[-1:]
            results.append(done.table)
        return _done(done.verb, done.rows, done.returned, formats)

    def _rehearsed(self, sql: str, formats: Sequence[int], transaction: Transaction) -> Produced:
        """A write in a transaction: COMMIT carries it out."""
        writes, changes = (
            transaction.writes,
            self._compiled(sql),
        )  # in this order: an abandoned statement adds to no later writes
        (change, *_) = changes
        if not isinstance(change, TableChange):
            writes.add([Write(c) for c in changes])
            return _done("INSERT", len(changes), None, formats)
        if change.select:
            self._check_reads_no_write(split(change.select)[0], transaction)
        write, rows, returned = self.shared.reading.rehearsed(
            change, writes, self._begun, transaction.holder, self._visible
        )
        writes.add([write])
        return _done(change.kind.upper(), rows, returned, formats)

    def carry_out(self, writes: Sequence[Write], pinned: Mapping[str, Pinned] | None, verb: str = "COMMIT") -> None:
        """Carries out the writes of a transaction. verb: for the audit log. pinned: see `carried_out`. Raises PgError, CommandError, RuntimeFailure."""
        with self._noted(verb, [w.change.target for w in writes]):
            self.shared.reading.carry_out(writes, pinned)

    def begin_copy(self, sql: str, rest: Sequence[Statement] | None, transaction: Transaction) -> Incoming:
        """COPY ... FROM STDIN. Raises PgError, CompileError."""
        self._authorize(split(sql)[0])
        (change,) = self._compiled(sql)
        assert isinstance(change, TableChange)
        assert change.copied is not None
        if change.copied.path:
            title = "the server reads no files"
            raise unsupported(title, f"in psql:  \\copy {change.target} FROM '{change.copied.path}'")
        source = self.shared.reading.plan().source(change.target)
        assert source is not None, "it was compiled over it"
        if transaction.is_open:
            self.shared.reading.check_write(change, transaction.writes)
        held = Held(self.shared.copies)
        return Incoming(source, change, rest, BYTES_MAX - transaction.writes.size, held)

    def finish_copy(self, incoming: Incoming, transaction: Transaction) -> int:
        """Writes the rows, or adds them to the open transaction; their number. Raises CommandError, RuntimeFailure."""
        writes = (
            transaction.writes if transaction.is_open else None
        )  # now: once it is abandoned, the transaction may end
        given = incoming.rows()
        write = Write(given.change, incoming.source, given, size=incoming.size, held=incoming.held)
        if writes is not None:
            writes.add([write])
        else:
            self.carry_out([write], None, "COPY")
        return len(given)

    def _compiled(self, sql: str) -> list[TableChange | InsertValues]:
        return [*self.shared.reading.compiled(sql, self.caller.visible("write"))]

    def _returned_columns(self, sql: str) -> list[PgColumn] | None:
        (change, *_) = self._compiled(sql)
        if not isinstance(change, TableChange):
            return None
        return [PgColumn(c.name, pg_type(c.expr.type)) for c in change.returning]

    def _plan(self) -> Plan:
        with suppress(CommandError):  # nothing is deployed
            return self.shared.reading.plan(self._visible)
        return Plan()


def _done(verb: str, rows: int, returned: pa.Table | None, formats: Sequence[int]) -> Produced:
    tag = f"INSERT 0 {rows}" if verb == "INSERT" else f"{verb} {rows}"
    return Produced(tag, None if returned is None else Rows.of_table(returned, formats=formats))


def _heard(waiting: asyncio.Future[Any]) -> None:
    """An error that came too late is not one of the loop."""
    if not waiting.cancelled():
        waiting.exception()


def _closed(running: Future[Any]) -> None:
    """Frees an answer that came too late."""
    with suppress(Exception):
        found = running.result()
        if isinstance(found, Produced) and found.rows is not None:
            found.rows.close()


_types = OfPlan(lambda plan: {s.name.casefold(): {f.name: pg_type(f.type) for f in s.schema} for s in plan.sources})


def _reads(plan: Plan, statement: Statement) -> bool:
    known = _types(plan)
    return any((w.name or "").casefold() in known for w in statement.words)


def _columns(plan: Plan, statement: Statement) -> Mapping[str, PgType]:
    """By name, those of the relations that a statement names."""
    known, found = _types(plan), dict[str, PgType]()
    for word in statement.words:
        found |= known.get((word.name or "").casefold(), {})
    return {**{n.lower(): t for n, t in found.items()}, **found}


def _targets(plan: Plan, statement: Statement) -> list[PgType]:
    """The types of the columns that INSERT ... VALUES fills, in order."""
    if not statement.follows("INSERT", "INTO"):
        return []
    name, rest = name_after(statement, 2)
    columns = _types(plan).get(name.casefold(), {})
    folded = {n.casefold(): t for n, t in columns.items()}
    if rest and rest[0].text == "(":
        names = [
            w.name or ""
            for w in rest[1 : next((n for n, w in enumerate(rest) if w.text == ")"), len(rest))]
            if w.text != ","
        ]
        return [folded[n.casefold()] for n in names] if all(n.casefold() in folded for n in names) else []
    return [t for n, t in columns.items() if not n.startswith("__")]


__all__ = ["Execution", "Prepared", "Produced", "Shared"]
