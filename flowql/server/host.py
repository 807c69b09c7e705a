"""The process of an instance: engine threads, HTTP beside them, and an end that commits."""

from __future__ import annotations

import secrets
import socket
import threading
import time

import uvicorn

from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.server.address import own_address, remove_address, write_address
from flowql.server.app import make_app
from flowql.server.choice import open_engine
from flowql.server.engine import Mode
from flowql.server.service import Service

BROKEN, SILENT = "FQ5303", "FQ5304"
START_S = 10.0
_POLL_S = 0.1


class Host:
    """Runs an instance in this process, from `start` to `close`."""

    def __init__(self, settings: Settings, mode: Mode = "continuous") -> None:
        self._settings, self._mode = settings, mode
        self._stop = threading.Event()
        self._server: uvicorn.Server | None = None
        self._http: threading.Thread | None = None
        self._closed = False

    def start(self) -> None:
        """Recover, resume what ran, listen. When it returns the instance can be found by its directory."""
        settings = self._settings
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        self.engine = open_engine(settings, self._mode)
        try:
            self.engine.start()
            self.service = Service(self.engine)
            self._listen()
        except BaseException:
            self.close()
            raise

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
        """Until asked to stop."""
        while not self.wait(_POLL_S):
            pass

    def close(self) -> None:
        """Commit, end the threads, release the directory. Once is enough."""
        if self._closed:
            return
        self._closed = True
        remove_address(self._settings.data_dir)
        if self._server is not None and self._http is not None:
            self._server.should_exit = True
            self._http.join(START_S)
        self.engine.stop()

    def _listen(self) -> None:
        token = secrets.token_urlsafe(32)
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            make_app(self.service, token, self.request_stop),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._http = threading.Thread(target=self._server.run, args=([listener],), name="http", daemon=True)
        self._http.start()
        limit = time.monotonic() + START_S
        while not self._server.started:
            if time.monotonic() > limit or not self._http.is_alive():
                raise CommandError("the instance cannot listen on 127.0.0.1", code=SILENT)
            time.sleep(0.005)
        write_address(self._settings.data_dir, own_address(listener.getsockname()[1], token))
