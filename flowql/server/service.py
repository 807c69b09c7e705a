"""The operations of an instance for users, called by HTTP or by the command in whose process it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flowql.compiler.plan.deployed import About, Deployed, Entry, Hold
from flowql.compiler.plan.topology import Plan
from flowql.deploy.control import NewPriority, priority_of, with_paused, with_priority
from flowql.deploy.costs import costs_of
from flowql.deploy.decision import check_prefix, decide
from flowql.deploy.functions import check_functions, interactive_functions
from flowql.deploy.request import DEFAULT_REQUEST, DeployRequest
from flowql.deploy.selection import find_query
from flowql.deploy.shadow import abandoned, promoted
from flowql.query.answer import Answer, Begun
from flowql.query.committed import Commit, Part, Wanted, limited_to
from flowql.query.database import DEFAULT, QueryDatabase
from flowql.query.looking_up import looked_up_now
from flowql.query.options import QUERY_DEFAULTS, QueryEngine, QueryOptions
from flowql.query.room import Room
from flowql.query.session import answer
from flowql.query.united import parts_of
from flowql.runtime.errors import Superseded
from flowql.runtime.log.appending import Redelivery
from flowql.runtime.log.base import TopicPartition
from flowql.server.engine import Engine


class Service:
    """Blocking calls; any thread but the engine's. Deployments come one after the other."""

    def __init__(self, engine: Engine, database: QueryDatabase = DEFAULT, root: str = "", prefix: str = "") -> None:
        """root: the project's folder, where modules with functions are. prefix: of the target."""
        self._engine, self.database, self._root, self._prefix = engine, database, root, prefix
        self._deploying = threading.Lock()
        self.more_status: list[Callable[[], Mapping[str, Any]]] = []  # of parts outside the engine

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        found = self._engine.status(detail=detail)
        processes, size = self.database.pool.memory() if self.database.pool is not None else (0, 0)
        found["instance"] |= {"query_processes": processes, "query_processes_memory_bytes": size}
        for more in self.more_status:
            found["instance"] |= more()
        return found

    @property
    def plan(self) -> Plan:
        """The serving plan."""
        return self._engine.plan

    @property
    def deployed(self) -> Deployed:
        """The recorded deployment."""
        return self._engine.deployed

    def whole_ends(self, *topics: str) -> Mapping[TopicPartition, int] | None:
        """The ends of results as of one tick (`Engine.whole_ends`)."""
        return self._engine.whole_ends(*topics)

    def copied(self) -> Path | None:
        """See `Engine.copied`."""
        return self._engine.copied()

    @property
    def applied(self) -> int:
        """See `Engine.applied`."""
        return self._engine.applied

    def topics(self) -> Mapping[str, int]:
        """Partitions of the topics there are."""
        return self._engine.topics()

    def deploy(self, wanted: Plan, request: DeployRequest = DEFAULT_REQUEST) -> dict[str, Any]:
        """The public JSON of the deployment; what runs is changed at one commit. wanted: the whole project."""
        return self._deploy(wanted, request, dry_run=False)

    def planned(self, wanted: Plan, request: DeployRequest = DEFAULT_REQUEST) -> dict[str, Any]:
        """The document of a deployment, of which nothing is carried out. Raises the errors that would refuse it, except about lost history and room."""
        return self._deploy(wanted, request, dry_run=True)

    def _deploy(self, wanted: Plan, request: DeployRequest, *, dry_run: bool) -> dict[str, Any]:
        with self._deploying:
            check_prefix(wanted, self._prefix)
            check_functions(wanted, self._root)
            while True:
                seen = self._engine.deployed
                deployment = decide(seen, wanted, request, partitions=self._engine.topics())
                costs = costs_of(seen, deployment.plan, deployment.begun, self._engine)
                if not dry_run:
                    costs.check(accept_history=request.accept_history)
                try:
                    done = self._engine.deploy(
                        deployment.plan,
                        rebuild=request.rebuild,
                        refresh=request.refresh,
                        forward=deployment.forward,
                        seen=seen,
                        about=request.about,
                        swap=Hold(hold=request.shadow),
                        backfills=request.backfills,
                        dry_run=dry_run,
                    )
                except Superseded:  # a rebuild has ended meanwhile: there may be less to do
                    continue
                assert tuple(done) == deployment.change.changes, "what was shown is what was done"
                break
            told = deployment.to_data(costs, applied=not dry_run)
            changed = {} if dry_run else self._engine.carry_out(deployment.plan)
            return {**told, "rows_changed": dict(changed)} if changed else told

    def deployments(self) -> list[Entry]:
        """The last ones, the newest last."""
        return self._engine.deployments()

    def set_priority(self, wanted: NewPriority) -> dict[str, Any]:
        """From now on, and after a restart, until a deployment says otherwise. The query's new entry of `priority`."""
        with self._deploying:
            plan = self._changed("priority", lambda plan: with_priority(plan, wanted))
            return priority_of(find_query(plan, wanted.query))

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]:
        """From now on, and after a restart, until the opposite is asked for. The ids of the queries. Not paused, a hung one is tried again."""
        with self._deploying:
            meant = with_paused(self._engine.deployed.plan, names, paused=paused)[1]
            if not paused:
                self._engine.release_hung(meant)
            self._changed("pause" if paused else "resume", lambda plan: with_paused(plan, names, paused=paused)[0])
            return meant

    def _changed(self, how: str, change: Callable[[Plan], Plan]) -> Plan:
        """Changes the wanted plan; a rebuild in progress continues."""
        while True:
            seen = self._engine.deployed
            plan = change(seen.plan)
            try:
                self._engine.deploy(plan, seen=seen, about=About(how))
            except Superseded:
                continue
            return plan

    def promote(self, name: str | None) -> list[str]:
        """Lets built generations serve once they have caught up. name: of a query; None: all that wait. Returns ids. Raises CommandError."""
        return self._decided("promote", lambda deployed: promoted(deployed, name))

    def abandon(self, name: str | None) -> list[str]:
        """Drops generations that are being built; the serving ones continue. Arguments as for `promote`."""
        return self._decided("abandon", lambda deployed: abandoned(deployed, name))

    def _decided(self, how: str, decide: Callable[[Deployed], tuple[Plan, Hold, list[str]]]) -> list[str]:
        with self._deploying:
            while True:
                seen = self._engine.deployed
                plan, swap, ids = decide(seen)
                try:
                    self._engine.deploy(plan, seen=seen, about=About(f"{how} {', '.join(ids)}"), swap=swap)
                except Superseded:  # a swap has ended meanwhile
                    continue
                return ids

    def diff(self, name: str) -> dict[str, Any]:
        """The public JSON of what is different between the serving and the built generation of a result. CommandError."""
        with self._deploying:
            return self._engine.diff(name, self.database)

    def append(self, wanted: Sequence[Redelivery]) -> dict[str, Any]:
        """Give records to queries once more, in one commit or, where it fails, in none; the public JSON."""
        with self._deploying:
            return self._engine.append(wanted)

    def pin(self) -> int:
        """For a backup: see `flowql.deploy.pins`. The commit of the state."""
        with self._deploying:
            return self._engine.pin()

    def rows(self, wanted: Sequence[Wanted]) -> Iterator[Part]:
        """For another instance: what this one has of relations, as of one commit, or of the tick that is asked for."""
        tick, relations = max((w.tick for w in wanted), default=0), [w.relation for w in wanted]
        commit = self._engine.take_at(relations, tick) if tick else self._engine.take(relations)
        if commit is None:
            return
        room = Room(self.database.memory)
        try:
            yield from parts_of(commit if tick else commit.as_newest(), wanted, room)
        finally:
            commit.snapshot.close()
            room.back()

    def query(
        self,
        sql: str,
        begun: Begun = lambda _: None,
        client: str = "",
        options: QueryOptions = QUERY_DEFAULTS,
        visible: frozenset[str] | None = None,
    ) -> Answer:
        """Close it, or take all of it. begun, client: see `flowql.query.session.answer`. visible: folded names of the relations that the
        query may read; None: all.
        """
        instance, database = self._engine, self.database
        offered = partial(interactive_functions, self._root)
        return answer(
            sql,
            limited_to(visible, instance.take),
            begun,
            database=database,
            copied=limited_to(visible, instance.take_copied),
            functions=offered,
            client=client,
            options=options,
            equal=(self, visible),
        )

    def look_up(
        self, sql: str, engine: QueryEngine | None = None, visible: frozenset[str] | None = None
    ) -> Answer | None:
        """As `query`, for point look-ups that wait for nothing; None for all others. Quick enough for the loop of a server."""

        def take(relation: str) -> Commit | None:
            return self._engine.newest(relation) if visible is None or relation.casefold() in visible else None

        return looked_up_now(sql, engine or self.database.limits.settings.dialect, take, self.database)
