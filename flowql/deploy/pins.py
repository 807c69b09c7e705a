"""What a backup copies, held still: hard links to the state of one commit and to the log of that commit or a later one.

The instance that has the directory makes them between two commits, or the command that has locked it; both take milliseconds.
The copy is made from the links, while commits, retention and compaction go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.runtime.log.base import Log
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.state.manager import StateManager

UNSUPPORTED, NOT_MADE = "FQ5703", "FQ5706"
PINNED = "pinned"  # in `log` and in `state`: links need the same file system
LOCK = "backup.lock"
ROOM_LEAST = 64 << 20  # a pin writes what RocksDB has in memory to the disk of the state


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


def pinned_log(data_dir: Path) -> Path:
    return data_dir / "log" / PINNED


def pinned_state(data_dir: Path) -> Path:
    return data_dir / "state" / PINNED


def pin(data_dir: Path, log: Log, state: StateManager) -> int:
    """Make the links; the commit that the state is of. The process has the directory to itself."""
    if not isinstance(log, EmbeddedLog):
        raise of_kafka()
    _check_room(data_dir)
    state.flush()  # so that little is left to write while the next commit waits
    return state.checkpoint(pinned_state(data_dir), lambda: log.pin(pinned_log(data_dir)))


def unpin(data_dir: Path) -> None:
    """Remove the links, and what an interrupted call has left of them."""
    for path in (pinned_log(data_dir), pinned_state(data_dir), pinned_state(data_dir).with_suffix(".tmp")):
        shutil.rmtree(path, ignore_errors=True)


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
    """Remove the links of a backup that was killed: they keep unused files on the disk."""
    if not (pinned_log(data_dir).exists() or pinned_state(data_dir).exists()):
        return
    lock = DiskFiles().lock(str(data_dir / LOCK), wait=False)
    if lock is not None:
        unpin(data_dir)
        lock.release()


def _check_room(data_dir: Path) -> None:
    free = shutil.disk_usage(data_dir).free
    if free < ROOM_LEAST:
        title = f"the disk of {data_dir} has only {free >> 20} MB left, and a backup needs {ROOM_LEAST >> 20} MB there to begin"
        raise CommandError(title, code=NOT_MADE, help="make room; the instance needs it as well")
