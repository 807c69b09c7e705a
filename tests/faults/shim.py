"""The library that makes I/O fail: compiled where it is needed, and its handle in a process that has it loaded."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
KINDS = ("enospc", "eio", "torn", "halved")  # of writes
READS = "unread"  # EIO of a call that reads


class NoCompiler(Exception):
    """The library cannot be made here; says why."""


def compiler() -> list[str]:
    """A command that takes the arguments of cc."""
    if sys.platform != "linux":
        raise NoCompiler("LD_PRELOAD and /proc are Linux's")
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    raise NoCompiler("no C compiler: neither cc nor the package ziglang")


def build(folder: Path) -> Path:
    """The library, made in a folder."""
    library = folder / "shim.so"
    command = [*compiler(), "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoCompiler(f"{command[0]} cannot make the library: {done.stderr.strip()}")
    return library


def environment(library: Path) -> dict[str, str]:
    """That of a process that has it loaded."""
    return {**os.environ, "LD_PRELOAD": str(library)}


class Shim:
    """The library in this process, which was started with it."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.fault_met.restype = ctypes.c_char_p
        self._library.fault_seen.restype = ctypes.c_long
        self._library.fault_clock.argtypes = [ctypes.c_long]
        self._library.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_long]

    def arm(self, folder: Path, kind: str, at: int, times: int = 1) -> None:
        """From now on I/O calls below `folder` are counted, and those from the n-th on fail. kind: none, or of `KINDS`."""
        self._library.fault_arm(str(folder).encode(), kind.encode(), at, times)

    def set_clock(self, by_s: int) -> None:
        """The wall clock of this process is set forward, or back with a negative number."""
        self._library.fault_clock(by_s)

    @property
    def seen(self) -> int:
        """Calls below the folder since it was armed."""
        return int(self._library.fault_seen())

    @property
    def met(self) -> str:
        """The first call that failed; empty if none has."""
        return str(self._library.fault_met().decode())
