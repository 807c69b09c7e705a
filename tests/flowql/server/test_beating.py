"""The beat file of a real instance: from its start to its end, and that another process does not replace it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from flowql.runtime.app.beat_file import ENDED, RUNNING, Snapshot, read
from flowql.runtime.errors import InstanceRunning
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.server.host import Host
from tests.flowql.backup.world import Feed, hosted, settings_in, until_read


def seen(data_dir: Path) -> Snapshot:
    found = read(data_dir)
    assert found is not None
    return found


def test_an_instance_beats_from_its_start_to_its_end(tmp_path: Path) -> None:
    settings, feed = settings_in(tmp_path / "data"), Feed()
    with hosted(settings) as host:
        with closing(EmbeddedLog(settings.log_dir)) as log:
            feed.send(log, 100)
        until_read(host, feed)
        first = seen(settings.data_dir)
        assert (first.state, first.is_alive, first.frozen_s) == (RUNNING, True, 0.0)
        with pytest.raises(InstanceRunning):
            Host(settings).start()
        found = seen(settings.data_dir)
        assert (found.state, found.beats >= first.beats) == (RUNNING, True)
    assert seen(settings.data_dir).state == ENDED


def test_a_file_that_another_start_has_replaced_is_made_again(tmp_path: Path) -> None:
    """Two instances that start at the same moment: the one that gets the directory is the one that is seen."""
    settings = settings_in(tmp_path / "data")
    host = Host(settings)
    begin = host._beating.begin

    def overtaken() -> None:
        begin()
        (settings.data_dir / "instance.beat").unlink()

    host._beating.begin = overtaken  # type: ignore[method-assign]
    host.start()
    try:
        assert seen(settings.data_dir).state == RUNNING
    finally:
        host.close()
