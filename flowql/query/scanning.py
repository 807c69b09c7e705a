"""Rows of a store read by another process, for a question that would disturb the queries that run.

To read a row and make it part of an Arrow batch takes about 2 us of the interpreter lock, which queries need. The other process reads a copy of
the state (`flowql.runtime.state.copy`) at the lowest priority: it takes processors that nobody else needs. Measured beside a table of 10 million
keys on two processors, 24 s each: with priority 10 queries lost 2 to 20 % of their throughput, with 19 nothing that could be seen. It ends with
what it was started for, or with this process.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from flowql.query.lookup import Range
from flowql.query.views import ViewMaker

PROGRAM = "flowql.query.scan_worker"
LEFT_OVER, TENTH = 19, 10  # values of nice: beside a thread that needs all of a processor 1.5 % of it, and a tenth
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Scan:
    """What to read: a range of the store that `make` makes a view of, in the copy at `path`. The rest as of `StoreRelation.batches`."""

    path: Path
    owned: frozenset[str] | None
    make: ViewMaker
    range: Range
    columns: frozenset[str] | None


class ScanFailed(Exception):
    """Rows are missing: the process failed, or could not be started."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message. error: why rows are missing; empty if none are."""

    error: str = ""


def scanned(scan: Scan, schema: pa.Schema, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    """All of its rows, or ScanFailed. check: raises when they are no longer wanted; it is called while none come."""
    ours, theirs = socket.socketpair()
    with Connection(ours.detach()) as connection:
        with theirs:
            process = _started(theirs.fileno())
        try:
            connection.send(scan)
            while not isinstance(message := _next(connection, check), Ended):
                yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)
        except (EOFError, OSError) as error:
            raise ScanFailed("it ended by itself") from error
        finally:
            process.kill()
            process.wait()
    if message.error:
        raise ScanFailed(message.error)


def _started(descriptor: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", PROGRAM, str(descriptor)]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], start_new_session=True)
    except OSError as error:
        raise ScanFailed(str(error)) from error


def _next(connection: Connection, check: Callable[[], None]) -> bytes | Ended:
    while not connection.poll(_LOOK_S):
        check()
    message = connection.recv()
    assert isinstance(message, bytes | Ended)
    return message


def lower_priority() -> None:
    """Of this process. Where there is one processor only, nothing of it might be left over for long."""
    os.nice(LEFT_OVER if (os.cpu_count() or 1) > 1 else TENTH)
