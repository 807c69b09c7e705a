"""Large tables whose topics are read in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import compile_project
from flowql.query import kept
from flowql.query.catching_up import NEAR_RECORDS, CatchingUp
from flowql.query.pace import Share
from flowql.query.relations import TopicRelation
from flowql.query.room import Room
from flowql.runtime.log.base import TopicPartition

SOURCES = compile_project(
    [SourceText("s.sql", "CREATE TABLE a (id BIGINT PRIMARY KEY); CREATE TABLE b (id BIGINT PRIMARY KEY);")],
    dialect="standard",
).plan.sources
WAIT_S = 30.0
DATABASE: Any = SimpleNamespace(memory=None)


class Log:
    """Each topic has one partition."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends

    def admin(self) -> Log:
        return self

    def topics(self) -> dict[str, Any]:
        return dict.fromkeys(self.ends, SimpleNamespace(partitions=1))

    def begin_offsets(self, tps: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    def end_offsets(self, tps: Any) -> dict[TopicPartition, int]:
        return {tp: self.ends[tp.topic] for tp in tps}

    def relation(self, name: str) -> TopicRelation:
        source = next(s for s in SOURCES if s.name == name)
        log: Any = self
        return TopicRelation(name, source, log, {TopicPartition(source.topic, 0): (0, self.ends[source.topic])})


class Topics:
    """Keeps numbers of records. on_read: is called for each part."""

    def __init__(self, on_read: Callable[[str], bool]) -> None:
        self.on_read, self.at = on_read, dict[str, int]()

    def read_to(self, relation: TopicRelation) -> dict[TopicPartition, int]:
        return {tp: self.at.get(tp.topic, 0) for tp in relation.spans}

    def left_to_read(self, relation: TopicRelation) -> int:
        return sum(end - self.at.get(tp.topic, 0) for tp, (_, end) in relation.spans.items())

    def read_on(self, relation: TopicRelation, room: Room) -> bool:
        ((tp, (_, end)),) = relation.spans.items()
        self.at[tp.topic] = end
        return self.on_read(tp.topic)


def until(true: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_a_table_that_cannot_be_read_is_not_read_again_at_once() -> None:
    parts = list[str]()

    def full(topic: str) -> bool:
        parts.append(topic)
        raise OSError("the disk is full")

    reading = CatchingUp(made(full), DATABASE)
    relation = Log(a=10 * NEAR_RECORDS).relation("a")
    assert not reading.is_near(relation)
    for _ in range(3):
        until(lambda: parts and not any(t.name == "catching up" for t in threading.enumerate()))
        assert not reading.is_near(relation)
    assert len(parts) == 1
    reading.close()


def test_a_table_that_grows_faster_than_it_is_read_holds_up_no_other() -> None:
    log, parts = Log(a=10 * NEAR_RECORDS, b=10 * NEAR_RECORDS), list[str]()
    both = threading.Event()

    def grows(topic: str) -> bool:
        assert both.wait(WAIT_S)
        parts.append(topic)
        log.ends["a"] += 2 * NEAR_RECORDS
        time.sleep(0.001)
        return True

    reading = CatchingUp(made(grows), DATABASE)
    assert not reading.is_near(log.relation("a"))
    assert not reading.is_near(log.relation("b"))
    both.set()
    until(lambda: len(parts) >= 8)
    assert {"a", "b"} == set(parts[:4])
    reading.close()


def test_a_table_that_is_read_in_the_background_displaces_none_that_queries_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def larger(self: kept.Kept, *_: object) -> bool:
        self.size += 60
        return True

    monkeypatch.setattr(kept.Kept, "advance", larger)
    topics, log = kept.KeptTopics(100, Share()), Log(a=1, b=1)
    room: Any = SimpleNamespace(back=lambda: None)
    assert topics.read_on(log.relation("b"), room)
    asked = topics.of(log.relation("a").source)
    asked.size = 40
    assert not topics.read_on(log.relation("b"), room)
    assert topics.of(log.relation("a").source) is asked


def made(on_read: Callable[[str], bool]) -> Any:
    return Topics(on_read)
