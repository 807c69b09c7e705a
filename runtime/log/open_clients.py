"""How many clients a log has given out that are still there: counted, for status."""

from __future__ import annotations

from typing import TypeVar
from weakref import WeakSet

from flowql.runtime.log.base import Clients

C = TypeVar("C")


class OpenClients:
    """Clients that are referred to and not `closed`. Any thread."""

    def __init__(self) -> None:
        self._consumers: WeakSet[object] = WeakSet()
        self._producers: WeakSet[object] = WeakSet()

    def consumer(self, client: C) -> C:
        """Count one that reads; the same."""
        self._consumers.add(client)
        return client

    def producer(self, client: C) -> C:
        """Count one that writes; the same."""
        self._producers.add(client)
        return client

    def count(self, *, admins: int = 1) -> Clients:
        return Clients(_open(self._consumers), _open(self._producers), admins)


def _open(clients: WeakSet[object]) -> int:
    """One that is closed may be kept by a cycle of references until the next collection."""
    return sum(not getattr(client, "closed", False) for client in list(clients))
