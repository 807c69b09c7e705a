"""A function that hangs takes out one member: those that get its tasks learn of it before they begin them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from flowql.runtime.app import hung, watchdog
from flowql.runtime.app.freeze import Frozen, read_frozen, write_frozen
from flowql.runtime.app.hung_topic import HungMicroBatch, release, topic_of, write_hung
from flowql.runtime.app.progress import state_of
from flowql.runtime.app.watchdog import StuckStep
from flowql.runtime.errors import LogDenied, LogUnavailable
from flowql.runtime.state.changelog import records_of
from tests.sim import project
from tests.sim.checks import APP
from tests.sim.cluster import SILENT_MS
from tests.sim.test_scenarios import ends_well, running, tasks, world

pytestmark = pytest.mark.turns("long")

__all__ = ["world"]  # a fixture
LEAVE_MS, TELL_MS = 400, 1_500
HANGS_MS = 4_000
QUERY, BAD = "CTAS_TOTALS", "CTAS_TOTALS/0_0"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    for name, ms in (("LOOK_MS", 50), ("STUCK_MS", 200), ("LEAVE_MS", LEAVE_MS), ("TELL_MS", TELL_MS)):
        monkeypatch.setattr(watchdog, name, ms)
    monkeypatch.setattr(hung, "LOOK_MS", 100)
    monkeypatch.setattr(hung, "ABSENT_MS", 100)


class Hanging:
    """A function that does not return from a run of BAD, on whatever member, until it is mended. on: where it hung.

    meanwhile: what happens so many ms after it hung first; before it returns, everything else goes on inside of its call.
    """

    def __init__(self, world, *meanwhile, ms=HANGS_MS):
        self.world, self.meanwhile, self.ms = world, meanwhile, ms
        self.mended, self.on = False, []

    def attach(self, *processes):
        for process in processes:
            process.link.work = lambda p=process: self._work(p)

    def _work(self, process):
        thread = self.world.stack[-1][1]
        if self.mended or process.instance.manager.running().get(BAD) != thread:
            return
        if not self.on:
            for after_ms, action in self.meanwhile:
                self.world.at(self.world.now + after_ms, action)
        self.on.append(process.name)
        assert self.world.interlude(process, self.ms, freeze=False)


def two_members(world):
    """Of which the first has BAD."""
    first = running(world)
    second = world.start()
    world.run_until(lambda: len(tasks(first)) == len(tasks(second)) == 5)
    return (first, second) if BAD in tasks(first) else (second, first)


def feed_all(world, function):
    """The function hangs, and has returned."""
    for n in range(len(world.input)):
        world.feed(n)
    world.run_until(lambda: function.on)


def is_hung(process):
    return state_of(process.instance, QUERY) == "hung"


def written(world):
    """Values of the topic's records, None for one that was deleted."""
    topic = topic_of(APP).topic
    found = project.records_of(world.outside, topic) if topic in world.broker.topics else []
    return [None if value is None else json.loads(value) for _, _, value in found]


def right(world):
    """Topics of results that are as DuckDB says."""
    found = project.seen(world.outside)
    return {topic for topic, rows in project.expected(world.outside).items() if rows == found.get(topic, Counter())}


def try_again(world):
    return release(world.outside, APP, "a user", [QUERY], world.now)


def run_of(process, member="another", definition=None):
    """What a member says of QUERY."""
    query = process.instance.running.by_id.get(QUERY)
    return HungMicroBatch(QUERY, QUERY, definition or query.definition, BAD, member, 1_795_334_000_000, "udf.py:1 f")


@pytest.fixture
def held_on(world):
    """One member has hung and left, the other has all tasks and knows."""
    seen = {}
    first, second = two_members(world)

    def look():
        seen.update(tasks=len(tasks(second)), hung=is_hung(second), right=right(world), away=watchdog_of(first).is_away)
        seen["reason"] = second.instance.query_states.of(QUERY).hung

    function = Hanging(world, (HANGS_MS - 100, look))
    function.attach(first, second)
    feed_all(world, function)
    return first, second, function, seen


def watchdog_of(process):
    return process.instance.watchdog


def test_the_next_member_does_not_begin_what_hung(world, held_on):
    first, second, function, seen = held_on
    assert function.on == [first.name]
    assert (seen["tasks"], seen["hung"], seen["away"]) == (10, True, True)
    assert {"big", "named"} <= seen["right"], (
        "the queries beside it go on"
    )  # the last rows of a repartition wait, as beside a pause
    assert "totals" not in seen["right"]
    assert seen["reason"].startswith(f"its function hung on member {first.name} at ")
    assert seen["reason"].endswith(f"task {BAD}); flowql resume {QUERY} tries again")
    world.run_for(1_000)
    assert is_hung(first), "the member that has returned does not try it either"
    function.mended = True
    assert second.group.hung.release([QUERY]) == [QUERY]
    assert second.group.hung.release([QUERY]) == []
    ends_well(world)


