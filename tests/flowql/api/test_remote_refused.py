"""`flowql.connect(URL)`: what is refused, at what else a URL may lead to, and how a connection ends."""

from __future__ import annotations

import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

import flowql
from flowql.api.remote import Remote
from flowql.server import client
from tests.certificates import certificate_in
from tests.flowql.api.shop import TOKEN, WAIT_S, Shop, changes_threads, free_port, project, wait
from tests.flowql.api.test_connection import ORDERS, SQL, until

pytestmark = pytest.mark.turns("long")


def test_what_a_url_cannot_do_says_why(shop: Shop) -> None:
    for ask in (lambda: shop.remote.stop(), lambda: shop.remote.project, lambda: shop.remote.settings):
        with pytest.raises(flowql.CommandError, match=f"over {shop.url} this is not possible") as refused:
            ask()
        assert refused.value.code == "FQ5310"
        assert refused.value.help
    assert shop.instance.healthy


def test_what_has_no_business_elsewhere_is_not_there(shop: Shop) -> None:
    mine = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("/stop", "/backup"):
        assert httpx.post(shop.url + path, headers=mine, trust_env=False).status_code == 404, path


def test_nobody_without_the_token(shop: Shop) -> None:
    with pytest.raises(flowql.CommandError, match="refuses the token") as refused:
        flowql.connect(shop.url, token="x" * 20)
    assert (refused.value.code, "`token` of `api`" in refused.value.help) == ("FQ5301", True)
    assert TOKEN not in str(refused.value)
    with pytest.raises(flowql.CommandError, match="needs its token"):
        flowql.connect(shop.url)
    with pytest.raises(flowql.CommandError, match="characters beyond ASCII"):
        flowql.connect(shop.url, token="ü" * 20)
    assert isinstance(shop.remote._backend, Remote)
    for method, path in (
        ("GET", "/health"),
        ("GET", "/v1/streams/ORDERS"),
        ("POST", "/v1/streams/ORDERS/rows"),
        ("POST", "/v1/execute"),
        ("POST", "/v1/returning"),
        ("POST", "/v1/subscribe"),
        ("POST", "/v1/query"),
    ):
        for headers in (
            {},
            {"Authorization": TOKEN},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": f"Basic {TOKEN}"},
        ):
            assert httpx.request(method, shop.url + path, headers=headers, trust_env=False).status_code == 401


def test_requests_that_make_no_sense_are_refused(shop: Shop) -> None:
    mine = {"Authorization": f"Bearer {TOKEN}"}

    def asked(path: str, content: bytes) -> tuple[int, str]:
        said = httpx.post(shop.url + path, headers=mine, content=content, trust_env=False)
        return said.status_code, said.json()["error"]["code"]

    for body in (b"", b"{", b"no arrow", b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"x" * 16):
        assert asked("/v1/streams/ORDERS/rows", body) == (400, "FQ5307"), body
    assert asked("/v1/streams/ORDERS/rows?time=AT", b"") == (400, "FQ5307")
    for body in (
        b"",
        b"{}",
        b'{"statements": 3, "variables": {}}',
        b'{"statements": "", "variables": {"a": 1}}',
        b"[]",
    ):
        assert asked("/v1/execute", body) == (400, "FQ5307"), body
        assert asked("/v1/returning", body) == (400, "FQ5307"), body
    for body in (
        b"{}",
        b'{"sql": "LARGE", "start": "middle", "limit": null}',
        b'{"sql": "LARGE", "start": "latest", "limit": true}',
    ):
        assert asked("/v1/subscribe", body) == (400, "FQ5307"), body
    assert shop.gateway.readers.subscriptions == 0
    for path in ("/v1/streams/ORDERS/rows", "/v1/execute", "/v1/returning", "/v1/subscribe", "/v1/query"):
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {400 << 20}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(shop.url.rpartition(":")[2])), timeout=30) as connection:
            connection.sendall(head.encode())
            assert connection.recv(1_000).split(b" ")[1] == b"413", path
    name = {**mine, "Host": "evil.example.com"}
    assert httpx.get(f"{shop.url}/v1/status", headers=name, trust_env=False).status_code == 421


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://:secret@127.0.0.1:8321", "has a name or a password"),
        ("http" + "://user:secret@127.0.0.1:8321", "has a name or a password"),
        ("ftp://127.0.0.1:8321", "not a URL of an instance"),
        ("http://", "not a URL of an instance"),
        ("http://127.0.0.1:many", "this is not a URL"),
        ("http://127.0.0.1:8321/shop", "behind the port"),
        ("http://127.0.0.1:8321?token=secret", "behind the port"),
    ],
)
def test_a_wrong_url(url: str, says: str) -> None:
    with pytest.raises(flowql.CommandError, match=says) as refused:
        flowql.connect(url, token=TOKEN)
    assert refused.value.code == "FQ5309"
    assert refused.value.help
    assert "secret@" not in str(refused.value)


def test_a_folder_takes_no_token(tmp_path: Path) -> None:
    with pytest.raises(flowql.CommandError, match="is a folder"):
        flowql.connect(tmp_path, token=TOKEN)


