"""A background instance that is started while another command starts one."""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from pathlib import Path

import pytest

from flowql.errors import CommandError
from flowql.query.whole import awaited
from flowql.runtime.errors import InstanceRunning
from flowql.server import spawn as spawning
from flowql.server.client import Client
from flowql.server.running import NotAnswering, connect, process_of
from flowql.server.spawn import ERRORS_FILE, NOT_STARTED, spawn
from tests.flowql.backup.world import hosted, settings_in


def test_the_instance_of_another_command_is_taken(tmp_path: Path) -> None:
    """The second of two deployments at the same moment ended with FQ4005, and with the advice to see an empty file."""
    settings, started = settings_in(tmp_path / "data"), list[Client]()
    with hosted(settings, sql=None), closing(spawn(settings, started.append)) as client:
        assert client.status()["queries"] == []
    assert not started


def test_an_instance_that_is_slow_to_start_runs_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with BrokenPipeError when it was ready, so an instance that needed more than two minutes never ran."""
    settings = settings_in(tmp_path / "data")
    monkeypatch.setattr(spawning, "READY_S", 0.0)
    with pytest.raises(CommandError, match="is still starting after 0 s") as refused:
        spawn(settings)
    assert refused.value.code == NOT_STARTED
    try:
        client = awaited(lambda: _connected(settings.data_dir), 300.0)
        assert client is not None
        with closing(client):
            assert client.status()["queries"] == []
        assert not (settings.data_dir / ERRORS_FILE).read_text()
    finally:
        if (process := process_of(settings.data_dir)) is not None:
            os.kill(process.pid, signal.SIGKILL)


def _connected(data_dir: Path) -> Client | None:
    with suppress(NotAnswering):  # it is still starting
        return connect(data_dir)
    return None


def test_why_a_slow_start_fails_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that started the instance waits no longer, so it cannot show the reason."""
    settings = settings_in(tmp_path / "data")
    monkeypatch.setattr(spawning, "READY_S", 0.0)
    with hosted(settings, sql=None):
        with pytest.raises(CommandError, match="is still starting"):
            spawn(settings)
        logged = awaited(lambda: (settings.data_dir / ERRORS_FILE).read_text() or None, 120.0)
    assert logged is not None
    assert logged.startswith(f"error[{InstanceRunning.code}]: ")
