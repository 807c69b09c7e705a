"""A connection's backend: a project's folder, with the log and the instance of its target."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowql.api.changes import Subscription, changes_of
from flowql.api.changing import execute, local_tables
from flowql.api.deploying import Decided, Document, carry_out, history, planned
from flowql.api.querying import answer_of
from flowql.compiler.plan.deployed import Deployed as Record
from flowql.compiler.plan.deployed import Entry
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import load_project, read_project
from flowql.config.project import ELSEWHERE, Project
from flowql.config.storage import open_log
from flowql.deploy.assertions import Topics
from flowql.deploy.settings import Settings, settings_of
from flowql.errors import CommandError
from flowql.query.answer import Answer, Done
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.server.choice import at_rest
from flowql.server.ending import end_instance
from flowql.server.following import Deployed, compile_text, deployed, follow
from flowql.server.running import connect as find_instance
from flowql.server.running import connect_past_freeze, connect_running
from flowql.topics.producing import TopicWriter, Written

if TYPE_CHECKING:
    from flowql.compiler.driver import PushQuery
    from flowql.query.push import Start

_NUMBERS = count()


class Folder:
    """The backend of a `Connection` to a folder. `Connection` describes the methods of the same names. Thread-safe."""

    def __init__(self, start: Path, target: str | None, variables: Mapping[str, str]) -> None:
        self._start, self._target, self._variables = start, target, dict(variables)
        self._project = load_project(start, target=target, variables=variables)
        self._settings = settings_of(self._project)
        self._lock = threading.Lock()  # guards the one below
        self._declared: Plan | None = None  # what the project's files declare, as of `connect` or the last `deploy`
        self._tables = local_tables(self._project, self._settings)
        self._writer = TopicWriter(self._opened, f"{self._settings.writer('python')}-{next(_NUMBERS)}")

    @property
    def project(self) -> Project:
        return self._project

    @property
    def settings(self) -> Settings:
        return self._settings

    def answer(self, query: str, options: QueryOptions = QUERY_DEFAULTS) -> AbstractContextManager[Answer]:
        return answer_of(self._settings, query, options)

    def execute(self, statements: str, retry: int) -> list[Done]:
        return execute(self._project, self._settings, statements, retry=retry, tables=self._tables)

    def returning(self, statement: str, retry: int) -> list[Done]:
        return execute(self._project, self._settings, statement, retry=retry, one_returns=True, tables=self._tables)

    def subscribe(self, what: str, start: Start, limit: int | None) -> Subscription:
        closed = threading.Event()

        def anew(there: Deployed) -> PushQuery:
            return compile_text(what, there, self._settings, self._project)

        following = follow(anew, self._settings, deployed(self._settings), start, limit, closed.is_set)
        return Subscription(changes_of(following), closed.set)

    def produce(self, name: str, rows: Any, timestamp: str | None) -> Written:
        return self._writer.produce(name, self._plan(), rows, timestamp, self._project.partitions)

    def read(self, project: str | Path | None) -> tuple[Project, Topics | None]:
        """Returns the project to deploy, with its mistakes, and the topics for its ASSERT statements; None means the topics of its log."""
        if project is not None:
            title = f"this connection is that of the project in {self._project.root}, which it deploys"
            raise CommandError(title, code=ELSEWHERE, help="leave `project` out, or connect to the other folder")
        return read_project(self._start, target=self._target, variables=self._variables), None

    def carry_out(self, decided: Decided, *, dry_run: bool = False) -> Document:
        """Carries out a deployment and returns its document. decided: called once, with the current deployment. dry_run: change nothing."""
        client = connect_past_freeze(self._settings.data_dir)
        try:
            record, topics = at_rest(self._settings).deployed() if client is None else client.deployed()
            wanted, request = decided(record, topics)
            if dry_run:
                if client is not None:
                    return client.planned(wanted, request)
                return planned(self._settings, record, topics, wanted, request)
            client, done = carry_out(client, self._settings, record, topics, wanted, request)
        finally:
            if client is not None:
                client.close()
        return done

    def deployed(self, project: Project) -> None:
        """Called after a deployment of the project that `read` returned."""
        with self._lock:
            self._project, self._declared = project, None

    def history(self, *, plans: bool = False) -> tuple[list[Entry], Record]:
        """The last deployments, with their plans if `plans` is set, and the current deployment."""
        return history(self._settings, plans=plans)

    def status(self) -> Document:
        client = find_instance(self._settings.data_dir)
        if client is None:
            return at_rest(self._settings).status()
        with closing(client):
            return client.status()

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]:
        with closing(connect_running(self._settings.data_dir)) as client:
            return client.pause(names, paused=paused)

    def stop(self) -> bool:
        return end_instance(self._settings.data_dir) is not None

    def close(self) -> None:
        self._writer.close()
        self._tables.close()

    def _plan(self) -> Plan:
        with self._lock:
            if self._declared is None:
                self._declared = compile_sources(self._project).plan
            return self._declared

    def _opened(self) -> Any:
        return open_log(self._project)
