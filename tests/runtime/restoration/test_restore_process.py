"""The other process as the restoration thread sees it: its start, its answers, its end. The process itself is played by this one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from flowql.runtime.app import restore_process
from flowql.runtime.app.restore_process import (
    PROGRAM,
    ReadRequest,
    ReadResponse,
    RestoreProcess,
    StartWorker,
)
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.restore import RowFile

TP = TopicPartition("changelog", 0)


class Child:
    """A process that has been started."""

    started: list[Child]

    def __init__(self, command: list[str], *, pass_fds: list[int], **options: Any) -> None:
        (inherited,) = pass_fds
        assert command == [sys.executable, "-m", PROGRAM, str(inherited)]
        assert options["start_new_session"], "signals of a terminal are for its parent"
        self.connection = Connection(os.dup(inherited))
        self.ended: list[str] = []
        Child.started.append(self)

    def kill(self) -> None:
        self.ended.append("killed")

    def wait(self) -> None:
        self.ended.append("waited for")

    def answer(self, number: int, file: RowFile | None = None, error: str = "") -> None:
        self.connection.send(ReadResponse(number, file, error))


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    Child.started = []
    monkeypatch.setattr(restore_process.subprocess, "Popen", Child)
    return Child.started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "incoming"


def file(records: int = 5) -> RowFile:
    return RowFile(None, Writes([], [], []), records, records)


class OpenedElsewhere(MemoryLog):
    def opener(self) -> Callable[[], Log]:  # type: ignore[override]
        return MemoryLog


def test_there_is_one_where_another_process_can_open_the_log_and_files_have_a_place(folder: Path) -> None:
    assert restore_process.restore_process(MemoryLog(), folder) is None
    assert restore_process.restore_process(OpenedElsewhere(), None) is None
    assert isinstance(restore_process.restore_process(OpenedElsewhere(), folder), RestoreProcess)


def test_it_is_started_with_the_first_request_and_answers_in_any_order(folder: Path, children: list[Child]) -> None:
    process = RestoreProcess(MemoryLog, folder)
    assert (process.running, process.poll(), children, folder.exists()) == (False, False, [], False)
    first, second = (process.ask(TP, at, 100, b"store") for at in (0, 7))
    (child,) = children
    assert (process.running, folder.is_dir()) == (True, True)
    assert child.connection.recv() == StartWorker(MemoryLog, folder)
    asked = [child.connection.recv() for _ in range(2)]
    assert asked == [ReadRequest(1, TP, 0, 100, b"store"), ReadRequest(2, TP, 7, 100, b"store")]
    assert not process.poll()
    child.answer(2, file())
    assert process.poll()
    assert (first.done(), second.result()) == (False, file())
    child.answer(1, error="no such topic")
    assert process.poll()
    with pytest.raises(RuntimeFailure, match="no such topic"):
        first.result()
    assert (process.poll(), process.lost, child.ended) == (False, False, [])
    process.close()


def test_all_answers_that_have_come_are_taken_at_once(folder: Path, children: list[Child]) -> None:
    folder.mkdir()  # left behind by an instance that was killed
    process = RestoreProcess(MemoryLog, folder)
    asked = [process.ask(TP, at, 100, b"store") for at in range(3)]
    for number in (1, 2, 3):
        children[0].answer(number, file(number))
    assert process.poll()
    assert [a.result() for a in asked] == [file(1), file(2), file(3)]
    process.close()


def test_an_end_leaves_neither_the_process_nor_its_files_and_another_may_be_started(
    folder: Path, children: list[Child]
) -> None:
    process = RestoreProcess(MemoryLog, folder)
    process.close()
    asked = process.ask(TP, 0, 100, b"store")
    (folder / "1-1.sst").write_bytes(b"rows")
    process.close()
    assert (children[0].ended, process.running, folder.exists()) == (["killed", "waited for"], False, False)
    assert (asked.done(), process.lost, process.poll()) == (False, False, False)
    assert [type(children[0].connection.recv()) for _ in range(2)] == [StartWorker, ReadRequest]
    with pytest.raises(EOFError):
        children[0].connection.recv()
    again = process.ask(TP, 3, 100, b"store")
    assert len(children) == 2
    children[1].connection.recv()
    assert children[1].connection.recv().number == 2, "an answer to an older request is not taken for one to this"
    children[1].answer(2, file())
    assert process.poll()
    assert again.result() == file()
    children[1].connection.close()
    process.poll()
    assert (process.lost, asked.done()) == (True, False), "it was asked of the first"


def test_a_process_that_is_gone_fails_all_that_was_asked_of_it(folder: Path, children: list[Child]) -> None:
    process = RestoreProcess(MemoryLog, folder)
    asked = [process.ask(TP, at, 100, b"store") for at in range(2)]
    children[0].answer(1, file())
    children[0].connection.close()
    assert process.poll(), "what it had answered is taken"
    assert asked[0].result() == file()
    with pytest.raises(RuntimeFailure, match="the process that reads changelogs is gone"):
        asked[1].result()
    assert (process.lost, process.running, folder.exists()) == (True, False, False)
    assert children[0].ended == ["killed", "waited for"]


def test_a_program_that_cannot_be_started_is_one_that_is_gone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise FileNotFoundError("no such program")

    monkeypatch.setattr(restore_process.subprocess, "Popen", none)
    process = RestoreProcess(MemoryLog, folder)
    asked = process.ask(TP, 0, 100, b"store")
    with pytest.raises(RuntimeFailure, match="no such program"):
        asked.result()
    assert (process.lost, process.running, folder.exists(), process._connection) == (True, False, False, None)
