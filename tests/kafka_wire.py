"""What goes over the wire between clients and a broker: counted, and cut off."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter


class Wire:
    """Stands before a broker that advertises its port. clients: connections made so far, by client id."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.target = 0  # the broker's own port
        self.clients: Counter[str] = Counter()
        self._lock = threading.Lock()  # guards the two fields below
        self._open: set[socket.socket] = set()
        self._is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Nobody gets through until `mend`."""
        with self._lock:
            self._is_cut = True
            for s in self._open:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self.target)) as broker:
            with self._lock:
                if self._is_cut:
                    return
                self._open |= {client, broker}
            try:
                back = threading.Thread(target=_pass_on, args=(broker, client), daemon=True)
                back.start()
                first = client.recv(1 << 16)
                if len(first) > 14:
                    self.clients[_client_id(first)] += 1
                broker.sendall(first)
                _pass_on(client, broker)
                back.join()
            finally:
                with self._lock:
                    self._open -= {client, broker}


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for s in (source, target):
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)


def _client_id(request: bytes) -> str:
    """Of a request's header: size, api key and version, correlation id, client id."""
    (length,) = struct.unpack_from(">h", request, 12)
    return request[14 : 14 + length].decode()


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports
