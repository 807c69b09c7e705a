"""The one place where the engine behind a target is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flowql.deploy.settings import Settings
    from flowql.server.engine import AtRest, Engine, Mode


def open_engine(settings: Settings, mode: Mode = "continuous") -> Engine:
    """The engine of a target on its directories, recovered to the last commit; nothing is processed yet.

    Raises InstanceRunning when another process has them.
    """
    if settings.engine == "spark":
        from flowql.server.on_spark import open_spark  # needs an extra that need not be installed

        return open_spark(settings, mode)
    from flowql.server.on_runtime import open_runtime

    return open_runtime(settings, mode)


def at_rest(settings: Settings) -> AtRest:
    """The directory of a target whose engine does not run."""
    if settings.engine == "spark":
        from flowql.server.on_spark import SparkAtRest

        return SparkAtRest(settings)
    from flowql.server.at_rest import RuntimeAtRest

    return RuntimeAtRest(settings)
