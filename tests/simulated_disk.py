"""A disk in memory that loses power, tears writes and runs full: the `Files` of crash tests and simulation.

What survives a power loss: file contents up to their last fsync and names up to the last fsync of their directory. Of
later writes and name changes any part may survive, a write even torn at any byte, unless `keep` says none or all.
"""

from __future__ import annotations

import errno
import math
import os
import random
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import pyarrow as pa

from flowql.runtime.log.files import File

VIEWS_MAX = 64  # mappings of a file that are kept up to date: more than readers cache
Keep = Literal["none", "all", "some"]


class PowerLoss(BaseException):
    """The machine is off. Not an Exception: no code may handle it."""


class _Node:
    """Contents of a file: durable bytes, and the writes (offset, bytes) or truncations (length, None) since.

    views: what is mapped (offset, bytes); like pages of a real file they show what is written later. Threads may map a file while
    another one writes it.
    """

    __slots__ = ("data", "durable", "links", "lock", "pending", "views")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self.pending: list[tuple[int, bytes | None]] = []
        self.links = 1
        self.lock = threading.Lock()  # between a write and a mapping of the same bytes
        self.views: deque[tuple[int, bytearray]] = deque(maxlen=VIEWS_MAX)

    def sync(self) -> None:
        content = bytearray(self.durable)
        for offset, data in self.pending:
            _apply(content, offset, data)
        self.durable = bytes(content)
        self.pending.clear()

    def change(self, offset: int, data: bytes | None) -> None:
        self.pending.append((offset, data))
        with self.lock:
            _apply(self.data, offset, data)
            for start, view in self.views:
                now = self.data[start : start + len(view)]
                view[: len(now)] = now

    def map(self, offset: int, length: int) -> bytearray:
        with self.lock:
            view = self.data[offset : offset + length]
            self.views.append((offset, view))
        return view


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data


