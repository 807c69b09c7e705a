"""The running instance of a data directory, if any. Light: where none runs, no client is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flowql.errors import CommandError
from flowql.server.address import NOT_RUNNING, read_address

if TYPE_CHECKING:
    from flowql.server.client import Client


def connect(data_dir: Path) -> Client | None:
    """The live instance of a directory, or None. One that is dead, or does not know its own token, is none."""
    address = read_address(data_dir)
    if address is None:
        return None
    from flowql.server.client import Client  # the plan's data types and HTTP: 0.05 s

    client = Client(address)
    if client.answers():
        return client
    client.close()
    return None


def connect_running(data_dir: Path) -> Client:
    """The live instance of a directory. Raises CommandError if none runs."""
    client = connect(data_dir)
    if client is None:
        raise CommandError("no instance of this project is running", code=NOT_RUNNING, help="flowql deploy")
    return client
