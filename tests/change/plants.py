"""Bugs to plant: each breaks one rule of a change, and has to be found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

PLANTS: dict[str, tuple[object, str, Callable[..., object]]] = {}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """With a bug, or without one."""
    if name is None:
        yield
        return
    owner, attribute, broken = PLANTS[name]
    with patch.object(owner, attribute, broken):
        yield
