"""Strides of queries that are behind: two that take several ticks at once meet, so that who reads both goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.ticks import course
from flowql.runtime.ticks.course import Course
from flowql.runtime.ticks.graph import Stage

OWN, STEPS, COUNTS = TopicPartition("own", 0), 400, {"credits": 1, "debits": 1, "balance": 1}
CREDITS, DEBITS, BALANCE = (frozenset({("CTAS_" + name, 0)}) for name in ("credits", "debits", "balance"))


def stage(name: str, subs: frozenset[tuple[str, int]], upstream: Iterable[str] = ()) -> Stage:
    above = frozenset(upstream)
    sources = frozenset() if above else frozenset({"own"})
    return Stage(name, subs, frozenset({name}), above or sources, sources, above)


def ticks_of_balance() -> list[int]:
    """The ticks that a view over two others finishes. A tick is drawn at each step; one of the others needs 4 steps for a line and the other 6,
    at steps that never coincide.
    """
    stages = [stage("credits", CREDITS), stage("debits", DEBITS), stage("balance", BALANCE, ("credits", "debits"))]
    made = frozenset(TopicPartition(topic, 0) for topic in ("credits", "debits"))
    reads = {sub: {f"{sub[0]}/0_0": frozenset({OWN})} for subs in (CREDITS, DEBITS) for sub in subs}
    reads |= {sub: {f"{sub[0]}/0_0": made} for sub in BALANCE}
    leader, lines, finished = Course(stages, reads, 0, COUNTS), dict[str, int](), list[int]()
    for step in range(STEPS):
        leader.draw({OWN: step}, step)
        news = leader.news()
        lines |= {name: line.tick for name, line in news.stages.items()} if news is not None else {}
        due = {"balance": True, "credits": step % 4 == 1, "debits": step % 6 == 0}
        for name in (name for name, is_due in due.items() if is_due and name in lines):
            tick = lines.pop(name)
            leader.take({f"CTAS_{name}/0_0": tick})
            finished += [tick] if name == "balance" else []
            for of in leader.to_ask():
                leader.learn(of, {TopicPartition(of, 0): step})
    return finished


def test_queries_that_are_behind_at_different_places_meet() -> None:
    finished = ticks_of_balance()
    assert finished == sorted(set(finished))
    assert len(finished) > 10
    assert finished[-1] > STEPS - 64, "and go on meeting"


@pytest.mark.parametrize("choice", [max, min], ids=["newest", "next"])
def test_strides_that_do_not_align_are_found(
    choice: Callable[[Iterable[int]], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes the newest tick, and no number is ever common; or the next one, and they fall behind."""
    monkeypatch.setattr(course, "aligned", lambda numbers: choice(found) if (found := list(numbers)) else None)
    finished = ticks_of_balance()
    assert len(finished) <= 10 or finished[-1] <= STEPS - 64
