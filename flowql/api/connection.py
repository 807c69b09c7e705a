"""A project from Python: its results, changes, topics and deployments."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import pyarrow as pa

from flowql.api.arguments import check_following, text, texts, times, variables_of
from flowql.api.changes import Subscription
from flowql.api.deploying import Document, deploy_request, rolled_back, wanted_plan
from flowql.api.folder import Folder
from flowql.api.remote import Remote
from flowql.api.result import Result
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.plan.deployed import Deployed as Record
from flowql.compiler.plan.topology import Plan
from flowql.config.project import Project
from flowql.deploy.history import to_data
from flowql.deploy.request import DeployRequest
from flowql.deploy.selection import find_query
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.answer import returned
from flowql.query.options import QueryEngine, QueryOptions
from flowql.query.tick_text import as_ends, as_text, later
from flowql.server.remote_client import BAD_URL, WRONG_TOKEN, RemoteClient

_NO_VARIABLES: Mapping[str, str] = {}
Warn = Callable[[Sequence[Diagnostic]], None]


def connect(
    project: str | Path = ".",
    *,
    token: str | None = None,
    certificate: str | Path | None = None,
    target: str | None = None,
    variables: Mapping[str, str] = _NO_VARIABLES,
) -> Connection:
    """Connects to a project's folder, with or without a running instance, or to an instance by URL.

    project: a folder in the project, its `flowql.yaml`, or the URL of an instance with `api`. token: of `api`.
    certificate: certificates to trust for https instead of the system's. target, variables: for `deploy` and `execute`. Raises ProjectError with all mistakes, CommandError if no instance answers.

        >>> with flowql.connect("pipelines/quickstart") as project:  # doctest: +SKIP
        ...     delays = project.sql("SELECT CARRIER, AVG(DELAY) AS MEAN FROM DELAYS GROUP BY CARRIER").df()

        >>> with flowql.connect(
        ...     "http://shop.example.com:8321", token=os.environ["FLOWQL_TOKEN"]
        ... ) as shop:  # doctest: +SKIP
        ...     orders = shop.sql("SELECT COUNT(*) FROM ORDERS").one()
    """
    if not isinstance(project, str | Path):
        raise TypeError(f"project is a folder or a URL, not {type(project).__name__}")
    variables = variables_of(variables)
    if isinstance(project, Path) or "://" not in project:
        if token is not None or certificate is not None:
            title = f"{project} is a folder, and `token` and `certificate` are for the URL of an instance"
            raise CommandError(title, code=BAD_URL, help='flowql.connect("http://shop.example.com:8321", token=...)')
        return Connection(Folder(Path(project), target, variables))
    if not token:
        title = "the URL of an instance needs its token"
        raise CommandError(title, code=WRONG_TOKEN, help='token=os.environ["FLOWQL_TOKEN"], which is `token` of `api`')
    return Connection(Remote(RemoteClient(project, token, certificate), target, variables))


class Connection:
    """A project's results, changes, topics and deployments. Thread-safe; close it or use `with`.

    `title`, `code` and `help` of a CommandError say what is wrong and what to do. FQ5302: the instance at the URL
    does not answer.
    """

    def __init__(self, backend: Folder | Remote) -> None:
        self._backend = backend
        self._lock = threading.Lock()  # guards the one below
        self._tick = ""

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._backend.close()

    @property
    def project(self) -> Project:
        """The folder's project. Raises CommandError over a URL."""
        return self._backend.project

    @property
    def settings(self) -> Settings:
        """The target's settings. Raises CommandError over a URL."""
        return self._backend.settings

    @property
    def tick(self) -> str:
        """A tick with the rows that this connection has written, or read with `at_least`."""
        return self._tick

    def sql(
        self, query: str, *, engine: QueryEngine | None = None, at_least: str | None = None, allow_standby: bool = False
    ) -> Result:
        """Runs one SELECT, WITH, DESCRIBE, EXPLAIN or SHOW, as of one commit. engine: "duckdb" for DuckDB's SQL.

        at_least: waits until the views show this `tick`. allow_standby: standby copies may answer; `note` says so.

        Raises QueryError for malformed SQL, unknown names, and exceeded limits.
        """
        options = QueryOptions(engine, at_least, allow_standby)
        with self._backend.answer(text(query, "query"), options) as answer:
            found = Result(answer.table())
        self._seen(found.tick)
        return found

    def batches(
        self, query: str, *, engine: QueryEngine | None = None, at_least: str | None = None, allow_standby: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """As `sql`, in batches as they are computed. Close the iterator to end early."""
        options = QueryOptions(engine, at_least, allow_standby)
        with self._backend.answer(text(query, "query"), options) as answer:
            self._seen(Result(answer.schema.empty_table()).tick)
            yield from answer.batches

    def execute(self, statements: str, *, retry: int = 0) -> int:
        """Runs INSERT, UPDATE and DELETE, each as one transaction. Returns the number of changed rows.

        Statements before a failing one take effect. retry: how often a statement is repeated, from 0 to 100, if its table
        changes after its query read it (FQ4063). Raises CompileError before any change, CommandError,
        RuntimeFailure.
        """
        done = self._backend.execute(text(statements, "statements"), times(retry, "retry"))
        self._seen(*(d.tick for d in done))
        return sum(d.rows for d in done)

    def returning(self, statement: str, *, retry: int = 0) -> Result:
        """Runs INSERT, UPDATE or DELETE with RETURNING as one transaction. Returns rows after INSERT and UPDATE or
        before DELETE.

        One of several statements may have RETURNING. retry: as in `execute`. Raises CompileError or QueryError before
        any change, CommandError, RuntimeFailure.
        """
        done = self._backend.returning(text(statement, "statement"), times(retry, "retry"))
        self._seen(*(d.tick for d in done))
        return Result(returned(done))

    def subscribe(
        self, what: str, *, start: Literal["latest", "earliest"] = "latest", limit: int | None = None
    ) -> Subscription:
        """Subscribes to new rows of a stream, changes of a table, or rows of `SELECT ... EMIT CHANGES`.

        start: where to start reading streams. limit: maximum number of changes. Over a URL an instance serves 16
        different subscriptions, and ends one whose changes are not read for ten minutes. Raises QueryError, for
        example if no instance runs; over a URL CommandError.
        """
        check_following(start, limit)
        return self._backend.subscribe(text(what, "what"), start, limit)

    def produce(self, name: str, rows: Any, *, timestamp: str | None = None) -> int:
        """Writes rows to the topic of a stream or table in one transaction, creating a missing topic. Returns their
        number. `tick` shows them.

        rows: dicts, an Arrow table, a pandas or polars frame, or anything with Arrow's PyCapsule interface. Column
        names ignore case; missing columns are NULL. In a table, a row with only its key is a deletion. timestamp: column with
        the event time; default: the source's, or the current time. Raises CommandError, writing nothing, if a row
        does not fit.

        Over a URL a frame above about 8 MB takes several transactions, and after a broken connection the outcome is
        unknown.
        """
        column = None if timestamp is None else text(timestamp, "timestamp")
        written = self._backend.produce(text(name, "name"), rows, column)
        self._seen(as_text(written.ends))
        return written.rows

    def deploy(
        self,
        *,
        project: str | Path | None = None,
        select: Sequence[str] = (),
        prune: bool = False,
        rebuild: bool = False,
        full_refresh: Sequence[str] = (),
        forward: bool = False,
        shadow: bool = False,
        accept_history: bool = False,
        dry_run: bool = False,
        warn: Warn | None = None,
    ) -> Document:
        """Deploys the project, starting an instance if none runs. Returns the document of `flowql deploy -o json`;
        the options are the same.

        warn: receives warnings. Returns when every query runs; `status` shows the progress of rebuilds. Raises
        CompileError with all mistakes, CommandError.

        project: over a URL, the local folder to deploy. The instance's folder needs the same Python modules.
        """
        found, topics_there = self._backend.read(project)

        def decided(record: Record, topics: Mapping[str, int]) -> tuple[Plan, DeployRequest]:
            wanted = wanted_plan(
                found, running=record.plan, topics=topics, warn=warn or (lambda _: None), there=topics_there
            )
            request = deploy_request(texts(select, "select"), found, wanted, record.plan, prune=prune, rebuild=rebuild)
            refresh = tuple(find_query(wanted, n).id for n in texts(full_refresh, "full_refresh"))
            about = replace(request.about, how="deploy from Python")
            request = replace(request, refresh=refresh, about=about, forward=forward, shadow=shadow)
            return wanted, replace(request, accept_history=accept_history)

        done = self._backend.carry_out(decided, dry_run=dry_run)
        if not dry_run:
            self._backend.deployed(found)
        return done

    def rollback(
        self,
        number: int | None = None,
        *,
        shadow: bool = False,
        accept_history: bool = False,
        dry_run: bool = False,
    ) -> Document:
        """Deploys the plan of an earlier deployment; files are unchanged. Returns the document of `flowql deploy
        --rollback -o json`.

        number: of `deployments`; default: the previous one. Raises CommandError.
        """

        def decided(_: Record, _topics: Mapping[str, int]) -> tuple[Plan, DeployRequest]:
            wanted, request = rolled_back(*self._backend.history(plans=True), number)
            return wanted, replace(request, shadow=shadow, accept_history=accept_history)

        return self._backend.carry_out(decided, dry_run=dry_run)

    def deployments(self) -> list[Document]:
        """The last 50 deployments, oldest first, as `flowql deployments -o json`."""
        entries, record = self._backend.history()
        return [to_data(entry, entries, record) for entry in entries]

    def status(self) -> Document:
        """The document of `flowql status -o json`."""
        return self._backend.status()

    def pause(self, query: str, *others: str) -> list[str]:
        """Pauses queries by id or result, keeping state and positions. Returns their ids.

        A pause survives restarts and deployments, until `resume`. Raises CommandError, for example if no instance runs.
        """
        return self._backend.pause(texts([query, *others], "the names"), paused=True)

    def resume(self, query: str, *others: str) -> list[str]:
        """Resumes paused queries where they stopped. Returns their ids. Raises CommandError as `pause` does."""
        return self._backend.pause(texts([query, *others], "the names"), paused=False)

    def stop(self) -> bool:
        """Stops the running instance after a commit. False if none runs. Raises CommandError over a URL."""
        return self._backend.stop()

    def _seen(self, *ticks: str) -> None:
        with self._lock:
            self._tick = as_text(reduce(later, map(as_ends, ticks), as_ends(self._tick)))
