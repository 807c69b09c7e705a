"""The backends of connections: `folder` for a project's folder on this machine, `remote` for the URL of an instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

from flowql.api.changes import Subscription
from flowql.api.deploying import Document
from flowql.compiler.plan.deployed import Deployed, Entry
from flowql.compiler.plan.topology import Plan
from flowql.config.project import Project
from flowql.deploy.assertions import Topics
from flowql.deploy.request import DeployRequest
from flowql.deploy.settings import Settings
from flowql.query.answer import Answer, Done
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.topics.producing import Written

NOT_HERE = "FQ5310"
Start = Literal["latest", "earliest"]
Decided = Callable[
    [Deployed, Mapping[str, int]], tuple[Plan, DeployRequest]
]  # of the current deployment, and the partitions of topics


class Backend(Protocol):
    """The backend of `Connection`, whose methods of the same names describe these. Thread-safe. Raises CommandError with NOT_HERE for an
    operation that this kind of connection does not have.
    """

    @property
    def project(self) -> Project: ...

    @property
    def settings(self) -> Settings: ...

    def answer(self, query: str, options: QueryOptions = QUERY_DEFAULTS) -> AbstractContextManager[Answer]: ...

    def execute(self, statements: str, retry: int) -> list[Done]: ...

    def returning(self, statement: str, retry: int) -> list[Done]: ...

    def subscribe(self, what: str, start: Start, limit: int | None) -> Subscription: ...

    def produce(self, name: str, rows: Any, timestamp: str | None) -> Written: ...

    def read(self, project: str | Path | None) -> tuple[Project, Topics | None]:
        """Returns the project to deploy, with its mistakes, and the topics for its ASSERT statements; None means the topics of its log."""
        ...

    def carry_out(self, decided: Decided, *, dry_run: bool = False) -> Document:
        """Carries out a deployment and returns its document. decided: called once, with the current deployment. dry_run: change nothing."""
        ...

    def deployed(self, project: Project) -> None:
        """Called after a deployment of the project that `read` returned."""
        ...

    def history(self, *, plans: bool = False) -> tuple[list[Entry], Deployed]:
        """The last deployments, with their plans if `plans` is set, and the current deployment."""
        ...

    def status(self) -> Document: ...

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]: ...

    def stop(self) -> bool: ...

    def close(self) -> None: ...
