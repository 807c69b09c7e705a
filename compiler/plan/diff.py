"""The difference between the deployed plan and the wanted one, over the whole query graph: what `deploy` prints is what the engine does.

A query is compared by what it reads. One whose own text changed is rebuilt, with all that reads its result, however far, and with
the other writers of its topic: a topic belongs to one generation at a time. Unless it is to go *forward*: then the new text takes
over tasks, state and results of the old one, where these permit it, and no other query is rebuilt because of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flowql.compiler.plan.deployed import AS_BEFORE, Deployed, Forward, Hold, TopicHistory, forwards_of, serving_plan
from flowql.compiler.plan.forward import only_functions_differ, why_not
from flowql.compiler.plan.generations import at_generation, inserts_into, runtime_name, topic_of, topics_read
from flowql.compiler.plan.partitions import NONE_KNOWN, Partitions, reads_any, redeclared, resized_sources
from flowql.compiler.plan.topology import InsertValues, Plan, QueryPlan, sink_of

# change: rebuilt, for its own text or because of another. forward: a new text for what comes. priority: metadata alone.
Action = Literal["add", "change", "forward", "remove", "priority", "none"]
StateFate = Literal["kept", "rebuilt", "dropped"]
Building = Literal["", "continued", "dropped"]
ASKED = "requested"
STANDS_STILL = "what serves cannot go on"  # the records that it read lie in other partitions, or its state is lost


@dataclass(frozen=True, slots=True)
class QueryChange:
    """One query's fate. `state`: what happens to its stores; None when it has none to lose (added).

    because: why it is rebuilt, if not for its own text, or goes on with a new one; as it is printed. generation: the number under which it will run.
    building: what becomes of a generation that an earlier deployment has begun to build; empty if there is none.
    """

    query: str
    action: Action
    state: StateFate | None
    because: str = ""
    generation: int = 1
    building: Building = ""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A decided change: the record that makes it true, and every query's fate."""

    deployed: Deployed
    changes: tuple[QueryChange, ...]


