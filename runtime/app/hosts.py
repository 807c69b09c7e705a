"""The parts of an instance that its collaborators see, from the least to the most. `Instance` is all of them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.app.careful import CarefulQueries
from flowql.runtime.app.exchanges import Exchanges
from flowql.runtime.app.hung import HungQueries
from flowql.runtime.app.plan_topic import PlanReader
from flowql.runtime.app.polling import PollingStep
from flowql.runtime.app.query_state import QueryStates
from flowql.runtime.app.restoration import RestorationStep
from flowql.runtime.app.running import RunningQuery
from flowql.runtime.clock import Clock
from flowql.runtime.commit.coordinator import CommitStep
from flowql.runtime.config import InstanceConfig
from flowql.runtime.log.base import Admin, Log
from flowql.runtime.log.repairs import RepairedLog
from flowql.runtime.metrics import Metrics
from flowql.runtime.output.collector import RecordCollector
from flowql.runtime.placement.step import PlacementStep
from flowql.runtime.scheduler.manager import TaskManager
from flowql.runtime.topology.query import BuiltQuery, TaskServices


class TaskHost(Protocol):
    """Moves tasks between the steps."""

    polling: PollingStep
    restoration: RestorationStep
    manager: TaskManager


class PlanHost(Protocol):
    """Reads and writes what is deployed. plan_reader: of a member."""

    admin: Admin
    clock: Clock
    config: InstanceConfig
    log: Log
    deployed: Deployed
    placement: PlacementStep
    plan_reader: PlanReader | None


class QueryHost(TaskHost, PlanHost, TaskServices, Protocol):
    """Makes and stops the tasks of queries. running: the plan of all generations, by names that tell them apart."""

    query_states: QueryStates
    careful: CarefulQueries
    running: Plan
    queries: dict[str, RunningQuery]
    commit: CommitStep
    hung: HungQueries

    @property
    def exchanges(self) -> Exchanges: ...

    def begin(self, built: BuiltQuery) -> None:
        """Positions of new tasks are resolved once, at deploy (rule R3)."""
        ...


class DeploymentHost(QueryHost, Protocol):
    """Changes what runs. fatal: why the instance is broken. state_lost: why the state has to be made anew from inputs."""

    collector: RecordCollector
    metrics: Metrics
    repaired: RepairedLog
    fatal: BaseException | None
    state_lost: str

    def recover(self) -> None:
        """Brings the state of an instance alone to the last commit; empties it if that is impossible. No task is open."""
        ...

    def serve(self, deployed: Deployed, sequence: int) -> None:
        """At a cut, or before anything runs: from the commit of that sequence on this is what is deployed."""
        ...

    def set_account(self, q: QueryPlan) -> None: ...

    def allow_coalescing(self) -> None: ...

    def trouble(self, query: str) -> str:
        """Why a query is stalled; empty if it is not."""
        ...

    def wait(self, future: Any, timeout_s: float = 60.0) -> Any: ...

    def look(self, wait_s: float, until: Future[Any] | None = None) -> None:
        """Run the steps for a moment, or until a future is done."""
        ...
