"""The process behind `query_process.QueryProcess`: answers interactive queries of its parent, one after another.

python -P -m flowql.query.query_worker DATA FILES   (descriptors of sockets)

Its priority is lowered before the large imports, and further for large queries about tables.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from flowql.query.in_child import Server
    from flowql.query.query_process import WorkerReply, WorkerRequest

LEFT_OVER, TENTH = 19, 10  # values of nice: beside a thread that needs all of a processor 1.5 % of it, and a tenth
MAPPED_BYTES = 256 << 20  # stacks and heaps of the threads of RocksDB
_PR_SET_PDEATHSIG = 1  # prctl(2)


def take_what_is_left_over() -> None:
    """Makes this thread an idle task of the operating system; not with one processor, of which it might get nothing for long."""
    if (os.cpu_count() or 1) > 1 and sys.platform == "linux":  # where priorities are those of threads
        os.setpriority(os.PRIO_PROCESS, 0, LEFT_OVER)
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # a thread that wakes up preempts it


def killed_with_parent() -> bool:
    """Whether the operating system kills this process with its parent (the thread that started it), also while this process is stopped."""
    return sys.platform == "linux" and ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0


class MemoryLimit:
    """Beyond what this process has when this is made, and a number of bytes, an allocation is refused. Counted is what can be written to, not what
    is only reserved.

    The limit is a soft one: processes of user-defined functions, which this process starts, set their own.
    """

    def __init__(self, more_bytes: int) -> None:
        self._bytes = more_bytes
        if sys.platform == "linux":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            self._bytes += int(Path("/proc/self/statm").read_text().split()[5]) * mmap.PAGESIZE

    def set(self, *, reads_files: bool) -> None:
        """reads_files: a copy of the state, whose engine maps memory for its threads without using it."""
        if sys.platform == "linux":
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (self._bytes + (MAPPED_BYTES if reads_files else 0), hard))


def killed_first() -> None:
    """Where memory runs out, the operating system ends this process rather than its parent."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _serve(data: socket.socket, files: socket.socket, stoppable: bool) -> None:
    from flowql.query.in_child import Server
    from flowql.query.query_process import SocketWriter, WorkerReady, receive, send
    from flowql.runtime.app.without_pandas import leave_pandas_out

    leave_pandas_out()
    incoming, out = data.makefile("rb"), SocketWriter(data)
    limits = receive(incoming)
    server = Server(limits.queries, incoming)
    limit = MemoryLimit(limits.memory_bytes)
    send(out, WorkerReady(stoppable))
    while True:
        _, (file, *_), _, _ = socket.recv_fds(files, 1, 1)
        request = receive(incoming)
        limit.set(reads_files=request.copied is not None)
        with open(file, "wb") as answer:
            reply = _large(server, request, answer) if request.copied else server.answered(request, answer)
        send(out, reply)
        server.drain()


def _large(server: Server, request: WorkerRequest, answer: IO[bytes]) -> WorkerReply:
    """In a thread of its own: a priority that was lowered cannot be raised again."""
    replies: list[WorkerReply] = []

    def run() -> None:
        take_what_is_left_over()
        replies.append(server.answered(request, answer))

    thread = threading.Thread(target=run, name="large-query")
    thread.start()
    thread.join()
    return replies[0]


def main() -> None:
    stoppable = killed_with_parent()
    os.nice(TENTH)
    killed_first()
    data, files = (socket.socket(fileno=int(n)) for n in sys.argv[1:3])
    with suppress(EOFError, OSError, ValueError):
        _serve(data, files, stoppable)


if __name__ == "__main__":
    main()
