"""Rows of a member's tasks that are neither here nor in the log: their queries stop, and their results are computed again from the inputs.

A generation takes the place of the one that has lost rows, as with `flowql deploy --full-refresh`. Any member that misses rows announces it. Members
that miss rows later find the generation in the plan topic. Tasks of the old generation that have their rows go on until the swap.
"""

from __future__ import annotations

from collections.abc import Mapping

from flowql.compiler.plan.diff import decide_change
from flowql.compiler.plan.generations import runtime_name, user_id
from flowql.runtime.app.announcing import announced
from flowql.runtime.app.coroutines import Coroutine
from flowql.runtime.app.hosts import QueryHost
from flowql.runtime.app.recomputing import STATE_LOST, unrecoverable
from flowql.runtime.errors import LogError, StaleMember, StateLost
from flowql.runtime.events import WARNING, say
from flowql.runtime.state.changelog import changelogs_of, lost_records
from flowql.runtime.state.layout import TaskRecord


class LostRows:
    """Owned by the group step's thread."""

    def __init__(self, host: QueryHost) -> None:
        self._host = host
        self._queries: set[str] = set()  # to be computed again, by the names under which they run

    def stop(self, restored: Mapping[str, TaskRecord]) -> bool:
        """Stops the queries of tasks whose rows are neither here nor in the log; True if there are any."""
        host, app = self._host, self._host.config.application_id
        held = {task: changelogs_of(app, record) for task, record in restored.items()}
        lost = lost_records(host.admin, (tp for tps in held.values() for tp in tps))
        gone = {task: lost[tp] for task, tps in held.items() for tp in tps if tp in lost}
        kept = unrecoverable(host, host.deployed.plan) if gone else {}
        for task, why in gone.items():
            query = host.running.by_id.get(task.rpartition("/")[0])
            assert query is not None, f"the query of {task} is not in the plan"
            name = user_id(query.id, query.generation)
            then = "it is computed again from its inputs"
            if name in kept:
                then = f"{kept[name]}; flowql deploy --full-refresh {name}  computes it from what is left"
            host.query_states.stop(query.id, StateLost(f"rows of {task} are not here, and {why}; {then}"))
            if name not in kept:
                self._queries.add(query.id)
        return bool(gone)

    def next(self) -> Coroutine | None:
        """The coroutine that announces the new generations; None if there are none, or while a swap moves records."""
        swap = self._host.deployed.swap
        is_moving = swap is not None and swap.moves is not None
        return self._recompute() if self._queries and not is_moving else None

    def _recompute(self) -> Coroutine:
        yield from ()
        host, before = self._host, self._host.deployed
        newest = {q.id: runtime_name(q) for q in (*before.serving.queries, *before.building)}
        lost = [i for i, name in newest.items() if name in self._queries and i in before.plan.by_id]
        if lost:
            change = decide_change(before, before.plan, refresh=lost, why=STATE_LOST)
            try:
                if announced(host, change) is None:
                    raise StaleMember("another member has deployed")
            except LogError as error:
                if error.retriable:
                    raise
                say(WARNING, "query.kept", f"{', '.join(lost)}: {STATE_LOST}, and {error}")
        self._queries.clear()
