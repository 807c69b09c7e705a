"""The process behind `workers.Worker`: runs the functions of one module for its parent, one call after the other.

python -P -m flowql.runtime.functions.worker SOCKET LIFELINE PAGE   (file descriptors)
"""

from __future__ import annotations

import asyncio
import fcntl
import mmap
import os
import pickle
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from decimal import Decimal
from multiprocessing.connection import wait  # select(2) takes no descriptor above 1,023
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from flowql.compiler.functions.bounds import VALUE_BYTES_MAX, ValueTooLarge
from flowql.compiler.functions.registry import FAILURES, AggregateFunction, AsyncFunction, Function
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.user import UserDefined, UserFunction, marked
from flowql.compiler.functions.user_aggregates import UserAggregate, announced
from flowql.compiler.functions.user_columns import column_types, decimals_of
from flowql.compiler.functions.user_vectorized import UserVectorFunction
from flowql.compiler.plan.types import BIGINT, SqlType, array
from flowql.runtime.batch import to_arrow, to_python
from flowql.runtime.functions.call_results import CallResult, outcome_of
from flowql.runtime.functions.failures import described, frames_of, text_of
from flowql.runtime.functions.texts import imported
from flowql.runtime.functions.workers import LENGTH, AggregatePart, Code, Failed, Request, from_ipc, to_ipc


def outcomes_of(
    function: AsyncFunction, rows: Sequence[tuple[Any, ...]], sign_of_life: Callable[[], None]
) -> list[CallResult]:
    """One for each row of arguments. sign_of_life: called when a call begins, and when it has an outcome."""

    async def of_all() -> list[CallResult]:
        free = asyncio.Semaphore(function.options.max_in_flight)
        return await asyncio.gather(*(one(free, args) for args in rows))

    async def one(free: asyncio.Semaphore, args: tuple[Any, ...]) -> CallResult:
        if any(args[n] is None for n in function.required):
            return CallResult()
        async with free:
            sign_of_life()
            outcome = await outcome_of(function, args)
            sign_of_life()
        return outcome

    return asyncio.run(of_all())


REPLY_BYTES_MAX = 4 * VALUE_BYTES_MAX  # the parent reads a reply in one call, which keeps the lock of its interpreter


def end_with_parent(lifeline: int) -> None:
    """SIGIO ends this process when the other end of the pipe closes, also while a function holds the interpreter lock."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if wait([lifeline], 0):  # it has ended before
        os._exit(1)


def limit_memory(more_bytes: int) -> None:
    """Beyond what the process has now, an allocation is refused: MemoryError. Counted is what can be written to, not what is only reserved."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        limit = pages * mmap.PAGESIZE + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


