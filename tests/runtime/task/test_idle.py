"""What it costs to ask whether a task waits for those before it."""

from __future__ import annotations

import pytest

from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.runtime.batch import from_rows
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.task.channels import ConsumerChannels, ExchangeInput, Known
from flowql.runtime.task.input_buffer import LogInput
from tests.runtime.task.test_gathering import fetched
from tests.slt.session import Shape, SqlSession


def test_a_task_upstream_is_asked_once_however_many_ways_lead_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stages over 8 partitions have 8^3 ways to the first stage, and 64 channels between two stages."""
    world = SqlSession(Shape(partitions=8))
    try:
        world.execute("CREATE TABLE t (a INT, b INT)")
        query = "(SELECT b, COUNT(*) AS a FROM (SELECT a AS b, COUNT(*) AS a FROM t GROUP BY a) GROUP BY b)"
        world.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a, COUNT(*) AS n FROM {query} GROUP BY a")
        world.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 1)")
        asked: list[ConsumerChannels] = []
        plain = ConsumerChannels.idle_with

        def counted(channels: ConsumerChannels, known: Known, ms: int | None) -> bool:
            asked.append(channels)
            return plain(channels, known, ms)

        monkeypatch.setattr(ConsumerChannels, "idle_with", counted)
        (query,) = world._instance.queries.values()
        last = query.built.tasks[-1]
        assert last.idle
        assert len(asked) == len({id(channels) for channels in asked}) > 16, "every task before it, each once"
        assert world.ask("SELECT a, n FROM v").to_pylist() == [{"a": 1, "n": 2}]
    finally:
        world.close()


def test_a_task_without_rows_asks_no_task_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler asks every task whether it can run, and most have nothing to do."""
    world = SqlSession(Shape(partitions=8))
    try:
        world.execute("CREATE TABLE t (a INT, b INT)")
        world.execute("CREATE MATERIALIZED VIEW v AS SELECT x.a FROM t AS x JOIN t AS y ON x.a = y.b")
        world.execute("INSERT INTO t VALUES (1, 2), (1, 1), (2, 1)")
        asked: list[ConsumerChannels] = []
        monkeypatch.setattr(ConsumerChannels, "rows_or_idle", lambda channels, _known: asked.append(channels))
        (query,) = world._instance.queries.values()
        assert not any(task.runnable for task in query.built.tasks)
        assert not asked
    finally:
        world.close()


def test_a_task_looks_only_at_the_channels_that_have_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row goes to one of the 8 channels of one of the 8 tasks behind a repartition."""
    world = SqlSession(Shape(partitions=8))
    try:
        world.execute("CREATE TABLE t (a INT, b INT)")
        world.execute("CREATE MATERIALIZED VIEW v AS SELECT b, COUNT(*) AS n FROM t GROUP BY b")
        world.execute("INSERT INTO t VALUES (1, 2)")
        peeked: list[ExchangeInput] = []
        plain = ExchangeInput.peek
        monkeypatch.setattr(ExchangeInput, "peek", lambda x, *args: (peeked.append(x), plain(x, *args))[1])
        world.execute("INSERT INTO t VALUES (1, 2)")
        assert world.ask("SELECT b, n FROM v").to_pylist() == [{"b": 2, "n": 2}]
        assert len(peeked) == 1
    finally:
        world.close()


def test_tasks_of_a_sub_topology_ask_each_writer_once() -> None:
    """Channels with the same number have the same writer."""
    asked: list[int] = []
    tasks = [[ExchangeInput("op", "x", partition, n) for n in range(3)] for partition in range(3)]
    for channels in tasks:
        for channel in channels:
            channel.upstream_idle = lambda _known, n=channel.source: (asked.append(n), n != 1)[1]
    joined = [ConsumerChannels.joined(channels) for channels in tasks]
    for other in joined:
        other.upstream = joined[0].upstream
    row = from_rows(Schema((Field("MS", t.BIGINT),)), [(1,)], [1], [0], [0])
    tasks[1][1].push(row)
    tasks[2][2].push(row)
    known = Known()
    assert [channels.rows_or_idle(known) for channels in joined] == [False, True, False]
    assert [channels.to_merge(known) for channels in joined] == [{1: True}, {1: True}, {1: True, 2: False}]
    assert sorted(asked) == [0, 1, 2]


def test_channels_are_idle_when_all_tasks_before_them_are_and_nothing_has_come_meanwhile() -> None:
    """A task that was publishing is idle only once its rows are here."""
    assert ConsumerChannels().idle_with(Known(), None)
    first, second = (ExchangeInput("op", "x", 0, n) for n in range(2))
    channels = ConsumerChannels.joined([first, second])
    assert channels.idle_with(Known(), None)
    second.upstream_idle = lambda _known: False
    assert not channels.idle_with(Known(), None)

    def publishes(_known: Known) -> bool:
        second.push(from_rows(Schema((Field("MS", t.BIGINT),)), [(1,)], [1], [0], [0]))
        return True

    second.upstream_idle = publishes
    assert not channels.idle_with(Known(), None)


def test_a_task_waits_for_channels_that_have_no_rows_now() -> None:
    """Those with rows are not asked; one whose rows were consumed is."""
    first, second = (ExchangeInput("op", "x", 0, n) for n in range(2))
    asked: list[int] = []
    for channel in (first, second):
        channel.upstream_idle = lambda _known, source=channel.source: bool(asked.append(source))
    row = from_rows(Schema((Field("MS", t.BIGINT),)), [(1,)], [1], [0], [0])
    first.push(row)
    channels = ConsumerChannels.joined([first, second])
    assert not channels.rows_or_idle(Known())
    second.push(row)
    assert channels.rows_or_idle(Known())
    assert asked == [1]
    first.consume(1)
    assert not channels.rows_or_idle(Known())
    assert asked == [1, 0]


def test_an_input_is_idle_only_when_it_was_read_to_the_end_of_its_partition() -> None:
    """Else a join would go on while records of the other side that come first are still in the log."""
    source = LogInput("op", TopicPartition("t", 0), 3)
    source.end_offset = 4
    assert not source.idle, "a record is in the log and not fetched"
    source.end_offset = 3
    assert source.idle


def test_rows_follow_those_of_the_first_batch_while_another_one_is_buffered() -> None:
    """Else a join would take all rows of the other side up to its last one, and the second batch would come too late."""
    source = LogInput("op", TopicPartition("t", 0), 0)
    for first in (0, 1_000):
        source.add(fetched(first, 1_000))
    source.end_offset = source.next_fetch
    assert source.more_to_come
    source.consume_raw(1_000)
    assert not source.more_to_come
    source.end_offset += 1
    assert source.more_to_come, "a record is in the log and not fetched"
