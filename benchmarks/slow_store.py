"""An object store of this machine that is as far away as one elsewhere: moto's S3 behind a proxy that delays and limits.

Needs the package moto:  pip install 'moto[server]' boto3
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 256 << 10
START_S = 30.0


class SlowProxy:
    """Delays what goes either way by half of `latency_s`, and lets at most `bytes_per_s` through in all."""

    def __init__(self, port: int, latency_s: float, bytes_per_s: float) -> None:
        self._port, self._half_s, self._bytes_per_s = port, latency_s / 2, bytes_per_s
        self._free_at = 0.0

    async def serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_server(self._connect, sock=listening)
        async with server:
            await server.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):
            await asyncio.gather(self._pipe(reader, there_writer), self._pipe(there_reader, writer))

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)

        async def deliver() -> None:
            while True:
                due, data = await queue.get()
                if (wait := due - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        delivering = asyncio.create_task(deliver())
        try:
            while data := await reader.read(CHUNK):
                now = time.monotonic()
                self._free_at = max(now, self._free_at) + len(data) / self._bytes_per_s
                await queue.put((max(now + self._half_s, self._free_at), data))
        finally:
            await queue.put((0.0, b""))
            with suppress(OSError):
                await delivering


def _serve(port: int, latency_s: float, bytes_per_s: float, listening: socket.socket) -> None:
    os.nice(19)
    asyncio.run(SlowProxy(port, latency_s, bytes_per_s).serve(listening))


@contextmanager
def slow_s3(latency_s: float = 0.02, bytes_per_s: float = 200e6) -> Iterator[str]:
    """The URL of an empty bucket, which the environment of this process and its children leads to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # As if it were another machine's: the store gets processor time that nobody else here wants.
    command = ["nice", "-n", "19", sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    # A process of its own: the one that is measured does not pay for it.
    proxy = multiprocessing.get_context("fork").Process(
        target=_serve, args=(port, latency_s, bytes_per_s, listening), daemon=True
    )
    proxy.start()
    listening.close()
    known = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    os.environ.update({**known, "AWS_ENDPOINT_URL": address})
    try:
        _make_bucket(f"http://127.0.0.1:{port}/bucket")
        yield "s3://bucket/state"
    finally:
        proxy.kill()
        server.kill()
        server.wait()


def _make_bucket(url: str) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
