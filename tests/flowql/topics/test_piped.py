"""`topic produce` at the end of a pipe: records are in the topic while the pipe is open, and none is lost at Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.topics.records import GROUP_LINES, Piped

SQL = "CREATE STREAM S (V INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2, VALUE_FORMAT = 'JSON');"
ENDS = [TopicPartition("s", p) for p in (0, 1)]


@pytest.fixture
def piped(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "flowql.yaml").write_text("name: demo\nsql: [demo.sql]\n")
    (tmp_path / "demo.sql").write_text(SQL)
    words = [sys.executable, "-c", "from flowql.cli import main; main()", "topic", "produce", "s", "-p", str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stderr=pipe, text=True, bufsize=1) as process:
        yield process
        process.kill()


def until(true: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.02)


def ends(folder: Path) -> list[int]:
    with closing(EmbeddedLog(folder / ".flowql" / "default" / "log")) as log:
        return [log.admin().end_offset(tp) for tp in ENDS if tp.topic in log.admin().topics()]


def test_records_are_written_while_the_pipe_is_open_and_at_ctrl_c(piped: subprocess.Popen[str], tmp_path: Path) -> None:
    """They waited for the end of the input, and Ctrl-C dropped all of them."""
    assert piped.stdin is not None
    piped.stdin.write('{"V": 1}\n\n{"V": 2}\n')
    until(lambda: ends(tmp_path) == [1, 1])
    piped.stdin.write('{"V": 3}\n')
    until(lambda: ends(tmp_path) == [2, 1])  # records without a key go on with the next partition
    piped.stdin.write('{"V": 4}\n{"V": 5}\n')
    piped.send_signal(signal.SIGINT)
    assert (piped.wait(60), piped.stderr and piped.stderr.read()) == (130, "5 records in topic s, interrupted\n")
    assert ends(tmp_path) == [3, 2]


def test_a_line_that_is_no_record_ends_it_after_those_before(piped: subprocess.Popen[str], tmp_path: Path) -> None:
    assert piped.stdin is not None
    piped.stdin.write('{"V": 1}\n{"V": \n{"V": 3}\n')
    piped.stdin.close()
    assert piped.stderr is not None
    said = piped.stderr.read()
    assert "error[FQ5011]: record 2:" in said
    assert "the records before it are written: 1" in said
    assert (piped.wait(60), ends(tmp_path)) == (1, [1, 0])


def test_groups_end_by_number_and_at_the_end_of_the_input() -> None:
    reading, writing = os.pipe()
    text = b"".join(b"k:%d\n" % n for n in range(3 * GROUP_LINES)) + b"\xff:last, without an end"

    def write() -> None:  # more than a pipe takes at once
        with os.fdopen(writing, "wb") as end:
            end.write(text)

    threading.Thread(target=write, daemon=True).start()
    piped = Piped(reading)
    groups = list(piped.groups())
    os.close(reading)
    assert sum(map(len, groups)) == 3 * GROUP_LINES + 1
    assert all(len(group) < 2 * GROUP_LINES + 1 for group in groups)
    assert (groups[0][0], groups[-1][-1], piped.interrupted) == ("k:0", "\ufffd:last, without an end", False)
