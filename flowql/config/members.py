"""The part of a target that is about how instances of one application reach each other."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from flowql.config.reader import Item
from flowql.config.shape import Key, Record, Text, Whole

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
    """What the checked values say."""
    return MembersSettings(**{k: i.value for k, i in given.items()})
