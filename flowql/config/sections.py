"""Parts of a target: how instances reach each other, limits of interactive queries, how long dead letters are kept, metrics and the log of an instance."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from flowql.config.reader import Item
from flowql.config.shape import Duration, Key, ListOf, Record, Size, Text, Whole
from flowql.runtime.config import LetterRetention

if TYPE_CHECKING:
    from flowql.compiler.dialect.parser import DialectName

_EVERYWHERE = ("0.0.0.0", "::")
MEMBERS = Record(
    "members",
    {
        "address": Key(Text("an address"), "Address that it listens on; default: 127.0.0.1."),
        "port": Key(Whole(1, 65_535), "Port that it listens on; default: any free one."),
        "advertise": Key(
            Text("a host"), "Host name for other instances; default: the address, or the name of the machine."
        ),
    },
)


@dataclass(frozen=True, slots=True)
class MembersSettings:
    """Where an instance answers others for its partitions. port 0: any free one."""

    address: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""

    @property
    def host(self) -> str:
        """Where others reach it."""
        return self.advertise or (socket.gethostname() if self.address in _EVERYWHERE else self.address)


def members_settings(given: Mapping[str, Item]) -> MembersSettings:
    """Settings of members from the checked values."""
    return MembersSettings(**{k: i.value for k, i in given.items()})


AT_ONCE_MAX = 16  # an instance has threads for so many beside everything else that it answers
INTERACTIVE_QUERIES = Record(
    "interactive_queries",
    {
        "rows": Key(Whole(1), "Maximum rows of an answer; default: 100,000,000."),
        "time": Key(Duration(), "Maximum time until an answer is complete; default: 10 minutes."),
        "at_once": Key(Whole(1, AT_ONCE_MAX), "Queries answered at the same time, at most 16; others are rejected."),
        "spill": Key(
            Size(),
            "Maximum space on disk for data that exceeds their share of `memory`; default: 4 GB, and at most half of the free space.",
        ),
    },
)


@dataclass(frozen=True, slots=True)
class InteractiveQuerySettings:
    """Limits of interactive queries beside their share of memory. rows, time_ms: of one answer. at_once: how many are answered at the same
    time. spill_bytes: on disk, of all together. dialect: of the project; interactive queries are written in it.
    """

    rows: int = 100_000_000
    time_ms: int = 600_000
    at_once: int = AT_ONCE_MAX
    spill_bytes: int = 4 << 30
    dialect: DialectName = "ksql"


def interactive_query_settings(given: Mapping[str, Item]) -> InteractiveQuerySettings:
    """Settings of interactive queries from the checked values."""
    names = {"time": "time_ms", "spill": "spill_bytes"}
    return InteractiveQuerySettings(**{names.get(k, k): i.value for k, i in given.items()})


DEAD_LETTERS = Record(
    "dead_letters",
    {
        "keep": Key(Duration(unlimited="forever", has_unit=True), "Age since they were written; default: 7 days."),
        "size": Key(
            Size(unlimited="unlimited", has_unit=True),
            "Their size as stored; default: 1 GB. The oldest are deleted first.",
        ),
    },
)


def letter_retention(given: Mapping[str, Item]) -> LetterRetention:
    """The retention of dead letters from the checked values."""
    fields = {"keep": "age_ms", "size": "size_bytes"}
    return LetterRetention(**{fields[k]: i.value for k, i in given.items()})


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
    """Settings of metrics from the checked values; None if there are none."""
    values = {k: i.value for k, i in given.items()}
    if "names" in values:
        values["names"] = tuple(i.value for i in values["names"])
    return MetricsSettings(**values) if "port" in values else None
