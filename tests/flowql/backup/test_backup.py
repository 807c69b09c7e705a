"""A backup taken while everything moves is the state of one commit, and goes on from there."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from flowql.backup import lay
from flowql.backup.lay import put_in_place, restore_backup
from flowql.backup.take import take_backup
from flowql.config.project import Target
from flowql.deploy import pins
from flowql.doctor.stored import examine_backups, examine_stored
from flowql.errors import CommandError
from flowql.runtime.backup import pinned
from flowql.runtime.commit import coordinator
from flowql.runtime.errors import InstanceRunning
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded import ledger, writer
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.kafka.settings import KafkaSettings
from tests.flowql.backup.world import Feed, expected, found, hosted, send, settings_in, until_read
from tests.runtime.log.records import produce

pytestmark = pytest.mark.turns("long")


def everything(feed: Feed) -> dict[str, list[int]]:
    return {query: [len(rows) for rows in feed.fed] for query in ("CTAS_A", "CTAS_B", "CSAS_C")}


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit logs, redo files and flushes come to an end some times a second."""
    monkeypatch.setattr(ledger, "ROLL_BYTES", 20_000)
    monkeypatch.setattr(writer, "REDO_FILE_BYTES", 100_000)
    monkeypatch.setattr(coordinator, "REDO_FLUSH_BYTES", 50_000)


@pytest.mark.slow
def test_backups_under_load_are_each_of_one_commit(tmp_path: Path, small_files: None) -> None:
    """Records come, results are compacted, redo is trimmed, a topic is deleted for its age: each backup is a prefix of all that."""
    feed, live = Feed(), settings_in(tmp_path / "live")
    backups = str(tmp_path / "backups")
    taken = []
    with hosted(live) as host:
        admin = host.engine.instance.admin
        for topic in ("a", "b"):
            admin.alter_topic(topic, {"segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.1"})
        admin.create_topic("noise", 1, {"retention.ms": "1", "segment.bytes": "1000", "cleanup.policy": "delete"})
        with feed.running(live.data_dir), Upkeep(host.engine.instance.log):
            while not host.engine.instance.metrics.commits:  # on a loaded machine nothing is read in the first moments
                time.sleep(0.02)
            for _ in range(6):
                time.sleep(0.4)
                taken.append(take_backup(live, backups).manifest)
        until_read(host, feed)
        log = host.engine.instance.log
        assert log._state.producers["demo"].redo_lost > 0, "redo was trimmed"
        assert any(s.life for p in log._state.topics["a"].partitions for s in p.segments), "results were compacted"
    assert not list(tmp_path.rglob(pinned.BACKUP)), "the links are gone"
    assert found(live)[0] == expected(feed.fed, everything(feed)), "the instance is unharmed"
    commits = []
    assert [f.state for f in examine_backups(backups)] == ["ok"]
    for n, manifest in enumerate(taken):
        elsewhere = settings_in(tmp_path / f"restored-{n}")
        restore_backup(elsewhere, backups, commit=manifest.commit)
        results, ends, commit = found(elsewhere)
        assert commit == manifest.commit
        assert results.without_b() == expected(feed.fed, ends).without_b(), f"backup {n} at {ends}"
        assert sum(ends["CTAS_A"]) > 0
        commits.append(commit)
    assert commits == sorted(set(commits))


@pytest.mark.slow
def test_a_restored_project_goes_on_with_what_is_imported_again(tmp_path: Path, small_files: None) -> None:
    feed, live, elsewhere = Feed(), settings_in(tmp_path / "live"), settings_in(tmp_path / "elsewhere")
    with hosted(live) as host, feed.running(live.data_dir):
        time.sleep(1.0)
        take_backup(live, str(tmp_path / "backup"))
        time.sleep(0.5)
        assert host.engine.fatal is None
    restore_backup(elsewhere, str(tmp_path / "backup"))
    with hosted(elsewhere, sql=None) as host:
        log = host.engine.instance.log
        there = [log.end_offset(TopicPartition("s", p)) for p in range(2)]
        assert 0 < sum(there) < sum(map(len, feed.fed)), "some came after the backup"
        send(log, [rows[end:] for rows, end in zip(feed.fed, there, strict=True)])
        until_read(host, feed)
    assert found(elsewhere)[0] == expected(feed.fed, everything(feed))


