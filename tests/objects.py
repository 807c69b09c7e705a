"""Object stores for tests: in memory, answered at once, with faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from flowql.runtime.remote.objects import OPENED, ObjectInfo, ObjectMissing, ObjectWriter, RemoteError

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class MemoryObjects:
    """Implements `Objects`. fail: asked before each request, with its name and the object's; true makes it fail.

    A request that fails may have happened all the same: `lost_answer` says so of a put.
    """

    url: str
    data: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    wall_ms: Callable[[], int] = lambda: 0
    fail: Callable[[str, str], bool] = lambda request, name: False
    lost_answer: Callable[[str], bool] = lambda name: False
    requests: list[tuple[str, str]] = field(default_factory=list)

    def opened(self) -> MemoryObjects:
        OPENED[self.url] = self
        return self

    def put_new(self, name: str, data: bytes) -> bool:
        self._ask("put", name)
        new = name not in self.data
        if new:
            self.data[name] = data, self.wall_ms()
        if self.lost_answer(name):
            raise RemoteError(f"{name}: no answer")
        return new

    def writer(self, name: str) -> ObjectWriter:
        self._ask("writer", name)
        return _Writer(self, name)

    def get(self, name: str) -> bytes:
        self._ask("get", name)
        if name not in self.data:
            raise ObjectMissing(f"{self.url}: there is no {name}")
        return self.data[name][0]

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._ask("list", prefix)
        found = [(n, v) for n, v in self.data.items() if not prefix or n.startswith(prefix + "/")]
        return iter([ObjectInfo(n, len(data), ms) for n, (data, ms) in found])

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._ask("delete", name)
            self.data.pop(name, None)

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except Exception as error:  # of the call: whoever waits gets it
            done.set_exception(error)
        return done

    def _ask(self, request: str, name: str) -> None:
        self.requests.append((request, name))
        if self.fail(request, name):
            raise RemoteError(f"{request} {name}: the store is away")


class _Writer:
    """Implements `ObjectWriter`."""

    def __init__(self, objects: MemoryObjects, name: str) -> None:
        self._objects, self._name, self._parts = objects, name, list[bytes]()

    def write(self, data: bytes) -> None:
        self._objects._ask("write", self._name)
        self._parts.append(data)

    def abandon(self) -> None:
        self._parts = []

    def close(self) -> None:
        self._objects._ask("close", self._name)
        self._objects.data[self._name] = b"".join(self._parts), self._objects.wall_ms()