def test_without_the_record_it_takes_out_one_after_the_other(world, monkeypatch):
    """What the test above shows is the record's doing."""
    monkeypatch.setattr(hung.HungQueries, "tell", lambda *_: True)
    first, second = two_members(world)
    function = Hanging(world, ms=2_000)
    function.attach(first, second)
    feed_all(world, function)
    assert set(function.on) == {first.name, second.name}
    function.mended = True
    ends_well(world)


def test_a_query_that_is_tried_again_and_hangs_again_is_hung_again(world, held_on):
    function = held_on[2]
    assert try_again(world) == [QUERY]
    world.run_until(lambda: len(function.on) == 2)
    world.run_for(500)
    assert all(is_hung(p) for p in world.processes)
    function.mended = True
    try_again(world)
    ends_well(world)


@pytest.mark.parametrize("alone", [False, True])
def test_a_member_that_was_killed_as_it_hung_does_not_begin_it_again(world, alone):
    first, second = two_members(world)
    if alone:
        world.leave(second)
        world.run_until(lambda: len(tasks(first)) == 10)
    function = Hanging(world, (HANGS_MS - 100, lambda: world.kill(first)))
    function.attach(first)
    feed_all(world, function)
    again = world.start(first.name)
    function.attach(again)
    world.run_until(lambda: len(tasks(again)) == (10 if alone else 5))
    world.run_for(500)
    assert function.on == [first.name]
    assert is_hung(again)
    function.mended = True
    try_again(world)
    ends_well(world)


def test_a_member_that_was_ended_says_so_before_others_begin_its_task(world, tmp_path):
    """Its watchdog process has ended it, as its interpreter was frozen, and starts it again: it has no task, and no other member is to freeze."""
    first, second = two_members(world)
    definition = first.instance.running.by_id[QUERY].definition
    function = Hanging(world)
    function.attach(second)
    world.kill(first)
    write_frozen(tmp_path, Frozen(world.now, 1, "no beat", "processing-0", QUERY, QUERY, definition, BAD, {}, "", ""))
    again = world.start(first.name)
    again.instance.config = replace(again.instance.config, data_dir=tmp_path)
    joining, again.steps["placement"] = again.steps["placement"], lambda _: 50
    for n in range(len(world.input)):
        world.feed(n)
    world.run_until(lambda: len(tasks(second)) == 10)
    world.run_for(500)
    assert (tasks(again), function.on) == ([], [])
    assert is_hung(second)
    assert read_frozen(tmp_path) == []
    again.steps["placement"] = joining
    function.mended = True
    try_again(world)
    ends_well(world)


def test_pausing_and_resuming_forgets_nothing_of_it(world, held_on):
    """A pause is the user's wish, and no retry of failures ends what hung."""
    _, second, function, _ = held_on
    states = second.instance.query_states
    states.set_paused([QUERY])
    assert state_of(second.instance, QUERY) == "paused"
    states.set_paused([])
    states.reinstate()
    assert is_hung(second)
    assert not states.of(QUERY).may_run
    function.mended = True
    try_again(world)
    ends_well(world)


# Records that come twice, late, of another plan, or not at all


def test_a_record_whose_answer_was_lost_is_written_twice_and_released_once(world):
    first, second = two_members(world)
    commit, lost = first.link.commit, []

    def commit_without_answer(send, send_later):
        if world.stack[-1][1] != "watchdog" or lost:
            return commit(send, send_later)
        send()
        lost.append(True)
        raise LogUnavailable("no answer to a commit")

    first.link.commit = commit_without_answer
    function = Hanging(world)
    function.attach(first, second)
    feed_all(world, function)
    assert lost
    assert len(written(world)) == 2
    assert function.on == [first.name]
    function.mended = True
    assert try_again(world) == [QUERY]
    assert written(world)[2:] == [None]
    ends_well(world)


def test_a_member_that_others_have_replaced_says_nothing(world):
    """It was cut off as it hung: the others have its tasks, go on with them, and what it would say comes too late."""
    first, _ = two_members(world)
    function = Hanging(world, (0, lambda: world.cut_off(first, SILENT_MS + 1_000)), ms=SILENT_MS + 3_000)
    function.attach(first)
    feed_all(world, function)
    assert function.on == [first.name]
    assert written(world) == []
    function.mended = True
    ends_well(world)


