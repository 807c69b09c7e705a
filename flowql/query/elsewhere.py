"""Interactive queries answered by a child process, for those that delay the continuous queries.

Reading a row of the state into an Arrow batch holds the interpreter lock for 0.6 to 2 us, and DuckDB's sorts and joins occupy a processor; the
continuous queries need both. The child process computes the answer from a copy of the state (`flowql.runtime.state.copy`) with its own DuckDB, and the
operating system schedules it as an idle task. It writes the answer to a file and exits, so a slow client does not keep it alive. It also exits when its
parent does.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from flowql.query.database import QuestionLimits
from flowql.query.errors import query_error
from flowql.query.relations import StoreRelation
from flowql.query.views import ViewMaker
from flowql.runtime.state.copy import StateCopy

PROGRAM = "flowql.query.question_worker"
LEFT_OVER, TENTH = 19, 10  # values of nice: beside a thread that needs all of a processor 1.5 % of it, and a tenth
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Asked:
    """The one message to the process. sql: as the user wrote it. stores: name, view, and whether the commit has it. answer: the file to make.

    path, owned: of the `StateCopy`.
    """

    sql: str
    limits: QuestionLimits
    path: Path
    owned: frozenset[str] | None
    stores: tuple[tuple[str, ViewMaker, bool], ...]
    answer: Path


@dataclass(frozen=True, slots=True)
class Answered:
    """The one message from it. refused: the error of the user, as `errors.to_data` gives it. failure: any other reason why there is no answer."""

    refused: Mapping[str, Any] | None = None
    failure: str = ""


class ProcessFailed(Exception):
    """There is no answer: the process failed, or could not be started."""


def movable(relations: Mapping[str, object]) -> bool:
    """Whether another process could read all of them. By the time a copy is made topics are further than it."""
    return all(isinstance(r, StoreRelation) and r.make is not None for r in relations.values())


def answered_elsewhere(
    sql: str, limits: QuestionLimits, copy: StateCopy, relations: Mapping[str, StoreRelation], check: Callable[[], None]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema and the pieces of the whole answer. check: raises if the query was cancelled. Raises QueryError, ProcessFailed."""
    stores = tuple((name, r.make, r.present) for name, r in relations.items() if r.make is not None)
    file = copy.path.with_suffix(".answer")
    asked = Asked(sql, limits, copy.path, copy.owned, stores, file)
    try:
        done = _asked(asked, check)
        if done.refused is not None:
            raise query_error(done.refused)
        if done.failure:
            raise ProcessFailed(done.failure)
        source = pa.OSFile(str(file))
    finally:
        file.unlink(missing_ok=True)  # what is open stays readable
    reader = pa.ipc.open_stream(source)
    return reader.schema, _pieces(source, reader)


def _pieces(source: pa.NativeFile, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with closing(source):
        yield from reader


def _asked(asked: Asked, check: Callable[[], None]) -> Answered:
    ours, theirs = socket.socketpair()
    with Connection(ours.detach()) as connection:
        with theirs:
            process = _started(theirs.fileno())
        try:
            connection.send(asked)
            while not connection.poll(_LOOK_S):
                check()
            done = connection.recv()
        except (EOFError, OSError) as error:
            raise ProcessFailed("it ended by itself") from error
        finally:
            process.kill()
            process.wait()
    assert isinstance(done, Answered)
    return done


def _started(descriptor: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", PROGRAM, str(descriptor)]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], start_new_session=True)
    except OSError as error:
        raise ProcessFailed(str(error)) from error


def lower_priority() -> None:
    """Of this process and its threads. Where there is one processor only, nothing of it might be left over for long."""
    several = (os.cpu_count() or 1) > 1
    os.nice(LEFT_OVER if several else TENTH)
    if (
        several and sys.platform == "linux"
    ):  # a thread of a query that wakes up runs at once, and not after a turn of this one
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
