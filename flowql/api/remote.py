"""A connection's backend: the URL of an instance. This machine needs neither its project nor its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from flowql.api.changes import Subscription
from flowql.api.deploying import Decided, Document, deploy_to
from flowql.compiler.plan.deployed import Deployed, Entry
from flowql.config.load import read_project
from flowql.config.project import ELSEWHERE, Project
from flowql.deploy.assertions import Topics
from flowql.deploy.settings import Settings
from flowql.errors import CommandError
from flowql.query.answer import Answer, Done
from flowql.query.options import QUERY_DEFAULTS, QueryOptions
from flowql.query.tick_text import later
from flowql.runtime.log.base import TopicPartition
from flowql.server.arrow_bodies import ROWS_MAX
from flowql.server.remote_client import RemoteClient
from flowql.topics.producing import RowWriter, Written

if TYPE_CHECKING:
    from flowql.query.push import Start

REQUEST_BYTES = 8 << 20  # of rows, about


class Remote:
    """The backend of a `Connection` to a URL, with the methods of `Folder`. Raises CommandError with ELSEWHERE for operations that need the folder."""

    def __init__(self, client: RemoteClient, target: str | None, variables: Mapping[str, str]) -> None:
        """target, variables: of projects that are deployed."""
        self._client, self._target, self._variables = client, target, dict(variables)

    @property
    def project(self) -> Project:
        raise self._not_here("the project is where the instance runs", "status() and deployments() show what runs")

    @property
    def settings(self) -> Settings:
        raise self._not_here("the settings are where the instance runs", "status() shows what runs")

    def answer(self, query: str, options: QueryOptions = QUERY_DEFAULTS) -> AbstractContextManager[Answer]:
        return self._client.answer(query, options)

    def execute(self, statements: str, retry: int) -> list[Done]:
        return self._client.execute(statements, self._variables, retry)

    def returning(self, statement: str, retry: int) -> list[Done]:
        return self._client.statements(statement, self._variables, retry=retry, one_returns=True)

    def subscribe(self, what: str, start: Start, limit: int | None) -> Subscription:
        told = self._client.changes(what, start, limit)
        return Subscription(told.__iter__(), told.close)

    def produce(self, name: str, rows: Any, timestamp: str | None) -> Written:
        writer = RowWriter(self._client.source(name))
        table = writer.table(rows)
        parts = list(_parts(table))
        if len(parts) != 1:  # each is a transaction: what cannot be written is found before the first
            for _ in writer.records(table, timestamp):
                pass
        written, ends = 0, dict[TopicPartition, int]()
        for part in parts:
            try:
                done = self._client.produce(name, part, timestamp)
                written, ends = written + done.rows, later(ends, done.ends)
            except CommandError as error:
                if not written:
                    raise
                title = f"{error.title}; {written:,} rows before that were written"
                raise CommandError(title, code=error.code, help=error.help) from error
        return Written(written, ends)

    def read(self, project: str | Path | None) -> tuple[Project, Topics | None]:
        if project is None:
            raise self._not_here("this machine does not know its project", 'name its folder:  deploy(project="shop")')
        return read_project(Path(project), target=self._target, variables=self._variables), self._client.topics

    def carry_out(self, decided: Decided, *, dry_run: bool = False) -> Document:
        wanted, request = decided(*self._client.deployed())
        return self._client.planned(wanted, request) if dry_run else deploy_to(self._client, wanted, request)

    def deployed(self, project: Project) -> None:
        pass

    def history(self, *, plans: bool = False) -> tuple[list[Entry], Deployed]:
        return self._client.deployments(plans=plans), self._client.deployed()[0]

    def status(self) -> Document:
        return self._client.status()

    def pause(self, names: Sequence[str], *, paused: bool) -> list[str]:
        return self._client.pause(names, paused=paused)

    def stop(self) -> bool:
        raise self._not_here("nothing here could start the instance again", "on its machine:  flowql stop")

    def close(self) -> None:
        self._client.close()

    def _not_here(self, why: str, help_: str) -> CommandError:
        return CommandError(f"over {self._client.url} this is not possible: {why}", code=ELSEWHERE, help=help_)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """Rows for one request each; one part, even if there is no row."""
    if not table.num_rows:  # a piece of a table without columns has the rows that it is asked for
        yield table
    rows = min(ROWS_MAX, max(1, table.num_rows * REQUEST_BYTES // max(table.nbytes, 1)))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)
