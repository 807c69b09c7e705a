"""Files of another process as the restoration takes them over, and the end of that process. This one plays it."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from flowql.runtime.app.restoration import FILE_RECORDS, FILES_MS
from flowql.runtime.app.restore_process import RestoreProcess
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.state.physical import Writes
from flowql.runtime.state.restore import RowFile
from tests.runtime.restoration.test_restoration import COUNTS, Life, no_redo


class Process(RestoreProcess):
    """asked: the offsets, and the answer to each."""

    def __init__(self) -> None:
        self.lost, self.closed = False, 0
        self.asked: dict[TopicPartition, list[tuple[int, Future[object]]]] = {}

    @property
    def running(self) -> bool:
        return not self.closed

    def ask(
        self, tp: TopicPartition, offset: int, max_records: int, store: bytes, *, over_runs: bool = False
    ) -> Future[object]:
        assert max_records == FILE_RECORDS
        assert not over_runs, "nothing is there"
        self.asked.setdefault(tp, []).append((offset, Future()))
        return self.asked[tp][-1][1]

    def poll(self) -> bool:
        return False

    def close(self) -> None:
        self.closed += 1

    def answer(self, tp: TopicPartition, next_offset: int, records: int) -> None:
        self.asked[tp][-1][1].set_result(RowFile(None, Writes([], [], []), records, next_offset))


class Site:
    """A restoration of two tasks with two stores each. taken: what the store was given; busy: it has to catch up first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        life = Life(no_redo(), COUNTS)
        life.feed(0, 50)
        life.settle()
        self.life = life.again()
        self.step, self.process = self.life.instance.restoration, Process()
        self.step._process = self.process
        self.taken, self.busy = list[int](), False
        restore = self.life.instance.state.restored.take_file

        def restored(entry: object, partition: int, file: RowFile, position: object) -> bool:
            if not self.busy:
                self.taken.append(file.next_offset)
                return restore(entry, partition, file, position)  # type: ignore[arg-type]
            return False

        monkeypatch.setattr(self.life.instance.state.restored, "take_file", restored)
        assert self.step.run_once(0) == 0
        self.first, _, self.same_task, _ = sorted(self.process.asked)
        self.end = self.life.log.end_offset(self.first)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(monkeypatch)


def test_a_store_that_has_to_catch_up_is_not_asked_all_the_time(site: Site) -> None:
    site.process.answer(site.first, 3, 3)
    site.busy = True
    assert [site.step.run_once(0) for _ in range(2)] == [FILES_MS] * 2
    assert (site.taken, site.step.records, len(site.process.asked[site.first])) == ([], 0, 1)
    site.busy = False
    assert site.step.run_once(0) == 0
    assert (site.taken, site.step.records) == ([3], 3), "the file is still there"


def test_the_next_file_is_asked_for_while_one_is_taken_over_and_none_after_the_last(site: Site) -> None:
    site.process.answer(site.first, 3, 3)
    site.step.run_once(0)
    assert [at for at, _ in site.process.asked[site.first]] == [0, 3]
    site.process.answer(site.first, site.end, site.end - 3)
    assert site.step.run_once(0) == 0
    assert [at for at, _ in site.process.asked[site.first]] == [0, 3]
    assert (site.taken, site.step.records) == ([3, site.end], site.end)
    assert len(site.life.instance.state.restoring()) == 2
    site.process.answer(site.same_task, site.life.log.end_offset(site.same_task), 1)
    site.step.run_once(0)
    assert len(site.life.instance.state.restoring()) == 1, "the task is whole"


def test_a_partition_whose_rest_is_markers_ends_once_all_of_it_was_to_be_seen(site: Site) -> None:
    site.process.answer(site.first, 0, 0)
    assert site.step.run_once(0) == 0
    assert [at for at, _ in site.process.asked[site.first]] == [0]
    assert site.step.run_once(0) == 0
    assert [at for at, _ in site.process.asked[site.first]] == [0, 0], "records may have been hidden"
    site.process.answer(site.first, 0, 0)
    assert site.step.run_once(0) == 0
    assert site.step.run_once(0) == FILES_MS
    assert (site.taken, len(site.process.asked[site.first])) == ([], 2)


def test_the_process_ends_with_the_step_and_not_while_it_is_needed(site: Site) -> None:
    site.step.run_once(0)
    assert site.process.closed == 0
    site.step.close()
    assert site.process.closed == 1
    site.step._process = None
    site.step.close()