class Server:
    """Serves requests. begun: how many calls it has begun, for its parent to see."""

    def __init__(self, code: Code, begun: memoryview) -> None:
        """Imports the module."""
        self._begun = begun
        self._users = {user.name: user for user in marked(imported(code))}
        self._bound: dict[tuple[str, str | None], Callable[..., Any]] = {}
        self._types: dict[str, tuple[SqlType, ...]] = {}

    def reply(self, request: Request) -> Any:
        """The result, or how it failed."""
        user = self._users[request.function]
        try:
            if isinstance(request.given, tuple):
                self._begun[0] += 1
                if request.part in ("add_many", "result_many"):
                    return self._of_groups(user, request.part, *request.given)
                if request.part == "add_runs":
                    assert isinstance(user, UserAggregate)
                    accumulators, offsets, columns = request.given
                    return user.add_runs(accumulators, offsets, columns, self._begin)
                return self._call(user, request.part)(*request.given)
            columns = from_ipc(request.given)
            if isinstance(user, UserVectorFunction):
                self._begun[0] += 1
                return to_ipc([user.of_columns(columns)]), []
            return self._of_lists(user, columns[0]) if request.part == "of_lists" else self._of_rows(user, columns)
        except Exception as error:
            kind = "MemoryError" if isinstance(error, MemoryError) else type(error).__name__  # Arrow has one of its own
            return Failed(kind, f"{text_of(error)}{frames_of(error)}", fails_query=isinstance(error, FAILURES))

    def _call(self, user: UserDefined, part: AggregatePart | None = None) -> Callable[..., Any]:
        """A function, or a part of an aggregate, over reference values."""
        found = self._bound.get((user.name, part))
        if found is None:
            found = self._bound[user.name, part] = _bound(user, part)
        return found

    def _of_groups(
        self, user: UserDefined, part: Literal["add_many", "result_many"], groups: Sequence[Any]
    ) -> list[Any]:
        """The results of an aggregate's `add_many` and `result_many`."""
        if part == "result_many":
            result = self._call(user, "result")
            return [self._attempt(result, acc) for acc in groups]
        add, made = self._call(user, "add"), []
        for acc, rows in groups:
            failed = []
            for n, args in enumerate(rows):
                after, failure = self._attempt(add, acc, *args)
                if failure:
                    failed.append((n, failure))
                else:
                    acc = after
            made.append((acc, failed))
        return made

    def _attempt(self, call: Callable[..., Any], *args: Any) -> tuple[Any, str]:
        """The value, and why there is none."""
        self._begun[0] += 1
        try:
            return call(*args), ""
        except (*FAILURES, MemoryError):
            raise
        except Exception as error:
            return None, described(error)

    def _begin(self) -> None:
        self._begun[0] += 1

    def _of_rows(self, user: UserDefined, columns: Sequence[pa.Array]) -> tuple[bytes, list[int]]:
        """The values, and which rows have none as the function raised."""
        assert isinstance(user, UserFunction)
        rows = self._rows(user, columns)
        if user.asynchronous is not None:
            return self._of_all_rows(user, rows)
        call, required = self._call(user), user.required

        def value(args: tuple[Any, ...]) -> Any:
            return None if None in args and any(args[i] is None for i in required) else call(*args)

        return self._each(value, rows, array(user.result) if user.table else user.result)

    def _of_lists(self, user: UserDefined, groups: pa.ListArray) -> tuple[bytes, list[int]]:
        """As `_of_rows`, of an aggregate: a value for all rows of each group."""
        assert isinstance(user, UserAggregate)
        rows = self._rows(user, groups.values.flatten())
        of_rows, offsets, is_valid = self._call(user, "of_rows"), groups.offsets.to_pylist(), groups.is_valid()
        spans = zip(offsets[:-1], offsets[1:], is_valid.to_pylist(), strict=True)
        lists = (rows[start:end] if valid else [] for start, end, valid in spans)
        return self._each(lambda group: of_rows(announced(group, self._begin)), lists, user.result)

    def _rows(self, user: UserFunction | UserAggregate, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """The arguments of each call."""
        types = self._types.get(user.name)
        if types is None:
            types = self._types[user.name] = column_types(user)
        if not types:
            return [()] * len(columns[0])
        values = [to_python(c, t) for c, t in zip(columns, types, strict=True)]
        for place in decimals_of(user):
            values[place] = [None if text is None else Decimal(text) for text in values[place]]
        return list(zip(*values, strict=True))

    def _each(self, call: Callable[[Any], Any], given: Iterable[Any], result: SqlType) -> tuple[bytes, list[int]]:
        begun = self._begun
        values: list[Any] = []
        failed: list[int] = []
        for each in given:
            begun[0] += 1
            try:
                values.append(call(each))
            except (*FAILURES, MemoryError):
                raise
            except Exception:
                failed.append(len(values))
                values.append(None)
        return to_ipc([to_arrow(values, result)]), failed

    def _of_all_rows(self, user: UserFunction, rows: Sequence[tuple[Any, ...]]) -> tuple[bytes, list[int]]:
        """As `_of_rows`, with many calls at once. Attempts of rows that fail are made again when they are asked for alone."""
        function = user.entry(user.name).asynchronous
        assert function is not None
        outcomes = outcomes_of(function, rows, self._begin)
        failed = [n for n, o in enumerate(outcomes) if o.error or o.again_ms is not None]
        return to_ipc([to_arrow([o.value for o in outcomes], user.result)]), failed


def _bound(user: UserDefined, part: AggregatePart | None) -> Callable[..., Any]:
    entry, any_ = user.entry(user.name), Resolution((), BIGINT)  # at which user-defined functions do not look
    if isinstance(entry, Function):
        return entry.reference(any_)
    assert isinstance(entry, AggregateFunction)
    assert part is not None
    if part == "of_rows":
        assert entry.of_rows is not None
        return entry.of_rows(any_)
    bind: Callable[..., Callable[..., Any]] = getattr(entry, part)
    return bind(any_, ())


def _serve(connection: socket.socket, begun: memoryview) -> None:
    with connection, connection.makefile("rb", 1 << 20) as requests:

        def receive() -> Any:
            (size,) = LENGTH.unpack(requests.read(LENGTH.size))
            return pickle.loads(requests.read(size))

        def send(reply: Any) -> None:
            data = pickle.dumps(reply, 5)
            if len(data) > REPLY_BYTES_MAX:
                text = f"the results of one call would have {len(data):,} bytes, and at most {REPLY_BYTES_MAX:,} are allowed"
                data = pickle.dumps(Failed(ValueTooLarge.__name__, text, fails_query=False), 5)
            connection.sendall(LENGTH.pack(len(data)) + data)

        code = receive()
        limit_memory(code.memory_bytes)
        try:
            server = Server(code, begun)
        except (Exception, SystemExit) as error:
            send(Failed(type(error).__name__, str(error), fails_query=True))
            return
        send(time.process_time())
        process = os.getpid()
        while wait([connection], code.idle_s):
            reply = server.reply(receive())
            if (
                os.getpid() != process
            ):  # the function has forked: a second reply would be taken for that of the next call
                os._exit(0)
            send(reply)


def main() -> None:
    connection, lifeline, page = map(int, sys.argv[1:])
    end_with_parent(lifeline)
    os.dup2(2, 1)  # what functions print goes where logs do
    with suppress(OSError, struct.error):  # the parent has closed its end
        _serve(socket.socket(fileno=connection), memoryview(mmap.mmap(page, mmap.PAGESIZE)).cast("Q"))


if __name__ == "__main__":
    main()
