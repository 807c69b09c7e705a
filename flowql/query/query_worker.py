"""The process behind `answer_in_child`: answers one interactive query from a copy of the state.

python -m flowql.query.query_worker FILE-DESCRIPTOR

Its priority is lowered before the large imports.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

LEFT_OVER, TENTH = 19, 10  # values of nice: beside a thread that needs all of a processor 1.5 % of it, and a tenth
_PR_SET_PDEATHSIG = 1  # prctl(2)


def lower_priority() -> None:
    """Lowers the priority of this process and its threads; less so with one processor, of which an idle task might get nothing for long."""
    several = (os.cpu_count() or 1) > 1
    os.nice(LEFT_OVER if several else TENTH)
    if several and sys.platform == "linux":  # a thread that wakes up preempts it
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def killed_with_parent() -> bool:
    """Whether the operating system kills this process with its parent (the thread that started it), also while this process is stopped."""
    return sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0


def _end_with_parent(connection: Connection) -> None:
    """The parent sends nothing more: the connection becomes readable only when the parent ends."""
    with suppress(OSError):
        connection.poll(None)
    os._exit(1)


def _answer(connection: Connection) -> None:
    from flowql.query.from_copy import answered
    from flowql.query.query_process import WorkerRequest
    from flowql.runtime.app.allocator import keep_memory
    from flowql.runtime.app.without_pandas import leave_pandas_out

    leave_pandas_out()
    keep_memory()
    request = connection.recv()
    assert isinstance(request, WorkerRequest)
    threading.Thread(target=_end_with_parent, args=(connection,), daemon=True).start()
    connection.send(answered(request))


def main() -> None:
    with suppress(EOFError, OSError), Connection(int(sys.argv[1])) as connection:
        connection.send(killed_with_parent())  # fails if the parent has ended before
        lower_priority()
        _answer(connection)


if __name__ == "__main__":
    main()
