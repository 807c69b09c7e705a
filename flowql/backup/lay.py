"""Puts a backup back: fetch it into a directory beside the data directory, verify each byte, take the directory's place."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from flowql.backup.places import NOT_MADE, OTHER, TORN, answering, place_at, shown
from flowql.backup.verify import damage_of
from flowql.config.load import shown_path
from flowql.deploy.pins import LOCK, check_supported
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.backup.continuing import Known, Note, write_note
from flowql.runtime.backup.manifest import FileEntry, Manifest, ManifestUnreadable, Piece, piece_name
from flowql.runtime.backup.place import ManifestName, Place
from flowql.runtime.errors import InstanceRunning, RuntimeFailure, remedy_when_full
from flowql.runtime.log.embedded.ledger import OWNERS, writers_shut_out
from flowql.runtime.log.embedded.segment import is_full
from flowql.runtime.log.files import DiskFiles, Files
from flowql.runtime.remote.folder import folder_of
from flowql.runtime.remote.objects import ObjectMissing
from flowql.server.address import is_alive
from flowql.server.running import process_of

IN_THE_WAY = "FQ5704"
_UNFINISHED = "restoring"  # a file in a directory that is being filled
_FETCHED_AHEAD = 4  # pieces of 8 MiB in memory
Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore. replaced: the new name of the former directory. damaged: newer backups that could not be used, and why."""

    manifest: Manifest
    object: str
    replaced: Path | None
    damaged: tuple[str, ...]


@dataclass(slots=True)
class _Chosen:
    """The backup that is restored, and the newer ones of the instance that are passed over."""

    manifest: Manifest
    known: Known
    over: list[Known]
    damaged: list[str] = field(default_factory=list)


class _Damaged(Exception):
    """A backup cannot be restored; another one may be."""


def restore_backup(
    settings: Settings,
    source: str,
    *,
    replace: bool = False,
    commit: int | None = None,
    begin: Callable[[int], None] = lambda n: None,
    advance: Advance = lambda n: None,
    files: Files | None = None,
) -> Restored:
    """Make the directory of the target what the newest whole backup in a directory or at a URL is of.

    commit: the newest commit that is wanted. begin, advance: bytes that are fetched. Raises CommandError or InstanceRunning; then the directory
    is as it was.
    """
    files, place = files or DiskFiles(), settings.data_dir.resolve()
    check_supported(settings)
    backups = place_at(source, settings.application_id)
    with answering("nothing was changed"):
        manifests = backups.manifests()
        _check_application(backups, manifests)
        _check_place(place, backups, replace=replace)
        with _filled(files, backups, manifests, commit, place, begin, advance) as (new, chosen), _stopped(place):
            _check_place(place, backups, replace=replace)
            aside = _name_aside(place) if _is_filled(place) else None
            (place / _UNFINISHED).unlink(
                missing_ok=True
            )  # of a restore that was killed at its very end: now it means something else
            _put(new, place, aside)
    (place / _UNFINISHED).unlink()
    return Restored(chosen.manifest, chosen.known.object, aside, tuple(chosen.damaged))


def _check_application(backups: Place, manifests: Sequence[ManifestName]) -> None:
    if manifests:
        return
    others = [name for name in backups.applications() if Place(backups.objects, name).manifests()]
    if others:
        title = (
            f"{shown(backups.url)} has backups of {', '.join(others)}, and this target runs {backups.application_id}"
        )
        help_ = f"restore it in a project of that name, or into a target with  app_id: {others[0]}"
        raise CommandError(title, code=OTHER, help=help_)
    title = f"{shown(backups.url)} holds no backup"
    raise CommandError(title, code=TORN, help="name a place that `flowql backup` or an instance has written to")


