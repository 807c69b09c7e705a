"""The ports of `api` and `pg` of an instance, in whichever process they are served."""

from __future__ import annotations

import asyncio
import socket

from flowql.compiler.plan.topology import Plan
from flowql.config.api import ApiSettings
from flowql.config.pg import PgSettings, PgUser
from flowql.deploy.settings import Settings
from flowql.gateway.app import make_app
from flowql.gateway.queries import LogQueries
from flowql.gateway.relay import Relay
from flowql.pg.connection import Access, Connections
from flowql.pg.execution import Shared
from flowql.pg.reading import Reading
from flowql.pg.scram import Verifier
from flowql.runtime.secret import revealed
from flowql.server.access import Caller, Tokens, folded
from flowql.server.audit import AuditLog
from flowql.server.entries import Server
from flowql.server.ports import BACKLOG, START_S, Port, port_config
from flowql.server.readers import Readers


class Gateway:
    """Answers on the sockets that it is given, until `close`. instance: port and token of the instance's local port."""

    def __init__(self, settings: Settings, instance: tuple[int, str]) -> None:
        self._settings, self.reading = settings, Reading(settings)
        self.relay = Relay(*instance, self.reading.ends.answered, lambda: self.reading.nearby.seen)
        self.readers = Readers(settings, self.reading.record, self.reading.ends)
        self.ports: list[Port] = []
        self._connections: Connections | None = None  # of PostgreSQL's protocol

    def serve_api(self, api: ApiSettings, listener: socket.socket) -> None:
        """listener: bound."""
        queries = LogQueries(self.reading, Plan())
        server = Server(queries, self.readers, audit=AuditLog(self._settings.data_dir), secrets=api.revealed_webhooks())
        app = make_app(server, self.reading, self.relay, Tokens.of(api), api.called, api.origins)
        config = port_config(app, key="api", tls=(api.certificate, api.key), connections=api.connections)
        self.ports.append(Port.serving(config, listener))

    async def serve_pg(self, pg: PgSettings, listener: socket.socket) -> None:
        """Until it is cancelled. listener: bound."""
        self._connections = connections = Connections(Shared(self.reading), access_of(pg), pg.connections)
        server = await asyncio.start_server(connections.serve, sock=listener, backlog=BACKLOG)
        async with server:
            await server.serve_forever()

    def figures(self) -> dict[str, int]:
        """connections: open ones of all ports. requests: of HTTP since the start."""
        states = [port.server.server_state for port in self.ports]
        of_pg = 0 if self._connections is None else self._connections.count
        return {
            "connections": sum(len(s.connections) for s in states) + of_pg,
            "requests": sum(s.total_requests for s in states),
        }

    def end(self) -> None:
        """Takes no more requests of HTTP, and returns when those that run are answered or time is up."""
        for port in self.ports:
            port.server.end()
        self.readers.stop()
        self.reading.database.close()  # or their threads are waited for
        self.reading.nearby.close()  # its files would stay
        for port in self.ports:
            port.thread.join(START_S)

    def close(self) -> None:
        """Ends the threads and releases what they held."""
        self.end()
        self.readers.close()
        self.reading.close()


def access_of(pg: PgSettings) -> Access:
    users = {name: (Verifier.of(revealed(u.password)), caller_of(name, u)) for name, u in pg.users.items()}
    return Access(users, pg.tls(), not pg.is_loopback)


def caller_of(name: str, user: PgUser) -> Caller:
    return Caller(name, frozenset(user.roles), folded(user.results) if user.results else None, "user")
