"""Puts a backup back: verify all of it, copy it beside the data directory, take the directory's place."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from flowql.backup.copying import Part, copy_part, make_folders, make_names_durable
from flowql.backup.manifest import OTHER, TORN, Entry, Manifest, read_manifest
from flowql.backup.verify import Advance, check_backup
from flowql.config.load import shown_path
from flowql.deploy.pins import LOCK, NOT_MADE, check_supported
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.errors import InstanceRunning, remedy_when_full
from flowql.runtime.log.embedded.ledger import OWNERS, writers_shut_out
from flowql.runtime.log.embedded.segment import is_full
from flowql.runtime.log.files import DiskFiles, Files
from flowql.server.address import is_alive
from flowql.server.running import process_of

IN_THE_WAY = "FQ5704"
_UNFINISHED = "restoring"  # a file in a directory that is being filled


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done. replaced: the name that the directory before has now."""

    manifest: Manifest
    replaced: Path | None


def restore_backup(
    settings: Settings,
    folder: Path,
    *,
    replace: bool = False,
    advance: Advance = lambda n: None,
    files: Files | None = None,
) -> Restored:
    """Make the directory of the target what the backup in `folder` is of. advance: each byte twice, verified and copied.

    Raises CommandError or InstanceRunning; then the directory is as it was.
    """
    files, place = files or DiskFiles(), settings.data_dir.resolve()
    check_supported(settings)
    manifest = read_manifest(folder)
    _check_application(manifest, settings, folder)
    _check_place(place, folder, replace=replace)
    check_backup(folder, manifest, advance)
    with _filled(files, manifest, folder, place, advance) as new, _stopped(place):
        _check_place(place, folder, replace=replace)
        aside = _name_aside(place) if _is_filled(place) else None
        (place / _UNFINISHED).unlink(
            missing_ok=True
        )  # of a restore that was killed at its very end: now it means something else
        _put(new, place, aside)
    (place / _UNFINISHED).unlink()
    return Restored(manifest, aside)


def _check_application(manifest: Manifest, settings: Settings, folder: Path) -> None:
    if manifest.application_id != settings.application_id:
        title = f"{folder} is a backup of {manifest.application_id}, and this target runs {settings.application_id}"
        help_ = f"restore it in a project of that name, or into a target with  app_id: {manifest.application_id}"
        raise CommandError(title, code=OTHER, help=help_)


def _check_place(place: Path, folder: Path, *, replace: bool) -> None:
    _check_stopped(place)
    if place.exists() and not place.is_dir():
        raise CommandError(
            f"{shown_path(place)} is a file", code=IN_THE_WAY, help="choose another `data_dir` in flowql.yaml"
        )
    if place in folder.resolve().parents:
        title = f"the backup {folder} is in the data directory that it would replace"
        raise CommandError(title, code=IN_THE_WAY, help="move it elsewhere first")
    if _is_filled(place) and not replace:
        title = f"{shown_path(place)} is there already and not empty: nothing was restored"
        raise CommandError(
            title, code=IN_THE_WAY, help=f"flowql restore {folder} --replace   # keeps it under another name"
        )


def _is_filled(place: Path) -> bool:
    return place.is_dir() and any(place.iterdir())


def _check_stopped(place: Path) -> None:
    process = process_of(place)
    if process is not None:
        raise InstanceRunning(f"process {process.pid} runs on {place}: stop it first (flowql stop)")


@contextmanager
def _stopped(place: Path) -> Iterator[None]:
    """Within, no instance runs on the directory, no backup of it is made, and nothing writes to it. The locks stay with what is renamed.

    A process that waits for one of them (an import) finds afterwards that its directory was replaced.
    """
    with ExitStack() as held:
        if (place / "log").is_dir():
            for path, who in (
                (place / "log" / "instance.lock", "an instance runs on"),
                (place / LOCK, "a backup is made of"),
            ):
                lock = DiskFiles().lock(str(path), wait=False)
                if lock is None:
                    raise InstanceRunning(f"{who} {place}: nothing was restored")
                held.callback(lock.release)
            if (place / "log" / OWNERS).is_dir():
                held.enter_context(writers_shut_out(DiskFiles(), str(place / "log")))
        yield


@contextmanager
def _filled(files: Files, manifest: Manifest, folder: Path, place: Path, advance: Advance) -> Iterator[Path]:
    """A directory beside `place` with all files of the backup, on disk; removed unless it has been renamed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(place)
    new = place.with_name(f".{place.name}.{_UNFINISHED}-{os.getpid()}")
    new.mkdir()
    try:
        (new / _UNFINISHED).touch()
        make_folders(files, new, manifest.folders)
        for entry in manifest.files:
            _copy(files, entry, folder, new, advance)
        make_names_durable(files, new, manifest.folders)
        yield new
    except OSError as error:
        if is_full(error):
            title = f"there is no space for the restored directory beside {shown_path(place)} ({error.strerror})"
            remedy = remedy_when_full(str(error))
            raise CommandError(title, code=NOT_MADE, help=f"nothing was changed; {remedy}") from error
        raise
    finally:
        if (new / _UNFINISHED).exists():
            shutil.rmtree(new, ignore_errors=True)


def _copy(files: Files, entry: Entry, folder: Path, new: Path, advance: Advance) -> None:
    source = folder / entry.path
    if copy_part(files, Part(str(source), entry.path, entry.size), new, advance) != entry:
        raise CommandError(f"{source} has changed while it was read", code=TORN, help="nothing was changed")


def _remove_left(place: Path) -> None:
    """The remains of a restore that was killed. A directory without the mark is the user's own."""
    for left in place.parent.glob(f".{place.name}.{_UNFINISHED}-*"):
        pid = left.name.rpartition("-")[2]
        if (left / _UNFINISHED).exists() and not (pid.isdigit() and is_alive(int(pid))):
            shutil.rmtree(left, ignore_errors=True)


def _name_aside(place: Path) -> Path:
    at = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    names = (place.with_name(f"{place.name}.replaced-{at}{f'-{n}' if n else ''}") for n in range(1000))
    return next(name for name in names if not name.exists())


def _put(new: Path, place: Path, aside: Path | None) -> None:
    try:
        put_in_place(new, place, aside)
    except OSError as error:
        title = f"{shown_path(place)} cannot be replaced ({error.strerror}): it may be where a disk is mounted"
        help_ = "nothing was changed; give the target a `data_dir` that is a directory of that disk"
        raise CommandError(title, code=IN_THE_WAY, help=help_) from error


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux
_NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def put_in_place(new: Path, place: Path, aside: Path | None) -> None:
    """`new` becomes `place`. aside: the new name of the present directory; None if `place` is empty or does not exist.

    On Linux a crash never leaves `place` without a directory. An OSError leaves everything as it was.
    """
    if aside is None:
        new.rename(place)
    elif _exchange(new, place):
        new.rename(aside)
    else:
        place.rename(aside)
        try:
            new.rename(place)
        except OSError:
            aside.rename(place)
            raise
    DiskFiles().fsync_dir(str(place.parent))


def _exchange(one: Path, other: Path) -> bool:
    """False where the system or its file system cannot do it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NOT_HERE:
        return False
    raise OSError(error, os.strerror(error), str(other))
