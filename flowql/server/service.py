"""What an instance does for people, whoever brings the question: HTTP or the command in whose process it runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.plan.topology import Plan
from flowql.deploy.control import NewPriority, priority_of, with_paused, with_priority
from flowql.deploy.stages import decide, find_query
from flowql.query.answer import Answer
from flowql.query.session import Begun, answer
from flowql.server.engine import Engine


class Service:
    """Blocking calls; any thread but the engine's. Deployments come one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._deploying = threading.Lock()

    def status(self, *, detail: bool = False) -> dict[str, Any]:
        return self._engine.status(detail=detail)

    @property
    def plan(self) -> Plan:
        """What runs."""
        return self._engine.plan

    def topics(self) -> Mapping[str, int]:
        """Partitions of the topics there are."""
        return self._engine.topics()

    def deploy(
        self, wanted: Plan, *, prune: bool = False, dry_run: bool = False, rebuild: bool = False
    ) -> dict[str, Any]:
        """The public JSON of the deployment; what runs is changed at one commit."""
        with self._deploying:
            deployment = decide(self._engine.plan, wanted, prune=prune)
            if not dry_run:
                done = self._engine.deploy(deployment.plan, rebuild=rebuild)
                expected = [c for c in deployment.changes if c.query not in deployment.withheld]
                made = [c for c in done if c.query not in deployment.withheld]
                assert sorted(map(str, made)) == sorted(map(str, expected)), "what was shown is what was done"
            return deployment.to_data(applied=not dry_run)

    def set_priority(self, wanted: NewPriority) -> dict[str, Any]:
        """From now on, and after a restart, until a deployment says otherwise. The query's new entry of `priority`."""
        with self._deploying:
            plan = with_priority(self._engine.plan, wanted)
            self._engine.deploy(plan)
            return priority_of(find_query(plan, wanted.query))

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]:
        """From now on, and after a restart, until the opposite is asked for. The ids of the queries."""
        with self._deploying:
            plan, meant = with_paused(self._engine.plan, names, paused=paused)
            self._engine.deploy(plan)
            return meant

    def pin(self) -> int:
        """For a backup: see `flowql.deploy.pins`. The commit of the state."""
        with self._deploying:
            return self._engine.pin()

    def query(self, sql: str, begun: Begun = lambda _: None) -> Answer:
        """Close it, or take all of it. begun: see `flowql.query.session.answer`."""
        return answer(sql, self._engine.take, begun)
