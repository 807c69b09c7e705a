"""A backup that is not whole is recognised, by name of what is wrong; and no accident harms the project."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flowql.backup.lay import restore_backup
from flowql.backup.take import take_backup
from flowql.deploy.settings import Settings
from flowql.doctor.stored import examine_backups
from flowql.errors import CommandError
from flowql.runtime.backup import pinned
from flowql.runtime.backup.manifest import (
    FileEntry,
    ManifestDamaged,
    ManifestUnreadable,
    decode_manifest,
    encode_manifest,
)
from flowql.runtime.log.files import DiskFile, DiskFiles
from flowql.runtime.remote import folder
from flowql.runtime.remote.errors import RemoteError
from tests.flowql.backup.world import Feed, expected, found, hosted, settings_in, until_read

pytestmark = pytest.mark.turns("queries")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A small project that has run."""
    made, feed = settings_in(tmp_path_factory.mktemp("live") / "data"), Feed()
    with hosted(made) as host:
        for _ in range(3):
            feed.send(host.engine.instance.log, 300)
        until_read(host, feed)
    return made


@pytest.fixture
def backup(live: Settings, tmp_path: Path) -> Path:
    take_backup(live, str(tmp_path / "backup"))
    return tmp_path / "backup"


def changed(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "removed": lambda path: path.unlink(),
    "cut at its end": lambda path: os.truncate(path, path.stat().st_size - 1),
    "emptied": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "first byte": lambda path: changed(path, 0),
    "middle byte": lambda path: changed(path, path.stat().st_size // 2),
    "last byte": lambda path: changed(path, -1),
}


def refused(folder: Path, place: Path) -> CommandError:
    with pytest.raises(CommandError) as error:
        restore_backup(settings_in(place), str(folder))
    assert error.value.code == "FQ5701"
    assert not place.exists()
    (finding,) = examine_backups(str(folder))
    assert finding.state == "failed"
    assert "flowql backup" in finding.fix
    return error.value


def objects_in(backup: Path) -> list[Path]:
    """All that a restore reads."""
    return [p for p in sorted(backup.rglob("*")) if p.is_file() and p.parent.name != "terms"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_object_that_is_not_as_it_was_is_named(backup: Path, tmp_path: Path, damage: str) -> None:
    paths = objects_in(backup)
    for path in paths:
        whole = path.read_bytes()
        DAMAGES[damage](path)
        if damage == "removed" and path.parent.name == "manifests":
            assert "holds no backup" in refused(backup, tmp_path / "data").title
        else:
            assert path.relative_to(backup).as_posix() in refused(backup, tmp_path / "data").title
        path.write_bytes(whole)
    assert len(paths) > 8
    restore_backup(settings_in(tmp_path / "data"), str(backup))


def test_a_damaged_backup_gives_way_to_the_one_before(live: Settings, backup: Path, tmp_path: Path) -> None:
    """Each object of the second backup alone is damaged: the first one is restored, and the damage is named."""
    first = {p.name for p in objects_in(backup)}
    expected_commit = found(live)[2]
    copy = settings_in(tmp_path / "copy")
    restore_backup(copy, str(backup))
    feed = Feed(seed=3)
    with hosted(copy, sql=None) as host:
        feed.send(host.engine.instance.log, 50)
        until_read(host, feed)
    second = take_backup(copy, str(backup))
    new = [p for p in objects_in(backup) if p.name not in first]
    assert second.manifest.commit > expected_commit
    assert 0 < second.new_bytes < second.manifest.size
    for n, path in enumerate(new):
        whole = path.read_bytes()
        changed(path, len(whole) // 2)
        done = restore_backup(settings_in(tmp_path / f"restored-{n}"), str(backup))
        assert done.manifest.commit == expected_commit
        assert [path.relative_to(backup).as_posix() in problem for problem in done.damaged] == [True]
        path.write_bytes(whole)
    assert len(new) > 3
    ahead = next(p for p in new if "files" in p.parts)  # the manifest is there before its objects
    whole = ahead.read_bytes()
    ahead.unlink()
    done = restore_backup(settings_in(tmp_path / "ahead"), str(backup))
    assert done.manifest.commit == expected_commit
    assert f"there is no {ahead.relative_to(backup).as_posix()}" in done.damaged[0]
    ahead.write_bytes(whole)
    assert restore_backup(settings_in(tmp_path / "whole"), str(backup)).manifest.commit == second.manifest.commit
    assert (
        restore_backup(settings_in(tmp_path / "old"), str(backup), commit=second.manifest.commit - 1).manifest.commit
        == expected_commit
    )


def manifest_of(backup: Path) -> Path:
    (path,) = backup.rglob("manifests/*")
    return path


def test_the_bytes_of_the_manifest_count(backup: Path) -> None:
    path = manifest_of(backup)
    whole = path.read_bytes()
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1
        with pytest.raises((ManifestDamaged, ManifestUnreadable)):
            decode_manifest(bytes(data), "m")
    assert encode_manifest(decode_manifest(whole, "m")) == whole


def test_a_manifest_of_a_newer_format_and_one_that_leads_elsewhere(backup: Path, tmp_path: Path) -> None:
    path = manifest_of(backup)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'{"format":2,"flowql":"', b'{"format":3,"flowql":"9.9-', 1))
    with pytest.raises(CommandError, match=r"format 3, made by FlowQL 9\.9") as newer:
        restore_backup(settings_in(tmp_path / "data"), str(backup))
    assert newer.value.code == "FQ5705"
    manifest = decode_manifest(whole, "m")
    for name in ("/etc/x", "log/" + ".." + "/" + ".." + "/x", ""):
        path.write_bytes(encode_manifest(msgspec.structs.replace(manifest, files=[FileEntry(name, 0, [])])))
        assert "outside the data directory" in refused(backup, tmp_path / "data").title


def test_folders_that_hold_no_backup(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        refused(tmp_path / name, tmp_path / "data")
    assert not (tmp_path / "nowhere").exists()


class FaultyObjects:
    """A store whose n-th write from now fails."""

    def __init__(self, at: int) -> None:
        self.left, self._writer = at, folder.FolderWriter.finish

    def __call__(self, writer: folder.FolderWriter) -> bool:
        self.left -= 1
        if self.left == 0:
            writer._drop()
            raise RemoteError("no space left on the disk of the store")
        return self._writer(writer)


class Faulty(DiskFiles):
    """The n-th write from now finds no space; or, as `error`, fails otherwise."""

    def __init__(self, at: int, error: int = errno.ENOSPC) -> None:
        super().__init__()
        self.left, self.error = at, error

    def open(self, path: str, *, create: bool = False, write: bool = False) -> DiskFile:
        file = FaultyFile(path, (os.O_RDWR if write or create else os.O_RDONLY) | (os.O_CREAT if create else 0))
        file.files = self
        return file

    def count(self, path: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.error, os.strerror(self.error), path)

    def rename(self, source: str, target: str) -> None:
        self.count(target)
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self.count(path)
        super().fsync_dir(path)


class FaultyFile(DiskFile):
    files: Faulty

    def pwrite(self, offset: int, parts: Sequence[Any]) -> None:
        self.files.count(self.path)
        super().pwrite(offset, parts)

    def fsync(self) -> None:
        self.files.count(self.path)
        super().fsync()


def test_an_error_at_any_write_of_a_backup_leaves_nothing(
    live: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, there = found(live), {tmp_path / "there"}
    (tmp_path / "there").mkdir()
    for n in itertools.count(1):
        place = tmp_path / ("there" if n % 2 else "new")
        faulty = FaultyObjects(n)
        monkeypatch.setattr(folder.FolderWriter, "finish", lambda writer, faulty=faulty: faulty(writer))
        try:
            take_backup(live, str(place))
            break
        except CommandError as error:
            failed = error
        finally:
            monkeypatch.undo()
        assert failed.code == "FQ5706"
        assert set(tmp_path.iterdir()) == there
        assert not list((tmp_path / "there").iterdir())
        assert not pinned.pinned_log(live.data_dir).exists()
        assert not pinned.pinned_state(live.data_dir).exists()
    assert n > 10
    assert found(live) == before


def test_an_error_at_any_write_of_a_restore_changes_nothing(live: Settings, backup: Path, tmp_path: Path) -> None:
    place = settings_in(tmp_path / "data")
    restore_backup(place, str(backup))
    (place.data_dir / "mine").touch()
    before = found(live)
    for n in itertools.count(1):
        if _gets_through(place, backup, Faulty(n)):
            break
        assert (place.data_dir / "mine").exists()
        assert {p.name for p in tmp_path.iterdir()} == {"backup", "data"}
        assert found(place)[0] == before[0]
    assert n > 20
    assert not (place.data_dir / "mine").exists()
    assert found(place) == before


def _gets_through(place: Settings, backup: Path, files: Faulty) -> bool:
    try:
        restore_backup(place, str(backup), replace=True, files=files)
    except CommandError as failed:
        if failed.code != "FQ5706":
            raise
        return False
    return True


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-c", "from flowql.cli import main; main()", *words, "-p", str(folder)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "flowql.yaml").write_text(
        "name: demo\ntargets: {default: {data_dir: data, threads: 2, memory: 64 MB}}\n"
    )
    return tmp_path


@pytest.mark.slow
def test_a_command_that_meets_a_full_disk(project: Path) -> None:
    """As the operating system says it: a limit on the size of files stands for the end of the disk."""
    feed, live = Feed(), settings_in(project / "data")

    with hosted(live) as host:
        for _ in range(20):
            feed.send(host.engine.instance.log, 500)
        until_read(host, feed)
        call = command(project, "backup", str(project / "backup"))
        limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); "
        limited = [*call[:2], limit + call[2], *call[3:]]
        done = subprocess.run(limited, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "FQ5706" in done.stderr
        assert not (project / "backup").exists()
        feed.send(host.engine.instance.log, 100)
        until_read(host, feed)
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert [f.state for f in examine_backups(str(project / "backup"))] == ["ok"]


@pytest.mark.turns("load")
@pytest.mark.slow
def test_kills_in_the_middle(project: Path) -> None:
    """The command is killed ever later, until it gets through, always into the same place: the last whole backup is there, and the instance goes on."""
    feed, live = Feed(), settings_in(project / "data")
    place, torn = project / "backups", 0
    with hosted(live) as host:
        for _ in range(40):
            feed.send(host.engine.instance.log, 500)
        until_read(host, feed)
        with feed.running(live.data_dir):
            for n in itertools.count(0, 6):
                child = subprocess.run(
                    killing_itself(command(project, "backup", str(place)), n), stderr=subprocess.PIPE, check=False
                )
                assert host.engine.fatal is None
                if child.returncode == 0:
                    break
                assert child.returncode == -signal.SIGKILL, child.stderr
                assert not [p for p in place.rglob("manifests/*") if not p.name.startswith(".unfinished")]
                torn += 1
                if n:
                    assert "holds no backup" in refused(place, project / "restored").title
        until_read(host, feed)
    assert torn > 1
    assert not pinned.pinned_log(live.data_dir).exists(), "the last one has removed what the others left"
    ends = {query: [len(rows) for rows in feed.fed] for query in ("CTAS_A", "CTAS_B", "CSAS_C")}
    assert found(live)[0] == expected(feed.fed, ends)
    assert [f.state for f in examine_backups(str(place))] == ["ok"]
    elsewhere = settings_in(project / "elsewhere")
    restore_backup(elsewhere, str(place))
    results, at, _ = found(elsewhere)
    assert results.without_b() == expected(feed.fed, at).without_b()


@pytest.mark.slow
def test_a_restore_that_is_killed_changes_nothing(project: Path) -> None:
    feed, live = Feed(), settings_in(project / "data")
    with hosted(live) as host:
        for _ in range(20):
            feed.send(host.engine.instance.log, 500)
        until_read(host, feed)
    take_backup(live, str(project / "backup"))
    before = found(live)
    call = command(project, "restore", "--from", str(project / "backup"), "--replace")
    for write in (1, 4, 9):
        child = subprocess.run(killing_itself(call, write), stderr=subprocess.PIPE, check=False)
        assert child.returncode == -signal.SIGKILL, child.stderr
        assert found(live) == before
        assert len(list(project.glob(".data.restoring-*"))) == 1, "each removes what the one before has left"
    assert subprocess.run(call, capture_output=True, check=False).returncode == 0
    assert not list(project.glob(".data.*"))
    assert found(live)[0] == before[0]


def killing_itself(call: list[str], write: int) -> list[str]:
    """The command in a process that is killed at its n-th write of a file: whatever the load, it is there and no further."""
    kill = (
        "import itertools, os, signal; from flowql.runtime.log.files import DiskFile; from flowql.runtime.remote.folder import FolderWriter; "
        f"n, whole, finish = itertools.count(0), DiskFile.pwrite, FolderWriter.finish; die = lambda: next(n) == {write} and os.kill(os.getpid(), signal.SIGKILL); "
        "DiskFile.pwrite = lambda *a: (die(), whole(*a))[1]; FolderWriter.finish = lambda w: (die(), finish(w))[1]; "
    )
    return [*call[:2], kill + call[2], *call[3:]]
