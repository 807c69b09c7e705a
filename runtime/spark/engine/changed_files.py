"""Files that were changed after a stream had read them: Spark reads each path once, so their new rows are nowhere. No pyspark.

Spark's file source keeps the path and the time of change of each file that it has given to a micro-batch in the query's checkpoint. Files of
the local file system are compared with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from flowql.runtime.clock import Clock
from flowql.runtime.events import WARNING, say
from flowql.runtime.spark.engine.site import Site
from flowql.runtime.spark.errors import StorageFailed
from flowql.runtime.spark.folders import Folder

LOOK_MS = 30_000
REST = 100  # times as long as a look took is the least time until the next one: a stream may have read a million files
_COMPACT = ".compact"


class _Listed(msgspec.Struct):
    """A line of such a list."""

    path: str
    timestamp: int


_entry = msgspec.json.Decoder(_Listed).decode


class ChangedFiles:
    """Warns once of each change. Used by one thread."""

    def __init__(self, site: Site, clock: Clock) -> None:
        self._site, self._clock = site, clock
        self._next_ms = 0
        self._told: set[tuple[Path, int]] = set()

    def look(self, feeders: Iterable[str], now_ms: int) -> None:
        """feeders: ids of queries that read files. Looks at most every LOOK_MS."""
        if now_ms < self._next_ms:
            return
        began_ms = self._clock.timer_ms()
        for query in feeders:
            new = [f for f in changed(self._site.checkpoint(query)) if f not in self._told]
            if not new:
                continue
            self._told.update(new)
            first = new[0][0]
            named = str(first) if len(new) == 1 else f"{first} and {len(new) - 1} more files"
            text = f"{named} changed after being read; a stream reads each file once, so the new content is not read. "
            text += "Write new rows into new files; to read all files again:  flowql run --rebuild"
            say(WARNING, "files.changed", text, query=query, files=len(new))
        self._next_ms = now_ms + max(LOOK_MS, REST * (self._clock.timer_ms() - began_ms))


def changed(checkpoint: Folder) -> list[tuple[Path, int]]:
    """Files with another time of change than when they were read, and that time in ms. Those that are gone are left out."""
    found = []
    for path, read_ms in _read(checkpoint / "sources" / "0"):
        try:
            now_ms = path.stat().st_mtime_ns // 1_000_000
        except OSError:
            continue
        if now_ms != read_ms:
            found.append((path, now_ms))
    return found


def _read(folder: Folder) -> Iterator[tuple[Path, int]]:
    """Local files that the file source has listed. A compacted list holds all of those before it."""
    try:
        names = [f.name for f in folder.iterdir() if f.name.removesuffix(_COMPACT).isdigit()]
    except (OSError, StorageFailed):
        return
    number = {n: int(n.removesuffix(_COMPACT)) for n in names}
    since = max((number[n] for n in names if n.endswith(_COMPACT)), default=-1)
    for name in names:
        if number[name] < since or (number[name] == since and not name.endswith(_COMPACT)):
            continue
        try:
            lines = (folder / name).read_bytes().splitlines()[1:]  # the first is the format's version
        except (OSError, StorageFailed):  # compacted meanwhile
            continue
        for line in lines:
            try:
                entry = _entry(line)
            except msgspec.MsgspecError:  # of another source, or damaged: the query's own error tells
                continue
            at = urlsplit(entry.path)
            if at.scheme == "file":
                yield Path(unquote(at.path)), entry.timestamp