def test_a_member_that_was_given_up_tells_nothing_of_what_hangs(world):
    first, second = two_members(world)
    world.cut_off(first, SILENT_MS + 500)
    world.run_until(lambda: len(tasks(second)) == 10)
    world.stall(first, "placement", 2_000)
    world.stall(first, "reconciler", 2_000)
    world.run_until(lambda: first.unreachable_ms < world.now)
    assert not first.group.tell_hung([StuckStep("processing-0", 200_000, str(tasks(first)[0]), "udf.py:1 f")])
    assert written(world) == []
    ends_well(world)


def test_a_record_of_another_text_or_version_holds_nothing(world):
    """That of a member with an older plan; and one that this version cannot read."""
    first = running(world)
    write_hung(world.outside, APP, [run_of(first, definition="an older text")], world.now)
    producer = world.outside.producer("of another version")
    producer.begin()
    producer.send(topic_of(APP), records_of([b'["p", "CTAS_TOTALS"]'], [b'{"format": 2}'], 1))
    producer.commit()
    world.run_for(300)
    assert not is_hung(first)
    write_hung(world.outside, APP, [run_of(first)], world.now)
    world.run_for(300)
    assert is_hung(first)
    try_again(world)
    for n in range(len(world.input)):
        world.feed(n)
    ends_well(world)


def test_a_new_generation_runs(world):
    """The text was changed: what hung is not what runs now."""
    first = running(world)
    write_hung(world.outside, APP, [run_of(first)], world.now)
    world.run_until(lambda: is_hung(first))
    for n in range(len(world.input)):
        world.feed(n)
    world.run_for(500)
    assert "totals" not in right(world)
    world.change, world.watch.rereads, world.resume_hung = project.CHANGES[1], True, lambda: None
    world.deploy(first, project.changed_plan(world.change))
    ends_well(world)


def test_a_topic_that_is_deleted_holds_nothing_and_is_made_again(world):
    first = running(world)
    topic = topic_of(APP).topic
    for member in ("a", "b", "c"):
        write_hung(world.outside, APP, [run_of(first, member)], world.now)
    world.run_for(300)
    assert is_hung(first)
    world.outside.delete_topic(topic)
    world.run_for(300)
    assert not is_hung(first)
    write_hung(world.outside, APP, [run_of(first), run_of(first, "b")], world.now)
    world.run_for(300)
    assert is_hung(first)
    assert try_again(world) == [QUERY]
    assert written(world)[2:] == [None, None]
    for n in range(len(world.input)):
        world.feed(n)
    ends_well(world)


def test_a_topic_that_may_not_be_read_stops_nobody(world):
    first = running(world)
    write_hung(world.outside, APP, [run_of(first)], world.now)
    topic = topic_of(APP).topic
    world.denied[topic] = world.now + 2_000
    second = world.start()
    world.run_until(lambda: len(tasks(second)) == 5)
    assert not is_hung(second)
    world.run_for(2_000)
    assert is_hung(second)
    try_again(world)
    for n in range(len(world.input)):
        world.feed(n)
    ends_well(world)


def test_tasks_are_not_begun_before_all_is_visible_that_was_said(world):
    """The record is committed, and its marker is late: the next member waits."""
    first, second = two_members(world)
    world.broker.marker_delay_ms = lambda place: 2_500 if place == topic_of(APP) else 0  # the writer waits for 1 s
    function = Hanging(world)
    function.attach(first, second)
    feed_all(world, function)
    assert function.on == [first.name]
    function.mended = True
    try_again(world)
    ends_well(world)


@pytest.mark.parametrize("error", [LogUnavailable, LogDenied])
def test_a_member_that_cannot_say_so_leaves_all_the_same(world, error):
    """Without brokers after a while, without the right to write at once."""
    first, _ = two_members(world)
    left = []

    def broken(what):
        if what == "create topic" and world.stack and world.stack[-1][1] == "watchdog":
            raise error("no")

    first.link.broken = broken
    stay_away = first.instance.placement.stay_away

    def away(*, away):
        left.append(world.now)
        stay_away(away=away)

    first.instance.placement.stay_away = away
    begun = []
    function = Hanging(world, (0, lambda: begun.append(world.now)))
    function.attach(first)
    feed_all(world, function)
    assert (left[0] - begun[0] > LEAVE_MS + TELL_MS) == (error is LogUnavailable)
    function.mended = True
    ends_well(world)
