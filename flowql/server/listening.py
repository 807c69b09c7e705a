"""The sockets of an instance and the threads that answer on them.

Loads the compiler and HTTP, which take a third of the processor time of a start: `Host` does so once its queries run.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable

from starlette.types import ASGIApp

from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.database import QueryDatabase
from flowql.query.limits import QueryLimits
from flowql.runtime.app.member_topic import MemberAddress
from flowql.runtime.secret import revealed
from flowql.server.access import Tokens
from flowql.server.address import own_address, write_address
from flowql.server.app import make_app, make_members_app, make_metrics_app
from flowql.server.audit import AuditLog
from flowql.server.connections import TAKE_S, Connection, HttpServer, PortConfig
from flowql.server.engine import Engine
from flowql.server.entries import Server
from flowql.server.limits import RequestCounts
from flowql.server.pg_process import PgProcess
from flowql.server.row_service import RowService
from flowql.server.service import Service

SILENT = "FQ5304"
START_S = 10.0


class Listening:
    """Answers requests for an engine, from `begin` to `end` and `close`. request_stop: ends the instance."""

    def __init__(self, settings: Settings, engine: Engine, request_stop: Callable[[], None]) -> None:
        self.settings, self._engine = settings, engine
        self.servers: list[tuple[HttpServer, threading.Thread]] = []
        self.pg: PgProcess | None = None  # for clients of PostgreSQL's protocol
        limits = QueryLimits.of(settings.memory_bytes, settings.interactive_queries, settings.data_dir)
        self.database = QueryDatabase(limits)
        self.service = Service(engine, self.database, settings.project_dir, settings.prefix)
        self.rows = RowService(self.service, settings)
        webhooks = settings.api.webhooks if settings.api is not None else {}
        secrets_of = {name.casefold(): revealed(secret) for name, secret in webhooks.items()}
        self._server = Server(self.service, self.rows, request_stop, AuditLog(settings.data_dir), secrets_of)

    def end(self) -> None:
        """Takes no more requests and ends those that run. `close` follows."""
        for server, _ in self.servers:
            server.end()
        if self.pg is not None:
            self.pg.end()
        self.rows.stop()
        self.database.close()  # or their threads are waited for
        for _, thread in self.servers:
            thread.join(START_S)
        self.rows.close()

    def begin(self) -> None:
        """When it returns the instance can be found by its directory. Raises CommandError."""
        token, running = secrets.token_urlsafe(32), RequestCounts()
        if (metrics := self.settings.metrics) is not None:
            app = make_metrics_app(self._server, metrics.called)
            self.serve(app, metrics.address, metrics.port, key="metrics")
        if (api := self.settings.api) is not None:
            app = make_app(
                self._server, Tokens.of(api), local=False, names=api.called, running=running, origins=api.origins
            )
            tls = api.certificate, api.key
            self.serve(app, api.address, api.port, key="api", tls=tls, connections=api.connections)
        port = self.serve(
            make_app(self._server, Tokens.single(token, "local"), local=True, running=running), "127.0.0.1", 0
        )
        if self._engine.shared:
            self._join()
        if (pg := self.settings.pg) is not None:
            try:
                pg.tls()
            except OSError as error:  # SSLError is one
                raise _unusable(pg.certificate, pg.key, "pg", error) from error
            self.pg = PgProcess(self.settings, _bound(pg.address, pg.port, "pg"))
            self.pg.begin()
        write_address(self.settings.data_dir, own_address(port, token, self.settings.at_start()))

    def _join(self) -> None:
        """Answer other instances of the application, by a token of its own that lets them read rows alone."""
        listening, token = self.settings.members, secrets.token_urlsafe(32)
        port = self.serve(make_members_app(self._server, token, [listening.host]), listening.address, listening.port)
        self._engine.join(MemberAddress(listening.host, port, token))

    def serve(
        self,
        app: ASGIApp,
        address: str,
        port: int,
        *,
        key: str = "",
        tls: tuple[str, str] = ("", ""),
        connections: int | None = None,
    ) -> int:
        """Answer requests in a thread of its own; the port. key: of the target that names the port. tls: files of certificate and key.
        connections: the maximum number.
        """
        certificate, private = tls
        config = PortConfig(
            app,
            http=Connection,
            ws="none",  # `Connection` upgrades by itself
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate or None,
            ssl_keyfile=private or None,
        )
        if connections is not None:
            config.connections_max = connections
        try:
            config.load()
        except OSError as error:  # SSLError is one
            raise _unusable(certificate, private, key, error) from error
        listener = _bound(address, port, key)
        server = HttpServer(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
        self.servers.append((server, thread))
        thread.start()
        limit = time.monotonic() + START_S
        while not server.started:
            if time.monotonic() > limit or not thread.is_alive():
                raise CommandError(f"the instance cannot listen on {address}", code=SILENT)
            time.sleep(0.005)
        return int(listener.getsockname()[1])


def _unusable(certificate: str, private: str, key: str, error: OSError) -> CommandError:
    """key: of the target that names the files."""
    title = f"the instance cannot use the certificate {certificate} with the key {private}: {error}"
    return CommandError(title, code=SILENT, help=f"see `certificate` and `key` of `{key}` in flowql.yaml")


def _bound(address: str, port: int, key: str) -> socket.socket:
    """A socket that may be bound again at once after the process has ended. key: of the target that names the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named: without it each answer on an open connection takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # a peer that is gone without a word; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(TAKE_S * 1000))
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        title = f"the instance cannot listen on {address}:{port}: {error.strerror or error}"
        help_ = f"another `{key}` port in flowql.yaml" if key else ""
        raise CommandError(title, code=SILENT, help=help_) from error
    return listener
