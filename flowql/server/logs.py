"""The log of an instance: JSON lines in its directory, in files that take turns."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from flowql.compiler.plan.generations import MARK
from flowql.runtime.clock import iso_time
from flowql.runtime.events import EVENT, LOGGER

FILE = "instance.log"
BYTES_MAX, OLDER = 10 << 20, 4  # 50 MB at most
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class JsonLines(logging.Formatter):
    """time (UTC), level, event, query, task, message, then whatever else the event has; `trace` of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        parts: dict[str, Any] = dict(getattr(record, EVENT, {"event": record.name, "query": None, "task": None}))
        line = {
            "time": iso_time(record.created * 1000),
            "level": record.levelname.lower(),
            **{k: parts.pop(k) for k in ("event", "query", "task")},
            "message": record.getMessage(),
            **parts,
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["trace"] = "".join(traceback.format_exception(record.exc_info[1]))
        return json.dumps(line, ensure_ascii=False, default=str)


@contextmanager
def writing(data_dir: Path, level: str) -> Iterator[None]:
    """While the block runs, events of this process go to the log of a directory; warnings of libraries, too."""
    handler = RotatingFileHandler(data_dir / FILE, maxBytes=BYTES_MAX, backupCount=OLDER, encoding="utf-8")
    handler.setFormatter(JsonLines())
    others = logging.getLogger("uvicorn")
    before, LOGGER.propagate = (LOGGER.level, LOGGER.propagate), False
    LOGGER.setLevel(LEVELS[level])
    for logger in (LOGGER, others):
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in (LOGGER, others):
            logger.removeHandler(handler)
        LOGGER.setLevel(before[0])
        LOGGER.propagate = before[1]
        handler.close()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines. level: this and above. query: its id, in any case; lines of its tasks and of all its
    generations are its own.
    """

    level: str = "debug"
    query: str = ""

    def __call__(self, line: dict[str, Any]) -> bool:
        if LEVELS.get(line.get("level", ""), logging.ERROR) < LEVELS[self.level]:
            return False
        said, mark, number = str(line.get("query")).rpartition(MARK)
        id_ = said if mark and number.isdigit() else str(line.get("query"))
        return not self.query or self.query.casefold() in (id_.casefold(), str(line.get("query")).casefold())


class LogReader:
    """Lines of the log of a directory in order, older files included; `newer` goes on where it was, across files."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self._inode, self._offset = 0, 0

    @property
    def position(self) -> str:
        """Where `newer` goes on."""
        return f"{self._inode}-{self._offset}"

    def go_to(self, position: str) -> None:
        """Go on at a position. Raises ValueError if it is none."""
        inode, _, offset = position.partition("-")
        self._inode, self._offset = int(inode), int(offset)

    def older(self) -> Iterator[str]:
        """All there are."""
        for number in range(OLDER, 0, -1):
            path = Path(f"{self._path}.{number}")
            if path.exists():
                yield from path.read_text(encoding="utf-8", errors="replace").splitlines()
        yield from self.newer()

    def newer(self) -> Sequence[str]:
        """Whole lines written since the last call."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return []
        rest: list[str] = []
        if self._inode not in (0, status.st_ino):  # it has become the first of the older ones
            rest = self._read(Path(f"{self._path}.1"))
            self._offset = 0
        self._inode = status.st_ino
        return rest + self._read(self._path)

    def _read(self, path: Path) -> list[str]:
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode(errors="replace").splitlines()


def parsed(line: str) -> dict[str, Any]:
    """A line as data; one that is no JSON (cut off by a crash) as a message."""
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"level": "error", "event": "text", "message": line}
