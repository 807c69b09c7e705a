"""The running instance of a project, for verbs that need one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowql.cli.options import Scope
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError
from flowql.server.client import Client, connect

NOT_RUNNING = "FQ5306"


@contextmanager
def live_client(scope: Scope) -> Iterator[Client]:
    """Raises CommandError when nothing runs."""
    settings = settings_of(scope.load())
    client = connect(settings.data_dir)
    if client is None:
        raise CommandError("no instance of this project is running", code=NOT_RUNNING, help="flowql deploy")
    try:
        yield client
    finally:
        client.close()
