"""Brings blocks that are in a remote store here, those first that somebody asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from itertools import islice

from flowql.runtime.remote.objects import ObjectDamaged, ObjectMissing
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.remote.pace import Pace, Walk, awaited
from flowql.runtime.state.runs.objects import RemoteBlocks, RunPlace
from flowql.runtime.state.runs.physical import RunsPhysical
from flowql.runtime.state.runs.run import Run, read_places

RANGE_BLOCKS = 128  # about 1 MB
FLYING = 4  # requests side by side

Write = Callable[[Writes, Callable[[], bool]], bool]
"""Writes if the condition holds, between two commits; whether it did."""

Lost = Callable[[bytes, str, Exception], None]
"""A prefix has rows that cannot be read any more: the object that had them, and why."""


class BlockCopier:
    """Walks over all runs whose blocks are not here. missing: prefixes that have some, as far as it is known.

    delete: as `write`, of much that is deleted. on_lost: told of blocks that are gone or damaged. Who wants to read them waits meanwhile (`BlocksAway`).
    """

    def __init__(self, physical: RunsPhysical, write: Write, delete: Write, on_lost: Lost) -> None:
        self._physical, self._write, self._delete, self._on_lost = physical, write, delete, on_lost
        self.missing: set[bytes] = set()
        self.left_bytes = 0

    def from_start(self, stores: Mapping[str, StoreEntry]) -> Walk[None]:
        """Finds what an earlier start of the instance has left to do."""
        for prefix in [e.prefix(p) for e in stores.values() for p in e.partitions]:
            if read_places(self._physical.inner, prefix):
                self.missing.add(prefix)
            yield

    def objects(self, prefixes: Iterable[bytes]) -> set[str]:
        """The names of objects that blocks are still to be read from."""
        return {remote.place.name for prefix in prefixes for _, remote in self._away(prefix)}

    def copy(self, pace: Pace) -> Walk[None]:
        """All of what is missing now. RemoteError."""
        for prefix in sorted(self.missing):
            for run, remote in self._away(prefix):
                yield from self._copy(run, remote, pace)
            self.missing.discard(prefix)  # first: a restoration may bring others just now
            if read_places(self._physical.inner, prefix):
                self.missing.add(prefix)

    def leave_in_store(self, run: Run, place: RunPlace) -> bool:
        """The blocks of a run leave the disk, as `place` has them; False if the run is not here any more, or they have left."""
        physical, writes = self._physical, Writes([run.area()], [run.place_key], [place.record()])

        def still() -> bool:
            return run.head_key in {r.head_key for r in physical.runs(run.prefix).runs} and not run.is_away(physical)

        return self._delete(writes, still)

    def runs_of(self, prefix: bytes) -> Sequence[Run]:
        """The runs of a partition of a store, newest first. Any thread."""
        return self._physical.runs(prefix).runs

    def _away(self, prefix: bytes) -> list[tuple[Run, RemoteBlocks]]:
        """The runs of a prefix of which blocks are missing; those first of which most were asked for."""
        here = {run.name: run for run in self._physical.runs(prefix).runs}
        found: list[tuple[Run, RemoteBlocks]] = []
        for name in read_places(self._physical.inner, prefix):
            run = here.get(name)
            remote = None if run is None else run.remote(self._physical.inner)
            if run is not None and remote is not None:
                found.append((run, remote))
        return sorted(found, key=lambda r: -len(r[1].read))

    def _copy(self, run: Run, remote: RemoteBlocks, pace: Pace) -> Walk[None]:
        inner, cache = self._physical.inner, self._physical.cache
        low, high = run.area()
        here = {int.from_bytes(key[-4:], "big") for key, _ in inner.scan(low, high)}
        yield

        def still() -> bool:
            return self._physical.cache is cache and inner.get(run.place_key) is not None

        self.left_bytes = sum(remote.size(n) for n in range(len(remote)) if n not in here)
        ranges, flying = _ranges(len(remote), here), deque[Future[dict[int, bytes]]]()
        while True:
            blocks = {n: block for n, block in list(remote.read.items()) if n not in here}
            if not blocks:
                flying += [remote.submit(some) for some in islice(ranges, FLYING - len(flying))]
                if not flying:
                    break
                try:
                    found = yield from awaited(flying.popleft())
                except (ObjectMissing, ObjectDamaged) as error:
                    if still():  # and not merged or dropped meanwhile
                        self._on_lost(run.prefix, remote.place.name, error)
                    return
                blocks = {n: block for n, block in found.items() if n not in here}
            rows = {run.block_key(n): block for n, block in blocks.items()}
            if not self._write(Writes([], list(rows), list(rows.values())), still):
                return  # it was merged, or dropped
            here |= blocks.keys()
            for n in blocks:
                remote.read.pop(n, None)
            moved = sum(map(len, blocks.values()))
            self.left_bytes -= moved
            pace.moved += moved
            yield
        self._write(Writes([], [run.place_key], [None]), still)


def _ranges(count: int, here: AbstractSet[int]) -> Iterator[list[int]]:
    """Blocks that are not here, some that lie side by side at a time. `here` grows meanwhile."""
    some: list[int] = []
    for n in range(count):
        if n in here or len(some) == RANGE_BLOCKS:
            if some:
                yield some
            some = []
        if n not in here:
            some.append(n)
    if some:
        yield some
