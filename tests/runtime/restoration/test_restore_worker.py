"""What the process that reads changelogs answers: when a file is complete, which request it is of, and how long it waits for brokers."""

from __future__ import annotations

import os
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app import restore_worker
from flowql.runtime.app.restore_process import ReadRequest, ReadResponse, StartWorker
from flowql.runtime.app.restore_worker import TIMEOUT_MS, OpenRequest, RestoreWorker
from flowql.runtime.clock import VirtualClock
from flowql.runtime.errors import TopicMissing
from flowql.runtime.log.base import KeyValues, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.catalog import StoreCatalog
from flowql.runtime.state.layout import StoreEntry
from flowql.runtime.state.memory import MemoryPhysical
from tests.runtime.restoration.test_oracle import history
from tests.runtime.state.support import table

TP, OTHER = TopicPartition("changelog", 0), TopicPartition("changelog", 1)


class Reader:
    """A partition of records, of which so many have arrived. asked: the sizes of reads."""

    def __init__(self, arrived: int, *, record_bytes: int = 10) -> None:
        records, _ = history(table("S"), [("put", k, k) for k in range(7)] + [("commit", 0, 0)])
        self.records = [*records] * 3
        self.position, self.there, self.record_bytes = 0, arrived, record_bytes
        self.asked: list[tuple[int, int]] = []
        self.quiet = False

    def seek(self, offset: int) -> None:
        self.position = offset

    def arrived(self) -> bool:
        return not self.quiet and (self.position < self.there or self.there >= len(self.records))

    def read(self, max_records: int, max_bytes: int) -> KeyValues | None:
        self.asked.append((max_records, max_bytes))
        if self.position >= self.there:
            return None
        at, self.position = self.position, self.position + 1
        key, value = self.records[at]
        return KeyValues(TP, [key], [value], self.position, self.record_bytes)


def store() -> StoreEntry:
    return StoreCatalog(MemoryPhysical()).ensure(table("S"), 0)


def request(number: int, *, offset: int = 0, max_records: int = 5, tp: TopicPartition = TP) -> ReadRequest:
    return ReadRequest(number, tp, offset, max_records, store().record())


def opened(reader: Reader, max_records: int = 5) -> OpenRequest:
    return OpenRequest(request(1, max_records=max_records), cast(Any, reader), 0)


def test_a_file_is_complete_with_its_records_its_bytes_or_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(100)
    of = opened(reader)
    assert of.advance()
    assert (len(of.keys), len(of.values), of.size_bytes, reader.position) == (5, 5, 50, 5)
    monkeypatch.setattr(restore_worker, "BYTES_MAX", 30)
    of = opened(Reader(100), max_records=100)
    assert of.advance()
    assert len(of.keys) == 3
    of = opened(Reader(len(reader.records)), max_records=1_000)
    monkeypatch.setattr(restore_worker, "BYTES_MAX", 1 << 20)
    assert of.advance()
    assert len(of.keys) == len(reader.records)


def test_what_has_not_arrived_is_waited_for() -> None:
    reader = Reader(2)
    of = opened(reader)
    assert not of.advance()
    assert len(of.keys) == 2
    reader.there = 4
    assert not of.advance()
    reader.there = 9
    assert of.advance()
    assert len(of.keys) == 5


def test_a_file_has_the_rows_of_its_records_and_says_where_it_ends(tmp_path: Path) -> None:
    of = opened(Reader(100))
    of.advance()
    file = of.file(tmp_path / "1.sst")
    assert (file.path, file.records, file.next_offset) == (tmp_path / "1.sst", 5, 5)
    assert (tmp_path / "1.sst").stat().st_size > 0
    empty = opened(Reader(0)).file(tmp_path / "2.sst")
    assert (empty.path, empty.records, empty.next_offset) == (None, 0, 0)
    assert not (tmp_path / "2.sst").exists()


class Site:
    """A worker without a parent. sent: its answers. readers: by partition."""

    def __init__(self, folder: Path, **readers: Reader) -> None:
        self.sent: list[ReadResponse] = []
        self.clock = VirtualClock(0)
        self.readers = {TopicPartition("changelog", int(n[1:])): reader for n, reader in readers.items()}
        self.made: list[tuple[TopicPartition, int]] = []
        connection: Any = SimpleNamespace(send=self.sent.append)
        self.worker = RestoreWorker(connection, cast(Any, self), folder, self.clock)

    def key_values(self, tp: TopicPartition, offset: int) -> Reader:
        self.made.append((tp, offset))
        if tp not in self.readers:
            raise TopicMissing("there is no topic")
        self.readers[tp].seek(offset)
        return self.readers[tp]

    def advance(self) -> None:
        self.worker._readings = [r for r in self.worker._readings if not self.worker._advance(r)]

    def answers(self) -> list[tuple[int, int | str]]:
        return [(a.number, a.error or (a.file.next_offset if a.file else -1)) for a in self.sent]


def test_a_reader_is_kept_and_goes_on_or_goes_to_what_is_asked_for(tmp_path: Path) -> None:
    site = Site(tmp_path, p0=Reader(100))
    for number, offset in ((1, 0), (2, 5), (3, 1)):
        site.worker._begin(request(number, offset=offset))
        site.advance()
    assert site.answers() == [(1, 5), (2, 10), (3, 6)]
    assert site.made == [(TP, 0)]


