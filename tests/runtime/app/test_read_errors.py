"""A file of the embedded log that cannot be read for a while: it is tried again, with its partition in status, and nothing is lost."""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future

import pytest

from flowql.runtime.app.query_state import FAILED, RUNNING
from flowql.runtime.app.status import instance_metrics
from flowql.runtime.app.troubles import CURRENT_MS
from flowql.runtime.errors import LogDenied, LogIOError
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.embedded.log import EmbeddedLog
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.engine import DOUBLED, OTHERS, make, produce, read
from tests.runtime.log.records import produce as append

IN, OTHER = TopicPartition("input", 0), TopicPartition("other", 0)


class UnreadableFiles(DiskFiles):
    """Files whose path holds `bad` cannot be opened to be read."""

    bad: str | None = None

    def open(self, path, *, create=False, write=False):
        if self.bad is not None and self.bad in path and not (create or write):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().open(path, create=create, write=write)


@pytest.fixture
def files():
    return UnreadableFiles()


@pytest.fixture
def log(tmp_path, files):
    log = EmbeddedLog(tmp_path, files)
    yield log
    log.close()


def test_a_poll_loses_nothing_of_other_partitions(log, files):
    """The error was none of the log's: what had been read of others before it was thrown away with it."""
    for tp in (IN, OTHER):
        log.create_topic(tp.topic, 1)
        append(log, "w", (tp, [b"%d" % n for n in range(5)]))
    consumer = log.consumer("c")
    consumer.assign({IN: 0, OTHER: 0})
    files.bad = "topics/other"
    found, errors = [], []
    for _ in range(4):
        try:
            found += [(b.tp, v) for b in consumer.poll(1_000, 1 << 20) for v in b.records.column("value").to_pylist()]
        except LogIOError as error:
            errors.append(error)
    assert {e.partition for e in errors} == {OTHER}
    assert found == [(IN, b"%d" % n) for n in range(5)]
    files.bad = None
    found += [(b.tp, v) for b in consumer.poll(1_000, 1 << 20) for v in b.records.column("value").to_pylist()]
    assert found[5:] == [(OTHER, b"%d" % n) for n in range(5)]


def test_a_segment_that_cannot_be_read_holds_up_its_readers_alone(log, files):
    instance, driver = make(log, DOUBLED, OTHERS)
    files.bad = "topics/input"
    produce(log, "input", 1, 2)
    produce(log, "other", 1, 2)
    for _ in range(50):
        driver.round()
    (trouble,) = instance_metrics(instance)["trouble"]
    assert trouble["partition"] == str(IN)
    assert trouble["error"].startswith("LogIOError: the log in ")
    assert "Input/output error" in trouble["error"]
    assert trouble["times"] > 10
    driver.commit()
    assert read(log, "others") == [{"V": 2}, {"V": 3}]
    assert all(instance.query_states.of(q).state is RUNNING for q in instance.queries)
    files.bad = None
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]
    assert instance_metrics(instance)["trouble"] == []
    instance.close()


def test_a_commit_log_that_cannot_be_read_is_in_status_and_read_again(log, files, tmp_path, monkeypatch):
    """The polling thread asks it for the ends of partitions, and died of the answer."""
    instance, driver = make(log, DOUBLED)
    outside = EmbeddedLog(tmp_path)
    has_new = type(log._ledger._journal).has_new

    def unreadable(journal):
        if journal is log._ledger._journal and files.bad == "commits":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return has_new(journal)

    monkeypatch.setattr(type(log._ledger._journal), "has_new", unreadable)
    files.bad = "commits"
    produce(outside, "input", 1, 2)
    for _ in range(50):
        driver.round()
    assert any("Input/output error" in t["error"] for t in instance_metrics(instance)["trouble"])
    files.bad = None
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]
    instance.clock.advance(CURRENT_MS + 1)
    assert instance_metrics(instance)["trouble"] == []
    instance.close()
    outside.close()


def test_a_reader_whose_topic_may_not_be_read_any_more_leaves_the_polling_thread_alive():
    """Its inputs leave while its catch-up readers are served; looking for its head then ended the thread, and with it the instance."""
    log = MemoryLog()
    instance, driver = make(log, DOUBLED)
    produce(log, "input", 1)
    driver.run_until_caught_up()
    (task,) = instance.queries["CSAS_DOUBLED"].built.tasks
    (reader,) = task.logs.values()
    reader.attached, reader.chunk = False, Future()
    reader.chunk.set_exception(LogDenied("input-0 is not for you"))
    instance.polling.run_once(driver.instance.clock.timer_ms())
    assert instance.query_states.of("CSAS_DOUBLED").state is FAILED
    produce(log, "input", 2)
    driver.run_until_caught_up()
    assert read(log, "doubled") == [{"V": 2}, {"V": 4}]
