"""A query waits until its views show a tick, such as that of a statement."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from flowql.compiler.plan.generations import runtime_name, topics_read
from flowql.compiler.plan.topology import Plan
from flowql.query.committed import Commit, Take, queries_behind
from flowql.query.errors import BEHIND, QueryError
from flowql.query.of_plan import OfPlan
from flowql.query.tick_text import Ends, as_text, later
from flowql.runtime.log.base import TopicPartition

WAIT_S = 10.0
STEP_S = 0.01


def waiting(take: Take, wanted: Ends, check: Callable[[], None] = lambda: None) -> Take:
    """Waits for a commit in which the views show at least the wanted tick. The commit tells which tick it shows. check: raises an error if the client
    has left.
    """

    def taken(relations: Sequence[str]) -> Commit:
        limit = time.monotonic() + WAIT_S
        while True:
            commit = take(relations)
            try:
                cut = _cut(commit, relations, wanted)
                missing = [tp for tp in cut if cut[tp] < wanted.get(tp, 0)]
                if not missing:
                    return replace(commit, told=as_text(later(wanted, cut)))
                check()
                if time.monotonic() > limit:
                    raise _behind(relations, commit, missing[0], wanted)
            except BaseException:
                commit.snapshot.close()
                raise
            commit.snapshot.close()
            time.sleep(STEP_S)

    return taken


def _cut(commit: Commit, relations: Sequence[str], wanted: Ends) -> dict[TopicPartition, int]:
    """How far the views have read what they are made of; 0 for a partition of which that is not known. Raises QueryError if they follow no ticks."""
    behind = _topics_behind(commit.plan)
    topics = {topic for query in queries_behind(commit.plan, relations) for topic in behind[query]}
    asked = {tp: 0 for tp in wanted if tp.topic in topics}
    if asked and commit.cut is None:
        title = f"{', '.join(relations)}: ticks are for views of standard SQL, and queries that these read"
        raise QueryError(title, code=BEHIND, help="ask without a tick")
    return asked | {tp: end for tp, end in (commit.cut or {}).items() if tp.topic in topics}


def _behind(relations: Sequence[str], commit: Commit, tp: TopicPartition, wanted: Ends) -> QueryError:
    why = (
        commit.apart
        or f"they show {tp} up to offset {(commit.cut or {}).get(tp, 0):,}, and {wanted[tp]:,} is asked for"
    )
    title = f"{', '.join(relations)} did not show the tick within {WAIT_S:g} s: {why}"
    return QueryError(title, code=BEHIND, help="flowql status   # says what each query waits for")


def _made_of(plan: Plan) -> dict[str, frozenset[str]]:
    return {runtime_name(q): _reached(plan, topics_read(q)) for q in plan.queries}


def _reached(plan: Plan, topics: Sequence[str]) -> frozenset[str]:
    found, todo = set[str](), [*topics]
    while todo:
        topic = todo.pop()
        if topic not in found:
            found.add(topic)
            todo += (t for q in plan.writers.get(topic, ()) for t in topics_read(q))
    return frozenset(found)


_topics_behind = OfPlan(_made_of)  # by queries as they run: the topics that they are made of, through others too
