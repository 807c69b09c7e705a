"""A project whose instance listens for programs on other machines, in this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import flowql
from flowql.gateway.gateway import Gateway
from flowql.server.host import Host
from flowql.server.row_service import RowService
from tests.flowql.api.test_connection import SQL
from tests.gateway import gateway_here

TOKEN = "correct-horse-battery"
WAIT_S = 60.0
CODES = (flowql.CommandError, flowql.RuntimeFailure)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def project(folder: Path, sql: str = SQL, more: str = "", api: str = "") -> str:
    """A project with `api`; its URL."""
    port = free_port()
    folder.mkdir(exist_ok=True)
    (folder / "flowql.yaml").write_text(
        f"name: shop\nsql: [shop.sql]\n{more}targets:\n  main:\n    api: {{port: {port}, token: '{TOKEN}'{api}}}\n"
    )
    (folder / "shop.sql").write_text(sql)
    return f"http://127.0.0.1:{port}"


class Shop:
    """An instance in this process, and two connections to it."""

    def __init__(self, folder: Path, url: str, instance: flowql.Instance) -> None:
        self.folder, self.url, self.instance = folder, url, instance
        self.local = instance.connection
        self.remote = flowql.connect(url, token=TOKEN)

    @property
    def host(self) -> Host:
        assert self.instance._host is not None
        return self.instance._host

    @property
    def rows(self) -> RowService:
        listening = self.host.listening
        assert listening is not None
        return listening.rows

    @property
    def gateway(self) -> Gateway:
        """Of an instance that serves its gateway in this process."""
        return gateway_here(self.host)


def wait(true: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def changes_threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("changes")]
