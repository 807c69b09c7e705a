"""An instance that runs inside a Python program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from flowql.api.arguments import variables_of
from flowql.api.connection import Connection
from flowql.api.deploying import deploy_request, wanted_of_engine, wanted_plan
from flowql.api.folder import Folder
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.config.load import read_project
from flowql.deploy.decision import decide
from flowql.deploy.settings import settings_of
from flowql.errors import CommandError
from flowql.server.choice import at_rest
from flowql.server.host import Host

_NO_VARIABLES: Mapping[str, str] = {}


class Instance:
    """Deploys and runs a folder's project in threads of this process, as `flowql run` does.

        >>> with flowql.Instance("shop") as shop:  # doctest: +SKIP
        ...     shop.connection.sql("SELECT COUNT(*) AS N FROM ORDERS").one()

    Commands such as `flowql query`, `flowql status` and `flowql deploy` work meanwhile. Start and stop it in one
    thread.

    project: a folder in the project, or its `flowql.yaml`. warn: receives the compiler's warnings.
    """

    def __init__(
        self,
        project: str | Path = ".",
        *,
        target: str | None = None,
        variables: Mapping[str, str] = _NO_VARIABLES,
        warn: Callable[[Sequence[Diagnostic]], None] | None = None,
    ) -> None:
        variables = variables_of(variables)
        self.connection = Connection(Folder(Path(project), target, variables))
        self._start, self._target, self._variables = Path(project), target, variables
        self._warn = warn or (lambda _: None)
        self._host: Host | None = None

    def __enter__(self) -> Instance:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Instance:
        """Restores state, deploys and runs. Returns this instance.

        Raises CompileError with all mistakes, CommandError if the deployment is refused, RuntimeFailure if another
        process uses its directory. Then nothing runs.
        """
        if self._host is not None:
            return self
        project = read_project(self._start, target=self._target, variables=self._variables)
        settings = settings_of(project)
        deployed, topics = at_rest(settings).deployed()
        plan = wanted_plan(project, running=deployed.plan, topics=topics, warn=self._warn)
        decide(deployed, plan, deploy_request((), project, plan, deployed.plan), partitions=topics)
        host = Host(settings)
        host.start()
        try:
            running = host.service.deployed.plan
            plan = wanted_of_engine(host.service, project, plan, running=deployed.plan, topics=topics)
            host.service.deploy(plan, deploy_request((), project, plan, running))
        except BaseException:
            host.close()
            raise
        self._host = host
        return self

    def stop(self) -> None:
        """Commits what was processed and ends its threads."""
        self.connection.close()
        host, self._host = self._host, None
        if host is not None:
            host.close()

    @property
    def healthy(self) -> bool:
        """Whether it runs, for a health check."""
        try:
            self.check()
        except CommandError:
            return False
        return self._host is not None

    def check(self) -> None:
        """Raises CommandError with the reason if the engine has ended."""
        if self._host is not None:
            self._host.wait(0)
