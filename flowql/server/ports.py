"""Ports of HTTP: their sockets, and the threads that answer on them."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

from starlette.types import ASGIApp

from flowql.errors import CommandError
from flowql.server.connections import TAKE_S, Connection, HttpServer, PortConfig

SILENT = "FQ5304"
START_S = 10.0
BACKLOG = 1_024  # clients that connect while a server starts or is busy


@dataclass(frozen=True, slots=True)
class Port:
    """A server that answers in a thread."""

    server: HttpServer
    thread: threading.Thread

    @classmethod
    def serving(cls, config: PortConfig, listener: socket.socket) -> Port:
        """listener: bound. Raises CommandError if the server does not start."""
        server = HttpServer(config)
        made = cls(server, threading.Thread(target=server.run, args=([listener],), name="http", daemon=True))
        made.thread.start()
        limit = time.monotonic() + START_S
        while not server.started:
            if time.monotonic() > limit or not made.thread.is_alive():
                raise CommandError(f"the instance cannot listen on {listener.getsockname()[0]}", code=SILENT)
            time.sleep(0.005)
        return made

    @property
    def number(self) -> int:
        return int(self.server.servers[0].sockets[0].getsockname()[1])


def port_config(
    app: ASGIApp,
    *,
    key: str = "",
    tls: tuple[str, str] = ("", ""),
    connections: int | None = None,
    head_bytes: int | None = None,
) -> PortConfig:
    """key: of the target that names the port. tls: files of certificate and key. connections: the maximum number. head_bytes: of a
    request, if not the usual number. Raises CommandError for
    files that cannot be used.
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
        h11_max_incomplete_event_size=head_bytes,
        ssl_certfile=certificate or None,
        ssl_keyfile=private or None,
    )
    if connections is not None:
        config.connections_max = connections
    try:
        config.load()
    except OSError as error:  # SSLError is one
        raise unusable(certificate, private, key, error) from error
    return config


def unusable(certificate: str, private: str, key: str, error: OSError) -> CommandError:
    """key: of the target that names the files."""
    title = f"the instance cannot use the certificate {certificate} with the key {private}: {error}"
    return CommandError(title, code=SILENT, help=f"see `certificate` and `key` of `{key}` in flowql.yaml")


def bound(address: str, port: int, key: str) -> socket.socket:
    """A socket that may be bound again at once after the process has ended. key: of the target that names the port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named: without it each answer on an open connection takes 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # a peer that is gone without a word; connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(TAKE_S * 1000))
    try:
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        title = f"the instance cannot listen on {address}:{port}: {error.strerror or error}"
        help_ = f"another `{key}` port in flowql.yaml" if key else ""
        raise CommandError(title, code=SILENT, help=help_) from error
    return listener
