"""The process behind `async_workers.AsyncProcess`: awaits calls of the asynchronous functions of one module, many at once.

python -P -m flowql.runtime.functions.async_worker SOCKET LIFELINE PAGE   (file descriptors)

A message is a length and a pickle: lists of calls come, lists of outcomes go. A call that holds the event loop for longer than it may take stands
for all others; it writes its number into the shared page, and ends the process.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import pickle
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from flowql.compiler.functions.registry import AsyncFunction, Function
from flowql.compiler.functions.user import marked
from flowql.runtime.functions.call_results import CallResult, outcome_of
from flowql.runtime.functions.texts import imported
from flowql.runtime.functions.worker import end_with_parent, limit_memory
from flowql.runtime.functions.workers import LENGTH, Code, Failed

LOOK_S = 0.25
STACK_BYTES = 1 << 19  # of a thread with a call that blocks; all of it counts as memory of the process
STACKS_BYTES = 1_000 * STACK_BYTES  # beyond what its functions may have
HELD_UP = 3  # exit status


class Server:
    """Serves calls. culprit: a shared number, 1 more than that of the call that held up all others."""

    def __init__(self, code: Code, connection: socket.socket, culprit: memoryview) -> None:
        self._socket, self._culprit = connection, culprit
        self._functions = _functions(code)
        self._process = os.getpid()
        self._numbers: dict[asyncio.Task[None], tuple[int, float]] = {}  # of calls: their number and timeout
        self._outcomes: list[tuple[int, CallResult]] = []

    async def serve(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._socket)
        self._writer = writer
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, args=(loop,), name="watch", daemon=True).start()
        send(writer, time.process_time())
        while True:
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            for number, name, args in pickle.loads(await reader.readexactly(size)):
                function = self._functions[name]
                task = loop.create_task(self._call(number, function, args))
                self._numbers[task] = number, function.options.timeout_s
                task.add_done_callback(self._numbers.pop)

    async def _call(self, number: int, function: AsyncFunction, args: tuple[Any, ...]) -> None:
        outcome = await outcome_of(function, args)
        if not self._outcomes:
            asyncio.get_running_loop().call_soon(self._reply)
        self._outcomes.append((number, outcome))

    def _reply(self) -> None:
        if os.getpid() != self._process:  # a function has forked: the other process replies
            os._exit(0)
        outcomes, self._outcomes = self._outcomes, []
        send(self._writer, outcomes)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the process where one call holds up all others."""
        last, since = None, 0.0
        while True:
            time.sleep(LOOK_S)
            task = asyncio.current_task(loop)
            if task is None or task is not last:
                last, since = task, time.monotonic()
                continue
            number, timeout_s = self._numbers.get(task, (None, 0.0))
            if number is not None and time.monotonic() - since > timeout_s:
                self._culprit[0] = number + 1
                os._exit(HELD_UP)


def _functions(code: Code) -> dict[str, AsyncFunction]:
    """By their names in SQL. Imports the module."""
    entries = {user.name: user.entry(user.name) for user in marked(imported(code))}
    return {n: e.asynchronous for n, e in entries.items() if isinstance(e, Function) and e.asynchronous is not None}


def send(writer: asyncio.StreamWriter, message: Any) -> None:
    data = pickle.dumps(message, 5)
    writer.write(LENGTH.pack(len(data)) + data)


def main() -> None:
    connection, lifeline, page = map(int, sys.argv[1:])
    end_with_parent(lifeline)
    os.dup2(2, 1)  # what functions print goes where logs do
    theirs = socket.socket(fileno=connection)
    with theirs, suppress(OSError, EOFError, struct.error), theirs.makefile("rb") as requests:
        (size,) = LENGTH.unpack(requests.read(LENGTH.size))
        code = pickle.loads(requests.read(size))
        limit_memory(code.memory_bytes + STACKS_BYTES)
        threading.stack_size(STACK_BYTES)
        try:
            server = Server(code, theirs, memoryview(mmap.mmap(page, mmap.PAGESIZE)).cast("Q"))
        except (Exception, SystemExit) as error:
            data = pickle.dumps(Failed(type(error).__name__, str(error), fails_query=True), 5)
            theirs.sendall(LENGTH.pack(len(data)) + data)
            return
        asyncio.run(server.serve())


if __name__ == "__main__":
    main()
