"""Takes out of the registries of functions what a test has put into them."""

from __future__ import annotations

from flowql.compiler.functions import registry


def unregister_aggregate(name: str) -> None:
    """Removes an aggregate that a test has registered."""
    registry._AGGREGATES.pop(name, None)


def forget_projects() -> None:
    """Removes all that projects have declared."""
    registry._OF_PROJECTS.clear()
