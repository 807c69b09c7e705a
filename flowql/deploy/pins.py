"""Links for a backup (`flowql.runtime.backup.pinned`): for which targets there are any, and that one process at a time makes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.backup.pinned import UPLOAD, NoRoom, pin, pinned_log, pinned_state, unpin
from flowql.runtime.log.base import Log
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.state.manager import StateManager

UNSUPPORTED, NOT_MADE = "FQ5703", "FQ5706"
LOCK = "backup.lock"


def check_supported(settings: Settings) -> None:
    """CommandError for a target whose data is not all in its directory, or cannot be held still."""
    if settings.kafka is not None:
        raise of_kafka()
    if settings.engine == "spark":
        raise of_spark()


def of_kafka() -> CommandError:
    title = "backups are not supported for targets on Kafka: the cluster holds the log, and lost state comes back from changelogs"
    help_ = "copy the topics with Kafka's own tools; the data directory of this target needs no backup"
    return CommandError(title, code=UNSUPPORTED, help=help_)


def of_spark() -> CommandError:
    title = "backups are not supported for targets with `engine: spark`: its checkpoints cannot be held still while Spark runs"
    help_ = "flowql stop, then copy the data directory; or use a target with `engine: runtime`"
    return CommandError(title, code=UNSUPPORTED, help=help_)


def pin_for_backup(data_dir: Path, log: Log, state: StateManager) -> int:
    """Make the links; the commit that the state is of. The process has the directory to itself. CommandError."""
    if not isinstance(log, EmbeddedLog):
        raise of_kafka()
    try:
        return pin(data_dir, log, state)
    except NoRoom as error:
        raise CommandError(str(error), code=NOT_MADE, help="make room; the instance needs it as well") from error


@contextmanager
def only_backup(data_dir: Path) -> Iterator[None]:
    """Within, no other process makes a backup of the directory. CommandError if one does."""
    lock = DiskFiles().lock(str(data_dir / LOCK), wait=False)
    if lock is None:
        title = f"another process is making a backup of {data_dir}"
        raise CommandError(title, code=NOT_MADE, help="wait until it has ended")
    try:
        yield
    finally:
        lock.release()


def unpin_left(data_dir: Path) -> None:
    """Remove the links of a backup or an instance that was killed: they keep unused files on the disk."""
    unpin(data_dir, UPLOAD)  # this process has the directory
    if not (pinned_log(data_dir).exists() or pinned_state(data_dir).exists()):
        return
    lock = DiskFiles().lock(str(data_dir / LOCK), wait=False)
    if lock is not None:
        unpin(data_dir)
        lock.release()
