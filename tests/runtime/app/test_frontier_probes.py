"""Probes alone: which channels they are begun for, what they wait for, and when a channel is complete."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pyarrow as pa

from flowql.runtime.app.frontier import Frontier, RepartitionCleanup, Upstream
from flowql.runtime.log.base import PRODUCE_SCHEMA, Position, RawBatch, TopicPartition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.manager import StateManager
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.task.id import TaskId
from flowql.runtime.task.input_buffer import LogInput
from flowql.runtime.task.task import Task
from tests.runtime.state.support import commit, publish

GROUP = "app"
IN, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
R, R2 = TopicPartition("app-r", 0), TopicPartition("app-r2", 0)
FIRST, SECOND, MIDDLE = TaskId("Q", 0, 0), TaskId("Q", 0, 1), TaskId("Q", 1, 0)


class OpenEnds(MemoryLog):
    """More is written to repartitions than can be read: transactions are open."""

    def __init__(self) -> None:
        super().__init__()
        self.beyond: dict[TopicPartition, int] = {}
        self.asked: list[list[TopicPartition]] = []

    def written_offset(self, tp: TopicPartition) -> int:
        return super().written_offset(tp) + self.beyond.get(tp, 0)

    def stable_positions(self, group: str, tps: object) -> Mapping[TopicPartition, Position]:  # type: ignore[override]
        self.asked.append(list(tps))  # type: ignore[call-overload]
        return super().stable_positions(group, tps)  # type: ignore[arg-type]


class Site:
    """Tasks FIRST and SECOND read `in` and write `r`; MIDDLE reads `r` and writes `r2`."""

    def __init__(self) -> None:
        self.log = OpenEnds()
        for topic, partitions in (("in", 2), ("app-r", 1), ("app-r2", 1)):
            self.log.create_topic(topic, partitions)
        self.frontier = Frontier(self.log, GROUP)
        self.tasks = {
            FIRST: Upstream(frozenset({IN})),
            SECOND: Upstream(frozenset({OTHER})),
            MIDDLE: Upstream(frozenset({R}), (FIRST, SECOND)),
        }
        self.frontier.set_plan(self.tasks, {"app-r": ("Q", 0), "app-r2": ("Q", 1)})
        self.producer = self.log.producer("test")

    def put(self, tp: TopicPartition, records: int) -> None:
        rows = [{"timestamp": 0, "key": b"k", "value": b"v", "headers": None}] * records
        self.producer.begin()
        self.producer.send(tp, pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
        self.producer.commit()

    def process(self, tp: TopicPartition, to: int, group: str = GROUP) -> None:
        self.producer.begin()
        self.producer.send_positions(group, {tp: Position(to)})
        self.producer.commit()

    def channel(self, tp: TopicPartition = R, source: int = 0) -> LogInput:
        return LogInput("op", tp, 0, channel=b"%d" % source, source=source, probes=self.frontier.probes)


def waited_for(*channels: LogInput, probe: int = 1) -> None:
    """Rows of another input wait for the end of this probe."""
    other = LogInput("op", TopicPartition("beside", 0), 0)
    other.needed_probes.append(probe)
    for channel in channels:
        channel.siblings = [*channels, other]


def test_a_channel_is_complete_when_its_task_has_come_to_the_end_of_its_input() -> None:
    site = Site()
    channel = site.channel()
    waited_for(channel)
    site.put(IN, 5)
    assert site.frontier.probe([channel]) is False
    assert (channel.complete, site.frontier.probes.started) == (0, 1)
    site.process(IN, 4)
    assert site.frontier.probe([channel]) is False
    site.put(R, 3)
    site.process(IN, 5)
    assert site.frontier.probe([channel]) is True
    assert (channel.complete, channel.complete_at) == (1, 3), "of the probe that took the end, with what is there now"
    assert not channel.waited_for
    assert (site.frontier.probe([channel]), site.frontier.probes.started) == (False, 3), "nobody waits for it"


def test_a_probe_has_the_ends_as_of_its_beginning() -> None:
    """Rows that came later wait for a later one."""
    site = Site()
    channel = site.channel()
    waited_for(channel)
    site.put(IN, 2)
    assert not site.frontier.probe([channel])
    site.put(IN, 2)
    site.process(IN, 2)
    assert site.frontier.probe([channel])
    assert channel.complete == 1
    waited_for(channel, probe=3)
    assert not site.frontier.probe([channel]), "the third probe begins, whose end is 4"
    site.process(IN, 4)
    site.put(R, 1)
    assert site.frontier.probe([channel])
    assert (channel.complete, channel.complete_at) == (3, 1)


def test_of_a_task_without_input_the_probe_ends_at_once() -> None:
    site = Site()
    channel = site.channel()
    waited_for(channel)
    assert site.frontier.probe([channel]) is True
    assert (channel.complete, channel.complete_at) == (1, 0)


def test_only_the_task_of_a_channel_and_those_before_it_are_asked_for() -> None:
    site = Site()
    first, second = site.channel(source=0), site.channel(source=1)
    waited_for(first, second)
    site.put(IN, 1)
    assert site.frontier.probe([second]) is True
    assert site.log.asked == [[OTHER]]
    assert site.frontier.probe([first, second]) is False, "one waits, the other is complete already"
    assert (first.complete, second.complete) == (0, 1)
    site.process(IN, 1)
    assert site.frontier.probe([first]) is True
    assert (first.complete, second.complete) == (2, 1)


def test_positions_of_another_group_do_not_count() -> None:
    site = Site()
    channel = site.channel()
    waited_for(channel)
    site.put(IN, 1)
    site.process(IN, 1, "another")
    assert not site.frontier.probe([channel])


def test_a_task_behind_others_comes_after_them_and_reads_all_that_is_written() -> None:
    site = Site()
    channel = site.channel(R2)
    waited_for(channel)
    site.put(IN, 1)
    assert not site.frontier.probe([channel])
    assert sorted(site.log.asked[-1]) == [IN, OTHER], "that of the middle waits for those before it"
    site.process(IN, 1)
    assert not site.frontier.probe([channel]), "the ends of the middle are taken in the next one"
    site.put(R, 2)
    site.log.beyond[R] = 3
    assert not site.frontier.probe([channel])
    site.process(R, 2)
    assert not site.frontier.probe([channel]), "three records of an open transaction are still to come"
    site.process(R, 5)
    assert site.frontier.probe([channel])
    assert channel.complete == 1, "that of the slowest before it"
    assert channel.complete_at == 0


def test_tasks_before_those_before_a_task_are_asked_for_too() -> None:
    site, r3 = Site(), TopicPartition("app-r3", 0)
    site.log.create_topic("app-r3", 1)
    last = TaskId("Q", 2, 0)
    site.frontier.set_plan(
        {**site.tasks, last: Upstream(frozenset({R2}), (MIDDLE,))},
        {"app-r": ("Q", 0), "app-r2": ("Q", 1), "app-r3": ("Q", 2)},
    )
    channel = site.channel(r3)
    waited_for(channel)
    site.put(IN, 1)
    assert not site.frontier.probe([channel])
    assert site.log.asked[-1] == [IN, OTHER]
    site.process(IN, 1)
    assert not site.frontier.probe([channel])
    assert not site.frontier.probe([channel])
    assert site.frontier.probe([channel]), "a probe later for each task behind another"
    assert channel.complete == 1


def test_the_first_record_of_a_repartition_goes_when_it_is_processed() -> None:
    site = Site()
    site.put(R, 2)
    state = StateManager(MemoryPhysical())
    channel = site.channel()
    publish(state, state.open_task("Q/1_0", 0, []), {"positions": {channel.name: 1}})
    commit(state)
    cleanup = RepartitionCleanup(site.log, state)
    cleanup.delete_processed([cast(Task, SimpleNamespace(id=MIDDLE, logs={"r": channel}))])
    assert site.log.begin_offset(R) == 1


def test_what_is_complete_before_others_wait_is_nothing_to_probe() -> None:
    site = Site()
    channel, plain = site.channel(), LogInput("op", IN, 0)
    assert site.frontier.probe([channel, plain]) is False
    channel.siblings = plain.siblings = [channel, plain]
    assert site.frontier.probe([plain]) is False
    assert site.frontier.probes.started == 0
    waited_for(channel)
    site.frontier.set_plan({}, {"app-r": ("Q", 0)})
    assert site.frontier.probe([channel]) is False, "its writer is being stopped"
    assert site.frontier.probes.started == 0


def test_a_new_plan_begins_without_what_is_known_of_the_old_one() -> None:
    site = Site()
    channel = site.channel()
    waited_for(channel, probe=9)
    site.put(IN, 3)
    assert not site.frontier.probe([channel])
    site.process(IN, 3)
    site.frontier.set_plan({FIRST: Upstream(frozenset({OTHER}))}, {"app-r": ("Q", 0)})
    site.put(OTHER, 1)
    assert not site.frontier.probe([channel]), "another partition is read"
    assert site.log.asked[-1] == [OTHER]
    site.process(OTHER, 1)
    assert site.frontier.probe([channel])
    assert channel.complete == 2, "of the plan before it no probe is left"
    site.frontier.set_plan(site.tasks, {"app-r": ("Q", 0)})
    assert site.frontier.probe([channel])
    site.frontier.set_plan(site.tasks, {"app-r": ("Q", 0)})
    site.put(IN, 1)
    channel.complete = 0
    assert not site.frontier.probe([channel]), "nor what its tasks have done"


def test_rows_that_arrive_wait_for_the_next_probe() -> None:
    site = Site()
    channel = site.channel()
    plain = LogInput("op", IN, 0, probes=site.frontier.probes)
    channel.siblings = plain.siblings = [channel, plain]
    site.put(IN, 1)
    batch = site.log.reader(IN, 0).read(10, 1 << 20)
    assert isinstance(batch, RawBatch)
    plain.add(batch)
    assert channel.waited_for
    assert plain.needed_probe == 1
