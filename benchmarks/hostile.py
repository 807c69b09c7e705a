"""Measures what hostile clients do to the critical query of a saturated instance, in turns with and without them within one run.

    python -m benchmarks.hostile [--minutes 5] [--clients 1000] [--pause 5] [--events 12000000]

The instance is that of `benchmarks.readers`. Each client does one thing, waits for about `--pause` seconds, and does the next: a wrong token, a path or
method that does not exist, random bytes, a broken or endless body, a header that arrives byte by byte, and the like on the port of PostgreSQL's protocol.
Printed are the critical query's p99 and records of the batch queries in each turn, how the clients were answered, and the instance's memory before and
after. Figures of one machine and one run compare with each other only.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import statistics
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.readers import REST_S, TURN_S, Saturated, more_files, request, saturated

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
ANSWER_S, SLOW_BYTES, SLOW_S = 10.0, 10, 1.0  # a slow client sends so many bytes, one at a time
WRONG = request("GET /v1/status").replace(b"Bearer ", b"Bearer not-")
STARTUP = struct.pack("!i", 196_608)


async def _said(streams: Streams, sent: bytes) -> str:
    """The first words of the answer."""
    reader, writer = streams
    writer.write(sent)
    await writer.drain()
    said = await asyncio.wait_for(reader.read(1 << 12), ANSWER_S)
    return said[:12].decode("latin-1") if said else "closed"


async def _http(streams: Streams, rnd: random.Random) -> str:
    sent = rnd.choice(
        [
            WRONG,
            request("GET /v1/no-such-path"),
            request("BREW /v1/status"),
            request("POST /v1/query", b"{" * 5_000),
            request("POST /v1/query", b"\xff" * 500),
            request("POST /v1/query").replace(b"Content-Length: 0", b"Content-Length: 1000000000000"),
            request("POST /v1/query").replace(b"Content-Length: 0", b"Content-Length: -1"),
            b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 2_000 + b"\r\n",
            rnd.randbytes(200) + b"\r\n\r\n",
        ]
    )
    said = await _said(streams, sent)
    return said if said.startswith("HTTP") else "closed"


async def _postgres(streams: Streams, rnd: random.Random) -> str:
    given = b"user\0" + rnd.randbytes(8).hex().encode() + b"\0\0"
    sent = rnd.choice(
        [
            rnd.randbytes(64),
            struct.pack("!i", 1 << 30) + STARTUP,
            struct.pack("!i", 3) + STARTUP,
            struct.pack("!i", len(given) + 8) + STARTUP + given + b"Q" + struct.pack("!i", 1 << 30),
            struct.pack("!i", len(given) + 8) + STARTUP + given + b"\0" * 64,
        ]
    )
    said = await _said(streams, sent)
    return f"pg {said[0]}" if said != "closed" else "pg closed"


async def _slow(streams: Streams, _: random.Random) -> str:
    for byte in request("GET /v1/status")[:SLOW_BYTES]:
        streams[1].write(bytes([byte]))
        await streams[1].drain()
        await asyncio.sleep(SLOW_S)
    return "slow"


KINDS: tuple[tuple[str, Callable[[Streams, random.Random], Awaitable[str]]], ...] = (
    ("http", _http), ("http", _http), ("pg", _postgres), ("http", _slow),
)  # fmt: skip


async def _client(ports: dict[str, int], rnd: random.Random, pause_s: float, answers: Counter[str], may: Event) -> None:
    await asyncio.sleep(rnd.uniform(0, pause_s))
    while may.is_set():
        port, attack = rnd.choice(KINDS)
        said = "no answer"
        with suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            streams = await asyncio.open_connection("127.0.0.1", ports[port])
            try:
                said = await attack(streams, rnd)
            finally:
                streams[1].close()
        answers[said] += 1
        await asyncio.sleep(rnd.uniform(0, 2 * pause_s))


async def _all(ports: dict[str, int], clients: int, pause_s: float, may: Event) -> Counter[str]:
    answers = Counter[str]()
    await asyncio.gather(*(_client(ports, random.Random(n), pause_s, answers, may) for n in range(clients)))
    return answers


def attack(
    ports: dict[str, int], clients: int, pause_s: float, may: Event, results: multiprocessing.Queue[Counter[str]]
) -> None:
    """The process of the clients: they attack whenever they may."""
    more_files()
    while may.wait():
        results.put(asyncio.run(_all(ports, clients, pause_s, may)))


def measure(on: Saturated, options: argparse.Namespace) -> None:
    context = multiprocessing.get_context("spawn")
    may, results = context.Event(), context.Queue()
    ports = {"http": on.port, "pg": on.pg_port}
    process = context.Process(target=attack, args=(ports, options.clients, options.pause, may, results), daemon=True)
    process.start()
    before, answers = on.measured.rss_mib(), Counter[str]()
    found: dict[bool, list[float]] = {False: [], True: []}
    for n in range(max(2, round(options.minutes * 60 / (TURN_S + REST_S)))):
        hostile = n % 2 == 1
        if hostile:
            may.set()
        time.sleep(REST_S)
        turn = on.measured.turn(with_readers=False)
        if hostile:
            may.clear()
            answers += results.get()
        found[hostile].append(turn.critical_p99_ms)
        print(
            f"{'with' if hostile else 'without':<9}{turn.records_s:>12,.0f} records/s{turn.cpu:>7.2f} CPUs, "
            f"critical p99 {turn.critical_p99_ms:>7.1f} ms",
            flush=True,
        )
    process.terminate()
    without, beside = (statistics.median(found[hostile]) for hostile in (False, True))
    print(f"critical p99 {without:.1f} ms without and {beside:.1f} ms with {options.clients:,} hostile clients")
    print(f"memory {before:.0f} MiB before and {on.measured.rss_mib():.0f} MiB after")
    for said, count in answers.most_common():
        print(f"{count:>8,}  {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two attacks of a client")
    parser.add_argument("--events", type=int, default=12_000_000, help="records for the batch queries")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    more_files()
    with (
        tempfile.TemporaryDirectory(prefix="flowql-hostile-") as name,
        saturated(Path(name), options.events, options.threads, options.clients + 10) as on,
    ):
        measure(on, options)


if __name__ == "__main__":
    main()
