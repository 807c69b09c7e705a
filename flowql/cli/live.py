"""The running instance of a project, for verbs that need one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowql.cli.options import Scope
from flowql.deploy.settings import settings_of
from flowql.server.client import Client
from flowql.server.running import connect_running


@contextmanager
def live_client(scope: Scope) -> Iterator[Client]:
    """Raises CommandError when nothing runs."""
    client = connect_running(settings_of(scope.load()).data_dir)
    try:
        yield client
    finally:
        client.close()