def test_an_older_request_for_a_partition_is_refused_and_others_go_on(tmp_path: Path) -> None:
    site = Site(tmp_path, p0=Reader(1), p1=Reader(1))
    site.worker._begin(request(1))
    site.worker._begin(request(2, tp=OTHER))
    site.worker._begin(request(3))
    assert site.answers() == [(1, "it was asked for again")]
    site.advance()
    assert len(site.sent) == 1
    for reader in site.readers.values():
        reader.there = 100
    site.advance()
    assert sorted(site.answers()[1:]) == [(2, 5), (3, 5)]


def test_an_error_is_that_of_its_request_alone(tmp_path: Path) -> None:
    site = Site(tmp_path, p0=Reader(100))
    site.worker._begin(request(1, tp=OTHER))
    site.worker._begin(request(2))
    site.advance()
    assert site.answers() == [(1, "TopicMissing: there is no topic"), (2, 5)]


def test_brokers_that_send_nothing_are_waited_for_so_long(tmp_path: Path) -> None:
    site = Site(tmp_path, p0=Reader(2))
    site.worker._begin(request(1))
    site.clock.advance(TIMEOUT_MS)
    site.advance()
    assert site.sent == []
    site.clock.advance(1)
    site.advance()
    assert site.answers() == [(1, "LogUnavailable: changelog-0: nothing arrives from offset 2 on")]
    assert site.worker._readings == []


class Parent:
    """The parent's end of the connection: requests that come at a time, and how long the worker waits for the next. It is gone after the last."""

    def __init__(self, *comes: tuple[int, ReadRequest]) -> None:
        self.comes, self.looks = list(comes), 0
        self.waits: list[float | None] = []
        self.sent: list[ReadResponse] = []
        self.send = self.sent.append

    def poll(self, timeout_s: float | None) -> bool:
        self.looks += 1
        self.waits.append(timeout_s)
        if self.comes and (timeout_s is None or self.looks >= self.comes[0][0]):
            return True
        if timeout_s is None:
            raise EOFError
        return False

    def recv(self) -> ReadRequest:
        return self.comes.pop(0)[1]


def served(site: Site, parent: Parent) -> list[float | None]:
    """How long the worker waited at each look."""
    site.worker._connection = cast(Any, parent)
    with pytest.raises(EOFError):
        site.worker.run()
    return parent.waits


def test_a_worker_without_requests_waits_for_one_and_ends_with_its_parent(tmp_path: Path) -> None:
    parent = Parent((0, request(1)))
    assert served(Site(tmp_path, p0=Reader(100)), parent) == [None, 0, None]
    assert [(a.number, a.file is not None) for a in parent.sent] == [(1, True)]


def test_requests_that_have_come_together_are_begun_before_any_is_read_on(tmp_path: Path) -> None:
    parent, first, second = Parent(), Reader(100), Reader(100)
    parent.comes = [(0, request(1)), (0, request(2, tp=OTHER))]
    assert served(Site(tmp_path, p0=first, p1=second), parent) == [None, 0, 0, None]
    assert [a.number for a in parent.sent] == [1, 2]


def test_a_worker_waits_a_moment_for_brokers_and_not_while_anything_is_done(tmp_path: Path) -> None:
    quiet, reader = Reader(100), Reader(100)
    quiet.quiet = True
    site = Site(tmp_path, p0=quiet, p1=reader)
    parent = Parent((0, request(1)), (0, request(2, tp=OTHER)))
    poll = parent.poll

    def polled(timeout_s: float | None) -> bool:
        if parent.looks == 7:
            quiet.quiet = False
        return poll(timeout_s)

    parent.poll = polled  # type: ignore[method-assign]
    waits = served(site, parent)
    look = restore_worker.WAIT_S
    assert waits == [None, 0, 0, 0, look, 0, look, 0, None], "the other request was answered in the first round"
    assert [a.number for a in parent.sent] == [2, 1]


def test_the_process_ends_when_its_parent_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so with its status; memory and Arrow are as in an instance."""
    ours, theirs = Pipe()
    ours.send(StartWorker(MemoryLog, tmp_path))
    ours.send(request(7))
    told: list[object] = []

    def ended(status: int) -> None:
        told.append(status)
        raise SystemExit

    monkeypatch.setattr(restore_worker, "leave_pandas_out", lambda: told.append("no pandas"))
    monkeypatch.setattr(restore_worker, "keep_memory", lambda: told.append("memory"))
    monkeypatch.setattr(restore_worker.os, "_exit", ended)
    monkeypatch.setattr(restore_worker.sys, "argv", ["restore_worker", str(os.dup(theirs.fileno()))])
    theirs.close()
    send = ReadResponse.__init__

    def answered(self: ReadResponse, *arguments: Any, **named: Any) -> None:
        send(self, *arguments, **named)
        ours.close()

    monkeypatch.setattr(ReadResponse, "__init__", answered)
    with pytest.raises(SystemExit):
        restore_worker.main()
    assert told == ["no pandas", "memory", 0]
