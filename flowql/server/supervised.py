"""The instance's side of the watchdog process (`flowql.runtime.app.watchdog_process`), which starts it."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from flowql.runtime.app.freeze import TRACE
from flowql.runtime.app.watchdog_process import DUMP, FD, command_of

_PR_SET_PDEATHSIG = 1
_ENDS_BY_ITSELF = ("--until-caught-up", "--bounded", "--help", "-h")

_tell: int | None = None
_again = False


def become_supervised(verb: str, arguments: Sequence[str]) -> None:
    """Replaces this process by the watchdog process, which starts this command again below it, if the command runs an instance until it
    is stopped. Called before much is loaded. A process that the watchdog has started goes on.
    """
    if adopted() or verb not in ("serve", "run") or any(a in _ENDS_BY_ITSELF for a in arguments):
        return
    command = command_of([sys.executable, *sys.orig_argv[1:]])
    os.execv(command[0], command)


def adopted() -> bool:
    """Whether the watchdog process has started this one, which then ends with it."""
    global _tell, _again
    if (given := os.environ.pop(FD, None)) is not None:
        number, _, again = given.partition(" ")
        _tell, _again = int(number), bool(again)
        os.set_inheritable(_tell, False)
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    return _tell is not None


def is_started_again() -> bool:
    """Whether the watchdog process has ended this instance before: options of the first start that the log has on record no longer count."""
    return _again


def tell(data_dir: Path) -> None:
    """The directory is this instance's now: the watchdog may look at its beat file. Nothing without one."""
    global _tell
    if _tell is None:
        return
    with suppress(OSError):
        trace = os.open(data_dir / TRACE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        faulthandler.register(DUMP, file=trace, all_threads=True)
        os.write(_tell, os.fsencode(data_dir.absolute()))
        os.close(_tell)
    _tell = -1