class ForwardRefused(Exception):
    """A changed query cannot go on with its new text. reasons: (query, why), of all that were to."""

    def __init__(self, reasons: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{query}: {why}" for query, why in reasons))
        self.reasons = tuple(reasons)


def diff_plans(old: Plan, new: Plan) -> tuple[QueryChange, ...]:
    """Changes in the order of the new plan, removals last; of a plan that serves as a whole."""
    return decide_change(Deployed(old), new).changes


def decide_change(
    before: Deployed,
    wanted: Plan,
    *,
    refresh: Collection[str] = (),
    why: str = ASKED,
    forward: Collection[str] = (),
    partitions: Partitions = NONE_KNOWN,
    swap: Hold = AS_BEFORE,
) -> PlanChange:
    """How to come from what is deployed to `wanted`, which holds all queries that are to run.

    refresh: ids of queries to rebuild although nothing changed, and why. forward: ids of queries of which nothing is to be rebuilt: one
    whose text has changed goes on with the new text (`flowql.compiler.plan.forward`), as those do that say so themselves. partitions: of the
    topics that exist. Generations that are being built and still wanted go on; others are abandoned. swap: what of it waits until it is
    promoted. Raises ForwardRefused.
    """
    before = replace(before, refreshed=tuple(q for q in before.refreshed if q not in swap.abandoned))
    resized = resized_sources(before, wanted, partitions)
    onward = _onward(before, wanted, refresh, forward)
    causes = _causes(before, wanted, dict.fromkeys(refresh, why), onward, resized)
    renewed = {q.topic for q in wanted.queries if q.id in causes}
    going_on = _going_on(before, wanted, causes, refresh, resized)
    wanted = _pinned(before, wanted, causes, going_on)
    wanted = replace(wanted, queries=tuple(_as_served(q, before) if q.id in onward else q for q in wanted.queries))
    _check_forward(before, wanted, causes, onward, refresh, forward)
    numbers = {t: _number(before, wanted, t, going_on) for t in renewed}
    queries = tuple(at_generation(q, numbers[q.topic]) if q.id in causes else q for q in wanted.queries)
    wanted = replace(wanted, queries=queries)
    served = {q.id: q for q in queries if q.id not in causes}
    served |= {i: _with_metadata(q, wanted) for i in causes for q in [before.serving.by_id.get(i)] if q is not None}
    served |= {q.id: q for q in _leaving_later(before.serving, wanted, causes, renewed)}
    serving = serving_plan(before.serving, wanted, served)
    begun = [Forward(runtime_name(q), before.id + 1) for q in queries if q.id in onward]
    moved = _ids_of_readers(wanted, resized)
    refreshed = tuple(q for q in causes if q in refresh or q in before.refreshed or q in moved)
    deployed = Deployed(
        serving=wanted if not causes else serving,
        wanted=wanted if causes else None,
        histories=_histories(before, wanted),
        last=_last(before, wanted),
        refreshed=refreshed,
        reasons=_reasons(before, wanted, causes, refreshed),
        left=_left(before, wanted),
        id=before.id + 1,
        begins=before.begins,
        lost=_lost(before, serving, resized),
        prefix=before.prefix,
        swaps=before.swaps,
        moved=before.moved,
        forwards=forwards_of((*before.forwards, *begun), serving),
    )
    deployed = replace(deployed, held=_held(before, deployed, swap))
    return PlanChange(deployed, _changes(before, deployed, wanted, causes, onward))


def _onward(before: Deployed, wanted: Plan, refresh: Collection[str], forward: Collection[str]) -> dict[str, str]:
    """Queries that serve and go on with a new text: id -> who wants it."""
    found: dict[str, str] = {}
    for query in wanted.queries:
        served = before.serving.by_id.get(query.id)
        if served is None or served.definition == query.definition or query.id in refresh:
            continue
        if query.id in forward:
            found[query.id] = ASKED
        elif query.on_change == "forward" and query.id not in before.refreshed:
            found[query.id] = "ON_CHANGE = 'forward'"
        elif query.on_change is None and only_functions_differ(served, query) and not why_not(served, query):
            found[query.id] = "only functions that give other values each time have changed"
    return found


def _as_served(query: QueryPlan, before: Deployed) -> QueryPlan:
    """With the names of the generation that serves: it takes over its tasks and stores."""
    served = before.serving.by_id.get(query.id)
    assert served is not None, "what goes on serves"
    return at_generation(query, served.generation)


def _check_forward(
    before: Deployed,
    wanted: Plan,
    causes: Mapping[str, str],
    onward: Mapping[str, str],
    refresh: Collection[str],
    forward: Collection[str],
) -> None:
    """Raises ForwardRefused for all that cannot go on, and for what would be rebuilt although it was not to be."""
    reasons: list[tuple[str, str]] = []
    for query in wanted.queries:
        served = before.serving.by_id.get(query.id)
        if query.id in onward:
            assert served is not None, "what goes on serves"
            why = dict(before.lost).get(runtime_name(served))
            why = "its state is lost" if why is not None else why_not(served, query)
            why = why or (f"it would be rebuilt: {_said(causes[query.id], wanted)}" if query.id in causes else "")
        elif (
            query.id in forward and query.id in causes and served is not None and not _asked(query.id, causes, refresh)
        ):
            why = f"it would be rebuilt: {_said(causes[query.id], wanted)}"
        else:
            continue
        if why:
            reasons.append((query.id, why))
    if reasons:
        raise ForwardRefused(reasons)


def _said(cause: str, wanted: Plan) -> str:
    return f"because of {cause}" if cause in wanted.by_id else cause


def _asked(query: str, causes: Mapping[str, str], refresh: Collection[str]) -> bool:
    """Whether a rebuild comes, over whatever queries, from one that was asked for."""
    seen = set[str]()
    while query in causes and query not in seen:
        if query in refresh:
            return True
        seen.add(query)
        query = causes[query]
    return False


def _held(before: Deployed, after: Deployed, swap: Hold) -> tuple[str, ...]:
    """Queries whose swap waits."""
    built = [q.id for q in after.building]
    held = built if swap.hold else () if swap.hold is False else [q for q in built if q in before.held]
    return tuple(q for q in held if q not in swap.promoted)


def _ids_of_readers(plan: Plan, topics: Mapping[str, int]) -> set[str]:
    return {q.id for q in plan.queries if reads_any(q, topics)}


def _lost(before: Deployed, serving: Plan, resized: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Serving queries that cannot go on: their state is gone, or the records they read lie in other partitions now."""
    names, were = {runtime_name(q): q for q in serving.queries}, {runtime_name(q) for q in before.serving.queries}
    found = {name: why for name, why in before.lost if name in names}
    found |= {n: "" for n, q in names.items() if n in were and n not in found and reads_any(q, resized)}
    return tuple(found.items())


def _pinned(before: Deployed, wanted: Plan, causes: Collection[str], going_on: Collection[str]) -> Plan:
    """Queries whose definition is deployed keep the operators, names and generation they were given then.

    One that is rebuilt is what is being built, if that goes on; else what it has been compiled to: how its operators are laid out may
    depend on the partitions of what it reads.
    """

    def pinned(query: QueryPlan) -> QueryPlan:
        plans = (before.serving, before.plan) if query.id not in causes else ()
        for plan in (before.plan,) if query.topic in going_on else plans:
            known = plan.by_id.get(query.id)
            if known is not None and known.definition == query.definition:
                return replace(
                    query,
                    logical=known.logical,
                    subtopologies=known.subtopologies,
                    repartitions=known.repartitions,
                    generation=known.generation,
                )
        return at_generation(query, 1)

    return replace(wanted, queries=tuple(map(pinned, wanted.queries)))


def _causes(
    before: Deployed,
    wanted: Plan,
    refresh: Mapping[str, str],
    onward: Collection[str],
    resized: Mapping[str, int],
) -> dict[str, str]:
    """Queries that must be built before they serve: id -> why; empty for their own text.

    refresh: id -> why. onward: whose own text is no cause.
    """
    serving, known = before.serving, dict(before.reasons)
    stands_still = {name for name, why in before.lost if not why}
    causes: dict[str, str] = {}
    for query in wanted.queries:
        served = None if query.id in onward else serving.by_id.get(query.id)
        if served is not None and served.definition != query.definition:
            causes[query.id] = ""
        elif served is not None and (query.id in refresh or query.id in before.refreshed):
            causes[query.id] = refresh.get(query.id) or known.get(query.id, ASKED)
        why = next((f"{t} gets {n} partitions" for t, n in resized.items() if t in topics_read(query)), "")
        if served is not None and why:
            causes.setdefault(query.id, why)
        if served is not None and runtime_name(served) in stands_still:  # also one that the wanted text is the same as
            causes.setdefault(query.id, known.get(query.id, STANDS_STILL))
    for topic, why in _renewed_themselves(before, wanted).items():
        for query in wanted.writers[topic]:
            causes.setdefault(query.id, why)
    while _spread(before, wanted, causes):
        pass
    return causes


def _reasons(
    before: Deployed, wanted: Plan, causes: Mapping[str, str], refreshed: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Why queries are rebuilt although nothing changed, for the next deployment to say; none where it was asked for."""
    known = dict(before.reasons)
    own = {q: why for q, why in causes.items() if why and why not in wanted.by_id}
    found = {q: own.get(q) or known.get(q, ASKED) for q in refreshed}
    return tuple((q, why) for q, why in found.items() if why != ASKED)


def _left(before: Deployed, wanted: Plan) -> tuple[tuple[str, InsertValues], ...]:
    """See `Deployed.left`."""
    written = {*before.serving.writers, *wanted.writers}
    rows = [(topic_of(before.serving, i), i) for i in before.serving.inserts]
    known = dict.fromkeys([*before.left, *(row for row in rows if row[0] not in written)])
    kept = {(topic_of(wanted, i), i) for i in wanted.inserts}
    return tuple(row for row in known if row not in kept)


def _renewed_themselves(before: Deployed, wanted: Plan) -> dict[str, str]:
    """Topics whose records must be recomputed although none of their writers' texts changed: topic -> reason."""
    old, found = before.serving.writers, {}
    declared = redeclared(before.serving, wanted)
    for topic, queries in wanted.writers.items():
        ids, were = {q.id for q in queries}, {q.id for q in old.get(topic, ())}
        if were and ids != were:
            joined, left = sorted(ids - were), sorted(were - ids)
            said = [f"{', '.join(joined)} writes to {topic}, too"] if joined else []
            said += [f"{', '.join(left)} no longer writes to {topic}"] if left else []
            found[topic] = "; ".join(said)
        elif not were and before.history(topic) is not None:
            found[topic] = f"{topic} holds records of an earlier generation"
        elif were and set(inserts_into(before.serving, topic)) - set(inserts_into(wanted, topic)):
            found[topic] = f"a row was taken out of {topic}"
        elif were and topic in declared:
            found[topic] = f"{topic} gets {declared[topic]} partitions"
    return found


def _spread(before: Deployed, wanted: Plan, causes: dict[str, str]) -> bool:
    """One round over all queries; whether there were more to rebuild."""
    writers, count = wanted.writers, len(causes)
    by_topic = {t: q for t, queries in writers.items() for q in queries if q.id in causes}
    for query in wanted.queries:
        begins = query.id in causes or query.id not in before.serving.by_id
        for topic in topics_read(query):
            history = before.history(topic)
            if topic in by_topic:
                causes.setdefault(query.id, by_topic[topic].id)
            elif begins and history is not None and history.mixed:
                for writer in writers.get(topic, ()):
                    causes.setdefault(writer.id, f"{query.id} needs its history from the beginning")
        if query.topic in by_topic:
            causes.setdefault(query.id, by_topic[query.topic].id)
    return len(causes) > count


def _going_on(
    before: Deployed,
    wanted: Plan,
    causes: Mapping[str, str],
    refresh: Collection[str],
    resized: Mapping[str, int],
) -> frozenset[str]:
    """Topics whose generation is being built already, by the same queries over the same input, in as many partitions."""
    if before.wanted is None:
        return frozenset()
    now, then = wanted.writers, before.wanted.writers
    building = {q.topic for q in before.building}
    topics = {q.topic for q in wanted.queries if q.id in causes} & building
    declared = redeclared(before.wanted, wanted)

    def same(topic: str) -> bool:
        definitions = [{(q.id, q.definition) for q in of.get(topic, ())} for of in (now, then)]
        rows = [set(inserts_into(plan, topic)) for plan in (wanted, before.wanted or Plan())]
        asked = any(q.id in refresh for q in now[topic])
        moved = topic in declared or any(reads_any(q, resized) for q in now[topic])
        return definitions[0] == definitions[1] and not asked and not moved and not rows[1] - rows[0]

    found = {t for t in topics if same(t)}
    renewed = {q.topic for q in wanted.queries if q.id in causes}
    while True:  # a query that reads a topic that begins anew begins anew, too
        kept = {
            t
            for t in found
            if all(r in found or (r not in renewed and r not in building) for q in now[t] for r in topics_read(q))
        }
        if kept == found:
            return frozenset(found)
        found = kept


def _number(before: Deployed, wanted: Plan, topic: str, going_on: Collection[str]) -> int:
    """The generation of a topic that is built."""
    queries = wanted.writers[topic]
    if topic in going_on:
        assert before.wanted is not None
        return before.wanted.writers[topic][0].generation
    history, last = before.history(topic), dict(before.last)
    known = [last.get(q.id, 0) for q in queries]
    known += [q.generation for q in before.serving.queries if q.id in {w.id for w in queries}]
    served = [q.generation for q in before.serving.writers.get(topic, ())]
    # A new topic is staged as well if what feeds it is: it must not show before the swap.
    return 1 + max([1, *known, *served, 0 if history is None else history.last])


def _leaving_later(serving: Plan, wanted: Plan, causes: Mapping[str, str], renewed: Collection[str]) -> list[QueryPlan]:
    """Removed queries that feed what still serves, or write a topic that is renewed: they leave with the swap."""
    later: dict[str, QueryPlan] = {}
    removed = [q for q in serving.queries if q.id not in wanted.by_id]
    while True:
        stay = [q for i in (*causes, *later) for q in [serving.by_id.get(i)] if q is not None]
        read = {t for q in stay for t in topics_read(q)} | set(renewed)
        more = [q for q in removed if q.id not in later and q.topic in read]
        if not more:
            return list(later.values())
        later |= {q.id: q for q in more}


def _with_metadata(query: QueryPlan, wanted: Plan) -> QueryPlan:
    """A generation that goes on serving until its successor is there takes its priority at once."""
    now = wanted.by_id.get(query.id)
    assert now is not None, "what is rebuilt is wanted"
    return replace(query, priority=now.priority, weight=now.weight, latency_target_ms=now.latency_target_ms)


def _histories(before: Deployed, wanted: Plan) -> tuple[TopicHistory, ...]:
    found = {h.topic: h for h in before.histories}
    for query in (*before.serving.queries, *wanted.queries):
        topic = query.topic
        known = found.get(topic, TopicHistory(topic, 0, sink_of(query).kind))
        found[topic] = replace(known, last=max(known.last, query.generation))
    return tuple(found.values())


def _last(before: Deployed, wanted: Plan) -> tuple[tuple[str, int], ...]:
    found = dict(before.last)
    for query in (*before.serving.queries, *wanted.queries):
        found[query.id] = max(query.generation, found.get(query.id, 0))
    return tuple(found.items())


def _changes(
    before: Deployed, after: Deployed, wanted: Plan, causes: Mapping[str, str], onward: Mapping[str, str]
) -> tuple[QueryChange, ...]:
    changes = [_fate(before.serving.by_id.get(q.id), q, causes, onward) for q in wanted.queries]
    known = {q.id: q for q in (*before.building, *before.serving.queries)}
    removed: Iterable[QueryPlan] = (q for q in known.values() if q.id not in wanted.by_id)
    changes += [QueryChange(q.id, "remove", "dropped", generation=q.generation) for q in removed]
    was, now = ({q.id: q.generation for q in deployed.building} for deployed in (before, after))
    return tuple(
        replace(c, building="continued" if now.get(c.query) == was[c.query] else "dropped") if c.query in was else c
        for c in changes
    )


def _fate(old: QueryPlan | None, new: QueryPlan, causes: Mapping[str, str], onward: Mapping[str, str]) -> QueryChange:
    if old is None:
        return QueryChange(new.id, "add", None, causes.get(new.id, ""), new.generation)
    if new.id in causes:
        return QueryChange(new.id, "change", "rebuilt", causes[new.id], new.generation)
    if new.id in onward:
        return QueryChange(new.id, "forward", "kept", onward[new.id], new.generation)
    if (old.priority, old.weight, old.latency_target_ms) != (new.priority, new.weight, new.latency_target_ms):
        return QueryChange(new.id, "priority", "kept", generation=new.generation)
    return QueryChange(new.id, "none", "kept", generation=new.generation)
