"""Takes a backup: pin, upload what the place does not have, read it back, and write the manifest last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from flowql.backup.places import NOT_MADE, answering, place_at, shown
from flowql.backup.verify import problems
from flowql.config.load import shown_path
from flowql.deploy.pins import check_supported, only_backup, pin_for_backup
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.errors import NOTHING
from flowql.runtime.app.plan_topic import deployed_ms
from flowql.runtime.backup.keeping import Keep, superfluous
from flowql.runtime.backup.manifest import (
    Manifest,
    ManifestDamaged,
    ManifestUnreadable,
    encode_manifest,
    piece_name,
)
from flowql.runtime.backup.pieces import PieceUploads
from flowql.runtime.backup.pinned import Held, NotWhole, check_whole, held, pinned_log, unpin
from flowql.runtime.backup.place import Place
from flowql.runtime.clock import SystemClock, iso_time
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.named import held_still
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.remote.folder import folder_of
from flowql.runtime.remote.objects import RemoteError
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.remote.manifest import Garbage
from flowql.runtime.state.rocks import open_rocks
from flowql.server.running import connect

FOLDER_IN_USE = "FQ5702"
Begin = Callable[[int], None]  # so many bytes are to come


@dataclass(frozen=True, slots=True)
class Taken:
    """A backup that is complete. new_bytes: of it, what the place did not have."""

    manifest: Manifest
    object: str
    new_bytes: int

    def to_data(self) -> dict[str, Any]:
        """The public JSON."""
        return manifest_data(self.manifest) | {"manifest": self.object, "new_bytes": self.new_bytes}


def manifest_data(manifest: Manifest) -> dict[str, Any]:
    """The public JSON of a manifest: without the list of files."""
    return {
        "flowql": manifest.flowql,
        "application_id": manifest.application_id,
        "commit": manifest.commit,
        "state_commit": manifest.state_commit,
        "deployed_at": manifest.deployed_at,
        "taken_at": manifest.taken_at,
        "files": len(manifest.files),
        "bytes": manifest.size,
    }


def take_backup(
    settings: Settings, into: str, *, begin: Begin = lambda n: None, advance: Callable[[int], None] = lambda n: None
) -> Taken:
    """A whole backup in a directory or at a URL. After an error nothing of it is left there, and the project is as it was.

    advance: called with the number of bytes that were uploaded or compared; each byte counts once. Raises CommandError, or RuntimeFailure of a damaged log.
    """
    check_supported(settings)
    _check_log(settings)
    place = place_at(into, settings.application_id)
    _check_place(place, settings.data_dir)
    with only_backup(settings.data_dir), _undone_on_error(place) as put:
        return _taken(settings, place, put, begin, advance)


def delete_old(settings: Settings, place: str, keep: Keep) -> Garbage:
    """Deletes backups of commands that are not kept any more, and the objects that nothing else needs. CommandError; the backups stay then."""
    backups = place_at(place, settings.application_id)
    help_ = f"the backup is made, and nothing was deleted:  flowql doctor --backup {place}"
    with answering(help_):
        try:
            found = superfluous(backups, keep)
        except (ManifestDamaged, ManifestUnreadable) as error:
            raise CommandError(str(error), code=error.code, help=help_) from error
        backups.objects.delete(found.names)
    return found


def _taken(settings: Settings, place: Place, put: list[str], begin: Begin, advance: Callable[[int], None]) -> Taken:
    term = place.take_term("command")
    put.append(place.term_name(term))
    uploads = PieceUploads(place.objects, place.folder, term, put.append)
    _learn(place, uploads)
    with _pinned(settings) as (state_commit, deployed, files):
        taken_at = SystemClock().wall_ms()
        sources = [*files.log, *files.state]
        begin(sum(source.size for source in sources))
        for source in sources:
            for moved in uploads.upload(source):
                advance(moved)
        entries = [uploads.entry(source) for source in sources]
    manifest = Manifest(
        flowql=metadata.version("flowql"),
        application_id=settings.application_id,
        commit=files.commit,
        state_commit=state_commit,
        deployed_at=None if deployed is None else iso_time(deployed),
        taken_at=iso_time(taken_at),
        by="command",
        folders=files.folders,
        files=entries,
    )
    for problem in problems(place, [(path, piece) for path, piece in manifest.pieces() if piece.term == term]):
        raise CommandError(problem, code=NOT_MADE, help="the disk or the store does not keep what is written to it")
    there = {found.name for found in place.objects.list(f"{place.folder}/files")}
    if gone := [n for n in (piece_name(place.folder, *piece) for piece in manifest.pieces()) if n not in there]:
        title = f"{gone[0]} has been removed from {place.url} meanwhile, as no backup needed it any more"
        raise CommandError(title, code=NOT_MADE, help="flowql backup   # once more")
    name = place.name(term, 1, "command")
    put.append(name.object)
    place.put(name, encode_manifest(manifest))
    return Taken(manifest, name.object, uploads.bytes)


def _learn(place: Place, uploads: PieceUploads) -> None:
    """Learns the pieces of the newest readable backup: equal ones are compared and not uploaded again."""
    for name in place.manifests():
        try:
            uploads.learn(place.read(name)[0])
        except RuntimeFailure as error:
            if error.retriable:
                raise
        else:
            return


def _check_log(settings: Settings) -> None:
    """CommandError if there is no log, or one without topics: a backup of it would pass for one of the data. Makes no files."""
    with held_still(DiskFiles(), str(settings.log_dir), still=False) as log:
        if log is not None and log.topics:
            return
    if (settings.state_dir / "CURRENT").exists():
        title = (
            f"{settings.log_dir} holds no log, and the state beside it was made from one: there is nothing to back up"
        )
        raise CommandError(title, code=NOT_MADE, help="put the log back, or  flowql restore --from PLACE --replace")
    title = f"nothing has been deployed to {settings.data_dir} yet: there is nothing to back up"
    raise CommandError(title, code=NOTHING, help="flowql deploy")


def _check_place(place: Place, data_dir: Path) -> None:
    """A directory must be empty or hold backups: else a name was mistyped."""
    if not place.url.startswith("file://"):
        return
    folder, own = folder_of(place.url), data_dir.resolve()
    if own in (folder.resolve(), *folder.resolve().parents):
        title = f"{shown_path(folder)} is in the data directory that it would be a backup of"
        raise CommandError(title, code=FOLDER_IN_USE, help="choose a directory elsewhere, best on another disk")
    if folder.exists() and not folder.is_dir():
        raise CommandError(
            f"{shown_path(folder)} is a file: nothing was written", code=FOLDER_IN_USE, help="choose a directory"
        )
    if folder.is_dir() and any(folder.iterdir()) and not any(folder.glob("*/instance")):
        title = f"{shown_path(folder)} is not empty and holds no backups: nothing was written"
        raise CommandError(title, code=FOLDER_IN_USE, help="choose an empty directory, or one with backups")


@contextmanager
def _undone_on_error(place: Place) -> Iterator[list[str]]:
    """Objects of a failed backup, which are named in the list, are deleted again."""
    put: list[str] = []
    local = folder_of(place.url) if place.url.startswith("file://") else None
    was_there = local is not None and local.exists()
    try:
        yield put
    except BaseException as error:
        with suppress(RemoteError):
            place.objects.delete(put[::-1])  # the manifest first
        if local is not None:
            _remove_empty(local, place.folder, itself=not was_there)
        if isinstance(error, RemoteError):
            title = f"the backup in {shown(place.url)} cannot be made: {error}"
            raise CommandError(title, code=NOT_MADE, help="what was written of it is removed") from error
        if isinstance(error, NotWhole):
            help_ = "flowql doctor   # says more; state that is missing is rebuilt from its inputs at the next start"
            raise CommandError(str(error), code=NOT_MADE, help=help_) from error
        raise


def _remove_empty(local: Path, folder: str, *, itself: bool) -> None:
    """Removes empty directories of an application. itself: the place as well."""
    made = (local / folder).parent
    for path in [*sorted(made.rglob("*"), reverse=True), made, *([local] if itself else [])]:
        with suppress(OSError):  # it is a file, or not empty
            path.rmdir()


@contextmanager
def _pinned(settings: Settings) -> Iterator[tuple[int, int | None, Held]]:
    """The links of `flowql.runtime.backup.pinned`, made by the instance if one runs; removed at the end."""
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
        check_whole(data_dir, settings.application_id, state_commit)
        log = EmbeddedLog(pinned_log(data_dir))
        try:
            deployed = deployed_ms(log, settings.application_id)
        finally:
            log.close()
        yield state_commit, deployed, held(data_dir, settings.application_id)
    finally:
        unpin(data_dir)


def _pin_at_rest(settings: Settings) -> int:
    """As the instance would; InstanceRunning if there is one that does not answer."""
    log = EmbeddedLog(settings.log_dir)
    try:
        log.hold(settings.application_id)
        if not (settings.state_dir / "CURRENT").exists():  # nothing has run yet, or `check_whole` says that it is lost
            log.pin(pinned_log(settings.data_dir))
            return 0
        physical = open_rocks(settings.state_dir)
        try:
            state = StateManager(physical)
        except BaseException:
            physical.close()
            raise
        try:
            return pin_for_backup(settings.data_dir, log, state)
        finally:
            state.close()
    finally:
        log.close()
