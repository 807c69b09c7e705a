"""Where interactive queries of a process spill what does not fit into memory: a folder of its own in a target's directory.

A lock says that it is in use. Numbers of processes do not: those of containers that share a directory mean nothing to each other, and
they are used again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SPILLED = "spill-"  # followed by the number of the process, for people, and a random number
_LOCK, _FILES = "lock", "files"
_TRIES = 3  # a cleanup in another process may remove a folder as it is made


@dataclass(frozen=True, slots=True)
class SpillFolder:
    """One in use, until `remove` or the end of the process. lock: an open file."""

    path: Path
    lock: int

    @classmethod
    def made(cls, data_dir: Path) -> SpillFolder | None:
        """A new folder; None if none can be written: then queries cannot spill."""
        for _ in range(_TRIES):
            path = data_dir / f"{SPILLED}{os.getpid()}-{secrets.token_hex(4)}"
            with suppress(OSError):
                path.mkdir(mode=0o700)
                lock = _locked(path / _LOCK, os.O_CREAT)
                if lock is not None:
                    return cls(path, lock)
        return None

    @property
    def files(self) -> Path:
        """Made by DuckDB when it is needed."""
        return self.path / _FILES

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_left(data_dir: Path) -> None:
    """Removes spill folders of killed processes."""
    for path in data_dir.glob(f"{SPILLED}*"):
        with suppress(OSError):
            _remove(path)


def _remove(path: Path) -> None:
    number = path.name.removeprefix(SPILLED)
    if number.isdigit():  # of versions without locks
        if not psutil.pid_exists(int(number)):
            shutil.rmtree(path)
        return
    try:
        lock = _locked(path / _LOCK)
    except FileNotFoundError:
        path.rmdir()  # if there is nothing in it, which is all that its maker can have done without a lock
        return
    if lock is not None:
        SpillFolder(path, lock).remove()


def _locked(path: Path, flags: int = 0) -> int | None:
    """The descriptor of the lock; None if another process holds it, or has just removed the file."""
    fd = os.open(path, os.O_RDWR | flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_nlink:
            return fd
    except BlockingIOError:
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None
