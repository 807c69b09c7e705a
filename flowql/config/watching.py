"""The part of a target that is about watching it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from flowql.config.reader import Item
from flowql.config.shape import Key, ListOf, Record, Text, Whole

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")
METRICS = Record(
    "metrics",
    {
        "port": Key(Whole(1, 65_535), "Port of the endpoint /metrics.", required=True),
        "address": Key(Text("an address"), "Address that it listens on; default: 127.0.0.1."),
        "names": Key(
            ListOf(Text("a host"), single=True),
            "Host names that requests may use besides its address and the name of the machine; others are refused.",
        ),
    },
    short="port",
)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where Prometheus may read without a token."""

    port: int
    address: str = "127.0.0.1"
    names: Sequence[str] = ()

    @property
    def called(self) -> list[str]:
        """The names that Host may have: a page in a browser that leads its own name here has another one."""
        return [self.address, socket.gethostname(), socket.getfqdn(), *self.names]


def metrics_settings(given: Mapping[str, Item]) -> MetricsSettings | None:
    """What the checked values say; None where there are none."""
    values = {k: i.value for k, i in given.items()}
    if "names" in values:
        values["names"] = tuple(i.value for i in values["names"])
    return MetricsSettings(**values) if "port" in values else None
