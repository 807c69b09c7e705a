"""Events of an instance for its log: each has a name, fields, and a query or task if it concerns one. There is no event per record.

Events go to the standard logger `flowql`, which writes nothing until it is configured (`flowql.server.logs`).
"""

from __future__ import annotations

import logging
from typing import Any

LOGGER = logging.getLogger("flowql")
LOGGER.addHandler(logging.NullHandler())
DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
EVENT = "flowql_event"  # the attribute of a log record that holds the parts of an event


def say(
    level: int, event: str, message: str = "", *, query: str | None = None, task: object = None, **fields: Any
) -> None:
    """event: a name that stays, such as `query.failed`. fields: what JSON can hold. Any thread."""
    if LOGGER.isEnabledFor(level):
        parts = {"event": event, "query": query, "task": None if task is None else str(task), **fields}
        LOGGER.log(level, "%s", message, extra={EVENT: parts})


def is_a_step(before: int, after: int) -> bool:
    """Whether a counter has come to another number of binary digits: what goes on and on is said ever more seldom.

    >>> [n for n in range(1, 40) if is_a_step(n - 1, n)]
    [1, 2, 4, 8, 16, 32]
    """
    return before.bit_length() != after.bit_length()
