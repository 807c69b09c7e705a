"""Parts of an instance that decide alone: how troubles are counted, when something is tried again, and what members tell each other."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app import allocator
from flowql.runtime.app.allocator import AGAIN_MS, LOOK_MS, NEAR, UnusedMemory
from flowql.runtime.app.backoff import BACKOFF_MS_MAX, BACKOFF_MS_MIN, HEALTHY, HEALTHY_MS
from flowql.runtime.app.coroutines import in_polling
from flowql.runtime.app.hung_topic import HungMicroBatch, HungReader, release, topic_of, write_hung
from flowql.runtime.app.member_topic import MemberAddress, MemberReader, write_member
from flowql.runtime.app.plan_topic import other_applications
from flowql.runtime.app.polling import PollingStep
from flowql.runtime.app.threads import SWITCH_ALONE_S, SWITCH_SHARED_S, share_interpreter
from flowql.runtime.app.troubles import (
    COMPARE_TOPICS_MS,
    CURRENT_MS,
    PLACES_MAX,
    STALLED_MS,
    ChangedTopics,
    StallDetector,
    Troubles,
)
from flowql.runtime.budget import StateLimits
from flowql.runtime.errors import LogError, LogUnavailable, PartitionsChanged, TopicReplaced
from flowql.runtime.log.base import TopicDescription, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.task.input_buffer import LogInput
from tests.runtime.app.harness import InstanceHarness
from tests.runtime.app.test_isolation import GOOD, SOURCE, rows

TP = TopicPartition("t", 0)


def error(text: str, partition: tuple[str, int] | None = None) -> LogError:
    made = LogError(text)
    made.partition = partition
    return made


def test_the_same_error_of_a_partition_is_counted_and_said_anew_after_a_pause() -> None:
    troubles = Troubles()
    assert troubles.note(error("away", TP), 1)
    assert not troubles.note(error("away", TP), 1 + CURRENT_MS), "it goes on"
    assert troubles.note(error("denied", TP), 2 + CURRENT_MS), "it is another one"
    assert troubles.note(error("denied"), 2 + CURRENT_MS), "of no partition"
    assert not troubles.note(error("denied", TP), 3 + CURRENT_MS)
    found = troubles.current(3 + CURRENT_MS)
    assert [(t.partition, t.times, t.since_ms, t.last_ms) for t in found] == [
        (None, 1, 2 + CURRENT_MS, 2 + CURRENT_MS),
        (TP, 2, 2 + CURRENT_MS, 3 + CURRENT_MS),
    ]
    assert [t.partition for t in troubles.current(3 + 2 * CURRENT_MS)] == [TP]
    assert troubles.current(4 + 2 * CURRENT_MS) == []
    assert troubles.note(error("denied", TP), 4 + 2 * CURRENT_MS)
    troubles.over(TP)
    assert troubles.current(4 + 2 * CURRENT_MS) == []


def test_of_very_many_partitions_only_those_with_new_trouble_are_kept() -> None:
    troubles = Troubles()
    for n in range(PLACES_MAX):
        troubles.note(error("away", ("t", n)), 0 if n else CURRENT_MS)
    assert len(troubles._of) == PLACES_MAX
    troubles.note(error("away", ("u", 0)), CURRENT_MS + 1)
    assert [t.partition for t in troubles.current(CURRENT_MS + 1)] == [TP, TopicPartition("u", 0)]
    assert len(troubles._of) == 2


def test_a_partition_is_stalled_when_nothing_came_for_long_at_one_offset() -> None:
    stalls = StallDetector()
    assert not stalls.is_long(TP, 5, 0)
    assert not stalls.is_long(TP, 5, STALLED_MS - 1)
    assert stalls.is_long(TP, 5, STALLED_MS)
    assert not stalls.is_long(TP, 5, STALLED_MS), "it is counted anew"
    assert not stalls.is_long(TP, 6, 2 * STALLED_MS), "something came"
    assert not stalls.is_long(TP, 6, 3 * STALLED_MS - 1)
    assert not stalls.is_long(TP, None, 3 * STALLED_MS)
    assert not stalls.is_long(TP, 6, 3 * STALLED_MS), "no input waited meanwhile"
    assert not stalls.is_long(TP, 6, 0), "the clock was set back"
    assert not stalls.is_long(TP, 6, STALLED_MS - 1)
    assert stalls.is_long(TP, 6, STALLED_MS)


def test_topics_that_were_made_again_or_got_partitions_are_found() -> None:
    asked, answers = list[set[str]](), list[Future[dict[str, TopicDescription]]]()

    def ask(topics: set[str]) -> Future[dict[str, TopicDescription]]:
        asked.append(topics)
        answers.append(Future())
        return answers[-1]

    changed = ChangedTopics(cast(Any, SimpleNamespace(describe_topics=ask)))
    same, unknown, more, hidden = (TopicPartition(name, 0) for name in ("same", "unknown", "more", "hidden"))
    inputs = {
        TP: [LogInput("a", TP, 0, topic_id="old", partitions=2), LogInput("b", TP, 0)],
        same: [LogInput("a", same, 0, topic_id="id", partitions=2)],
        unknown: [LogInput("a", unknown, 0)],
        more: [LogInput("a", more, 0, partitions=2), LogInput("b", more, 0, partitions=3)],
        hidden: [LogInput("a", hidden, 0, partitions=2)],
    }
    assert changed.look(COMPARE_TOPICS_MS - 1, inputs) == []
    assert asked == []
    assert changed.look(COMPARE_TOPICS_MS, inputs) == []
    assert asked == [{"t", "same", "more", "hidden"}]
    assert changed.look(COMPARE_TOPICS_MS + 1, inputs) == []
    told = {"t": ("new", 3), "same": ("id", 2), "unknown": ("any", 9), "more": ("", 3)}
    answers[0].set_result({name: TopicDescription(*of) for name, of in told.items()})
    (first, replaced), (second, grown) = changed.look(COMPARE_TOPICS_MS + 2, inputs)
    assert first == TP
    assert isinstance(replaced, TopicReplaced)
    assert replaced.topic_id == "new"
    assert second == more
    assert isinstance(grown, PartitionsChanged)
    assert (grown.partitions, str(grown)) == (3, "more has 3 partitions, and had 2")
    assert changed.look(2 * COMPARE_TOPICS_MS - 1, inputs) == []
    assert len(asked) == 1
    changed.look(2 * COMPARE_TOPICS_MS, inputs)
    assert len(asked) == 2


def test_what_fails_is_tried_again_later_and_later_and_anew_after_it_has_worked_for_long() -> None:
    waits, backoff, now = [], HEALTHY, 1_000
    for _ in range(9):
        backoff = backoff.after_failure(now)
        waits.append(backoff.retry_at_ms - now)
        now = backoff.retry_at_ms
    assert waits == [min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2**n) for n in range(9)]
    assert backoff.failures == 9
    assert backoff.after_failure(now + HEALTHY_MS).failures == 10
    again = backoff.after_failure(now + HEALTHY_MS + 1)
    assert (again.failures, again.retry_at_ms) == (1, now + HEALTHY_MS + 1 + BACKOFF_MS_MIN)


def test_unused_memory_is_given_back_near_the_budget_and_not_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given, resident = list[int](), [0]
    step = UnusedMemory(1_000)
    monkeypatch.setattr(UnusedMemory, "give_back", lambda self: given.append(resident[0]))
    monkeypatch.setattr(allocator, "resident_bytes", lambda: resident[0])
    near = int(NEAR * 1_000)
    waits = []
    for resident[0] in (0, near - 1, near, near + 1):
        waits.append(step.run_once(0))
    assert (given, waits) == ([near, near + 1], [LOOK_MS, LOOK_MS, AGAIN_MS, AGAIN_MS])


def test_what_is_done_in_the_polling_thread_is_waited_for_with_its_error() -> None:
    polling, done = Commands(), list[str]()

    def fails() -> None:
        raise LogUnavailable("no broker")

    works, broken = in_polling(polling, lambda: done.append("done")), in_polling(polling, fails)
    assert not works.done()
    for command in polling.commands:
        command()
    assert (works.result(0), done) == (None, ["done"])
    with pytest.raises(LogUnavailable, match="no broker"):
        broken.result(0)


class Commands(PollingStep):
    """Keeps what the polling thread is asked to do."""

    def __init__(self) -> None:
        self.commands: list[Callable[[], None]] = []

    def command(self, action: Callable[[], None]) -> None:
        self.commands.append(action)


def test_threads_give_up_the_interpreter_by_whether_queries_share_it() -> None:
    before = sys.getswitchinterval()
    try:
        for queries, interval_s in [(1, SWITCH_ALONE_S), (2, SWITCH_SHARED_S)]:
            share_interpreter(queries)
            assert sys.getswitchinterval() == pytest.approx(interval_s)
    finally:
        sys.setswitchinterval(before)


def test_members_are_known_until_they_leave() -> None:
    log = MemoryLog()
    reader = MemberReader(log, "app")
    assert reader.read() == {}
    one, two = MemberAddress("a", 1, "secret"), MemberAddress("b", 2, "hidden")
    write_member(log, "app", "p1", one, 5)
    write_member(log, "app", "p2", two, 6)
    assert dict(reader.read()) == {"p1": one, "p2": two}
    write_member(log, "app", "p1", two, 7)
    write_member(log, "app", "p2", None, 8)
    assert dict(reader.read()) == {"p1": two}
    assert dict(MemberReader(log, "app").read()) == {"p1": two}
    assert (str(one), "secret" in repr(one)) == ("a:1", False)


def test_queries_that_hung_are_known_until_they_are_released() -> None:
    log = MemoryLog()
    reader = HungReader(log, "app")
    reader.read_to_end()
    assert reader.hung == []
    first = HungMicroBatch("Q@2", "Q", "d1", "Q@2/0_1", "m2", 1_000, "f.py:3 slow")
    other, third = (
        HungMicroBatch("R", "R", "d2", "R/0_0", "m1", 2_000, ""),
        HungMicroBatch("Q", "Q", "d", "Q/0_0", "m1", 3, "x"),
    )
    write_hung(log, "app", [first], 1)
    write_hung(log, "app", [other, third], 2)
    reader.read_to_end()
    assert reader.hung == [third, other, first]
    assert "Q/0_1" not in first.reason
    assert "hung on member m2 at 1970-01-01 00:00:01 UTC (f.py:3 slow, task Q@2/0_1); flowql resume Q" in first.reason
    assert "(unknown code, task R/0_0)" in other.reason
    assert release(log, "app", "me", ["Q", "S"], 3) == ["Q"]
    assert release(log, "app", "me", ["Q"], 4) == []
    reader.read_on()
    assert reader.hung == [other]
    log.delete_topic(topic_of("app").topic)
    reader.read_on()
    assert reader.hung == []


def test_other_applications_are_those_with_a_topic_of_plans() -> None:
    topics = ["b-plan", "a-plan", "plan", "app-plan", "a-plan-of-mine", "my-app-plan"]
    assert other_applications("app", topics) == ["a", "b", "my-app"]


@pytest.mark.parametrize("part", ["outputs", "state"])
def test_room_for_what_is_not_committed_is_that_of_the_fuller_part(part: str) -> None:
    world = InstanceHarness(SOURCE.format(n=1) + GOOD)
    world.send("s", rows(0, 50))
    world.driver.run_until_idle()  # type: ignore[union-attr]
    publisher, collector, state = (
        world.instance.publisher,
        world.instance.collector,
        world.instance.state.uncommitted,
    )
    assert (publisher.may_run(), publisher.has_reserve()) == (True, True)
    size = collector.size_bytes if part == "outputs" else state.size_bytes
    assert size > 0
    found = []
    for room in (2 * size + 1, 2 * size, size + 1, size):
        if part == "outputs":
            collector._bytes_max = room
        else:
            state._limits = StateLimits(room)
        found.append((publisher.may_run(), publisher.has_reserve()))
    assert found == [(True, True), (True, False), (True, False), (False, False)]
    world.settle()
    assert (publisher.may_run(), publisher.has_reserve()) == (True, True)
    world.instance.fatal = ValueError("a bug")
    assert (publisher.may_run(), publisher.has_reserve()) == (False, True)
