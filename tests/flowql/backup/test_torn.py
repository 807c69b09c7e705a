"""A backup that is not whole is recognised, by name of what is wrong; and no accident harms the project."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowql.backup.lay import restore_backup
from flowql.backup.manifest import FILE, Entry, Manifest, read_manifest, rendered
from flowql.backup.take import take_backup
from flowql.deploy import pins
from flowql.deploy.settings import Settings
from flowql.doctor.stored import examine_backup
from flowql.errors import CommandError
from flowql.runtime.log.files import DiskFile, DiskFiles
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
    take_backup(live, tmp_path / "backup")
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
        restore_backup(settings_in(place), folder)
    assert error.value.code == "FQ5701"
    assert not place.exists()
    finding = examine_backup(folder)
    assert finding.state == "failed"
    assert "flowql backup" in finding.fix
    return error.value


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_file_that_is_not_as_it_was_is_named(backup: Path, tmp_path: Path, damage: str) -> None:
    names = [entry.path for entry in read_manifest(backup).files] + [FILE]
    for name in names:
        path = backup / name
        whole = path.read_bytes()
        if not whole and damage not in ("removed", "longer"):
            continue
        DAMAGES[damage](path)
        assert str(path) in refused(backup, tmp_path / "data").title
        path.write_bytes(whole)
    assert len(names) > 8
    restore_backup(settings_in(tmp_path / "data"), backup)


def test_the_bytes_of_the_manifest_count(backup: Path) -> None:
    path = backup / FILE
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        changed(path, at)
        with pytest.raises(CommandError):
            read_manifest(backup)
        path.write_bytes(whole)


def test_a_manifest_of_a_newer_format_and_one_that_leads_elsewhere(backup: Path) -> None:
    given: dict[str, Any] = {
        "flowql": "9.9",
        "application_id": "demo",
        "commit": 1,
        "state_commit": 1,
        "deployed_at": None,
        "taken_at": "2026-01-01T00:00:00.000Z",
        "folders": (),
    }
    (backup / FILE).write_bytes(rendered(Manifest(**given, files=(), format=2)))
    with pytest.raises(CommandError, match=r"format 2, made by FlowQL 9\.9") as newer:
        read_manifest(backup)
    assert newer.value.code == "FQ5705"
    for path in ("/etc/x", "log/" + ".." + "/" + ".." + "/x", ""):
        (backup / FILE).write_bytes(rendered(Manifest(**given, files=(Entry(path, 0, ""),))))
        with pytest.raises(CommandError, match="outside the backup"):
            read_manifest(backup)


def test_folders_that_hold_no_backup(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "nowhere"):
        refused(tmp_path / name, tmp_path / "data")


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


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_an_error_at_any_write_of_a_backup_leaves_nothing(live: Settings, tmp_path: Path, error: int) -> None:
    before, there = found(live), {tmp_path / "there"}
    (tmp_path / "there").mkdir()
    for n in itertools.count(1):
        folder = tmp_path / ("there" if n % 2 else "new")
        try:
            take_backup(live, folder, files=Faulty(n, error))
            break
        except (CommandError, OSError) as failed:
            code = failed.code if isinstance(failed, CommandError) else failed.errno
            assert code == ("FQ5706" if error == errno.ENOSPC else error)
        if (folder / FILE).exists():  # its name was there, and was not durable yet
            raise AssertionError("a failed backup has a manifest")
        assert set(tmp_path.iterdir()) == there
        assert not list((tmp_path / "there").iterdir())
        assert not pins.pinned_log(live.data_dir).exists()
        assert not pins.pinned_state(live.data_dir).exists()
    assert n > 20
    assert found(live) == before


def test_an_error_at_any_write_of_a_restore_changes_nothing(live: Settings, backup: Path, tmp_path: Path) -> None:
    place = settings_in(tmp_path / "data")
    restore_backup(place, backup)
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
        restore_backup(place, backup, replace=True, files=files)
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
    assert examine_backup(project / "backup").state == "ok"


@pytest.mark.turns("load")
@pytest.mark.slow
def test_kills_in_the_middle(project: Path) -> None:
    """The command is killed ever later, until it gets through: what it leaves is refused, and the instance goes on."""
    feed, live = Feed(), settings_in(project / "data")
    torn = 0
    with hosted(live) as host:
        for _ in range(40):
            feed.send(host.engine.instance.log, 500)
        until_read(host, feed)
        with feed.running(live.data_dir):
            for n in itertools.count(0, 8):
                folder = project / f"backup-{n}"
                child = subprocess.Popen(
                    command(project, "backup", str(folder)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
                )
                limit = time.monotonic() + 60
                while child.poll() is None and not _is_begun(folder, n) and time.monotonic() < limit:
                    time.sleep(0.0005)
                if child.poll() is not None:
                    assert child.returncode == 0
                    break
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
                assert host.engine.fatal is None
                if not (folder / FILE).exists():
                    assert FILE in refused(folder, project / "restored").title
                    torn += 1
        until_read(host, feed)
    assert torn > 1
    assert not pins.pinned_log(live.data_dir).exists(), "the last one has removed what the others left"
    ends = {query: [len(rows) for rows in feed.fed] for query in ("CTAS_A", "CTAS_B", "CSAS_C")}
    assert found(live)[0] == expected(feed.fed, ends)
    with pytest.raises(CommandError, match="left of a backup that was interrupted"):
        take_backup(live, project / "backup-8")


def _is_begun(folder: Path, files: int) -> bool:
    """Nothing but the links is there, or at least so many files."""
    if files == 0:
        return pins.pinned_log(folder.parent / "data").exists()
    return folder.is_dir() and sum(p.is_file() for p in folder.rglob("*")) >= files


@pytest.mark.slow
def test_a_restore_that_is_killed_changes_nothing(project: Path) -> None:
    feed, live = Feed(), settings_in(project / "data")
    with hosted(live) as host:
        for _ in range(20):
            feed.send(host.engine.instance.log, 500)
        until_read(host, feed)
    take_backup(live, project / "backup")
    before = found(live)
    call = command(project, "restore", str(project / "backup"), "--replace")
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
        "import itertools, os, signal; from flowql.runtime.log.files import DiskFile; whole, n = DiskFile.pwrite, itertools.count(1); "
        f"DiskFile.pwrite = lambda *a: os.kill(os.getpid(), signal.SIGKILL) if next(n) == {write} else whole(*a); "
    )
    return [*call[:2], kill + call[2], *call[3:]]
