"""Parts of a target: how instances reach each other, limits of interactive queries, how long dead letters are kept, metrics and the log of an instance."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.reader import Item, made, texts, under
from flowql.config.shape import Choice, Duration, File, Key, ListOf, MapOf, Record, Secret, Size, Text, Whole
from flowql.kafka.bootstrap import BROKER_DIR, last_bootstrap
from flowql.runtime.log.kafka.settings import RESERVED, KafkaSettings

_EVERYWHERE = ("0.0.0.0", "::")
ADDRESS = Key(Text("an address"), "Address that it listens on; default: 127.0.0.1.")
NAMES = Key(
    ListOf(Text("a host"), single=True),
    "Host names that requests may use besides its address and the name of the machine; others are refused.",
)
MEMBERS = Record(
    "members",
    {
        "address": ADDRESS,
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
    dialect: Literal["ksql", "standard"] = "ksql"


DEAD_LETTERS = Record(
    "dead_letters",
    {
        "keep": Key(Duration(unlimited="forever", has_unit=True), "How long each is kept; default: 7 days."),
        "size": Key(
            Size(unlimited="unlimited", has_unit=True),
            "Their size as stored; default: 1 GB. The oldest are deleted first.",
        ),
    },
)


LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")
METRICS = Record(
    "metrics",
    {
        "port": Key(Whole(1, 65_535), "Port of the endpoint /metrics.", required=True),
        "address": ADDRESS,
        "names": NAMES,
    },
    short="port",
)


class Named:
    """A port whose requests name a host."""

    __slots__ = ()
    address: str
    names: tuple[str, ...]

    @property
    def called(self) -> list[str]:
        """The names that Host may have: a page in a browser that leads its own name here has another one."""
        return [self.address, socket.gethostname(), socket.getfqdn(), *self.names]


@dataclass(frozen=True, slots=True)
class MetricsSettings(Named):
    """Where Prometheus may read without a token."""

    port: int
    address: str = "127.0.0.1"
    names: tuple[str, ...] = ()


# --- The part of a target that is about its state ---

SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")

STATE = Record(
    "state",
    {
        "remote": Key(
            Secret("a URL or a folder"),
            "A folder, or a place in an object store (`s3:`, `gs:`, `az:`), that gets checkpoints of the state; a new machine begins with them.",
        ),
    },
)


@dataclass(frozen=True, slots=True)
class StateSettings:
    """remote: URL of the store that gets checkpoints; empty for none."""

    remote: str = ""


def state_settings(given: Mapping[str, Item], root: Path) -> tuple[StateSettings, list[Diagnostic]]:
    """The settings that the checked values `given` say. A folder is relative to `root`."""
    if "remote" not in given:
        return StateSettings(), []
    item = given["remote"]
    scheme, colon, _ = item.value.partition("://")
    if not colon:
        return StateSettings((root / Path(item.value).expanduser()).resolve().as_uri()), []
    if scheme in SCHEMES and "@" not in item.value:
        return StateSettings(item.value.rstrip("/")), []
    title = (
        f"`remote` is not a place that FlowQL can write to: {scheme}"
        if scheme not in SCHEMES
        else "`remote` has credentials in it"
    )
    note = "credentials come from the environment or the machine's role"
    help_ = f"write a folder, or a URL that begins with one of {', '.join(SCHEMES)}; {note}"
    return StateSettings(), [Diagnostic("FQ3004", title, item.span, "not a place", help=help_)]


# --- The part of a target that is about Kafka ---

KAFKA = Record(
    "kafka",
    {
        "bootstrap": Key(
            Text("host:port"), "Addresses of brokers; default: the broker of `flowql kafka up` in this project."
        ),
        "app_id": Key(
            Text("an id"),
            "Consumer group, transactional id and prefix of internal topics; default: the project's name.",
        ),
        "replication": Key(Whole(1, 100), "Replication factor of new topics; default: that of the brokers."),
        "instances": Key(
            Choice(("one", "many")),
            "With `many`, instances share the work, each with its own data directory; with `one`, a new instance takes over from the running one.",
        ),
        "standbys": Key(
            Whole(0, 10),
            "With `instances: many`: how many other instances keep a copy of each task's state; default: 0.",
        ),
        "rack": Key(Text("a name"), "Rack of this instance; copies are kept in other racks."),
        "options": Key(
            MapOf(Secret("a string, number or boolean", constant=True), "an option"),
            "Options of librdkafka for all clients: security.protocol, sasl.username, ...",
        ),
    },
)


def kafka_settings(given: Mapping[str, Item], root: Path) -> tuple[KafkaSettings, list[Diagnostic]]:
    """The settings that the checked values `given` say."""
    values = {k: given[k].value for k in ("bootstrap", "replication") if k in given}
    bootstrap = values.get("bootstrap") or last_bootstrap(root / BROKER_DIR) or ""
    options: Mapping[str, Item] = under(given, "options")
    shared = "instances" in given and given["instances"].value == "many"
    standbys = int(given["standbys"].value) if "standbys" in given and shared else 0
    rack = str(given["rack"].value) if "rack" in given else ""
    settings = KafkaSettings(bootstrap, texts(options), values.get("replication"), shared, standbys, rack)
    found = []
    for name, item in options.items():
        if name in RESERVED:
            title = f"{name} is not the user's to set"
            found.append(Diagnostic("FQ5506", title, item.key, "FlowQL decides it", help="remove it from `options`"))
    return settings, found


# --- The part of a target that is about an instance on another machine ---

_REFERENCE = "{env: FLOWQL_TOKEN}"
REMOTE = {
    "url": Key(
        Text("a URL"), "Address of an instance on another machine with `api`, as https://shop.example.com:8321."
    ),
    "token": Key(Secret("a token"), f"With `url`: a token of its `api`, best as {_REFERENCE}."),
    "certificate": Key(
        File(),
        "With `url`: certificates to trust for https (PEM), relative to this file; default: the system's.",
    ),
}


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """Where the instance is. token: may be a reference. certificate: absolute; empty for those that the system trusts."""

    url: str
    token: str = field(default="", repr=False)
    certificate: str = ""


def remote_settings(name: str, given: Mapping[str, Item]) -> tuple[RemoteSettings | None, list[Diagnostic]]:
    """The settings, None without `url`, and the mistakes. name: of the target. given: all its keys."""
    found = []
    if "url" not in given:
        for key in [k for k in ("token", "certificate") if k in given]:
            title = f"`{key}` is for targets with `url`, and target `{name}` has none"
            found.append(
                Diagnostic(
                    "FQ3003", title, given[key].key, "no meaning here", help="add  url: https://shop.example.com:8321"
                )
            )
        return None, found
    for key in given:
        if key not in (*REMOTE, *SHARED):
            title = f"`{key}` is set where the instance of target `{name}` runs, which is at its `url`"
            found.append(Diagnostic("FQ3003", title, given[key].key, "no meaning here", help="remove it"))
    if "token" not in given:
        help_ = f"add  token: {_REFERENCE}"
        found.append(Diagnostic("FQ3006", f"`token` is missing in target `{name}`", given["url"].key, help=help_))
    return made(RemoteSettings, {key: given[key] for key in REMOTE if key in given}), found


SHARED = ("vars", "prefix")  # keys that concern what is compiled here
