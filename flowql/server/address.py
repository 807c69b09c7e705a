"""`instance.json`: where the instance of a data directory listens. Only its owner may read it; it holds the token."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

FILE = "instance.json"
LOST, NOT_RUNNING = "FQ5302", "FQ5306"
SEEN = "flowql-seen"  # the header with a commit that an answer must show, on the local port


@dataclass(frozen=True, slots=True)
class Address:
    """A listening instance. started: when its process was, which tells it from a later one with the same number.

    folder: device and inode of its data directory, which tell it from a copy of that directory. None: of an older version. settings: what it was
    started with, as `Settings.at_start`.
    """

    pid: int
    port: int
    token: str
    started: float
    folder: str | None = None
    settings: str = ""


def own_address(port: int, token: str, settings: str = "") -> Address:
    import psutil  # 0.02 s

    return Address(os.getpid(), port, token, psutil.Process().create_time(), settings=settings)


def write_address(data_dir: Path, address: Address) -> None:
    """Replace the file at once; it is never readable by others."""
    path = data_dir / f"{FILE}.{address.pid}"
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(asdict(replace(address, folder=_folder(data_dir))), file)
    path.replace(data_dir / FILE)


def remove_address(data_dir: Path) -> None:
    (data_dir / FILE).unlink(missing_ok=True)


def read_address(data_dir: Path) -> Address | None:
    """The address of a process that lives and has this data directory; None for one that is stale, unreadable or copied from elsewhere."""
    try:
        address = Address(**json.loads((data_dir / FILE).read_text(encoding="utf-8")))
        folder = _folder(data_dir)
    except (FileNotFoundError, ValueError, TypeError):
        return None
    is_copied = address.folder not in (None, folder)
    return address if not is_copied and is_alive(address.pid, address.started) else None


def _folder(data_dir: Path) -> str:
    """The same after the directory was moved, another one for a copy of it."""
    found = data_dir.stat()
    return f"{found.st_dev}:{found.st_ino}"


def is_alive(pid: int, started: float | None = None) -> bool:
    """The process runs (one that is dead and not yet collected does not) and is the one meant."""
    import psutil

    try:
        process = psutil.Process(pid)
        same = started is None or abs(process.create_time() - started) < 1.0
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
