"""Alignment of queries at a cut, as the commit step sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Alignment(Protocol):
    """Brings queries to one place before a cut (`flowql.runtime.ticks`)."""

    def is_ready(self, now_ms: int) -> bool:
        """Whether a commit that is due may be cut. Asked again and again until it is so, which takes milliseconds."""
        ...

    def wants_cut(self) -> bool:
        """Whether a cut would find something new though nothing was published."""
        ...

    def at_cut(self) -> Sequence[tuple[str, int]]:
        """The cut, under the epoch lock; returns what `committed` is told after its commit."""
        ...

    def let_go(self) -> None:
        """The state was opened again: snapshots that were taken before cannot be read."""
        ...

    def committed(self, finished: Sequence[tuple[str, int]]) -> None: ...