def test_no_instance_there() -> None:
    port = free_port()
    with pytest.raises(
        flowql.CommandError, match=f"http://127.0.0.1:{port} cannot be reached: nothing listens on port"
    ) as lost:
        flowql.connect(f"http://127.0.0.1:{port}", token=TOKEN)
    assert (lost.value.code, "api:" in lost.value.help) == ("FQ5302", True)
    assert "may have been done" not in str(lost.value)


class Other(BaseHTTPRequestHandler):
    """No instance, or one of another version."""

    said = b"{}"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.said)))
        self.end_headers()
        self.wfile.write(self.said)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b'{"pid": 3}', "has another version of FlowQL (an older one) than this program"),
        (b'{"pid": 3, "version": "9.0", "protocol": 1}', "has another version of FlowQL (9.0) than this program"),
        (b"<html>", "says what this version of FlowQL does not understand"),
    ],
)
def test_something_else_there(said: bytes, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Other, "said", said)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(flowql.CommandError, match=re.escape(says)) as refused:
            flowql.connect(f"http://127.0.0.1:{server.server_address[1]}", token=TOKEN)
        assert refused.value.code == client.OTHER_VERSION
    finally:
        server.shutdown()
        server.server_close()


def test_the_port_of_metrics_is_none(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "flowql.yaml").write_text(f"name: shop\nsql: [shop.sql]\ntargets:\n  main: {{metrics: {port}}}\n")
    (tmp_path / "shop.sql").write_text(SQL)
    with flowql.Instance(tmp_path) as instance:
        with pytest.raises(flowql.CommandError, match="status 404: no instance of FlowQL listens there"):
            flowql.connect(f"http://127.0.0.1:{port}", token=TOKEN)
        assert instance._host is not None
        assert len(instance._host.listening.ports) == 2, "without `api` nothing else listens"


def test_the_end_of_an_instance_ends_its_subscriptions(tmp_path: Path) -> None:
    url = project(tmp_path / "shop")
    instance = flowql.Instance(tmp_path / "shop").start()
    shop = flowql.connect(url, token=TOKEN)
    shop.produce("ORDERS", ORDERS)
    until(shop, "SELECT SUM(N)::INT FROM SPENT", 3)
    ids: list[int] = []
    subscription = shop.subscribe("LARGE", start="earliest")
    reader = threading.Thread(
        target=lambda: ids.extend(c.row["ID"] for c in subscription if isinstance(c, flowql.Change))
    )
    reader.start()
    wait(lambda: len(ids) == 2)
    instance.stop()
    reader.join(WAIT_S)
    assert not reader.is_alive()
    assert sorted(ids) == [2, 3]
    assert not changes_threads()
    with pytest.raises(flowql.CommandError, match="nothing listens on port"):
        shop.sql("SELECT 1")
    with flowql.Instance(tmp_path / "shop"):  # the same connection goes on with the next one
        assert shop.sql("SELECT COUNT(*) FROM ORDERS").one() == 3
    shop.close()


def test_a_port_that_is_taken_says_so(tmp_path: Path) -> None:
    url = project(tmp_path / "shop")
    with socket.create_server(("127.0.0.1", int(url.rpartition(":")[2]))):
        with pytest.raises(flowql.CommandError, match="cannot listen on 127") as refused:
            flowql.Instance(tmp_path / "shop").start()
        assert (refused.value.code, "`api` port" in refused.value.help) == ("FQ5304", True)
    with flowql.Instance(tmp_path / "shop"), flowql.connect(url, token=TOKEN):
        pass


def test_https_is_verified(tmp_path: Path) -> None:
    certificate, key = certificate_in(tmp_path)
    pem = f", certificate: {certificate}, key: {key}"
    plain = project(tmp_path / "shop", api=pem)
    url = f"https://localhost:{plain.rpartition(':')[2]}"
    with flowql.Instance(tmp_path / "shop"):
        with flowql.connect(url, token=TOKEN, certificate=certificate) as shop:
            assert shop.produce("ORDERS", ORDERS) == 3
            with shop.subscribe("LARGE", start="earliest", limit=2) as changes:
                assert len(list(changes)) == 2
            waiting = shop.subscribe("LARGE")
            reader = threading.Thread(target=lambda: list(waiting))
            reader.start()
            time.sleep(0.3)
            waiting.close()
            reader.join(WAIT_S)
            assert not reader.is_alive()
        with pytest.raises(flowql.CommandError, match="its certificate is not trusted"):
            flowql.connect(url, token=TOKEN)
        with pytest.raises(flowql.CommandError, match="does not answer"):
            flowql.connect(plain, token=TOKEN)
        with pytest.raises(flowql.CommandError, match="cannot be used"):
            flowql.connect(url, token=TOKEN, certificate=tmp_path / "none.pem")
    project(tmp_path / "shop", api=pem.replace("key.pem", "cert.pem"))
    with pytest.raises(flowql.CommandError, match="cannot use the certificate"):
        flowql.Instance(tmp_path / "shop").start()