class Upkeep:
    """Retention and compaction all the time, of a log that also gets records nobody reads."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log, self._stop = log, threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        while not self._stop.wait(0.02):
            produce(self._log, "noise", (TopicPartition("noise", 0), [(1, b"k", b"x" * 500)] * 5))
            self._log.maintain(int(time.time() * 1000))

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_stopped_project(tmp_path: Path) -> None:
    feed, live, elsewhere = Feed(), settings_in(tmp_path / "live"), settings_in(tmp_path / "elsewhere")
    with hosted(live) as host:
        for _ in range(5):
            feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
    before = found(live)
    manifest = take_backup(live, str(tmp_path / "backup")).manifest
    assert found(live) == before
    restore_backup(elsewhere, str(tmp_path / "backup"))
    assert found(elsewhere) == before
    assert before[0] == expected(feed.fed, everything(feed))
    assert (manifest.commit, manifest.application_id) == (before[2], "demo")
    assert manifest.deployed_at is not None
    assert manifest.deployed_at <= manifest.taken_at
    names = {entry.path.partition("/")[0] for entry in manifest.files}
    assert names == {"log", "state"}, "no addresses, no locks"
    assert not [e.path for e in manifest.files if "lock" in e.path.lower()]
    with hosted(elsewhere, sql=None) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
    assert found(elsewhere)[0] == expected(feed.fed, everything(feed))


def test_a_log_that_is_gone_is_not_backed_up_as_an_empty_one(tmp_path: Path) -> None:
    """The backup was empty and passed every check: restored, it would have been all that is left."""
    live, target = settings_in(tmp_path / "live"), Target(tmp_path / "live", "default")
    live.data_dir.mkdir()
    for emptied in (False, True):
        if emptied:
            live.log_dir.mkdir()
        with pytest.raises(CommandError, match="nothing has been deployed"):
            take_backup(live, str(tmp_path / "none"))
        live.state_dir.mkdir()
        (live.state_dir / "CURRENT").touch()
        with pytest.raises(CommandError, match="holds no log, and the state beside it") as lost:
            take_backup(live, str(tmp_path / "none"))
        assert lost.value.code == "FQ5706"
        assert [f.state for f in examine_stored("default", target, "demo")] == ["failed"]
        shutil.rmtree(live.state_dir)
    assert not list(live.log_dir.iterdir()), "looking makes no files"
    assert not (tmp_path / "none").exists()


def test_topics_without_a_run_and_a_project_without_anything(tmp_path: Path) -> None:
    live, elsewhere = settings_in(tmp_path / "live"), settings_in(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match="nothing has been deployed") as nothing:
        take_backup(live, str(tmp_path / "none"))
    assert nothing.value.code == "FQ5105"
    assert not (tmp_path / "none").exists()
    assert not live.data_dir.exists()
    feed, log = Feed(), EmbeddedLog(live.log_dir)
    with pytest.raises(CommandError, match="nothing has been deployed"):
        take_backup(live, str(tmp_path / "none"))
    log.create_topic("s", 2)
    feed.send(log, 50)
    log.close()
    manifest = take_backup(live, str(tmp_path / "backup")).manifest
    assert (manifest.commit, manifest.state_commit, manifest.deployed_at) == (0, 0, None)
    restore_backup(elsewhere, str(tmp_path / "backup"))
    with hosted(elsewhere) as host:
        until_read(host, feed)
    assert found(elsewhere)[0] == expected(feed.fed, everything(feed))


def test_a_state_that_was_lost_is_no_backup(tmp_path: Path, small_files: None) -> None:
    live = settings_in(tmp_path / "live")
    feed = Feed()
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        host.engine.instance.commit.flush()
    shutil.rmtree(live.state_dir)
    with pytest.raises(CommandError, match="does not reach commit") as refused:
        take_backup(live, str(tmp_path / "backup"))
    assert refused.value.code == "FQ5706"
    assert not (tmp_path / "backup").exists()
    assert not live.state_dir.exists()


@pytest.mark.parametrize(
    ("more", "says"), [({"kafka": KafkaSettings("h:1")}, "changelogs"), ({"engine": "spark"}, "Spark")]
)
def test_targets_whose_data_is_elsewhere(tmp_path: Path, more: dict, says: str) -> None:
    settings = settings_in(tmp_path / "live", **more)
    for call in (
        lambda: take_backup(settings, str(tmp_path / "b")),
        lambda: restore_backup(settings, str(tmp_path / "b")),
    ):
        with pytest.raises(CommandError, match=says) as refused:
            call()
        assert refused.value.code == "FQ5703"


def test_folders_that_are_refused(tmp_path: Path) -> None:
    live = settings_in(tmp_path / "live")
    with hosted(live):
        pass
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine.txt").write_text("kept")
    (tmp_path / "file").touch()
    for folder, says in (
        (used, "not empty"),
        (tmp_path / "file", "is a file"),
        (live.data_dir / "b", "in the data directory"),
    ):
        with pytest.raises(CommandError, match=says) as refused:
            take_backup(live, str(folder))
        assert refused.value.code == "FQ5702"
    assert [p.name for p in used.iterdir()] == ["mine.txt"]
    with pins.only_backup(live.data_dir), pytest.raises(CommandError, match="another process is making a backup"):
        take_backup(live, str(tmp_path / "backup"))
    assert not (tmp_path / "backup").exists()


def test_what_a_restore_refuses_and_what_it_keeps(tmp_path: Path) -> None:
    feed, live = Feed(), settings_in(tmp_path / "live")
    with hosted(live) as host:
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        take_backup(live, str(tmp_path / "backup"))
        at_backup = sum(map(len, feed.fed))
        for replace in (False, True):
            with pytest.raises(InstanceRunning):
                restore_backup(live, str(tmp_path / "backup"), replace=replace)
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
    after = found(live)
    with pytest.raises(CommandError, match="not empty") as refused:
        restore_backup(live, str(tmp_path / "backup"))
    assert refused.value.code == "FQ5704"
    with Starting(live.log_dir), pytest.raises(InstanceRunning):
        restore_backup(live, str(tmp_path / "backup"), replace=True)
    assert found(live) == after
    done = restore_backup(live, str(tmp_path / "backup"), replace=True)
    assert done.replaced is not None
    assert sum(found(live)[1]["CTAS_A"]) == at_backup
    assert found(settings_in(done.replaced)) == after, "nothing is lost"
    again = restore_backup(live, str(tmp_path / "backup"), replace=True)
    assert again.replaced not in (None, done.replaced)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    other = settings_in(tmp_path / "other")
    with pytest.raises(CommandError, match="backups of demo, and this target runs shop") as refused:
        restore_backup(type(other)(other.data_dir, "shop", 1, 1 << 20), str(tmp_path / "backup"))
    assert refused.value.code == "FQ5705"


def test_no_instance_can_start_while_the_directory_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = settings_in(tmp_path / "live")
    with hosted(live):
        pass
    take_backup(live, str(tmp_path / "backup"))
    tried = []

    def look(new: Path, place: Path, aside: Path | None) -> None:
        with pytest.raises(InstanceRunning), Starting(place / "log"):
            pass
        with pytest.raises(CommandError, match="another process is making a backup"), pins.only_backup(place):
            pass
        tried.append(place)
        put_in_place(new, place, aside)

    monkeypatch.setattr(lay, "put_in_place", look)
    restore_backup(live, str(tmp_path / "backup"), replace=True)
    assert tried == [live.data_dir]


def test_a_disk_of_the_data_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What RocksDB has in memory is not written there, which could fail and stop the instance."""
    live, feed = settings_in(tmp_path / "live"), Feed()
    with hosted(live) as host:
        monkeypatch.setattr(pinned, "ROOM_LEAST", 1 << 60)
        with pytest.raises(CommandError, match="MB left") as refused:
            take_backup(live, str(tmp_path / "backup"))
        assert refused.value.code == "FQ5706"
        assert not (tmp_path / "backup").exists()
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
    assert found(live)[0] == expected(feed.fed, everything(feed))


class Starting:
    """An instance that is just starting: it has the lock, and does not listen yet."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        self._log = EmbeddedLog(self._path)
        self._log.hold("demo")

    def __exit__(self, *_: object) -> None:
        self._log.close()


def test_a_start_removes_the_links_of_a_backup_that_was_killed(tmp_path: Path) -> None:
    live = settings_in(tmp_path / "live")
    with hosted(live) as host:
        host.service.pin()
        assert pinned.pinned_log(live.data_dir).is_dir()
        assert pinned.pinned_state(live.data_dir).is_dir()
    with pins.only_backup(live.data_dir), hosted(live, sql=None):
        assert pinned.pinned_log(live.data_dir).is_dir(), "a backup is under way"
    with hosted(live, sql=None):
        assert not pinned.pinned_log(live.data_dir).exists()
        assert not pinned.pinned_state(live.data_dir).exists()
