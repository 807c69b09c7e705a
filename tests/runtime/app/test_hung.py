"""What a member says of micro-batches that do not end, and what it makes of what others say."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from flowql.runtime.app import hung, hung_topic
from flowql.runtime.app.hung import ABSENT_MS, LOOK_MS, HungQueries
from flowql.runtime.app.hung_topic import HungMicroBatch, HungReader, release, topic_of, write_hung
from flowql.runtime.app.member_topic import MemberAddress, write_member
from flowql.runtime.app.watchdog import StuckStep
from flowql.runtime.clock import VirtualClock
from flowql.runtime.config import InstanceConfig
from flowql.runtime.errors import LogDenied, LogError, LogUnavailable, StaleMember
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.memory import MemoryLog
from tests.runtime.app.test_group_duties import Counted

DISK = "task.py:3 run > rocks.py:9 write"


class Host:
    """A member with two queries. said: what each query is known to hang of."""

    def __init__(self) -> None:
        self.log, self.clock = MemoryLog(), VirtualClock(1_000_000)
        self.config = InstanceConfig("app", shared=True, changelogs=True, process_id="me")
        queries = {n: SimpleNamespace(id=n, definition=f"text of {n}", generation=g) for n, g in (("A", 1), ("B@2", 2))}
        self.running = SimpleNamespace(queries=tuple(queries.values()), by_id=queries)
        self.said: list[dict[str, str]] = []
        self.query_states = SimpleNamespace(set_hung=self.said.append)
        self.of = HungQueries(cast(Any, self))

    def written(self) -> list[HungMicroBatch]:
        reader = HungReader(self.log, "app")
        reader.read_to_end()
        return reader.hung


def stuck(task: str | None, where: str = "f.py:1 outer > g.py:2 slow", for_ms: int = 500) -> StuckStep:
    return StuckStep("processing-0", for_ms, task, where)


def everything(_task: str) -> bool:
    return True


def still() -> None:
    """The others have not given this member up."""


def run(query: str, at_ms: int, *, text: str = "", member: str = "other") -> HungMicroBatch:
    return HungMicroBatch(query, query, text or f"text of {query}", f"{query}/0_0", member, at_ms, "g.py:2 slow")


def test_others_are_told_of_runs_of_functions_that_are_this_members() -> None:
    host = Host()
    steps = [stuck(None), stuck("A/0_0", DISK), stuck("C/0_0"), stuck("A/0_1"), stuck("B@2/1_0", for_ms=70)]
    assert host.of.tell(steps[:3], everything, still)
    assert not host.log.topics(), "there is nothing to say"
    assert host.of.tell(steps, lambda task: task != "A/0_1", still)
    now = host.clock.wall_ms()
    assert host.written() == [HungMicroBatch("B@2", "B", "text of B@2", "B@2/1_0", "me", now - 70, "g.py:2 slow")]
    assert host.of.tell(steps, everything, still)
    assert [(h.query, h.at_ms) for h in host.written()] == [("A", now - 500), ("B@2", now - 70)]


@pytest.mark.parametrize(
    ("error", "over"),
    [(LogUnavailable("no answer"), False), (LogDenied("not allowed"), True), (StaleMember("given up"), False)],
)
def test_what_could_not_be_told_is_told_again_where_that_may_help(
    error: LogError, over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(hung, "write_hung", failing)
    assert Host().of.tell([stuck("A/0_0")], everything, still) == over


def test_queries_are_held_for_what_is_said_of_their_text_with_the_newest_reason() -> None:
    host = Host()
    runs: Collection[HungMicroBatch] = [
        run("A", 1_000, member="first"),
        run("A", 5_000, member="second"),
        run("A", 3_000, member="third"),
    ]
    for one in runs:
        write_hung(host.log, "app", [one], 1)
    write_hung(host.log, "app", [run("B@2", 1, text="an older text"), run("C", 1)], 1)
    host.of.learn()
    (found,) = host.said
    assert list(found) == ["A"]
    assert "hung on member second" in found["A"]


@pytest.mark.parametrize(("exists", "look_ms"), [(True, LOOK_MS), (False, ABSENT_MS)])
def test_it_looks_now_and_then(exists: bool, look_ms: int) -> None:
    """Brokers were asked each second whether the topic exists, by members at rest too."""
    host = Host()
    if exists:
        host.log.create_topic(topic_of("app").topic, 1)
    host.of.look(0)
    write_hung(host.log, "app", [run("A", 1)], 1)
    host.of.look(look_ms - 1)
    assert host.said == [{}]
    host.of.look(look_ms)
    assert list(host.said[-1]) == ["A"]
    assert len(host.said) == 2
    assert host.of.release(["A", "B"]) == ["A"]
    assert host.written() == []


def test_what_is_not_to_be_seen_yet_is_waited_for_before_tasks_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host()
    write_hung(host.log, "app", [run("A", 1)], 1)
    end = host.log.written_offset(topic_of("app"))
    monkeypatch.setattr(host.log, "written_offset", lambda _tp: end + 1)
    with pytest.raises(LogUnavailable, match=f"app-hung-0: offset {end} is not visible yet"):
        host.of.learn()
    host.of.look(0)
    assert list(host.said[-1]) == ["A"], "what is to be seen is enough for that"


def test_a_topic_that_may_not_be_read_is_said_once_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    host = Host()
    write_hung(host.log, "app", [run("A", 1)], 1)

    def denied(*_: object) -> None:
        raise LogDenied("not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(host.log, "partition_counts", denied)
        host.of.learn()
        host.of.learn()
    assert [r.getMessage() for r in caplog.records] == [
        "not allowed: this member does not learn of functions that hung on others"
    ]
    host.of.learn()
    assert [list(s) for s in host.said] == [[], [], ["A"]]
    with monkeypatch.context() as patch:
        patch.setattr(host.of._reader._reader, "read", denied)
        host.of.learn()
    assert len(caplog.records) == 2, "it could be read in between"


def test_records_of_other_versions_say_nothing_and_harm_nothing() -> None:
    log, tp = MemoryLog(), topic_of("app")
    write_hung(log, "app", [run("A", 1)], 1)
    producer = log.producer("other")
    producer.begin()
    values = [b"no JSON", b"{}", b"[1]", b'{"query": 1}']
    producer.send(tp, hung_topic.records_of([b"%d" % n for n in range(4)], values, 2))
    producer.commit()
    reader = HungReader(log, "app")
    reader.read_on()
    assert [h.query for h in reader.hung] == ["A"]
    assert tp == TopicPartition("app-hung", 0)


def test_what_is_written_is_in_one_partition_and_leaves_no_producer_open() -> None:
    log = Counted()
    write_hung(log, "app", [run("A", 1_000)], 1)
    assert release(log, "app", "me", ["B"], 2) == []
    assert len(log.made) == 1, "there is nothing to release"
    assert release(log, "app", "me", ["A"], 3) == ["A"]
    write_member(log, "app", "me", MemberAddress("localhost", 1, "secret"), 4)
    assert (len(log.made), log.left_open()) == (3, [])
    made = {name: (topic.partitions, topic.config) for name, topic in log.topics().items()}
    assert made == dict.fromkeys(["app-hung", "app-members"], (1, {"cleanup.policy": "compact"}))
