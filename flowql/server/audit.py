"""The audit log: one line of JSON for each request that changes something or that a role does not permit."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flowql.runtime.events import WARNING, say

FILE = "audit.jsonl"
BYTES_MAX = 64 << 20  # then it becomes `audit.1.jsonl`, in place of the one before


class AuditLog:
    """Any thread. A line is in the file when `write` returns; a disk that takes none stops no request."""

    def __init__(self, folder: Path, bytes_max: int = BYTES_MAX) -> None:
        self._file, self._older = folder / FILE, folder / "audit.1.jsonl"
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # guards the file

    def write(self, about: Mapping[str, Any], now: datetime | None = None) -> None:
        time = (now or datetime.now(UTC)).isoformat(timespec="milliseconds")[:23] + "Z"
        line = json.dumps({"time": time, **about}, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n"
        try:
            with self._lock:
                if self._file.exists() and self._file.stat().st_size + len(line) > self._bytes_max:
                    self._file.replace(self._older)
                with self._file.open("ab") as file:
                    file.write(line)
        except OSError as error:
            say(WARNING, "audit.missing", f"a line of the audit log was not written: {error}")
