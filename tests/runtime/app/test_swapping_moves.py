"""The moves of a swap, a transaction at a time: what is in the topic, and what positions in the staging topic have become."""

from __future__ import annotations

from typing import Any

import pytest

from flowql.compiler.plan.deployed import Deployed, How, Move, Swap
from flowql.runtime.app import swapping
from flowql.runtime.app.plan_writer import PlanWriter
from flowql.runtime.app.swapping import MoveExecutor, MoveProgress, all_wait, read_progress
from flowql.runtime.errors import LogUnavailable
from flowql.runtime.log.base import EARLIEST, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.test_replacing import Record, put, rows
from tests.runtime.app.test_swapping import LikeKafka

pytestmark = pytest.mark.turns("instances")

T, S = TopicPartition("t", 0), TopicPartition("staging", 0)


class Site:
    """A log with a topic and its staging topic, and a swap that is recorded."""

    def __init__(self, *moves: Move) -> None:
        self.log = LikeKafka()
        self.deployed = Deployed(swap=Swap(3, "Q", moves))
        for name, partitions in (("t", 2), ("staging", 2), ("app-plan", 1)):
            self.log.create_topic(name, partitions)

    def executor(self) -> MoveExecutor:
        writer = PlanWriter(self.log, "app")
        writer.deployed = self.deployed
        return MoveExecutor(self.log, "app", writer)

    def carried_out(self, *, anew: bool = False) -> int:
        """How many transactions there were. anew: each by another process."""
        executor = self.executor()
        for n in range(100):
            if executor.step(n):
                return n
            executor = self.executor() if anew else executor
        raise AssertionError("it never ends")

    def places(self, move: Move) -> dict[int, int]:
        progress = read_progress(self.log, "app")[swapping._key(move)]
        assert (progress.swap, progress.done, progress.at) == (3, True, move.staged_end)
        return dict(progress.places)


def records(log: MemoryLog, tp: TopicPartition) -> list[Record]:
    reader, found = log.reader(tp, EARLIEST), list[Record]()
    while (batch := reader.read(1_000, 1 << 20)) is not None:
        found += rows(batch.records)
    return found


def some(first: int, n: int) -> list[Record]:
    return [(f"k{i}", str(i), i) for i in range(first, first + n)]


def move(how: How, end: int, staged_end: int, *readers: int, partition: int = 0) -> Move:
    return Move("staging", "t", partition, how, end, staged_end, readers)


anew = pytest.mark.parametrize("anew", [False, True])


@anew
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_what_is_appended_comes_behind_in_parts_that_end_where_readers_stand(
    chunk: int, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "CHUNK_ROWS", chunk)
    site = Site(wanted := move("append", 5, 10, 0, 3, 7, 10))
    put(site.log, T, *some(100, 5))
    put(site.log, S, *some(0, 10))
    transactions = site.carried_out(anew=anew)
    assert records(site.log, T) == [*some(100, 5), *some(0, 10)]
    assert site.places(wanted) == {0: 5, 3: 8, 7: 12, 10: 15}
    assert transactions == {1: 12, 4: 5, 100: 5}[chunk]
    assert site.carried_out(anew=anew) == 0, "nothing is left to do"


@anew
def test_old_records_of_all_partitions_are_deleted_before_new_ones_are_appended(anew: bool) -> None:
    first, second = move("replace", 5, 3), move("replace", 2, 4, 4, partition=1)
    site = Site(first, second)
    put(site.log, T, *some(100, 5))
    put(site.log, TopicPartition("t", 1), *some(200, 2))
    put(site.log, S, *some(0, 3))
    put(site.log, TopicPartition("staging", 1), *some(10, 4))
    executor, seen = site.executor(), list[tuple[int, int]]()
    while not executor.step(0):
        seen.append((len(records(site.log, T)), len(records(site.log, TopicPartition("t", 1)))))
        executor = site.executor() if anew else executor
    assert seen == [(0, 2), (0, 0), (3, 0), (3, 0), (3, 4), (3, 4)]
    assert (site.log.begin_offset(T), site.log.end_offset(T)) == (5, 8)
    assert (site.places(first), site.places(second)) == ({}, {4: 6})


