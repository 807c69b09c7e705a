"""How much memory there is, and how much of it a target takes where nothing is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from flowql.runtime.budget import MIB

DEFAULT_MIN, DEFAULT_MAX = 256 * MIB, 1024 * MIB
_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def memory_there_is(groups: Path = _GROUPS, mount: Path = _MOUNT) -> int:
    """The memory of the machine in bytes, or the limit of this process's container or control group, if that is less."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits(groups, mount)])


def default_memory_bytes(there_is: int) -> int:
    """A quarter, as others run on the machine, too; at least 256 MB, and at most 1 GB: more is asked for by name."""
    return max(DEFAULT_MIN, min(DEFAULT_MAX, there_is // 4))


def _limits(groups: Path, mount: Path) -> Iterator[int]:
    """The limits of control groups (both versions): the process's own and those around it."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):  # of version 1 several may be mounted as one
            continue
        joined = mount / controllers
        of_memory = joined if joined.is_dir() else mount / "memory"
        root, name = (of_memory, "memory.limit_in_bytes") if controllers else (mount, "memory.max")
        inside = Path(path.lstrip("/"))
        for folder in (
            inside,
            *inside.parents,
        ):  # in a container the mount shows the group itself, whatever its path says
            try:
                text = (root / folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield int(text)
