"""A server for PostgreSQL's protocol in the process of a test, beside that of the instance, so that the test can make it fail."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flowql.config.load import read_project
from flowql.deploy.settings import settings_of
from flowql.pg.connection import Access, Connections
from flowql.pg.execution import Shared
from flowql.pg.reading import Reading
from tests.flowql.pg.conftest import Shop
from tests.flowql.pg.wire import Wire


@contextmanager
def served(shop: Shop) -> Iterator[int]:
    """Its port."""
    with served_with(shop) as (port, _):
        yield port


@contextmanager
def served_with(shop: Shop) -> Iterator[tuple[int, Reading]]:
    """Its port, and what answers there."""
    reading, loop = Reading(settings_of(read_project(shop.folder))), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def begin() -> asyncio.Server:
        connections = Connections(Shared(reading), Access({}, None, needs_tls=False))
        return await asyncio.start_server(connections.serve, "127.0.0.1", 0)

    async def end() -> None:
        server.close()
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(begin(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1], reading
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        reading.close()


class Gate:
    """Stops a thread. arrived: one has come."""

    def __init__(self) -> None:
        self.arrived, self._opened = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.arrived.set()
        assert self._opened.wait(20)

    def open(self) -> None:
        self._opened.set()


def cancel(port: int, w: Wire) -> None:
    with Wire(port, start=False) as c:
        c.socket.sendall(struct.pack("!iiiI", 16, 80_877_102, *w.key))
