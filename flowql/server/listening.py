"""The sockets of an instance and the threads that answer on them.

Loads the compiler and HTTP, which take a third of the processor time of a start: `Host` does so once its queries run.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from starlette.types import ASGIApp

from flowql.deploy.settings import Settings
from flowql.query.database import QueryDatabase
from flowql.query.limits import QueryLimits
from flowql.runtime.app.member_topic import MemberAddress
from flowql.server.address import own_address, write_address
from flowql.server.app import make_local_app, make_members_app, make_metrics_app
from flowql.server.audit import AuditLog
from flowql.server.engine import Engine
from flowql.server.entries import Own, Server
from flowql.server.gateway_process import GatewayProcess
from flowql.server.ports import START_S, Port, bound, port_config
from flowql.server.readers import Readers
from flowql.server.row_service import RowService
from flowql.server.service import Service

HEAD_BYTES_MAX = 4 << 20  # on the local port: the gateway sends the results to which a token is limited


class Listening:
    """Answers requests for an engine, from `begin` to `end`. request_stop: ends the instance."""

    def __init__(self, settings: Settings, engine: Engine, request_stop: Callable[[], None]) -> None:
        self.settings, self._engine = settings, engine
        self.ports: list[Port] = []
        self.gateway: GatewayProcess | None = (
            None  # for programs on other machines, and clients of PostgreSQL's protocol
        )
        limits = QueryLimits.of(settings.budget, settings.interactive_queries, settings.data_dir)
        self.database = QueryDatabase(limits)
        self.service = service = Service(engine, self.database, settings.project_dir, settings.prefix)
        self.rows = RowService(service, settings)
        service.more_status.append(lambda: {"gateway": None if self.gateway is None else self.gateway.status()})
        self.readers = Readers(settings, lambda: (service.deployed, service.topics()), service.whole_ends)
        own = Own(service, self.rows, request_stop)
        self._server = Server(service, self.readers, own, AuditLog(settings.data_dir))

    def end(self) -> None:
        """Takes no more requests and ends those that run."""
        if self.gateway is not None:
            self.gateway.ask_end()
        for port in self.ports:
            port.server.end()
        self.readers.stop()
        self.database.close()  # or their threads are waited for
        for port in self.ports:
            port.thread.join(START_S)
        if self.gateway is not None:
            self.gateway.end()
        self.readers.close()
        self.rows.close()

    def begin(self) -> None:
        """When it returns the instance can be found by its directory. Raises CommandError."""
        token = secrets.token_urlsafe(32)
        if (metrics := self.settings.metrics) is not None:
            app = make_metrics_app(self._server, metrics.called)
            self.serve(app, metrics.address, metrics.port, key="metrics")
        if self.settings.api is not None or self.settings.pg is not None:
            self.gateway = GatewayProcess(self.settings)
            self.gateway.bind()
        port = self.serve(make_local_app(self._server, token), "127.0.0.1", 0, head_bytes=HEAD_BYTES_MAX)
        if self._engine.shared:
            self._join()
        if self.gateway is not None:
            self.gateway.begin(port, token)
        write_address(self.settings.data_dir, own_address(port, token, self.settings.at_start()))

    def _join(self) -> None:
        """Answer other instances of the application, by a token of its own that lets them read rows alone."""
        listening, token = self.settings.members, secrets.token_urlsafe(32)
        port = self.serve(make_members_app(self._server, token, [listening.host]), listening.address, listening.port)
        self._engine.join(MemberAddress(listening.host, port, token))

    def serve(self, app: ASGIApp, address: str, port: int, *, key: str = "", head_bytes: int | None = None) -> int:
        """Answers requests in a thread of its own; returns the port. key: of the target that names the port. head_bytes: see `port_config`."""
        made = Port.serving(port_config(app, head_bytes=head_bytes), bound(address, port, key))
        self.ports.append(made)
        return made.number
