"""The object store of a simulated world: all processes see the same objects, each through a network of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from flowql.runtime.backup.manifest import decode_manifest, piece_name
from flowql.runtime.remote.objects import OPENED, ObjectInfo, ObjectWriter, RemoteError
from flowql.runtime.state.remote.manifest import read_manifest
from tests.objects import MemoryObjects

if TYPE_CHECKING:
    from tests.sim.faults import Faults

P = ParamSpec("P")
T = TypeVar("T")

AWAY_MS = (300, 1_500)


class StoreWorld(Protocol):
    """The part of a world that its object store needs. objects_of: who has written an object. rotten: objects that are damaged or gone."""

    rng: Random
    faults: Faults
    store_away_ms: int
    objects_of: dict[str, object]
    rotten: set[str]
    wrong: list[str]

    @property
    def now(self) -> int: ...

    def lucky(self, chance: float) -> bool: ...

    def at(self, ms: int, action: Callable[[], object]) -> None: ...


class Late(Future[T]):
    """An answer that comes later; who waits for it in a thread that cannot go on without it gets it now."""

    arrive: Callable[[], None]

    def result(self, timeout: float | None = None) -> T:
        if not self.done():
            self.arrive()
        return super().result(timeout)


class SimulatedObjects:
    """Implements `Objects` for one process. Requests that are on their way arrive also when the process is gone."""

    def __init__(self, world: StoreWorld, shared: MemoryObjects, name: str) -> None:
        self._world, self._shared = world, shared
        self.url, self._life = url_of(name), object()
        OPENED[self.url] = self

    def put_new(self, name: str, data: bytes) -> bool:
        self._reach("put", name)
        new = self._shared.put_new(name, data)
        if new:
            self._world.objects_of[name] = self._life
            self._look_at(name)
        elif "/rows/" in name and self._world.objects_of[name] is not self._life:
            self._world.wrong.append(f"{name} is another process's")
        self._answer("put", name)
        return new

    def writer(self, name: str) -> ObjectWriter:
        self._reach("writer", name)
        return _Writer(self, self._shared.writer(name), name)

    def get(self, name: str) -> bytes:
        self._reach("get", name)
        return self._shared.get(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self._reach("get", name)
        return self._shared.get_range(name, start, length)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        self._reach("list", prefix)
        return self._shared.list(prefix)

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self._reach("delete", name)
            self._look_at_deleted(name)
            self._shared.delete([name])

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        later: Late[T] = Late()

        def arrive() -> None:
            if not later.done():
                _run(later, partial(call, *args, **kwargs))

        later.arrive = arrive
        world = self._world
        if world.lucky(world.faults.slow_objects):
            world.at(world.now + world.rng.choice((20, 200, 900)), arrive)
        else:
            arrive()
        return later

    def _look_at(self, name: str) -> None:
        """A manifest comes after all that it names. That of an instance that was given up may come when its objects are collected: a newer one is there."""
        newer = (n for n in self._shared.data if n > name and n.startswith(f"{folder_of(name)}/manifests/"))
        if "/manifests/" in name and not ("/instance/" in name and any(newer)):
            missing = named_by(self._shared, name) - self._shared.data.keys() - self._world.rotten
            self._world.wrong += [f"{name} is ahead of {sorted(missing)}"] * bool(missing)

    def _look_at_deleted(self, name: str) -> None:
        """The newest manifest keeps what it names."""
        folder = folder_of(name)
        newest = max((n for n in self._shared.data if n.startswith(f"{folder}/manifests/")), default="")
        if newest and newest not in self._world.rotten and name in (newest, *named_by(self._shared, newest)):
            self._world.wrong.append(f"{name} is deleted, and {newest} needs it")

    def _reach(self, request: str, name: str) -> None:
        world = self._world
        if world.now < world.store_away_ms:
            raise RemoteError(f"{request} {name}: the store is away")
        if world.lucky(world.faults.failing_objects):
            raise RemoteError(f"{request} {name}: it failed")

    def _answer(self, request: str, name: str) -> None:
        """What was done may be unknown to who asked."""
        if self._world.lucky(self._world.faults.unanswered_objects):
            raise RemoteError(f"{request} {name}: no answer")


class _Writer:
    """Implements `ObjectWriter`."""

    def __init__(self, objects: SimulatedObjects, inner: ObjectWriter, name: str) -> None:
        self._objects, self._inner, self._name = objects, inner, name

    def write(self, data: bytes) -> None:
        self._objects._reach("write", self._name)
        self._inner.write(data)

    def close(self) -> None:
        self._objects._reach("close", self._name)
        self._inner.close()
        self._objects._answer("close", self._name)


def named_by(objects: MemoryObjects, name: str) -> set[str]:
    """The objects that a manifest needs, of a task or of an instance."""
    if (folder := folder_of(name)).endswith("/instance"):
        manifest = decode_manifest(objects.data[name][0], name)
        return {piece_name(folder, path, piece) for path, piece in manifest.pieces()}
    return set(read_manifest(objects, name).objects())


def folder_of(name: str) -> str:
    """Everything of the task or the instance that an object belongs to."""
    application, is_instance, _ = name.partition("/instance/")
    return f"{application}/instance" if is_instance else name.rpartition("/")[0].rpartition("/")[0]


def url_of(process: str) -> str:
    return f"simulated://{process}"


def _run(later: Future[Any], call: Callable[[], Any]) -> None:
    try:
        later.set_result(call())
    except Exception as error:  # of the call: whoever waits gets it
        later.set_exception(error)
