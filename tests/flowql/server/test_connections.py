"""How a server ends: at once where nobody waits for an answer, and with every answer it owes where somebody does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from uvicorn import Config, Server

from flowql.server.connections import HttpServer

Started = tuple[HttpServer, threading.Thread, str]


@pytest.fixture
def serving() -> Iterator[Callable[[Any], Started]]:
    ended: list[tuple[HttpServer, threading.Thread]] = []

    def start(app: Any) -> Started:
        listener = socket.create_server(("127.0.0.1", 0))
        server = HttpServer(Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        ended.append((server, thread))
        while not server.started:
            assert thread.is_alive()
        return server, thread, f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for server, thread in ended:
        server.end()
        thread.join(30)
        assert not thread.is_alive()


def test_an_answer_that_is_being_made_is_given_before_the_server_ends(serving: Callable[[Any], Started]) -> None:
    asked, go_on, said = threading.Event(), threading.Event(), list[str]()

    async def slow(_request: Any) -> PlainTextResponse:
        asked.set()
        await asyncio.to_thread(go_on.wait, 30)
        return PlainTextResponse("done")

    server, thread, url = serving(Starlette(routes=[Route("/", slow)]))
    client = threading.Thread(target=lambda: said.append(httpx.get(url, timeout=30, trust_env=False).text))
    client.start()
    assert asked.wait(30)
    server.end()
    thread.join(0.3)
    assert thread.is_alive(), "its answer is not given yet"
    go_on.set()
    client.join(30)
    assert said == ["done"]


def test_a_connection_without_a_request_does_not_keep_a_server(
    serving: Callable[[Any], Started], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[object]()

    async def slowly(self: Server, sockets: object = None) -> None:
        waited.append(self)

    monkeypatch.setattr(Server, "shutdown", slowly)
    server, thread, url = serving(Starlette(routes=[Route("/", lambda _request: PlainTextResponse("here"))]))
    with httpx.Client(trust_env=False) as client:
        assert client.get(url).text == "here"
        server.end()
        thread.join(30)
        assert (thread.is_alive(), waited) == (False, [])
        with pytest.raises(httpx.HTTPError):
            client.get(url)
