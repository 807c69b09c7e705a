"""A background instance that is started while another command starts one."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from flowql.server.client import Client
from flowql.server.spawn import spawn
from tests.flowql.backup.world import hosted, settings_in


def test_the_instance_of_another_command_is_taken(tmp_path: Path) -> None:
    """The second of two deployments at the same moment ended with FQ4005, and with the advice to see an empty file."""
    settings, started = settings_in(tmp_path / "data"), list[Client]()
    with hosted(settings, sql=None), closing(spawn(settings, started.append)) as client:
        assert client.status()["queries"] == []
    assert not started
