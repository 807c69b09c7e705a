"""The running instance of a project, for verbs that need one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowql.cli.options import Scope
from flowql.cli.place import place_of
from flowql.server.client import Calls


@contextmanager
def live_client(scope: Scope) -> Iterator[Calls]:
    """Raises CommandError when nothing runs."""
    client = place_of(scope.load()).running()
    try:
        yield client
    finally:
        client.close()
