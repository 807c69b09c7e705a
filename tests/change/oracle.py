"""What a fresh engine makes of the same files and records, how the engine under test differs, and what is seen of it meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from flowql.compiler.plan.logical import Scan, walk_nodes
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.log.memory import MemoryLog
from tests.change.engine import Engine, Fresh
from tests.change.feed import copy_topics
from tests.change.places import Follower, NotWhole, State, of_query, of_relation, of_relations, of_topic

SHOWN = 3  # records of a difference
WHERE: tuple[str, ...] = ("topic", "rows")  # places that are looked at all the time


@dataclass(slots=True)
class Rest:
    """The results of an engine at rest, by place and name."""

    states: dict[str, dict[str, State]] = field(default_factory=lambda: {place: {} for place in WHERE})


def results_of(plan: Plan) -> dict[str, SourceDef]:
    """What queries of a plan make."""
    return {s.name: s for s in plan.sources if s.query is not None}


def run_fresh(engine: Engine, plan: Plan, topics: Iterable[str], *, seed: int) -> Fresh:
    """A fresh engine that has read the same records. Close it."""
    log, given = MemoryLog(), set(topics)
    written = {s.topic for s in plan.sources if s.query is not None}
    # A stream over the topic that a result was in before it moved: where that stream was not selected, its records are input now.
    left = {s.topic for s in plan.sources if s.query is None} - written - given
    copy_topics(engine.log, log, sorted(given | (left & set(engine.log.topics()))))
    fresh = Fresh(log, seed=seed)
    fresh.run(plan)
    return fresh


def compare(
    engine: Engine,
    plan: Plan,
    topics: Iterable[str],
    followers: Mapping[str, Follower],
    rng: random.Random,
    *,
    built: bool = False,
) -> tuple[Rest, list[str]]:
    """What there is, and differences in all places as sentences. built: something is held back, so that more is there."""
    fresh = run_fresh(engine, plan, topics, seed=rng.randrange(1 << 30))
    rest, wrong = Rest(), list[str]()
    results = results_of(plan)
    asked = rng.choice(sorted(results)) if results else ""
    for name, source in sorted(results.items()):
        expected, seen = of_topic(fresh.log, source), of_topic(engine.log, source)
        rest.states["topic"][name] = seen
        wrong += difference(f"topic of {name}", expected, seen)
        follower = followers.get(source.topic)
        if follower is not None:
            follower.read(engine.log)
            wrong += difference(f"follower of {name}", expected, follower.state(source))
        expected, seen = engine.rows_of(fresh.front, name), engine.rows(name)
        rest.states["rows"][name] = seen
        wrong += difference(f"rows of {name}", expected, seen)
        if name == asked:
            wrong += difference(f"interactive query about {name}", of_query(fresh.front, name), engine.queried(name))
    fresh.close()
    return rest, wrong or ([] if built else engine.leftovers())


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


class Watch:
    """Looks at results while a change is made and nothing is fed: each is as it was or as it will be, and what is read goes with its readers."""

    def __init__(self, engine: Engine, old: Plan, new: Plan, before: Rest) -> None:
        self._engine, self._before = engine, before
        growing = _growing(old, new)
        was, will = results_of(old), results_of(new)
        self._names = {n for n in was.keys() & will.keys() - growing if was[n].kind == will[n].kind}
        self._pairs = [(r, q.sink) for q in new.queries for r in _names_read(q, new)]
        self._seen: list[dict[str, dict[str, State]]] = []
        self._parts: list[tuple[str, State]] = []  # of streams on Kafka: what is there of a generation
        self._at: tuple[int, int] = (-1, -1)

    def look(self) -> None:
        """At one moment; only after a commit or with another plan there is anything new."""
        writer = self._engine.instance.config.transactional_id
        at = (self._engine.log.last_sequence(writer), id(self._engine.plan))
        if at == self._at:
            return
        self._at = at
        here = results_of(self._engine.plan)
        moment: dict[str, dict[str, State]] = {"topic": {}, "rows": {}}
        for name in self._names & here.keys():
            moment["topic"][name] = of_topic(self._engine.log, here[name])
            with suppress(NotWhole):
                moment["rows"][name] = of_relation(self._engine.front, name)
            if self._engine.kafka:
                self._in_parts(here[name], moment)
        self._seen.append(moment)

    def _in_parts(self, source: SourceDef, moment: dict[str, dict[str, State]]) -> None:
        """A stream's new records are appended in several transactions, and interactive queries read them as they come, with the columns that
        serve; a table's difference is one transaction for each partition, and interactive queries are answered from the state.
        """
        state = moment["topic"].pop(source.name)
        if source.kind == "stream":
            self._parts.append((source.name, state))
            moment["rows"].pop(source.name, None)

    def ask(self, rng: random.Random) -> None:
        """One interactive query about a result and what it reads; the engine goes on meanwhile."""
        here = results_of(self._engine.plan)
        pairs = [p for p in self._pairs if set(p) <= self._names & here.keys()]
        if pairs:
            try:
                states = of_relations(self._engine.front, rng.choice(pairs))
            except NotWhole:
                return
            kept = {n: s for n, s in states.items() if not self._engine.kafka or here[n].kind == "table"}
            self._seen.append({"topic": {}, "rows": kept})

    def wrong(self, after: Rest) -> list[str]:
        """What was never to be seen."""
        for name, state in self._parts:
            before, then = (rest.states["topic"][name] for rest in (self._before, after))
            if not (state <= before or state <= then):
                return [f"topic of {name}: of two generations", *difference("  before", before, state)]
        for n, moment in enumerate(self._seen):
            for place, states in moment.items():
                before, then = self._before.states[place], after.states[place]
                for name, state in states.items():
                    if state != before[name] and state != then[name]:
                        there = f"{place} of {name}, moment {n + 1} of {len(self._seen)} of the change: neither as before nor as after"
                        return [
                            there,
                            *difference("  before", before[name], state),
                            *difference("  after", then[name], state),
                        ]
                wrong = self._torn(lambda name, s=states, b=before: name in s and s[name] == b[name],
                                   lambda name, s=states, t=then: name in s and s[name] == t[name], states)  # fmt: skip
                if wrong:
                    return [f"{place}, moment {n + 1} of {len(self._seen)} of the change: {wrong}"]
        return []

    def _torn(self, old: Callable[[str], bool], new: Callable[[str], bool], states: Mapping[str, State]) -> str:
        for read, made in self._pairs:
            if read in states and made in states and old(read) != old(made) and new(read) != new(made):
                return f"{read} and {made}, which reads it, are not of one generation"
        return ""


def _names_read(query: QueryPlan, plan: Plan) -> list[str]:
    """Results that a query reads, also by another name of their topic."""
    scanned = {n.spec.topic for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)}
    return [s.name for s in results_of(plan).values() if s.topic in scanned]


def _growing(old: Plan, new: Plan) -> set[str]:
    """Results that get more without being made anew: new ones, those with a new writer or row, and their readers.

    Readers by the old texts, too: what still serves reads a new row before it is replaced.
    """
    begun = {q.id for q in new.queries} - {q.id for q in old.queries}
    found = {q.sink for q in new.queries if q.id in begun} | {i.target for i in new.inserts if i not in old.inserts}
    reads = [(q.sink, set(_names_read(q, plan))) for plan in (old, new) for q in plan.queries]
    while more := {sink for sink, read in reads if sink not in found and found & read}:
        found |= more
    return found
