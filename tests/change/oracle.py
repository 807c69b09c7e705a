"""What a fresh engine makes of the same files and records, and how the engine under test differs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

from compiler.plan.topology import Plan, SourceDef
from runtime.log.memory import MemoryLog
from tests.change.engine import Engine, Fresh
from tests.change.feed import copy_topics
from tests.change.places import Follower, State, of_question, of_relation, of_topic

SHOWN = 3  # records of a difference


def results_of(plan: Plan) -> dict[str, SourceDef]:
    """What queries of a plan make."""
    return {s.name: s for s in plan.sources if s.query is not None}


def run_fresh(engine: Engine, plan: Plan, topics: Iterable[str], *, seed: int) -> Fresh:
    """A fresh engine that has read the same records. Close it."""
    log = MemoryLog()
    copy_topics(engine.log, log, topics)
    fresh = Fresh(log, seed=seed)
    fresh.run(plan)
    return fresh


def compare(
    engine: Engine, plan: Plan, topics: Iterable[str], followers: Mapping[str, Follower], rng: random.Random
) -> list[str]:
    """Differences in all places, as sentences."""
    fresh = run_fresh(engine, plan, topics, seed=rng.randrange(1 << 30))
    wrong: list[str] = []
    names = sorted(results_of(plan))
    asked = rng.choice(names) if names else ""
    for name in names:
        source = results_of(plan)[name]
        expected = of_topic(fresh.log, source)
        wrong += difference(f"topic of {name}", expected, of_topic(engine.log, source))
        follower = followers.get(source.topic)
        if follower is not None and follower.source.kind == source.kind:
            follower.read(engine.log)
            wrong += difference(f"follower of {name}", expected, follower.state())
        expected, seen = of_relation(fresh.front, name), of_relation(engine.front, name)
        wrong += difference(f"rows of {name}", expected, seen)
        if name == asked:
            wrong += difference(f"question about {name}", of_question(fresh.front, name), of_question(engine.front, name))
    fresh.close()
    return wrong


def difference(place: str, expected: State, seen: State) -> list[str]:
    if expected == seen:
        return []
    lost, more = expected - seen, seen - expected
    count = f"{lost.total()} of {expected.total()} missing, {more.total()} too many"
    return [f"{place}: {count}", *_lines("  - ", lost), *_lines("  + ", more)]


def _lines(sign: str, rows: State) -> list[str]:
    return [f"{sign}{_shown(row)}" for row in list(rows)[:SHOWN]]


def _shown(row: Any) -> str:
    return " ".join(str(v) for v in row)
