"""The audit log: one line of JSON for each request that changes something or that a role does not permit."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from weakref import finalize

from flowql.runtime.events import WARNING, say

FILE = "audit.jsonl"
_ENCODER = json.JSONEncoder(ensure_ascii=False, default=str)
BYTES_MAX = 64 << 20  # then it becomes `audit.1.jsonl`, in place of the one before


class AuditLog:
    """Any thread, and several processes. Lines that wait at the same time are written together. A disk that takes none stops no request."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._file, self._older = folder / FILE, folder / "audit.1.jsonl"
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # guards the file and the one below
        self._open: tuple[int, finalize[..., AuditLog]] | None = None  # its descriptor, and what closes it
        self._adding = threading.Lock()  # guards the two below
        self._waiting = list[tuple[bytes, Callable[[], None]]]()
        self._is_due = False  # a thread will write what waits

    def write(self, about: Mapping[str, Any], now: datetime | None = None) -> None:
        """The line is in the file when it returns."""
        self.add(about, lambda: None, now)
        self.flush()

    def begin(self, about: Mapping[str, Any], run: Callable[[Callable[[], None]], object]) -> Future[None]:
        """As `write`, without waiting. run: makes a call in a thread that may wait."""
        made = Future[None]()
        made.set_running_or_notify_cancel()
        self.add(about, partial(made.set_result, None))
        with self._adding:
            is_due, self._is_due = self._is_due, True
        if not is_due:
            try:
                run(self._write_due)
            except (
                RuntimeError
            ):  # its threads have ended: the process ends, and whoever waits for the line would not hear of it
                self._write_due()
        return made

    def add(self, about: Mapping[str, Any], told: Callable[[], None], now: datetime | None = None) -> None:
        """Stores a line for the next `flush`. told: called after the attempt to write it, in the writing thread; it must be quick."""
        time = (now or datetime.now(UTC)).isoformat(timespec="milliseconds")[:23] + "Z"
        line = _ENCODER.encode({"time": time, **about}).encode("utf-8", "replace") + b"\n"
        with self._adding:
            self._waiting.append((line, told))

    def _write_due(self) -> None:
        with self._adding:
            self._is_due = False
        self.flush()

    def flush(self) -> None:
        """When it returns, all lines that waited when it was called are written, by this thread or another."""
        with self._lock:
            with self._adding:
                waiting, self._waiting = self._waiting, []
            if not waiting:
                return
            lines = b"".join(line for line, _ in waiting)
            try:
                self._append(lines)
            except OSError as error:
                say(WARNING, "audit.missing", f"a line of the audit log was not written: {error}")
            finally:
                for _, told in waiting:
                    told()

    def _append(self, lines: bytes) -> None:
        """The file is locked meanwhile, as the instance and its gateway write to it."""
        try:
            fd = self._locked(len(lines))
            while lines:
                lines = lines[os.write(fd, lines) :]
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BaseException:  # the other process must not wait for a lock that Ctrl-C has left
            self._close()
            raise

    def _locked(self, size: int) -> int:
        """The descriptor of the file, with room for so many bytes."""
        while True:
            if self._open is None:
                fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
                self._open = fd, finalize(self, os.close, fd)
            fd, _ = self._open
            fcntl.flock(fd, fcntl.LOCK_EX)
            about = os.fstat(fd)
            if not self._is_current(about):  # another process has put it away
                self._close()
            elif about.st_size and about.st_size + size > self._bytes_max:
                self._file.replace(self._older)
                self._close()
            else:
                return fd

    def _is_current(self, about: os.stat_result) -> bool:
        try:
            now = os.stat(self._file)
        except FileNotFoundError:
            return False
        return (now.st_dev, now.st_ino) == (about.st_dev, about.st_ino)

    def _close(self) -> None:
        """Closes the file, which unlocks it."""
        if self._open is not None:
            _, close = self._open
            self._open = None
            close()
