"""A connection: its start (TLS, password, settings), the loop over its messages, and its end."""

from __future__ import annotations

import asyncio
import secrets
import ssl
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass

from flowql.config.api import CONNECTIONS
from flowql.pg import messages
from flowql.pg.errors import PgError, Violation
from flowql.pg.execution import Execution, Shared
from flowql.pg.messages import CANCEL, GSS, MESSAGE_BYTES_MAX, SSL, STARTUP_BYTES_MAX, Reader, malformed
from flowql.pg.scram import MECHANISM, Exchange, Verifier
from flowql.pg.session import Session
from flowql.pg.settings import SessionSettings
from flowql.server.access import Caller

BEGIN_S = 60.0  # until a client has given its password
TAKE_S = 600.0  # for a client to take a part of an answer: as the instance's HTTP
STARTING_MAX = 64  # beyond these, to be told that there are too many
HEADER_BYTES = 5
BUFFER_BYTES = 256 << 10  # that may wait for a client


@dataclass(frozen=True, slots=True)
class Access:
    """Who may connect, and how. users: verifiers of passwords, and rights; empty: everybody. tls: None for none. needs_tls: connections without it
    are refused.
    """

    users: Mapping[str, tuple[Verifier, Caller]]
    tls: ssl.SSLContext | None
    needs_tls: bool


