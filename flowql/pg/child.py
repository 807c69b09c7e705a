"""The process that speaks PostgreSQL's protocol for an instance: `python -P -m flowql.pg.child SOCKET`, with settings as a line on its standard input.

It ends with the instance: its standard input ends then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading

from flowql.config.pg import PgSettings, PgUser
from flowql.deploy.settings import Settings
from flowql.pg.connection import Access, Connections
from flowql.pg.execution import Shared
from flowql.pg.reading import Reading
from flowql.pg.scram import Verifier
from flowql.query.query_worker import TENTH, killed_first, killed_with_parent
from flowql.runtime.app.without_pandas import leave_pandas_out
from flowql.runtime.secret import revealed
from flowql.server.access import Caller, folded

BACKLOG = 1_024  # clients that connect while the loop is busy
SWITCH_S = 0.001  # of the interpreter, between the loop and the threads of queries


def main(arguments: list[str]) -> int:
    killed_with_parent()
    killed_first()
    os.nice(TENTH)
    leave_pandas_out()
    sys.setswitchinterval(SWITCH_S)
    settings = Settings.loads(sys.stdin.readline())
    assert settings.pg is not None, "started for a target with `pg`"
    listener = socket.socket(fileno=int(arguments[0]))
    threading.Thread(target=_await_end, name="parent", daemon=True).start()
    asyncio.run(_serve(settings, settings.pg, listener))
    return 0


def _await_end() -> None:
    sys.stdin.read()
    os._exit(0)


async def _serve(settings: Settings, pg: PgSettings, listener: socket.socket) -> None:
    connections = Connections(Shared(Reading(settings)), access_of(pg), pg.connections)
    server = await asyncio.start_server(connections.serve, sock=listener, backlog=BACKLOG)
    async with server:
        await server.serve_forever()


def access_of(pg: PgSettings) -> Access:
    users = {name: (Verifier.of(revealed(u.password)), caller_of(name, u)) for name, u in pg.users.items()}
    return Access(users, pg.tls(), not pg.is_loopback)


def caller_of(name: str, user: PgUser) -> Caller:
    return Caller(name, frozenset(user.roles), folded(user.results) if user.results else None, "user")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
