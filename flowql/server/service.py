"""What an instance does for people, whoever brings the question: HTTP or the command in whose process it runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from compiler.plan.topology import Plan
from flowql.deploy.stages import decide
from flowql.query.answer import Answer
from flowql.query.session import answer
from flowql.server.engine import Engine


class Service:
    """Blocking calls; any thread but the engine's. Deployments come one after the other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._deploying = threading.Lock()

    def status(self) -> dict[str, Any]:
        return self._engine.status()

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

    def query(self, sql: str) -> Answer:
        """Close it, or take all of it."""
        return answer(sql, self._engine.take)