def _check_place(place: Path, backups: Place, *, replace: bool) -> None:
    _check_stopped(place)
    if place.exists() and not place.is_dir():
        raise CommandError(
            f"{shown_path(place)} is a file", code=IN_THE_WAY, help="choose another `data_dir` in flowql.yaml"
        )
    if backups.url.startswith("file://") and place in (folder := folder_of(backups.url).resolve(), *folder.parents):
        title = f"the backup {shown(backups.url)} is in the data directory that it would replace"
        raise CommandError(title, code=IN_THE_WAY, help="move it elsewhere first")
    if _is_filled(place) and not replace:
        title = f"{shown_path(place)} is there already and not empty: nothing was restored"
        help_ = f"flowql restore --from {shown(backups.url)} --replace   # keeps it under another name"
        raise CommandError(title, code=IN_THE_WAY, help=help_)


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
def _filled(
    files: Files,
    backups: Place,
    manifests: Sequence[ManifestName],
    commit: int | None,
    place: Path,
    begin: Callable[[int], None],
    advance: Advance,
) -> Iterator[tuple[Path, _Chosen]]:
    """A directory beside `place` with all files of the newest whole backup, on disk; removed unless it has been renamed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    _remove_left(place)
    new = place.with_name(f".{place.name}.{_UNFINISHED}-{os.getpid()}")
    try:
        chosen = _fetch_newest(files, backups, manifests, commit, new, begin, advance)
        yield new, chosen
    except OSError as error:
        if is_full(error):
            title = f"there is no space for the restored directory beside {shown_path(place)} ({error.strerror})"
            remedy = remedy_when_full(str(error))
            raise CommandError(title, code=NOT_MADE, help=f"nothing was changed; {remedy}") from error
        raise
    finally:
        if (new / _UNFINISHED).exists():
            shutil.rmtree(new, ignore_errors=True)


def _fetch_newest(
    files: Files,
    backups: Place,
    manifests: Sequence[ManifestName],
    commit: int | None,
    new: Path,
    begin: Callable[[int], None],
    advance: Advance,
) -> _Chosen:
    damaged: list[str] = []
    over: list[Known] = []
    for name in manifests:
        known = None
        try:
            data = backups.objects.get(name.object)
            known = Known.of(name.object, data)
            manifest = backups.decoded(name, data)
            if commit is None or manifest.commit <= commit:
                begin(manifest.size)
                _fetch(files, backups, manifest, new, advance)
                note = Note([known], over)
                (new / "log").mkdir(exist_ok=True)
                write_note(new, note)
                _make_names_durable(files, new, manifest)
                return _Chosen(manifest, known, over, damaged)
        except ManifestUnreadable as error:
            raise CommandError(str(error), code=OTHER, help="restore it with that version of FlowQL") from error
        except (_Damaged, RuntimeFailure) as error:
            if isinstance(error, RuntimeFailure) and error.retriable:
                raise
            damaged.append(str(error))
        if name.by == "instance" and known is not None and not over:
            over.append(known)
    if not damaged:
        title = f"{shown(backups.url)} has no backup of commit {commit} or an earlier one"
        raise CommandError(title, code=TORN, help="flowql doctor --backup PLACE   # lists the backups")
    more = f"; and {len(damaged) - 1} older backups are damaged" if len(damaged) > 1 else ""
    raise CommandError(f"{damaged[0]}{more}", code=TORN, help="restore another backup; nothing was changed")


def _fetch(files: Files, backups: Place, manifest: Manifest, new: Path, advance: Advance) -> None:
    """All files of a backup in a new directory. _Damaged names the first piece that is not as it was written."""
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    (new / _UNFINISHED).touch()
    for folder in sorted(_folders(manifest)):
        files.makedirs(str(new / folder))
    ahead: deque[Future[bytes]] = deque()
    wanted = ((entry.path, piece) for entry in manifest.files for piece in entry.pieces)

    def fetch_more() -> None:
        for path, piece in islice(wanted, _FETCHED_AHEAD - len(ahead)):
            ahead.append(backups.objects.submit(backups.objects.get, piece_name(backups.folder, path, piece)))

    for entry in manifest.files:
        file = files.open(str(new / entry.path), create=True, write=True)
        try:
            for piece in entry.pieces:
                fetch_more()
                file.pwrite(piece.start, [_checked(backups, entry, piece, ahead.popleft())])
                advance(piece.length)
            file.fsync()
        finally:
            file.close()


def _checked(backups: Place, entry: FileEntry, piece: Piece, coming: Future[bytes]) -> bytes:
    try:
        data = coming.result()
    except ObjectMissing as error:
        raise _Damaged(str(error)) from error
    if problem := damage_of(backups, entry.path, piece, data):
        raise _Damaged(problem)
    return data


def _folders(manifest: Manifest) -> set[str]:
    paths = [*(Path(folder) for folder in manifest.folders), *(Path(entry.path).parent for entry in manifest.files)]
    return {str(p) for path in paths for p in (path, *path.parents) if str(p) != "."}


def _make_names_durable(files: Files, new: Path, manifest: Manifest) -> None:
    for folder in sorted(_folders(manifest), reverse=True):
        files.fsync_dir(str(new / folder))
    files.fsync_dir(str(new))
    files.fsync_dir(str(new.parent))


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