class Connections:
    """All connections of the process."""

    def __init__(self, shared: Shared, access: Access, at_once: int = CONNECTIONS) -> None:
        """at_once: how many there may be."""
        self._shared, self._access, self._at_once = shared, access, at_once
        self._running: dict[int, tuple[int, Execution]] = {}  # by number: the secret that cancels
        self.count = 0
        self._nobody = Verifier.of(secrets.token_hex())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until it ends."""
        if self.count >= self._at_once + STARTING_MAX:
            writer.transport.abort()
            return
        client = _Client(reader, writer)
        self.count += 1
        try:
            await self._serve(client)
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        except PgError as error:
            await client.end(messages.failure(error, "FATAL"))
        except Exception as error:  # the process goes on, and the client gets the error
            traceback.print_exc(file=sys.stderr)
            await client.end(
                messages.failure(PgError("XX000", f"internal error: {type(error).__name__}: {error}"), "FATAL")
            )
        finally:
            self.count -= 1
            writer.close()

    async def _serve(self, client: _Client) -> None:
        async with asyncio.timeout(BEGIN_S):
            given = await self._startup(client)
            if given is None:
                return
            if self.count > self._at_once:
                title, help_ = (
                    "sorry, too many clients already",
                    "close others, or set  connections  of  pg  in flowql.yaml",
                )
                raise PgError("53300", title, help=help_)
            user = given.pop("user", "")
            if not user:
                raise PgError("28000", "no PostgreSQL user name specified in startup packet")
            await self._authenticate(client, user)
        database = given.pop("database", user)
        caller = self._access.users[user][1] if self._access.users else Caller(user, kind="user")
        execution = Execution(self._shared, client.is_gone, caller, client.address)
        settings = SessionSettings(user, given, database)
        number, secret = self._register(execution)
        execution.number = number
        session = Session(execution, settings, client)
        try:
            for data in (messages.AUTHENTICATED, *execution.reports(settings), messages.key_data(number, secret)):
                client.write(data)
            client.write(messages.ready(b"I"))
            await client.flush()
            await self._messages(client, session)
        finally:
            del self._running[number]
            session.close()

    async def _messages(self, client: _Client, session: Session) -> None:
        while True:
            idle_ms = session.idle_ms
            try:
                async with asyncio.timeout(idle_ms / 1000 if idle_ms else None):
                    kind, body = await client.message(MESSAGE_BYTES_MAX)
            except TimeoutError:
                raise session.idle() from None
            if kind == b"X":
                return
            await session.handle(kind, body)

    async def _startup(self, client: _Client) -> dict[str, str] | None:
        """Settings that the client gives; None for a request to cancel."""
        while True:
            r = Reader(await client.startup())
            code = r.int32()
            if code == CANCEL:
                self._cancel(r.int32(), r.int32() & 0xFFFFFFFF)
                return None
            if code == SSL and self._access.tls is not None and not client.is_encrypted:
                await client.encrypt(self._access.tls)
            elif code in (SSL, GSS):
                await client.refuse()
            elif code >> 16 == messages.PROTOCOL_MAJOR:
                return self._settings(client, code, r)
            else:
                raise PgError(
                    "0A000", f"unsupported frontend protocol {code >> 16}.{code & 0xFFFF}: server supports 3.0"
                )

    def _settings(self, client: _Client, code: int, r: Reader) -> dict[str, str]:
        if self._access.needs_tls and not client.is_encrypted:
            raise PgError("28000", "this server takes only connections with TLS", help="sslmode=require")
        given = dict[str, str]()
        while name := r.string():
            given[name] = r.string()
        options = [n for n in given if n.startswith("_pq_.")]
        if options or code != messages.PROTOCOL:
            client.write(messages.negotiate(options))
        if given.get("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise PgError("0A000", "replication is not supported")
        return {n: v for n, v in given.items() if n not in ("options", "replication", *options)}

    async def _authenticate(self, client: _Client, user: str) -> None:
        """Raises PgError."""
        if not self._access.users:
            return
        client.write(messages.authentication(messages.SASL, messages.text(MECHANISM) + b"\0"))
        known = self._access.users.get(user)
        exchange = Exchange(self._nobody if known is None else known[0])
        r = await self._password(client)
        if r.string() != MECHANISM:
            raise PgError("28000", "client selected an invalid SASL authentication mechanism")
        challenge = exchange.first(_decoded(r.take(r.int32())))
        client.write(messages.authentication(messages.SASL_CONTINUE, challenge.encode()))
        r = await self._password(client)
        signature = exchange.last(_decoded(r.rest()))
        if signature is None or known is None:
            raise PgError("28P01", f'password authentication failed for user "{user}"')
        client.write(messages.authentication(messages.SASL_FINAL, signature.encode()))

    async def _password(self, client: _Client) -> Reader:
        await client.flush()
        kind, body = await client.message(STARTUP_BYTES_MAX)
        if kind != b"p":
            raise Violation(f"expected SASL response, got message type {kind[0]}")
        return Reader(body)

    def _register(self, execution: Execution) -> tuple[int, int]:
        number = secrets.randbelow((1 << 31) - 1) + 1
        while number in self._running:
            number = secrets.randbelow((1 << 31) - 1) + 1
        secret = secrets.randbits(32)
        self._running[number] = secret, execution
        return number, secret

    def _cancel(self, number: int, secret: int) -> None:
        known = self._running.get(number)
        if known is not None and known[0] == secret:
            known[1].cancel()


class _Client:
    """The socket of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._written = list[bytes]()  # until the next flush: one packet for all messages of a reply
        self._size = 0
        self.is_encrypted = False
        writer.transport.set_write_buffer_limits(BUFFER_BYTES)

    @property
    def address(self) -> str:
        """The machine of the client."""
        peer = self._writer.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def is_gone(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def startup(self) -> bytes:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if not 8 <= size <= STARTUP_BYTES_MAX:
            raise Violation("invalid length of startup packet")
        return await self._reader.readexactly(size - 4)

    async def message(self, limit: int) -> tuple[bytes, bytes]:
        head = await self._reader.readexactly(HEADER_BYTES)
        size = int.from_bytes(head[1:], "big", signed=True)
        if size < 4:
            raise Violation("invalid message length")
        if size > limit:
            raise PgError("54000", f"a message has {size:,} bytes, and at most {limit:,} are accepted")
        return head[:1], await self._reader.readexactly(size - 4)

    async def encrypt(self, tls: ssl.SSLContext) -> None:
        self._writer.write(b"S")
        await self._writer.drain()
        await self._writer.start_tls(tls, ssl_handshake_timeout=BEGIN_S)
        self.is_encrypted = True
        self._writer.transport.set_write_buffer_limits(BUFFER_BYTES)

    async def refuse(self) -> None:
        self._writer.write(b"N")
        await self._writer.drain()

    def write(self, data: bytes) -> None:
        """Messages go to the client with the next flush, or when there are many."""
        self._written.append(data)
        self._size += len(data)
        if self._size > BUFFER_BYTES:
            self._pass_on()

    def _pass_on(self) -> None:
        if self._written:
            self._writer.write(b"".join(self._written))
            self._written.clear()
            self._size = 0

    async def flush(self) -> None:
        """Hangs up on a client that takes nothing for too long."""
        self._pass_on()
        try:
            async with asyncio.timeout(TAKE_S):
                await self._writer.drain()
        except TimeoutError:
            self._writer.transport.abort()
            raise

    async def end(self, data: bytes) -> None:
        """Says why, and no more: a client that does not read it is not waited for."""
        try:
            self.write(data)
            self._pass_on()
            async with asyncio.timeout(1.0):
                await self._writer.drain()
        except (ConnectionError, TimeoutError, ssl.SSLError):
            self._writer.transport.abort()


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("malformed SCRAM message") from error
