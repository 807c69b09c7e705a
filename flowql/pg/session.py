"""A session after its start: statements of the simple and the extended protocol, and what they leave behind.

Flow of messages: PostgreSQL's documentation, chapter "Frontend/Backend Protocol", "Message Flow".
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from flowql.errors import CommandError, CompileError, RuntimeFailure
from flowql.pg import commands, messages
from flowql.pg.copying import Copy
from flowql.pg.cursors import VERBS, Cursors
from flowql.pg.errors import PgError, Violation, pg_error, unsupported
from flowql.pg.execution import Execution, Prepared, Produced
from flowql.pg.incoming import Incoming, copies_from
from flowql.pg.messages import Bind, Parse, Reader, malformed
from flowql.pg.parameters import literal, text_of
from flowql.pg.portals import Rows
from flowql.pg.settings import SessionSettings
from flowql.pg.statements import Filled, Statement, filled, split
from flowql.pg.subscribing import STEP_S
from flowql.pg.transactions import Transaction

PORTALS_MAX = STATEMENTS_MAX = 1_000  # of a session
Run = Callable[..., Any]


class Output(Protocol):
    """Where messages go. `flush` waits until the client has taken most of them."""

    def write(self, data: bytes) -> None: ...

    async def flush(self) -> None: ...


@dataclass(slots=True)
class Portal:
    """A statement with its parameters. opened: once it has begun."""

    prepared: Prepared
    sql: Filled
    formats: Sequence[int]
    values: Sequence[str | None] = ()
    opened: Produced | None = None
    is_done: bool = False

    def close(self) -> None:
        if self.opened is not None and self.opened.rows is not None:
            self.opened.rows.close()


@dataclass(slots=True)
class Session:
    """One client. All methods run in the loop of the process; what blocks runs in `execution`'s threads."""

    execution: Execution
    settings: SessionSettings
    out: Output
    transaction: Transaction = field(default_factory=Transaction)
    _prepared: dict[str, Prepared] = field(default_factory=dict)
    _portals: dict[str, Portal] = field(default_factory=dict)
    _cursors: Cursors = field(init=False)
    _reported: int = 0  # the changes of settings that the client knows
    _is_skipping: bool = False  # after an error, until Sync
    _incoming: Incoming | None = None  # the COPY in progress

    def __post_init__(self) -> None:
        self._cursors = Cursors(self._call, self.execution.pause)

    async def handle(self, kind: bytes, body: bytes) -> None:
        """Answers one message. Raises Violation for one that ends the session."""
        if self._is_skipping and kind != b"S":
            return
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise Violation(f"invalid frontend message type {kind[0]}")
        incoming = self._incoming
        try:
            if incoming is not None:
                await self._copy_message(incoming, kind, Reader(body))
            else:
                await handler(self, Reader(body))
        except PgError as error:
            if isinstance(error, Violation):
                raise
            self._incoming = None
            self._failed(error)
            if kind == b"Q" or (incoming is not None and incoming.rest is not None):
                await self._ready()
            else:
                self._is_skipping = True
                await self.out.flush()  # asyncpg sends Sync once it has the error

    @property
    def idle_ms(self) -> int:
        """How long it waits for the next message; 0: for as long as it takes."""
        return self.settings.ms(
            "idle_in_transaction_session_timeout" if self.transaction.is_open else "idle_session_timeout"
        )

    def idle(self) -> PgError:
        """The error that ends it after that time."""
        if self.transaction.is_open:
            return PgError("25P03", "terminating connection due to idle-in-transaction timeout")
        return PgError("57P05", "terminating connection due to idle-session timeout")

    def close(self) -> None:
        for portal in self._portals.values():
            portal.close()
        self._portals.clear()
        self._cursors.close_all()
        self.transaction.let_go()

    # Simple protocol

    async def _query(self, r: Reader) -> None:
        text = r.string()
        r.end()
        self._drop("", self._portals)
        statements = split(text)
        if not statements:
            self.out.write(messages.EMPTY)
        await self._all(statements)

    async def _all(self, statements: Sequence[Statement]) -> None:
        """Runs the statements of a query in order. Those after a COPY from the client wait for its rows."""
        for i, statement in enumerate(statements):
            try:
                if copies_from(statement):
                    return await self._begin_copy(statement, statement.sql, statements[i + 1 :])
                await self._simple(statement)
            except PgError as error:
                at = error.placed(statement.sql)
                at.position += statement.start if at.position else 0
                raise at from None
        await self._ready()

    async def _simple(self, statement: Statement) -> None:
        if statement.parameters:
            raise PgError("42P02", "there is no parameter $1", position=statement.sql.index("$") + 1)
        produced = await self._produce(statement, Filled(statement.sql), (), takes_all=True)
        rows = produced.rows
        if rows is not None and produced.copy is None:
            self.out.write(messages.row_description(rows.columns, rows.formats))
        try:
            await self._send(produced, 0)
        finally:
            if rows is not None:
                rows.close()

    # Extended protocol

    async def _parse(self, r: Reader) -> None:
        parse = Parse.of(r)
        statements = split(parse.sql)
        if len(statements) > 1:
            raise PgError("42601", "cannot insert multiple commands into a prepared statement")
        if parse.name and parse.name in self._prepared:
            raise PgError("42P05", f'prepared statement "{parse.name}" already exists')
        if len(self._prepared) >= STATEMENTS_MAX:
            raise PgError(
                "54000",
                f"a session has {STATEMENTS_MAX:,} prepared statements at most",
                help="DEALLOCATE those that are not needed",
            )
        statement = statements[0] if statements else Statement("", 0, ())
        self._check_failed(statement)
        self._prepared[parse.name] = await self._call(self.execution.prepare, statement, parse.oids)
        self.out.write(messages.PARSED)

    async def _bind(self, r: Reader) -> None:
        bind = Bind.of(r)
        prepared = self._statement(bind.statement)
        types = prepared.types
        if len(bind.values) != len(types):
            title = f'bind message supplies {len(bind.values)} parameters, but prepared statement "{bind.statement}" requires {len(types)}'
            raise PgError("08P01", title)
        self._check_failed(prepared.statement)
        forms = messages.spread(bind.formats, len(types))
        given = [text_of(v, f, t) for v, f, t in zip(bind.values, forms, types, strict=True)]
        literals = [
            literal(v, t, standard=not prepared.is_duckdbs, adapts=prepared.statement.is_write)
            for v, t in zip(given, types, strict=True)
        ]
        if bind.portal and bind.portal in self._portals:
            raise PgError("42P03", f'cursor "{bind.portal}" already exists')
        if len(self._portals) >= PORTALS_MAX:
            raise PgError("54000", f"a session has {PORTALS_MAX:,} portals at most")
        self._drop(bind.portal, self._portals)
        self._portals[bind.portal] = Portal(prepared, filled(prepared.statement, literals), bind.results, given)
        self.out.write(messages.BOUND)

    async def _describe(self, r: Reader) -> None:
        kind, name = r.take(1), r.string()
        r.end()
        if kind == b"S":
            prepared = self._statement(name)
            self._check_failed(prepared.statement)
            if prepared.statement.verb == "FETCH":
                columns = self._cursors.columns(prepared.statement)
            else:
                columns = await self._call(self.execution.columns, prepared, self.settings)
            self.out.write(messages.parameter_description(t.oid for t in prepared.types))
            self.out.write(
                messages.NO_DATA if columns is None else messages.row_description(columns, [0] * len(columns))
            )
            return
        if kind != b"P":
            raise malformed(f"invalid DESCRIBE message subtype {kind[0]}")
        portal = self._portal(name)
        if portal.prepared.statement.is_write and not portal.prepared.returns:
            self.out.write(messages.NO_DATA)
            return
        if copies_from(portal.prepared.statement):
            self.out.write(messages.NO_DATA)
            return
        if portal.prepared.statement.is_write:
            columns = await self._call(self.execution.columns, portal.prepared, self.settings)
            self.out.write(messages.row_description(columns, messages.spread(portal.formats, len(columns))))
            return
        if commands.transaction_verb(portal.prepared.statement) or not portal.prepared.statement.words:
            self.out.write(messages.NO_DATA)
            return
        rows = (await self._opened(portal)).rows
        self.out.write(messages.NO_DATA if rows is None else messages.row_description(rows.columns, rows.formats))

    async def _execute(self, r: Reader) -> None:
        name, limit = r.string(), r.int32()
        r.end()
        portal = self._portal(name)
        if not portal.prepared.statement.words:
            self.out.write(messages.EMPTY)
            return
        if copies_from(portal.prepared.statement):
            await self._begin_copy(portal.prepared.statement, portal.sql.sql, None)
            return
        produced = await self._opened(portal, takes_all=limit <= 0)
        if portal.is_done:
            self.out.write(messages.complete(produced.finished()))
            return
        portal.is_done = await self._send(produced, max(0, limit))

    async def _close(self, r: Reader) -> None:
        kind, name = r.take(1), r.string()
        r.end()
        if kind == b"S":
            self._prepared.pop(name, None)
        else:
            self._drop(name, self._portals)
        self.out.write(messages.CLOSED)

    async def _sync(self, r: Reader) -> None:
        r.end()
        self._is_skipping = False
        await self._ready()

    async def _flush(self, r: Reader) -> None:
        r.end()
        await self.out.flush()

    async def _ignore(self, r: Reader) -> None:
        """Messages of COPY FROM after it was refused."""

    # COPY FROM STDIN

    async def _begin_copy(self, statement: Statement, sql: str, rest: Sequence[Statement] | None) -> None:
        self._check_failed(statement)
        self._check_modes(statement)
        self._incoming = await self._call(self.execution.begin_copy, sql, rest, self.transaction)
        assert self._incoming is not None
        self.out.write(messages.copy_in(len(self._incoming.change.columns), binary=self._incoming.is_binary))
        await self.out.flush()

    async def _copy_message(self, incoming: Incoming, kind: bytes, r: Reader) -> None:
        match kind:
            case b"d":
                incoming.add(r.rest())
            case b"c":
                self._incoming = None
                rows = await self._call(self.execution.finish_copy, incoming, self.transaction)
                self.out.write(messages.complete(f"COPY {rows}"))
                if incoming.rest is not None:
                    await self._all(incoming.rest)
            case b"f":
                raise PgError("57014", f"COPY from stdin failed: {r.string()}")
            case b"H" | b"S":  # ignored, as in PostgreSQL
                pass
            case _:
                raise PgError("08P01", f"unexpected message type 0x{kind[0]:02X} during COPY from stdin")

    async def _function(self, r: Reader) -> None:
        raise unsupported("calls of functions by their OID are not supported")

    # Both

    async def _opened(self, portal: Portal, *, takes_all: bool = False) -> Produced:
        if portal.opened is None:
            try:
                statement = portal.prepared.statement
                portal.opened = await self._produce(statement, portal.sql, portal.formats, takes_all=takes_all)
            except PgError as error:
                raise error.placed(portal.sql.sql, portal.sql.original) from None
        return portal.opened

    async def _produce(
        self,
        statement: Statement,
        sql: Filled,
        formats: Sequence[int],
        *,
        takes_all: bool,
    ) -> Produced:
        """takes_all: the client takes all rows without a break."""
        verb = commands.transaction_verb(statement)
        if verb:
            return Produced(await self._transact(verb, statement))
        self._check_failed(statement)
        self._check_modes(statement)
        if statement.verb in VERBS:
            given = split(sql.sql)[0] if statement.parameters else statement
            return await self._cursors.run(given, formats, self._begin, in_transaction=self.transaction.is_open)
        done = commands.run(statement, self.settings, self._discard)
        if done is not None:
            self._report(statement, done)
            if done.shown is None:
                return Produced(done.tag)
            columns, table = done.shown
            return Produced(done.tag, Rows.of_table(table, columns, formats))
        looked_up = self.execution.look_up(statement, sql.sql, formats, self.transaction, takes_all=takes_all)
        found: Produced | None = await self._outcome(looked_up)
        if found is not None:
            return found
        timeout_ms = self.settings.ms("statement_timeout")
        written = await self._outcome(self.execution.write(statement, sql.sql, formats, self.transaction, timeout_ms))
        if written is not None:
            return written
        produce = self.execution.produce_all if takes_all else self.execution.produce
        return await self._call(produce, statement, sql.sql, formats, self.transaction, self.settings)

    async def _begin(self, statement: Statement) -> Produced:
        found: Produced = await self._call(
            self.execution.produce, statement, statement.sql, (), self.transaction, self.settings
        )
        return found

    async def _send(self, produced: Produced, limit: int) -> bool:
        """The rows up to a limit, 0 for all, and the end; whether there are no more."""
        rows = produced.rows
        if rows is None:
            self.out.write(messages.complete(produced.finished()))
            return True
        copy: Copy | None = produced.copy
        if copy is not None:
            self.out.write(messages.copy_out(len(rows.columns)) + copy.head(rows.columns))
        until, is_last = (rows.rows + limit if limit else 0), False
        while not is_last and not (until and rows.rows >= until):
            if (ahead := rows.taken_ahead()) is not None:
                data, is_last = ahead
            else:
                encode = None if copy is None else copy.encoder(rows.columns)
                data, is_last = await self._call(rows.piece, until, encode)
            self.out.write(data)
            if not is_last:
                await self.out.flush()
            if rows.is_live and not data:
                await self.execution.pause(STEP_S)
        if copy is not None:
            self.out.write(messages.COPY_DONE)
        self.out.write(messages.complete(produced.finished()) if is_last else messages.SUSPENDED)
        return is_last

    async def _transact(self, verb: str, statement: Statement) -> str:
        t = self.transaction
        match verb:
            case "BEGIN":
                self._begin_transaction(commands.begun_modes(statement))
                return "START TRANSACTION" if statement.verb == "START" else "BEGIN"
            case "COMMIT" | "ROLLBACK":
                if not t.is_open:
                    self._warn("25P01", "there is no transaction in progress")
                modes = self.settings.modes()
                tag = "ROLLBACK" if t.is_failed else verb
                try:
                    await self._end_transaction(keeps=tag == "COMMIT")
                finally:
                    if commands.chains(statement):
                        self._begin_transaction(modes)
                return tag
            case "ROLLBACK TO":
                self.settings.back_to(t.back_to(commands.savepoint_name(statement)))
                return "ROLLBACK"
        self._check_failed(statement)
        name = commands.savepoint_name(statement)
        t.savepoint(name, self.settings.mark()) if verb == "SAVEPOINT" else t.release(name)
        return verb

    def _begin_transaction(self, modes: Mapping[str, str]) -> None:
        if self.transaction.is_open:
            self._warn("25001", "there is already a transaction in progress")
        else:
            self.transaction.begin()
            self.settings.begin()
        for name, value in modes.items():
            self.settings.set(name, value)

    async def _end_transaction(self, *, keeps: bool) -> None:
        t = self.transaction
        writes, holder = (t.writes.all if keeps else []), t.holder
        pin = holder.pin if holder is not None else None
        strict = pin is not None and self.settings.get("transaction_isolation") == "repeatable read"
        pinned = {topic: pin.ends(topic) for topic in pin.spans} if strict and pin is not None else None
        t.end()
        self._close_portals()
        try:
            if writes:
                await self._call(self.execution.carry_out, writes, pinned)
        except BaseException:
            keeps = False
            raise
        finally:
            self.settings.end(keeps=keeps)

    def _check_failed(self, statement: Statement) -> None:
        """Raises PgError 25P02 for a statement that does not end a failed transaction."""
        verb = commands.transaction_verb(statement)
        if self.transaction.is_failed and verb not in ("COMMIT", "ROLLBACK", "ROLLBACK TO"):
            raise PgError("25P02", "current transaction is aborted, commands ignored until end of transaction block")

    def _check_modes(self, statement: Statement) -> None:
        """Raises PgError for a write that the characteristics of the transaction exclude, and for a change of them that comes too late."""
        settings, t = self.settings, self.transaction
        if statement.is_write or copies_from(statement):
            if settings.switched("transaction_read_only"):
                raise PgError("25006", f"cannot execute {statement.verb} in a read-only transaction")
            if t.is_open and settings.get("transaction_isolation") == "serializable":
                raise unsupported("a SERIALIZABLE transaction cannot write", "use REPEATABLE READ")
        is_set = statement.follows("SET", "TRANSACTION") or statement.follows("SET", "LOCAL", "TRANSACTION")
        if is_set and t.has_begun:
            raise PgError("25001", "SET TRANSACTION must be called before any query")

    async def _call(self, call: Run, *arguments: Any) -> Any:
        """In a thread. Raises PgError."""
        return await self._outcome(
            self.execution.run(call, *arguments, timeout_ms=self.settings.ms("statement_timeout"))
        )

    async def _outcome(self, found: Awaitable[Any]) -> Any:
        """Raises PgError in place of other errors."""
        try:
            return await found
        except (CommandError, CompileError, RuntimeFailure) as error:
            raise pg_error(error) from error
        except (pa.ArrowException, ValueError) as error:
            raise PgError("22000", str(error)) from error
        except PgError:
            raise
        except Exception as error:  # the session goes on, and the client gets the error
            traceback.print_exc(file=sys.stderr)
            raise PgError("XX000", f"internal error: {type(error).__name__}: {error}") from error

    def _report(self, statement: Statement, done: commands.Done) -> None:
        for what in ("LOCAL", "TRANSACTION"):
            if statement.follows("SET", what) and not self.transaction.is_open:
                self._warn("25P01", f"SET {what} can only be used in transaction blocks")
        if done.notice:
            self.out.write(messages.failure(PgError("01000", done.notice), "NOTICE", b"N"))

    def _warn(self, state: str, title: str) -> None:
        if title:
            self.out.write(messages.failure(PgError(state, title), "WARNING", b"N"))

    def _failed(self, error: PgError) -> None:
        self.transaction.fail()
        self.out.write(messages.failure(error))

    async def _ready(self) -> None:
        if not self.transaction.is_open:
            self._close_portals()
        if self.settings.changes != self._reported:
            self._reported = self.settings.changes
            for data in self.execution.reports(self.settings):
                self.out.write(data)
        self.out.write(messages.ready(self.transaction.state))
        await self.out.flush()

    def _close_portals(self) -> None:
        self._cursors.end_transaction()
        for name in list(self._portals):
            self._drop(name, self._portals)

    def _drop(self, name: str, portals: dict[str, Portal]) -> None:
        portal = portals.pop(name, None)
        if portal is not None:
            portal.close()

    def _discard(self, what: str) -> None:
        if what == "all":
            self._cursors.close_all()
        if what in ("all", "prepared"):
            self._prepared.clear()
        elif (name := what.removeprefix("prepared ")) in self._prepared:
            del self._prepared[name]
        else:
            raise PgError("26000", f'prepared statement "{name}" does not exist')

    def _statement(self, name: str) -> Prepared:
        if name not in self._prepared:
            raise PgError("26000", f'prepared statement "{name}" does not exist')
        return self._prepared[name]

    def _portal(self, name: str) -> Portal:
        if name not in self._portals:
            raise PgError("34000", f'portal "{name}" does not exist')
        return self._portals[name]


_HANDLERS = {
    b"Q": Session._query,
    b"P": Session._parse,
    b"B": Session._bind,
    b"D": Session._describe,
    b"E": Session._execute,
    b"C": Session._close,
    b"S": Session._sync,
    b"H": Session._flush,
    b"F": Session._function,
    **dict.fromkeys((b"d", b"c", b"f"), Session._ignore),
}
