"""Which requests members make while no records arrive, and the processor time that they take.

    python -m benchmarks.at_rest [--members 2] [--partitions 8] [--seconds 20] [--standbys 0]

The members of `benchmarks.members` run on a broker behind a relay, which counts requests by client and kind. The figures are requests a second of one
member, and its share of one processor. Requests of a kind that is not in `KINDS` are shown by their number in Kafka's protocol.
"""

from __future__ import annotations

import argparse
import os
import socket
import struct
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from benchmarks.members import Bench

KINDS = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
}
KINDS |= {22: "InitProducerId", 24: "AddPartitionsToTxn", 25: "AddOffsetsToTxn", 26: "EndTxn", 28: "TxnOffsetCommit"}
KINDS |= {
    32: "DescribeConfigs",
    61: "DescribeProducers",
    65: "DescribeTransactions",
    66: "ListTransactions",
    75: "DescribeTopicPartitions",
}
THREADS_SHOWN = 12
REST_S = 75.0  # after the members have shared the partitions: the log is maintained once a minute


class Relay:
    """Passes on what clients and a broker say. requests: by client id and kind; any thread."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.target: int = free.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            try:
                broker = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # it has not started yet
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(broker, client), daemon=True).start()
            threading.Thread(target=self._count, args=(client, broker), daemon=True).start()

    def _count(self, client: socket.socket, broker: socket.socket) -> None:
        """A request is its length, then the number of its kind, a version, a number, and the client's id."""
        said = client.makefile("rb")
        with suppress(OSError, struct.error):
            while True:
                head = said.read(4)
                body = said.read(*struct.unpack(">i", head))
                kind, _, _, length = struct.unpack(">hhih", body[:10])
                self.requests[body[10 : 10 + length].decode(), KINDS.get(kind, str(kind))] += 1
                broker.sendall(head + body)
        self._end(broker)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        self._end(target)

    @staticmethod
    def _end(s: socket.socket) -> None:
        with suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)


def bench_used(bench: Bench) -> Counter[str]:
    """Seconds of a processor by name of thread. Linux only."""
    used, ticks = Counter[str](), os.sysconf("SC_CLK_TCK")
    for process in bench.members.values():
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            name, _, fields = (thread / "stat").read_text().partition("(")[2].rpartition(")")
            used[name] += sum(map(int, fields.split()[11:13])) / ticks  # type: ignore[assignment]
    return used


def measure(folder: Path, options: argparse.Namespace) -> None:
    relay = Relay()
    bench = Bench(folder, 1_000, options.partitions, 0, options.standbys, relay=relay)
    names = [chr(ord("a") + n) for n in range(options.members)]
    try:
        bench.load()
        for name in names:
            bench.start(name)
        bench.until(lambda: bench.owners() == set(names))
        time.sleep(REST_S)
        before, used_before = Counter(relay.requests), bench_used(bench)
        time.sleep(options.seconds)
        counted, used = relay.requests - before, bench_used(bench) - used_before
        members_s = options.members * options.seconds
        for (client, kind), n in counted.most_common():
            print(f"{client:24}{kind:20}{n / members_s:8.2f}", flush=True)
        print(f"{'all':44}{counted.total() / members_s:8.2f} requests/s of one member")
        for thread, seconds in used.most_common(THREADS_SHOWN):
            print(f"{thread:44}{100 * seconds / members_s:8.2f} %")
        print(f"{'processor':44}{100 * used.total() / members_s:8.2f} % of one core")
    finally:
        for process in bench.members.values():
            process.kill()
        bench.broker.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--standbys", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flowql-at-rest-") as folder:
        measure(Path(folder), options)


if __name__ == "__main__":
    main()
