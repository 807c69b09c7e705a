"""Events of a Spark instance in the foreground as lines for the person: what fails and where, and that it goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from flowql.cli.render import note
from flowql.runtime.events import EVENT, LOGGER, is_a_step

FAILED = "query.failed"
_SHOWN = ("log.", "files.changed", "files.unread")  # those whose text is a whole sentence, and which nothing else shows


class EventNotes(logging.Handler):
    """A failure that comes again with the same reason is said ever more seldom."""

    def __init__(self) -> None:
        super().__init__()
        self._failures: dict[str, tuple[str, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        parts, message = getattr(record, EVENT, None), record.getMessage()
        if parts is None:
            return
        if parts["event"] == FAILED:
            self._failed(parts["query"], message)
        elif parts["event"].startswith(_SHOWN):
            note(message)

    def _failed(self, query: str, reason: str) -> None:
        before = self._failures.get(query, ("", 0))
        count = before[1] + 1 if before[0] == reason else 1
        self._failures[query] = reason, count
        if is_a_step(count - 1, count):
            times = "" if count == 1 else f" ({count} times)"
            note(f"{query} failed{times}, and is tried again from its last micro-batch: {reason}")


@contextmanager
def event_notes(engine: str) -> Iterator[None]:
    """While the block runs, in a process with an instance of this engine. (The runtime's own are in `status` and its log.)"""
    if engine != "spark":
        yield
        return
    handler = EventNotes()
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
