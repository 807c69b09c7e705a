"""The time up to which the tasks of a query process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ReadUpTo:
    """A time that queries process up to and not beyond, while `ms` is set (`flowql.runtime.app.consistent_snapshot`).

    Shared by all tasks of a query, so that a writer of a repartition and its reader see it move at once.
    """

    ms: int | None = None
