"""Takes a backup: pin, copy, read back, and write the manifest last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import ENOSPC
from importlib import metadata
from pathlib import Path

from flowql.backup.copying import Part, copy_part, make_folders, make_names_durable
from flowql.backup.manifest import FILE, Manifest, rendered
from flowql.backup.verify import Advance, check_backup
from flowql.config.load import shown_path
from flowql.deploy.at_rest import PROCESS_ID
from flowql.deploy.pins import NOT_MADE, check_supported, only_backup, pin, pinned_log, pinned_state, unpin
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.errors import NOTHING
from flowql.runtime.app.plan_topic import deployed_ms
from flowql.runtime.errors import LogCorrupt, remedy_when_full
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.named import held_still
from flowql.runtime.log.embedded.pins import pinned_files, pinned_folders
from flowql.runtime.log.embedded.segment import is_full
from flowql.runtime.log.files import DiskFiles, Files
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.rocks import open_rocks
from flowql.server.running import connect

FOLDER_IN_USE = "FQ5702"
Begin = Callable[[int], None]  # so many bytes are to come: each twice, copied and read back


@dataclass(frozen=True, slots=True)
class _Pinned:
    """The pinned parts to copy; fields as in `Manifest`."""

    commit: int
    state_commit: int
    deployed_at: str | None
    folders: tuple[str, ...]
    parts: tuple[Part, ...]


def take_backup(
    settings: Settings,
    into: Path,
    *,
    begin: Begin = lambda n: None,
    advance: Advance = lambda n: None,
    files: Files | None = None,
) -> Manifest:
    """A whole backup in `into`, which is new or empty. After an error nothing of it is left there, and the project is as it was.

    Raises CommandError, or RuntimeFailure of a damaged log.
    """
    files = files or DiskFiles()
    check_supported(settings)
    _check_log(settings)
    into = into.absolute()
    _check_folder(into, settings.data_dir)
    with only_backup(settings.data_dir), _undone_on_error(into):
        with _pinned(settings, files) as pinned:
            begin(2 * sum(part.size for part in pinned.parts))
            make_folders(files, into, pinned.folders)
            entries = tuple(copy_part(files, part, into, advance) for part in pinned.parts)
        make_names_durable(files, into, pinned.folders)
        manifest = Manifest(
            flowql=metadata.version("flowql"),
            application_id=settings.application_id,
            commit=pinned.commit,
            state_commit=pinned.state_commit,
            deployed_at=pinned.deployed_at,
            taken_at=iso(datetime.now(UTC)),
            folders=pinned.folders,
            files=entries,
        )
        check_backup(into, manifest, advance)
        _write_manifest(files, into, manifest)
    return manifest


def _check_log(settings: Settings) -> None:
    """CommandError if there is no log, or one without topics: a backup of it would pass for one of the data. Makes no files."""
    with held_still(DiskFiles(), str(settings.log_dir), still=False) as log:
        if log is not None and log.topics:
            return
    if (settings.state_dir / "CURRENT").exists():
        title = (
            f"{settings.log_dir} holds no log, and the state beside it was made from one: there is nothing to back up"
        )
        raise CommandError(title, code=NOT_MADE, help="put the log back, or  flowql restore DIR --replace")
    title = f"nothing has been deployed to {settings.data_dir} yet: there is nothing to back up"
    raise CommandError(title, code=NOTHING, help="flowql deploy")


def iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _check_folder(into: Path, data_dir: Path) -> None:
    own = data_dir.resolve()
    if own in (into.resolve(), *into.resolve().parents):
        title = f"{shown_path(into)} is in the data directory that it would be a backup of"
        raise CommandError(title, code=FOLDER_IN_USE, help="choose a directory elsewhere, best on another disk")
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        what = "is not empty" if into.is_dir() else "is a file"
        torn = into.is_dir() and (into / "log").is_dir() and not (into / FILE).exists()
        left = ", and holds what is left of a backup that was interrupted" if torn else ""
        title = f"{shown_path(into)} {what}{left}: nothing was written"
        raise CommandError(title, code=FOLDER_IN_USE, help="choose another directory, or remove this one")


@contextmanager
def _undone_on_error(into: Path) -> Iterator[None]:
    """What a failed backup has written is removed again: it was empty before."""
    was_there = into.exists()
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        yield
    except BaseException as error:
        _clear(into, itself=not was_there)
        if isinstance(error, OSError) and is_full(error):
            title = f"there is no space for the backup in {shown_path(into)} ({error.strerror})"
            remedy = "name a larger disk" if error.errno == ENOSPC else remedy_when_full(str(error))
            raise CommandError(title, code=NOT_MADE, help=f"what was written of it is removed; {remedy}") from error
        raise


def _clear(folder: Path, *, itself: bool) -> None:
    for path in list(folder.iterdir()):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if itself:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def _pinned(settings: Settings, files: Files) -> Iterator[_Pinned]:
    """The links of `flowql.deploy.pins`, made by the instance if one runs; removed at the end."""
    data_dir = settings.data_dir
    unpin(data_dir)
    try:
        client = connect(data_dir)
        if client is None:
            state_commit = _pin_at_rest(settings)
        else:
            try:
                state_commit = client.pin()
            finally:
                client.close()
        yield _described(settings, files, state_commit)
    finally:
        unpin(data_dir)


def _pin_at_rest(settings: Settings) -> int:
    """As the instance would; InstanceRunning if there is one that does not answer."""
    log = EmbeddedLog(settings.log_dir)
    try:
        log.hold(settings.application_id)
        if not (settings.state_dir / "CURRENT").exists():  # nothing has run yet, or `_check_whole` says that it is lost
            log.pin(pinned_log(settings.data_dir))
            return 0
        physical = open_rocks(settings.state_dir)
        try:
            state = StateManager(physical)
        except BaseException:
            physical.close()
            raise
        try:
            return pin(settings.data_dir, log, state)
        finally:
            state.close()
    finally:
        log.close()


def _described(settings: Settings, files: Files, state_commit: int) -> _Pinned:
    log_dir, state_dir = str(pinned_log(settings.data_dir)), pinned_state(settings.data_dir)
    log = EmbeddedLog(log_dir)  # only to read: see `flowql.runtime.log.embedded.pins`
    try:
        commit, deployed = log.last_sequence(settings.application_id), deployed_ms(log, settings.application_id)
        _check_whole(log, settings, state_commit, commit)
    finally:
        log.close()
    parts = [Part(n.path, _placed(n.path, log_dir, "log"), n.length) for n in pinned_files(files, log_dir)]
    state_files = sorted(p for p in state_dir.rglob("*") if p.is_file()) if state_dir.is_dir() else []
    parts += [Part(str(p), _placed(str(p), str(state_dir), "state"), p.stat().st_size) for p in state_files]
    process_id = settings.data_dir / PROCESS_ID
    if process_id.exists():
        parts.append(Part(str(process_id), PROCESS_ID, process_id.stat().st_size))
    folders = ["log", "state", *(_placed(f, log_dir, "log") for f in pinned_folders(files, log_dir))]
    at = None if deployed is None else iso(datetime.fromtimestamp(deployed / 1000, UTC))
    return _Pinned(commit, state_commit, at, tuple(folders), tuple(parts))


def _check_whole(log: EmbeddedLog, settings: Settings, state_commit: int, commit: int) -> None:
    """Copied state and the log's redo make the state of `commit`, as they would at a start."""
    try:
        redone = sum(1 for _ in log.redo_after(settings.application_id, state_commit))
    except LogCorrupt as error:
        raise _not_whole(settings, state_commit, commit, f": {error}") from error
    if state_commit + redone != commit:
        raise _not_whole(settings, state_commit, commit)


def _not_whole(settings: Settings, state_commit: int, commit: int, why: str = "") -> CommandError:
    title = f"the state in {settings.data_dir} is at commit {state_commit} and does not reach commit {commit} of the log{why}"
    help_ = "flowql doctor   # says more; state that is missing is rebuilt from its inputs at the next start"
    return CommandError(title, code=NOT_MADE, help=help_)


def _placed(path: str, below: str, folder: str) -> str:
    return f"{folder}/{Path(path).relative_to(below).as_posix()}"


def _write_manifest(files: Files, into: Path, manifest: Manifest) -> None:
    new = into / f"{FILE}.new"
    file = files.open(str(new), create=True, write=True)
    try:
        file.pwrite(0, [rendered(manifest)])
        file.fsync()
    finally:
        file.close()
    files.rename(str(new), str(into / FILE))
    files.fsync_dir(str(into))
