"""Puts a directory in the place of another one, which gets another name: in one step where the system has one."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from flowql.runtime.log.files import DiskFiles

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux
_NOT_HERE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def put_in_place(new: Path, place: Path, aside: Path | None) -> None:
    """`new` becomes `place`. aside: the name for what is there now; None if that is nothing, or an empty directory.

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
