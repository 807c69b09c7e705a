"""The audit log: one line of JSON for each request that changes something or that a role does not permit."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from flowql.runtime.events import WARNING, say

FILE = "audit.jsonl"
BYTES_MAX = 64 << 20  # then it becomes `audit.1.jsonl`, in place of the one before


class AuditLog:
    """Any thread, and several processes. A line is in the file when `write` returns; a disk that takes none stops no request."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._file, self._older = folder / FILE, folder / "audit.1.jsonl"
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # guards the file

    def write(self, about: Mapping[str, Any], now: datetime | None = None) -> None:
        time = (now or datetime.now(UTC)).isoformat(timespec="milliseconds")[:23] + "Z"
        line = json.dumps({"time": time, **about}, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
        try:
            with self._lock, self._opened(len(line)) as file:
                file.write(line)
        except OSError as error:
            say(WARNING, "audit.missing", f"a line of the audit log was not written: {error}")

    def _opened(self, size: int) -> BinaryIO:
        """The file, with room for so many bytes; locked until it is closed, as the process for PostgreSQL's protocol writes to it as well."""
        while True:
            file = self._file.open("ab")
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                about = os.fstat(file.fileno())
                if (
                    not self._file.exists() or self._file.stat().st_ino != about.st_ino
                ):  # another process has put it away
                    file.close()
                elif about.st_size and about.st_size + size > self._bytes_max:
                    self._file.replace(self._older)
                    file.close()
                else:
                    return file
            except BaseException:
                file.close()
                raise
