"""The part of a target that is about watching it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flowql.config.reader import Item
from flowql.config.shape import Key, Record, Text, Whole

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")
METRICS = Record(
    "metrics",
    {
        "port": Key(Whole(1, 65_535), "Where Prometheus reads, at /metrics.", required=True),
        "address": Key(Text("an address"), "That it listens on; 127.0.0.1 where nothing is said."),
    },
    short="port",
)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where Prometheus may read without a token."""

    port: int
    address: str = "127.0.0.1"


def metrics_settings(given: Mapping[str, Item]) -> MetricsSettings | None:
    """What the checked values say; None where there are none."""
    values = {k: i.value for k, i in given.items()}
    return MetricsSettings(**values) if "port" in values else None
