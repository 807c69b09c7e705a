"""Bugs to plant: each breaks one rule of a change, and has to be found."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

Broken = Callable[[Any], Callable[..., Any]]  # what is there -> what takes its place


def _readers_kept(original: Any) -> Callable[..., bool]:
    """Who reads what is made anew goes on with what it has."""

    def spread(before: Any, wanted: Any, causes: dict[str, str]) -> bool:
        count = len(causes)
        for topic, queries in wanted.writers.items():
            renewed = [q.id for q in queries if q.id in causes]
            for query in queries:
                if renewed and query.topic == topic:
                    causes.setdefault(query.id, renewed[0])
        return len(causes) > count

    return spread


def _other_writers_kept(original: Any) -> Callable[..., bool]:
    """Of several writers of a topic only the one that was edited writes its results again."""

    def spread(before: Any, wanted: Any, causes: dict[str, str]) -> bool:
        edited = {q.id for q in wanted.queries if q.id in causes}
        more: dict[str, str] = dict(causes)
        grown = original(before, wanted, more)
        served = {q.id: q for q in before.serving.queries}
        for query, why in more.items():
            other = why in {q.id for q in wanted.queries} and wanted.by_id.get(why).sink == wanted.by_id.get(query).sink
            if query in edited or not (other and query in served):
                causes[query] = why
        return bool(grown and len(causes) > len(edited))

    return spread


def _no_tombstones(original: Any) -> Callable[..., Any]:
    """Keys that vanish from a table stay in its topic."""
    return lambda table: original(table.slice(0, 0))


def _early(original: Any) -> Callable[..., Any]:
    """The new generation swaps in as far as it is."""

    def together(rebuilding: Any, group: Any, limit_ms: int) -> Generator[Any, Any, None]:
        from flowql.compiler.plan.generations import runtime_name
        from flowql.runtime.app.draining import at_rest

        host, names = rebuilding._host, [runtime_name(q) for q in (*group.gone, *group.queries)]
        host.query_states.hold_for_swap(names)
        yield from at_rest(host, names, lambda: rebuilding._check_time(limit_ms, "a slice takes too long"))
        yield host.commit.request()

    return together


def _two_commits(original: Any) -> Callable[..., Any]:
    """The records of one topic are replaced before the rest is."""

    def commit(rebuilding: Any, group: Any, old_tasks: Any, new_tasks: Any) -> Generator[Any, Any, None]:
        host = rebuilding._host
        replacements, reshapes, _ = rebuilding._replacements(group)
        replacements = [] if reshapes else replacements
        first = [r for r in replacements if r.tp.topic == replacements[0].tp.topic]

        def at_the_cut() -> None:
            host.commit.replacements += first

        yield host.commit.request(at_the_cut)
        yield None
        yield from original(rebuilding, group, old_tasks, new_tasks)

    return commit


def _both_generations(original: Any) -> Callable[..., Any]:
    """A stream's topic keeps its old records before the new ones."""
    return lambda *args, **options: replace(original(*args, **options), drops=False)


def _rows_left_out(original: Any) -> Callable[..., Any]:
    """Rows of INSERT VALUES are not in a generation that is built later."""

    def inserted(host: Any, after: Any, planned: Any) -> list[Any]:
        return [(tp, batch) for tp, batch in original(host, after, planned) if "@" not in tp.topic]

    return inserted


def _read_again(original: Any) -> Callable[..., Any]:
    """After the swap readers begin their topics once more."""

    def moved(task: Any, ends: Any) -> dict[str, Any]:
        return original(task, {staging: (tp, 0) for staging, (tp, _) in ends.items()})

    return moved


def _stale_generation(original: Any) -> Callable[..., Any]:
    """What is being built goes on being built, whatever has changed since."""

    def going_on(before: Any, wanted: Any, causes: Any, refresh: Any, resized: Any) -> frozenset[str]:
        return frozenset({q.topic for q in before.building} & {q.topic for q in wanted.queries if q.id in causes})

    return going_on


def _removed_come_back(original: Any) -> Callable[..., Any]:
    """A result that was removed and comes back begins behind its old records."""
    return lambda before, wanted: {
        t: why for t, why in original(before, wanted).items() if "earlier generation" not in why
    }


def _recorded_too_low(original: Any) -> Callable[..., Any]:
    """The new text is said to begin one record before it does."""

    def recorded(host: Any, after: Any) -> Any:
        found = original(host, after)
        forwards = tuple(
            replace(f, reads=tuple((t, p, max(0, at - 1)) for t, p, at in f.reads)) if f.deployment == after.id else f
            for f in found.forwards
        )
        return replace(found, forwards=forwards)

    return recorded


def _heads_lost(original: Any) -> Callable[..., Any]:
    """A restart takes all rows of a block that waits between tasks, also consumed ones."""

    def first(stored: Any, channel: tuple[int, int]) -> int:
        stored.heads.pop(channel, None)
        return int(original(stored, channel))

    return first


def _never_held(original: Any) -> Callable[..., Any]:
    """What is held back swaps in as soon as it has come up."""
    return lambda deployed, group: False


def _old_number(original: Any) -> Callable[..., Any]:
    """Results keep the partitions that they have."""
    return lambda before, after, known: {**original(before, after, known), **known}


PLANTS: dict[str, tuple[str, Broken]] = {
    "readers-kept": ("flowql.compiler.plan.diff:_spread", _readers_kept),
    "other-writers-kept": ("flowql.compiler.plan.diff:_spread", _other_writers_kept),
    "no-tombstones": ("flowql.runtime.app.replacing:_tombstones", _no_tombstones),
    "early-swap": ("flowql.runtime.app.rebuilding:Rebuilding._together", _early),
    "two-commits": ("flowql.runtime.app.rebuilding:Rebuilding._commit", _two_commits),
    "both-generations": ("flowql.runtime.app.rebuilding:replacement", _both_generations),
    "rows-left-out": ("flowql.runtime.app.deployment:inserted", _rows_left_out),
    "read-again": ("flowql.runtime.app.rebuilding:_moved", _read_again),
    "stale-generation": ("flowql.compiler.plan.diff:_going_on", _stale_generation),
    "forward-too-low": ("flowql.runtime.app.forwarding:recorded", _recorded_too_low),
    "heads-lost": ("flowql.runtime.app.exchanges:_Stored.first", _heads_lost),
    "never-held": ("flowql.runtime.app.swap_turns:is_held", _never_held),
    "old-number": ("flowql.runtime.app.deployment:planned_partitions", _old_number),
    "removed-come-back": ("flowql.compiler.plan.diff:_renewed_themselves", _removed_come_back),
}


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """With a bug, or without one."""
    if name is None:
        yield
        return
    place, broken = PLANTS[name]
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *outer, attribute = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    with patch.object(owner, attribute, broken(getattr(owner, attribute))):
        yield