class SimulatedDisk:
    """Files of a machine without a disk. One thread writes; others may read what is written.

    fail_at: the I/O call (from 1: writes, truncations, fsyncs, names) that finds the power gone; it has no effect.
    error_at: the I/O call that fails with EIO, without effect; error_for: how many do, one after the other. forgets: what a failed
    fsync should have written is not written by the next one either, as on Linux.
    full_at: the write (from 1) that finds no space; half of it is written first. full_for: how many writes fail in all.
    """

    def __init__(
        self,
        *,
        fail_at: int | None = None,
        error_at: int | None = None,
        error_for: int = 1,
        forgets: bool = False,
        full_at: int | None = None,
        full_for: int = 1,
    ) -> None:
        self.fail_at, self.error_at, self.full_at, self.full_for = fail_at, error_at, full_at, full_for
        self.error_for, self.forgets = error_for, forgets
        self.calls = self.writes = 0
        self.off = False
        self.trace: list[str] = []
        self._nodes: dict[str, _Node] = {}
        self._durable_names: dict[str, _Node] = {}
        self._dirs: set[str] = set()
        self._locks: set[str] = set()

    def after_power_loss(self, keep: Keep, seed: int = 0) -> SimulatedDisk:
        """The disk after a power loss."""
        rng = random.Random(seed)
        disk = SimulatedDisk()
        disk._dirs = set(self._dirs)
        names = dict(self._durable_names)
        changed = sorted(set(names) | set(self._nodes))
        for path in changed:  # names are single entries of a journal: each is there or not
            if self._nodes.get(path) is not names.get(path) and (
                keep == "all" or (keep == "some" and rng.random() < 0.5)
            ):
                node = self._nodes.get(path)
                if node is None:
                    names.pop(path)
                else:
                    names[path] = node
        for path, node in sorted(names.items()):
            disk._nodes[path] = disk._durable_names[path] = _Node(_survivor(node, keep, rng))
        return disk

    def process_killed(self) -> None:
        """The process that met the power loss was merely killed: its writes stay, its locks are free."""
        self.off, self.fail_at = False, None
        self._locks.clear()

    def step(self, what: str, path: str) -> None:
        """Count an I/O call; PowerLoss if this or an earlier one was the last."""
        self.calls += 1
        self.trace.append(f"{what} {os.path.basename(path)}")
        if self.off or self.calls == self.fail_at:
            self.off = True
            raise PowerLoss(f"power lost at call {self.calls}: {what} {path}")
        if self.error_at is not None and self.error_at <= self.calls < self.error_at + self.error_for:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def write_allowed(self) -> bool:
        self.writes += 1
        return self.full_at is None or not self.full_at <= self.writes < self.full_at + self.full_for

    def open(self, path: str, *, create: bool = False, write: bool = False) -> SimulatedFile:
        if path not in self._nodes:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.step("create", path)
            self._nodes[path] = _Node()
        return SimulatedFile(self, path, self._nodes[path])

    def fsync_all(self, files: Sequence[File]) -> None:
        for file in files:
            file.fsync()

    def lock(self, path: str, *, wait: bool, within_s: float = math.inf) -> SimulatedLock | None:
        if path in self._locks:
            assert not wait or within_s < math.inf, f"{path} is locked for ever: there is one thread"
            return None
        self._locks.add(path)
        return SimulatedLock(self, path)

    def holder(self, path: str) -> None:
        return None

    def makedirs(self, path: str) -> None:
        self._dirs.add(path)

    def listdir(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        below = [p[len(prefix) :].split("/")[0] for p in [*self._nodes, *self._dirs] if p.startswith(prefix)]
        return sorted(set(below))

    def exists(self, path: str) -> bool:
        return path in self._nodes or path in self._dirs

    def identity(self, path: str) -> str | None:
        return path if self.exists(path) else None

    def rename(self, source: str, target: str) -> None:
        self.step("rename", target)
        if target in self._nodes:
            self._nodes[target].links -= 1
        self._nodes[target] = self._nodes.pop(source)

    def link(self, source: str, target: str) -> None:
        self.step("link", target)
        if source not in self._nodes:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if target in self._nodes:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        self._nodes[target] = self._nodes[source]
        self._nodes[target].links += 1

    def unlink(self, path: str) -> None:
        if path in self._nodes:
            self.step("unlink", path)
            self._nodes.pop(path).links -= 1

    def rmdir(self, path: str) -> None:
        if not self.listdir(path):
            self._dirs.discard(path)

    def fsync_dir(self, path: str) -> None:
        self.step("fsync_dir", path)
        for name in [n for n in self._durable_names if os.path.dirname(n) == path]:
            del self._durable_names[name]
        self._durable_names.update({n: node for n, node in self._nodes.items() if os.path.dirname(n) == path})


def _survivor(node: _Node, keep: Keep, rng: random.Random) -> bytes:
    if keep == "none":
        return node.durable
    if keep == "all":
        return bytes(node.data)
    content = bytearray(node.durable)
    for offset, data in node.pending:
        fate = rng.randrange(4)
        if fate == 0:
            continue
        if fate == 1 and data is not None:  # the length grew, the bytes did not arrive
            data = data[: rng.randrange(len(data) + 1)].ljust(len(data), b"\0")
        elif fate == 2 and data is not None:
            data = data[: rng.randrange(len(data) + 1)]
        _apply(content, offset, data)
    return bytes(content)


class SimulatedFile:
    """A file of a SimulatedDisk."""

    def __init__(self, disk: SimulatedDisk, path: str, node: _Node) -> None:
        self.path = path
        self._disk, self._node = disk, node

    def pwrite(self, offset: int, parts: Sequence[Any]) -> None:
        data = b"".join(bytes(memoryview(p).cast("B")) for p in parts)
        self._disk.step("write", self.path)
        if not self._disk.write_allowed():
            self._node.change(offset, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        self._node.change(offset, data)

    def pread(self, offset: int, length: int) -> bytes:
        return bytes(self._node.data[offset : offset + length])

    def map(self, offset: int, length: int) -> pa.Buffer:
        return pa.py_buffer(self._node.map(offset, length))

    def fsync(self) -> None:
        try:
            self._disk.step("fsync", self.path)
        except OSError:
            if self._disk.forgets:
                self._node.pending.clear()
            raise
        self._node.sync()

    def truncate(self, length: int) -> None:
        self._disk.step("truncate", self.path)
        self._node.change(length, None)

    def size(self) -> int:
        return len(self._node.data)

    def linked_size(self) -> int | None:
        return self.size() if self._node.links else None

    def close(self) -> None:
        pass


class SimulatedLock:
    """A lock of a SimulatedDisk."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def write(self, text: str) -> None:
        self._disk._nodes[self._path] = _Node(text.encode())

    def release(self) -> None:
        self._disk._locks.discard(self._path)
