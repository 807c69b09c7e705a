"""Large restorations by another process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from flowql.runtime.app import restoration
from flowql.runtime.app.restore_process import RestoreProcess
from flowql.runtime.errors import RuntimeFailure
from flowql.runtime.log.base import Log, TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.state.catalog import StoreCatalog
from flowql.runtime.state.changelog import changelog_topic
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.restore import RowFile
from flowql.runtime.state.rocks import open_rocks
from flowql.runtime.task.status import TaskStatus
from tests.runtime.restoration.test_restoration import COUNTS, Life
from tests.runtime.state.support import table

pytestmark = pytest.mark.turns("long")

KEYS = 2_000
WAIT_S = 60.0


class ElsewhereLog(EmbeddedLog):
    """An embedded log as if it were one whose reading costs much."""

    supports_redo = False

    def opener(self) -> Callable[[], Log]:  # type: ignore[override]
        return partial(EmbeddedLog, self._directory)


def life_on(folder: Path, state: str, sql: str = "") -> Life:
    log: Any = ElsewhereLog(folder / "log")
    return Life(log, sql, live=True, physical=open_rocks(folder / state))


def feed(life: Life) -> None:
    for value in range(3):
        life.send("s", [(k, {"V": value}, value) for k in range(KEYS)])
        life.settle()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is much, and takes many files."""
    monkeypatch.setattr(restoration, "FILES_FROM_RECORDS", 1)
    monkeypatch.setattr(restoration, "FILE_RECORDS", 100)


@pytest.fixture
def built(tmp_path: Path) -> list[Any]:
    """The rows of a table, whose instance has ended."""
    life = life_on(tmp_path, "one", COUNTS)
    feed(life)
    rows = life.table("C")
    assert len(rows) == KEYS
    assert life.instance.stop() == []
    return rows


def process_of(life: Life) -> RestoreProcess:
    process = life.instance.restoration._process
    assert process is not None
    return process


@pytest.mark.usefixtures("small")
def test_rows_come_back_through_another_process(tmp_path: Path, built: list[Any]) -> None:
    life = life_on(tmp_path, "two")
    process = process_of(life)
    life.until(lambda: process.running, "the other process")
    life.settle()
    with life:
        assert life.statuses("CTAS_C") == {TaskStatus.RUNNING}
        assert life.instance.restoration.records >= 2 * KEYS
        assert life.table("C") == built
        life.until(lambda: not process.running, "its end")
        assert not process.lost
        assert not (tmp_path / "two" / "incoming").exists()
        life.send("s", [(1, {"V": 5}, 9)])
        life.settle()
        assert [row for row in life.table("C") if row[0] == 1] == [(1, 4, 8)]


@pytest.mark.usefixtures("small")
def test_without_the_other_process_it_goes_on_in_this_one(
    tmp_path: Path, built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restoration, "CHUNK_RECORDS", 100)
    life = life_on(tmp_path, "two")
    process = process_of(life)
    life.until(lambda: life.instance.restoration.records >= 100, "the first file")
    assert process._process is not None
    process._process.kill()
    life.settle()
    with life:
        assert process.lost
        # Of the process that is gone, or of a file that it had made and that went with it.
        assert str(life.instance.metrics.query("CTAS_C").last_error).endswith("(restoration)")
        assert life.table("C") == built


@pytest.mark.usefixtures("small")
def test_without_a_program_to_start_it_goes_on_in_this_one(
    tmp_path: Path, built: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    life = life_on(tmp_path, "two")
    life.settle()
    with life:
        assert process_of(life).lost
        assert life.table("C") == built


KILLED = """
import sys
from pathlib import Path
from flowql.runtime.app import restoration
from tests.runtime.restoration.test_process import life_on, process_of

restoration.FILES_FROM_RECORDS, restoration.FILE_RECORDS = 1, 100
life = life_on(Path(sys.argv[1]), "two")
life.until(lambda: life.instance.restoration.records >= int(sys.argv[2]), "some files")
print(process_of(life)._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.crash
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("records", [1, 3 * KEYS])
def test_after_kill_9_in_the_middle_all_rows_come_back(tmp_path: Path, built: list[Any], records: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), str(records)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        worker = int(child.stdout.readline())
        child.kill()
    wait_for(lambda: not alive(worker), "the end of the process that reads")
    life = life_on(tmp_path, "two")
    life.settle()
    with life:
        assert life.instance.restoration.records >= 2 * KEYS, "all of it was read again"
        assert life.table("C") == built


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def wait_for(done: Callable[[], bool], what: str) -> None:
    limit = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < limit, what
        time.sleep(0.01)


@pytest.fixture
def process(tmp_path: Path, built: list[Any]) -> Iterator[RestoreProcess]:
    incoming = tmp_path / "incoming"
    process = RestoreProcess(partial(EmbeddedLog, tmp_path / "log"), incoming)
    yield process
    process.close()
    assert not incoming.exists()


def changelog(folder: Path) -> tuple[TopicPartition, int]:
    log = EmbeddedLog(folder / "log")
    topic = next(t for t in log.topics() if t.endswith("changelog") and log.end_offset(TopicPartition(t, 0)) > KEYS)
    end = log.end_offset(TopicPartition(topic, 0))
    log.close()
    return TopicPartition(topic, 0), end


def entry() -> StoreEntry:
    return StoreCatalog(MemoryPhysical()).ensure(table("S"), 0)


def test_who_asks_again_gets_all_records(tmp_path: Path, process: RestoreProcess) -> None:
    """As for a task that was taken away and has come again, while what was asked for it is still read."""
    tp, end = changelog(tmp_path)
    asked = [process.ask(tp, 0, 1_000_000, entry().record()) for _ in range(3)]
    wait_for(lambda: process.poll() and asked[-1].done(), "the last answer")
    file = asked[-1].result()
    assert isinstance(file, RowFile)
    assert file.next_offset == end
    assert file.records == end


def test_errors_of_the_log_are_those_of_who_asked(process: RestoreProcess) -> None:
    missing = process.ask(TopicPartition(changelog_topic("flowql", "NONE"), 0), 0, 10, entry().record())
    wait_for(lambda: process.poll() and missing.done(), "an answer")
    with pytest.raises(RuntimeFailure, match="TopicMissing"):
        missing.result()
    assert not process.lost


def test_its_end_is_noticed(tmp_path: Path, process: RestoreProcess) -> None:
    tp, _ = changelog(tmp_path)
    asked = process.ask(tp, 0, 10, entry().record())
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGKILL)
    wait_for(lambda: process.poll() or asked.done(), "its end")
    wait_for(lambda: process.poll() or process.lost or asked.done(), "its end")
    assert asked.done()
