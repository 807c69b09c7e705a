"""The one file layer of the log (rule R17): whatever the log does to a disk goes through `Files`.

`DiskFiles` is the machine's file system; `SimulatedDisk` of the tests loses power and runs full on demand.
Paths are absolute strings. Errors are OSErrors of the operating system.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import mmap
import os
import time
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Protocol

import pyarrow as pa

PAGE = mmap.PAGESIZE


class File(Protocol):
    """An open file. Threads may share it; a write moves no file pointer."""

    path: str

    def pwrite(self, offset: int, parts: Sequence[Any]) -> None:
        """Write buffers one after the other from `offset`, without copying them; all or an OSError."""
        ...

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; shorter at the end of the file."""
        ...

    def map(self, offset: int, length: int) -> pa.Buffer:
        """A read-only view; `offset` is a multiple of PAGE. It may be shorter or reach past the end of the file, where it
        must not be touched before the file has grown. The view outlives the file object.
        """
        ...

    def fsync(self) -> None:
        """Data and length are durable when this returns."""
        ...

    def truncate(self, length: int) -> None: ...

    def size(self) -> int: ...

    def linked_size(self) -> int | None:
        """Its bytes; None once the file has been unlinked or replaced. One system call."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a file, freed by the system when its process ends."""

    def write(self, text: str) -> None:
        """Replaces the text of the file, in which other processes read the owner of the lock."""
        ...

    def release(self) -> None: ...


class Files(Protocol):
    """A file system."""

    def open(self, path: str, *, create: bool = False, write: bool = False) -> File: ...

    def fsync_all(self, files: Sequence[File]) -> None:
        """`fsync` of several files, in no particular order."""
        ...

    def lock(self, path: str, *, wait: bool, within_s: float = math.inf) -> Lock | None:
        """Lock a file, made if missing; None when it is taken and `wait` is false, or is still taken after `within_s`."""
        ...

    def holder(self, path: str) -> int | None:
        """The process that holds the lock on a file; None if none does, or the system does not tell (all but Linux)."""
        ...

    def makedirs(self, path: str) -> None:
        """Make a folder and those it lies in, for their owner alone."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted; [] if it does not exist."""
        ...

    def exists(self, path: str) -> bool: ...

    def identity(self, path: str) -> Hashable:
        """Differs from before where another directory or file has taken the name, as long as the former one exists; None without one."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name on the same file system; FileExistsError if the name is taken."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file; missing is fine."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory; missing or not empty is fine."""
        ...

    def fsync_dir(self, path: str) -> None:
        """Names made, renamed or removed in this directory are durable when this returns."""
        ...


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED = ctypes.c_void_p(-1).value
_IOV_MAX = 512
_SYNCERS = 8
_LOCK_STEP_S = 0.02


def size_of(files: Files, path: str) -> int:
    """The bytes of a file; FileNotFoundError without one."""
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()


def _locked_within(fd: int, within_s: float) -> bool:
    """Tries it once at least. Polls, because flock(2) has no limit of time."""
    limit = time.monotonic() + within_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= limit:
                return False
            time.sleep(_LOCK_STEP_S)
        else:
            return True


class _Mapping:
    """Owner of mapped memory, freed with the last buffer on it.

    Not Python's mmap: that one keeps a file descriptor per mapping and refuses to reach past the end of a growing file.
    """

    __slots__ = ("address", "length")

    def __init__(self, fd: int, offset: int, length: int) -> None:
        address = _libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
        if address is None or address == _MAP_FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        self.address: int = address
        self.length = length

    def __del__(self) -> None:
        if hasattr(self, "length"):
            _libc.munmap(self.address, self.length)


