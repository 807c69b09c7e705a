"""Clients of server-sent events and of WebSocket across kills and deployments; `python -m tests.reconnecting` does it a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reconnecting import Over, over_events, over_websocket, run


@pytest.mark.turns("load")
@pytest.mark.parametrize("over", [over_events, over_websocket])
def test_clients_that_connect_again_miss_nothing(tmp_path: Path, over: Over) -> None:
    """One kill and one deployment, each while a client is connected. `run` checks order, repetitions and the final rows."""
    site, (stream, table) = run(tmp_path, 3, over=over)
    assert (site.kills, site.deployments) == (1, 2)
    assert sum(stream.resets.values()) == 1, "the deployment rebuilds the stream; after the kill it goes on"
    assert sum(table.resets.values()) == table.connections - 1