@pytest.mark.parametrize(("kept_from", "dropped"), [(2, [(T, 5)]), (5, [])])
def test_what_is_gone_already_is_not_deleted_once_more(
    kept_from: int, dropped: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may have no leader for the partition just now, or not let this process delete records."""
    site, asked = Site(move("replace", 5, 2)), list[Any]()
    put(site.log, T, *some(100, 5))
    put(site.log, S, *some(0, 2))
    site.log.drop_before(T, kept_from)
    drop = site.log.drop_before
    monkeypatch.setattr(site.log, "drop_before", lambda tp, offset: (asked.append((tp, offset)), drop(tp, offset)))
    site.carried_out()
    assert asked == dropped
    assert records(site.log, T) == some(0, 2)


@anew
def test_a_table_gets_one_difference_up_to_the_first_reader_and_then_its_history(anew: bool) -> None:
    site = Site(wanted := move("difference", 3, 6, 4, 5))
    put(site.log, T, ("a", "1", 1), ("b", "1", 2), ("c", "1", 3))
    put(site.log, S, ("a", "1", 1), ("b", "2", 5), ("b", "3", 6), ("d", "1", 7), ("d", None, 8), ("e", "1", 9))
    site.carried_out(anew=anew)
    assert records(site.log, T)[3:] == [("c", None, 3), ("b", "3", 6), ("d", "1", 7), ("d", None, 8), ("e", "1", 9)]
    assert site.places(wanted) == {4: 6, 5: 7}


@pytest.mark.parametrize("how", ["append", "difference"])
def test_what_is_not_all_to_be_seen_is_waited_for(how: How) -> None:
    """Brokers acknowledge a commit a little before its records are to be seen."""
    site = Site(wanted := move(how, 1, 3))
    put(site.log, T, ("k0", "0", 0))
    put(site.log, S, *some(0, 2))
    with pytest.raises(LogUnavailable, match=r"not all of staging.* is to be seen yet"):
        site.carried_out()
    put(site.log, S, *some(2, 1))
    site.carried_out()
    assert records(site.log, T)[-1] == ("k2", "2", 2)
    assert site.places(wanted) == {}


def test_records_of_other_writers_behind_the_end_are_left_where_they_are() -> None:
    site = Site(move("append", 0, 2))
    put(site.log, S, *some(0, 5))
    site.carried_out()
    assert records(site.log, T) == some(0, 2)


def test_progress_of_another_swap_is_none_of_this_one() -> None:
    site = Site(wanted := move("append", 0, 2))
    put(site.log, S, *some(0, 2))
    site.carried_out()
    site.deployed = Deployed(swap=Swap(4, "Q", (wanted,)))
    put(site.log, S, *some(2, 2))
    assert site.carried_out() > 0
    assert records(site.log, T) == [*some(0, 2), *some(0, 2)]


def test_what_is_written_of_progress_is_read_and_deleted_keys_are_none() -> None:
    log, progress = MemoryLog(), MoveProgress(3, 7, ((1, 2), (5, 9)), done=True)
    log.create_topic("app-plan", 1)
    key = swapping._key(move("append", 0, 1))
    assert swapping._read(swapping._written(progress)) == progress
    plan = TopicPartition("app-plan", 0)
    put(log, plan, ("plan", "{}", 0), (key.decode(), swapping._written(progress).decode(), 1), ("other", "x", 2))
    assert read_progress(log, "app") == {key: progress}
    put(log, plan, (key.decode(), None, 3))
    assert read_progress(log, "app") == {}


def test_nothing_waits_to_be_promoted_where_nothing_is_built_or_a_swap_goes_on() -> None:
    known: dict[str, Any] = {}
    assert not all_wait(Deployed(), known)
    assert not all_wait(Deployed(swap=Swap(1, "Q")), known)