class DiskFile:
    """A file of the operating system."""

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self._fd = os.open(path, flags | os.O_CLOEXEC, 0o600)

    def pwrite(self, offset: int, parts: Sequence[Any]) -> None:
        views = [memoryview(p).cast("B") for p in parts if len(memoryview(p))]
        while views:
            written = os.pwritev(self._fd, views[:_IOV_MAX], offset)
            offset += written
            while views and written >= len(views[0]):
                written -= len(views.pop(0))
            if written:
                views[0] = views[0][written:]

    def pread(self, offset: int, length: int) -> bytes:
        return os.pread(self._fd, length, offset)

    def map(self, offset: int, length: int) -> pa.Buffer:
        mapping = _Mapping(self._fd, offset, length)
        return pa.foreign_buffer(mapping.address, length, base=mapping)

    def fsync(self) -> None:
        if hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)  # writes the length too; only times may stay behind
        else:
            fcntl.fcntl(self._fd, getattr(fcntl, "F_FULLFSYNC", 51))

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def linked_size(self) -> int | None:
        found = os.fstat(self._fd)
        return found.st_size if found.st_nlink else None

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _fsync_each(files: Sequence[File]) -> None:
    for file in files:
        file.fsync()


class DiskLock:
    """A flock. It belongs to this open file, so two logs in one process exclude each other as two processes do."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, text: str) -> None:
        data = text.encode()
        os.pwrite(self._fd, data, 0)
        if os.fstat(self._fd).st_size > len(data):  # on a busy disk it waits for the file system, 1 ms and more
            os.ftruncate(self._fd, len(data))

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class DiskFiles:
    """The machine's file system.

    Several fsyncs are waited for by threads of their own (the only ones not started by the application: they live inside
    one call and touch nothing but file descriptors). 100 small files took 9 ms so, and 400 ms one after the other on a
    busy 2-core machine, because each wait ends in a queue for the processor.
    """

    def __init__(self) -> None:
        self._syncers: ThreadPoolExecutor | None = None

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        flags = os.O_RDWR if write or create else os.O_RDONLY
        return DiskFile(path, flags | (os.O_CREAT if create else 0))

    def fsync_all(self, files: Sequence[File]) -> None:
        if len(files) > 1 and self._syncers is None:
            self._syncers = ThreadPoolExecutor(_SYNCERS, thread_name_prefix="log-fsync")
        if self._syncers is None or len(files) <= 1:
            for file in files:
                file.fsync()
        else:
            shares = (files[n::_SYNCERS] for n in range(min(_SYNCERS, len(files))))
            waits = [
                self._syncers.submit(_fsync_each, share) for share in shares
            ]  # one call for each file took four times as long
            wait(waits)
            for done in waits:
                done.result()

    def lock(self, path: str, *, wait: bool, within_s: float = math.inf) -> DiskLock | None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if wait and within_s == math.inf:
                fcntl.flock(fd, fcntl.LOCK_EX)
            elif not _locked_within(fd, within_s if wait else 0.0):
                os.close(fd)
                return None
        except BaseException:
            os.close(fd)
            raise
        return DiskLock(fd)

    def holder(self, path: str) -> int | None:
        try:
            about = os.stat(path)
            with open("/proc/locks") as locks:
                held = [line.split() for line in locks]
        except OSError:
            return None
        node = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
        # "1: FLOCK ADVISORY WRITE 17899 fe:00:10224448 0 EOF"; a process that waits has "->" as its second word
        return next((int(words[4]) for words in held if words[1] == "FLOCK" and words[5] == node), None)

    def makedirs(self, path: str) -> None:
        if os.path.isdir(path):
            about = os.stat(path)
            if about.st_mode & 0o077 and about.st_uid == os.getuid():  # made by an older version
                os.chmod(path, 0o700)
            return
        missing = []
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for folder in reversed(missing):
            with contextlib.suppress(FileExistsError):  # another process made it
                os.mkdir(folder, 0o700)

    def listdir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def identity(self, path: str) -> Hashable:
        try:
            about = os.stat(path)
        except FileNotFoundError:
            return None
        return about.st_dev, about.st_ino

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            os.unlink(path)

    def rmdir(self, path: str) -> None:
        if os.path.isdir(path) and not os.listdir(path):
            os.rmdir(path)

    def fsync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
