"""Ends of topics that the instance tells the readers of another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from flowql.query import whole
from flowql.query.whole import SharedEnds
from flowql.runtime.log.base import TopicPartition


class Instance:
    def __init__(self) -> None:
        self.tick = 1

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int]:
        return {TopicPartition(topic, 0): self.tick for topic in topics or ("a", "b")}


@pytest.mark.parametrize(
    "seen",
    [
        lambda ends: ends.answered(),  # a query that the instance answers
        lambda ends: ends("a", "b"),
        lambda ends: ends(),  # of a transaction
    ],
)
def test_a_look_up_is_not_older_than_an_answer_before_it(
    monkeypatch: pytest.MonkeyPatch, seen: Callable[[SharedEnds], object]
) -> None:
    instance = Instance()
    ends = SharedEnds(instance.whole_ends, None)
    assert ends("a") == {TopicPartition("a", 0): 1}
    monkeypatch.setattr(whole, "STEP_S", 60.0)
    assert ends.known("a") == {TopicPartition("a", 0): 1}
    instance.tick = 2
    seen(ends)
    assert ends.known("a") is None
    monkeypatch.undo()
    assert ends("a") == {TopicPartition("a", 0): 2}


def test_topics_that_no_one_asks_about_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_000.0
    monkeypatch.setattr(whole.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(whole.time, "sleep", lambda _: None)
    ends = SharedEnds(Instance().whole_ends, None)
    for n in range(100):
        ends(f"gone {n}")
    now_s += whole.FORGOTTEN_S + 1
    ends("a")
    assert list(ends._told) == [("a",)]
    assert list(ends._asked_s) == ["a"]
    assert ends.known("a") == {TopicPartition("a", 0): 1}
