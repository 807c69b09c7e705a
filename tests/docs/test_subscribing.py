"""The clients that the page about subscriptions over HTTP shows: each prints every row once, also when its connection breaks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from flowql.config.api import ApiSettings
from flowql.deploy.settings import Settings
from flowql.gateway.gateway import Gateway
from flowql.server.host import Host
from tests.docs.tour import ROOT, blocks
from tests.flowql.query.harness import plan_of
from tests.gateway import gateway_of, port_of

PAGE = (ROOT / "docs" / "guide" / "subscribe-http.md").read_text(encoding="utf-8")
TOKEN, ORIGIN = "a-token-for-the-page", "http://localhost:3000"
SQL = """
CREATE STREAM orders (customer STRING KEY, amount INT) WITH (KAFKA_TOPIC = 'o', PARTITIONS = 1, KEY_FORMAT = 'KAFKA', VALUE_FORMAT = 'JSON');
CREATE STREAM large_orders AS SELECT customer, amount FROM orders WHERE amount > 100;
"""


@dataclass
class Shop:
    gateway: Gateway

    @property
    def port(self) -> int:
        return port_of(self.gateway)

    def sell(self, amount: int) -> None:
        url, headers = f"http://127.0.0.1:{self.port}/v1/streams/orders/rows", {"Authorization": f"Bearer {TOKEN}"}
        said = httpx.post(url, json=[{"customer": "ada", "amount": amount}], headers=headers, trust_env=False)
        assert said.status_code == 200

    def break_connections(self) -> None:
        (port,) = self.gateway.ports
        server = port.server
        assert server._loop is not None
        for connection in list(server.server_state.connections):
            server._loop.call_soon_threadsafe(connection.transport.abort)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    host = Host(Settings(tmp_path_factory.mktemp("host"), "demo", 1, 64 << 20))
    host.start()
    host.service.deploy(plan_of(SQL))
    with gateway_of(host, ApiSettings(1, TOKEN, origins=(ORIGIN,))) as gateway:
        yield Shop(gateway)
    host.close()


def command_of(language: str, folder: Path, port: int) -> list[str]:
    """Runs the client of the page, in `folder`."""
    (code,) = blocks(PAGE, language)
    code = code.replace("localhost:8327", f"localhost:{port}")
    if language == "python":
        pytest.importorskip("websockets")
        (folder / "follow.py").write_text(code)
        return [sys.executable, "-u", "follow.py"]
    node = shutil.which("node")
    if (
        node is None
        or int(
            subprocess.run(
                [node, "-p", "process.versions.node"], capture_output=True, text=True, check=True
            ).stdout.split(".")[0]
        )
        < 20
    ):
        pytest.skip("needs Node.js 20")
    (folder / "follow.js").write_text(f"const token = process.env.FLOWQL_TOKEN;\n{code}")
    return [node, "--experimental-websocket", "follow.js"]


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_a_client_of_the_page_prints_each_row_once(shop: Shop, tmp_path: Path, language: str) -> None:
    amounts = iter(range(1_000 if language == "python" else 2_000, 9_999))
    shop.sell(first := next(amounts))
    env = {**os.environ, "FLOWQL_TOKEN": TOKEN, "NO_PROXY": "*", "NODE_NO_WARNINGS": "1"}
    with subprocess.Popen(
        command_of(language, tmp_path, shop.port), cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        try:
            while str(first) not in client.stdout.readline():
                assert client.poll() is None
            for _ in range(2):
                shop.break_connections()
                shop.sell(amount := next(amounts))
                assert str(amount) in client.stdout.readline()
        finally:
            client.kill()
