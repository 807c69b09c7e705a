"""Hard links that hold still what a backup copies: to the state of one commit and to the log of that commit or a later one.

The instance makes them between two commits, or the command that has locked the directory; both take milliseconds. Copies are made from the links, while
commits, retention and compaction go on.

The invariant: *the state of commit S, and a log that has at least S, with all redo after S*. Each log that was made from the first one by
commits keeps it until redo after S is trimmed.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flowql.runtime.backup.pieces import Source
from flowql.runtime.errors import LogCorrupt, RuntimeFailure
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.embedded.pins import pinned_files, pinned_folders
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.state.manager import StateManager

BACKUP, UPLOAD = "pinned", "uploading"  # in `log` and in `state`: links need the same file system
ROOM_LEAST = 64 << 20  # a pin writes what RocksDB has in memory to the disk of the state
_GROWS = (".arrows", ".index", ".bin")


class NotWhole(RuntimeFailure, code="FQ5706"):
    """State and log do not make the state of the last commit."""


class NoRoom(RuntimeFailure, code="FQ5706"):
    """The disk of the data directory is nearly full."""


@dataclass(frozen=True, slots=True)
class Held:
    """The files behind the links. state: empty if only the log was held. redo_lost: the last commit whose redo is not in the log any more."""

    commit: int
    redo_lost: int
    folders: Sequence[str]
    log: Sequence[Source]
    state: Sequence[Source]


def pinned_log(data_dir: Path, name: str = BACKUP) -> Path:
    return data_dir / "log" / name


def pinned_state(data_dir: Path, name: str = BACKUP) -> Path:
    return data_dir / "state" / name


def pin(data_dir: Path, log: EmbeddedLog, state: StateManager, name: str = BACKUP) -> int:
    """Make the links to state and log; the commit that the state is of. The process has the directory to itself."""
    free = shutil.disk_usage(data_dir).free
    if free < ROOM_LEAST:
        raise NoRoom(
            f"the disk of {data_dir} has only {free >> 20} MB left, and a backup needs {ROOM_LEAST >> 20} MB there to begin"
        )
    state.flush()  # so that little is left to write while the next commit waits
    return state.checkpoint(pinned_state(data_dir, name), lambda: log.pin(pinned_log(data_dir, name)))


def unpin(data_dir: Path, name: str = BACKUP) -> None:
    """Remove the links, and what an interrupted call has left of them."""
    state = pinned_state(data_dir, name)
    for path in (pinned_log(data_dir, name), state, state.with_suffix(".tmp")):
        shutil.rmtree(path, ignore_errors=True)


def held(data_dir: Path, application_id: str, name: str = BACKUP) -> Held:
    """The files behind the links. LogCorrupt if one is shorter than what is committed."""
    files, log_dir, state_dir = DiskFiles(), str(pinned_log(data_dir, name)), pinned_state(data_dir, name)
    log = EmbeddedLog(log_dir)  # only to read: see `flowql.runtime.log.embedded.pins`
    try:
        commit, redo_lost = log.last_sequence(application_id), log.redo_lost(application_id)
    finally:
        log.close()
    log_files = [
        Source(n.path, _placed(n.path, log_dir, "log"), n.length, n.path.endswith(_GROWS))
        for n in pinned_files(files, log_dir)
    ]
    state_files = sorted(p for p in state_dir.rglob("*") if p.is_file()) if state_dir.is_dir() else []
    sources = [
        Source(str(p), _placed(str(p), str(state_dir), "state"), p.stat().st_size, grows=False) for p in state_files
    ]
    folders = ["log", "state", *(_placed(f, log_dir, "log") for f in pinned_folders(files, log_dir))]
    return Held(commit, redo_lost, folders, log_files, sources)


def check_whole(data_dir: Path, application_id: str, state_commit: int) -> None:
    """NotWhole unless state of this commit and the log's redo make the state of the last commit, as they would at a start."""
    log, why = EmbeddedLog(pinned_log(data_dir, BACKUP)), ""
    try:
        commit = log.last_sequence(application_id)
        redone = sum(1 for _ in log.redo_after(application_id, state_commit))
        if state_commit + redone == commit:
            return
    except LogCorrupt as error:
        why = f": {error}"
    finally:
        log.close()
    raise NotWhole(
        f"the state in {data_dir} is at commit {state_commit} and does not reach commit {commit} of the log{why}"
    )


def _placed(path: str, below: str, folder: str) -> str:
    return f"{folder}/{Path(path).relative_to(below).as_posix()}"
