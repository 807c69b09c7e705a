"""Processes that write to the log (an import, a program) while its directory is replaced."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowql.backup.lay import restore_backup
from flowql.backup.take import take_backup
from flowql.deploy.settings import Settings
from flowql.runtime.errors import LogError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.writer import Writer
from tests.flowql.backup.world import Feed, found, hosted, settings_in, until_read

REPLACED = "the directory was replaced, by a restore for example"
BACKED_UP, LATER = 100, 50


@pytest.fixture
def live(tmp_path: Path) -> Settings:
    """A target with a backup of its first records, and some more."""
    feed, live = Feed(), settings_in(tmp_path / "live")
    with hosted(live) as host:
        feed.send(host.engine.instance.log, BACKED_UP)
        until_read(host, feed)
        take_backup(live, str(tmp_path / "backup"))
        feed.send(host.engine.instance.log, LATER)
        until_read(host, feed)
    return live


def records(data_dir: Path) -> int:
    with closing(EmbeddedLog(data_dir / "log")) as log:
        return sum(log.end_offset(TopicPartition("s", p)) for p in range(2))


def test_a_writer_of_a_replaced_directory_is_refused(tmp_path: Path, live: Settings) -> None:
    """It went on by the former commit log, and its mark said of the restored one that committed frames were damaged: nothing could open it."""
    with closing(EmbeddedLog(live.data_dir / "log")) as old, closing(EmbeddedLog(live.data_dir / "log")) as idle:
        Feed(seed=2).send(old, LATER)
        restore_backup(live, str(tmp_path / "backup"), replace=True)
        with closing(EmbeddedLog(live.data_dir / "log")) as new:  # its locks are there again
            Feed(seed=3).send(new, 1)
        for log in (old, idle):
            with pytest.raises(LogError, match=REPLACED):
                Feed(seed=4).send(log, LATER)
            with pytest.raises(LogError, match=REPLACED):
                log.create_topic("other", 1)
    assert records(live.data_dir) == BACKED_UP + 1
    with hosted(live):
        pass
    assert found(live)


def test_a_commit_under_way_is_waited_for(tmp_path: Path, live: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole in the directory before: nothing of it is in the restored one."""
    writing, go_on = threading.Event(), threading.Event()
    write = Writer.write

    def slow(self: Writer, *given: Any) -> Any:
        writing.set()
        assert go_on.wait(60)
        return write(self, *given)

    def work() -> None:
        with closing(EmbeddedLog(live.data_dir / "log")) as log:
            Feed(seed=5).send(log, LATER)

    monkeypatch.setattr(Writer, "write", slow)
    writer = threading.Thread(target=work)
    writer.start()
    assert writing.wait(60)
    restore = threading.Thread(target=lambda: restore_backup(live, str(tmp_path / "backup"), replace=True))
    restore.start()
    restore.join(1.0)
    assert not list(tmp_path.glob("live.replaced-*")), "it waits"
    go_on.set()
    writer.join()
    restore.join()
    (aside,) = tmp_path.glob("live.replaced-*")
    assert (records(live.data_dir), records(aside)) == (BACKED_UP, BACKED_UP + 2 * LATER)
