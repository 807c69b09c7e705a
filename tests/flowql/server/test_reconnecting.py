"""Clients of server-sent events across kills and deployments; `python -m tests.reconnecting` does it a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reconnecting import run


@pytest.mark.turns("load")
def test_clients_that_connect_again_miss_nothing(tmp_path: Path) -> None:
    """One kill and one deployment, each while a client is connected. `run` checks order, repetitions and the final rows."""
    site, (stream, table) = run(tmp_path, 3)
    assert (site.kills, site.deployments) == (1, 2)
    assert sum(stream.resets.values()) == 1, "the deployment rebuilds the stream; after the kill it goes on"
    assert sum(table.resets.values()) == table.connections - 1
