"""The process of an instance: engine threads, HTTP beside them, and an end that commits."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from contextlib import ExitStack
from functools import partial
from importlib import metadata

import uvicorn
from starlette.types import ASGIApp

from flowql.compiler.functions.user import finding
from flowql.deploy.functions import find_function
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.database import QueryDatabase
from flowql.query.limits import QueryLimits
from flowql.runtime.app.beat_file import RUNNING, STOPPING
from flowql.runtime.app.member_topic import MemberAddress
from flowql.runtime.budget import MemoryBudget
from flowql.runtime.events import INFO, say
from flowql.server.address import own_address, remove_address, write_address
from flowql.server.app import make_app, make_members_app, make_metrics_app
from flowql.server.beating import Beating
from flowql.server.choice import open_engine
from flowql.server.connections import TAKE_S, Connection, HttpServer
from flowql.server.descriptors import raise_limit
from flowql.server.engine import Mode
from flowql.server.limits import RequestCounts
from flowql.server.logs import writing
from flowql.server.remote_app import make_remote_app
from flowql.server.row_service import RowService
from flowql.server.service import Service

BROKEN, SILENT = "FQ5303", "FQ5304"
START_S = 10.0
_POLL_S = 0.1
WARM_AFTER_S = 10.0  # after the start, which has work for all processors


class Host:
    """Runs an instance in this process, from `start` to `close`. stop: set to end it, as `request_stop` does."""

    def __init__(self, settings: Settings, mode: Mode = "continuous", stop: threading.Event | None = None) -> None:
        self._settings, self._mode = settings, mode
        self._stop = stop or threading.Event()
        self._servers: list[tuple[HttpServer, threading.Thread]] = []
        self._closed = False
        self.database: QueryDatabase | None = None
        self.rows: RowService | None = None  # for programs on other machines
        self._log = ExitStack()
        self._beating = Beating(settings.data_dir)

    def start(self) -> None:
        """Recover, resume what ran, listen. When it returns the instance can be found by its directory."""
        settings = self._settings
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        raise_limit()
        self._beating.begin()
        with ExitStack() as until_open:
            until_open.callback(self._beating.end)  # until the last thread has ended, or the instance was not opened
            until_open.enter_context(finding(partial(find_function, settings.project_dir)))
            self.engine = open_engine(settings, self._mode)
            self._log = until_open.pop_all()
        self._log.enter_context(writing(settings.data_dir, settings.log_level))
        say(INFO, "instance.started", pid=os.getpid(), engine=settings.engine, version=metadata.version("flowql"))
        self._beating.confirm()
        try:
            self.engine.start(self._beating.file)
            self.database = QueryDatabase(
                QueryLimits.of(settings.memory_bytes, settings.interactive_queries, settings.data_dir)
            )
            self.service = Service(self.engine, self.database, settings.project_dir)
            self._listen()
        except BaseException:
            self.close()
            raise
        self._beating.become(RUNNING)

    def request_stop(self) -> None:
        """Any thread, or a signal handler."""
        self._stop.set()

    def wait(self, seconds: float) -> bool:
        """Sleep; True when it is time to stop. Raises CommandError when the engine is broken."""
        stopping = self._stop.wait(seconds)
        fatal = self.engine.fatal
        if fatal is not None:
            title = f"the instance stopped: {type(fatal).__name__}: {fatal}"
            raise CommandError(title, code=BROKEN, help="nothing committed is lost; start it again")
        return stopping

    def serve(self) -> None:
        """Until asked to stop. The process for interactive queries starts once the instance has run for a while, if memory is counted for it."""
        warm_s = time.monotonic() + WARM_AFTER_S
        cold = MemoryBudget(self._settings.memory_bytes).counts_query_process
        while not self.wait(_POLL_S):
            if cold and time.monotonic() >= warm_s and self.database is not None and self.database.pool is not None:
                self.database.pool.warm()
                cold = False

    def close(self) -> None:
        """Commit, end the threads, release the directory. Once is enough."""
        if self._closed:
            return
        self._closed = True
        self._beating.become(STOPPING)
        try:
            self._end_serving()
        finally:  # also where Ctrl-C breaks off the waiting: threads of the engine would go on, and nothing could end them
            with self._log:
                self.engine.stop()
                say(INFO, "instance.stopped", pid=os.getpid())

    def _end_serving(self) -> None:
        remove_address(self._settings.data_dir)
        for server, _ in self._servers:
            server.end()
        if self.rows is not None:
            self.rows.stop()
        if self.database is not None:  # or their threads are waited for
            self.database.close()
        for _, thread in self._servers:
            thread.join(START_S)
        if self.rows is not None:
            self.rows.close()

    def _listen(self) -> None:
        token, running = secrets.token_urlsafe(32), RequestCounts()
        if (metrics := self._settings.metrics) is not None:
            app = make_metrics_app(self.service, metrics.called)
            self._serve(app, metrics.address, metrics.port, key="metrics")
        if (api := self._settings.api) is not None:
            self.rows = RowService(self.service, self._settings)
            app = make_remote_app(self.service, self.rows, api.token, api.called, running)
            self._serve(app, api.address, api.port, key="api", tls=(api.certificate, api.key))
        port = self._serve(make_app(self.service, token, self.request_stop, running), "127.0.0.1", 0)
        if self.engine.shared:
            self._join()
        write_address(self._settings.data_dir, own_address(port, token))

    def _join(self) -> None:
        """Answer other instances of the application, by a token of its own that lets them read rows alone."""
        listening, token = self._settings.members, secrets.token_urlsafe(32)
        port = self._serve(make_members_app(self.service, token, [listening.host]), listening.address, listening.port)
        self.engine.join(MemberAddress(listening.host, port, token))

    def _serve(self, app: ASGIApp, address: str, port: int, *, key: str = "", tls: tuple[str, str] = ("", "")) -> int:
        """Answer requests in a thread of its own; the port. key: of the target that names the port. tls: files of certificate and key."""
        certificate, private = tls
        config = uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
            ssl_certfile=certificate or None,
            ssl_keyfile=private or None,
        )
        try:
            config.load()
        except OSError as error:  # SSLError is one
            title = f"the instance cannot use the certificate {certificate} with the key {private}: {error}"
            raise CommandError(
                title, code=SILENT, help="see `certificate` and `key` of `api` in flowql.yaml"
            ) from error
        listener = _bound(address, port, key)
        server = HttpServer(config)
        thread = threading.Thread(target=server.run, args=([listener],), name="http", daemon=True)
        self._servers.append((server, thread))
        thread.start()
        limit = time.monotonic() + START_S
        while not server.started:
            if time.monotonic() > limit or not thread.is_alive():
                raise CommandError(f"the instance cannot listen on {address}", code=SILENT)
            time.sleep(0.005)
        return int(listener.getsockname()[1])


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
