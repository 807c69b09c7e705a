"""INSERT, UPDATE and DELETE of a deployed project's tables."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from flowql.api.querying import answer_of
from flowql.compiler.functions.user import finding
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.deploy.functions import find_function
from flowql.deploy.settings import Settings, writer_here
from flowql.query.answer import Done
from flowql.server.following import deployed
from flowql.server.running import NotAnswering, connect

if TYPE_CHECKING:
    import pyarrow as pa

    from flowql.query.local_tables import LocalTables
    from flowql.server.client import Client
    from flowql.topics.table_load import Progress

_NUMBERS = count()
# Statements that may read files run in this process, where the files are. A statement that only contains such a word has the same result.
_MAY_READ_FILES = re.compile(r"\b(copy|read_(csv|parquet|json))\b", re.IGNORECASE)


def execute(
    project: Project,
    settings: Settings,
    text: str,
    *,
    retry: int = 0,
    one_returns: bool = False,
    tables: LocalTables | None = None,
    progress: Progress | None = None,
) -> list[Done]:
    """Carries out statements in order, each as one transaction. Statements before a failing one take effect.

    The running instance carries them out. This process does so if no instance runs or answers, or if statements read files. retry: see
    `flowql.query.changing.carry_out`. one_returns: exactly one statement must have RETURNING. progress: shows the progress of reading files.
    tables: for this process; None opens them for this call. Raises CompileError or QueryError before any change; CommandError, RuntimeFailure.
    """
    client = None if _MAY_READ_FILES.search(text) else _instance(settings)
    if client is not None:
        with closing(client):
            return client.statements(text, project.variables, retry=retry, one_returns=one_returns)
    from flowql.query.changing import carry_out  # the engine
    from flowql.topics.table_load import LocalFiles

    with ExitStack() as stack:
        stack.enter_context(finding(partial(find_function, settings.project_dir)))  # in CHECK and generated columns
        if tables is None:
            tables = stack.enter_context(closing(local_tables(project, settings)))
        return carry_out(
            text,
            deployed(settings).plan.sources,
            tables.writers(),
            lambda sql: _ask(settings, sql),
            settings.writer("exec"),
            dialect=project.dialect,
            variables=project.variables,
            one_returns=one_returns,
            retry=retry,
            files=LocalFiles() if progress is None else LocalFiles(progress),
        )


def local_tables(project: Project, settings: Settings) -> LocalTables:
    """The tables for this process. Close them."""
    from flowql.query.local_tables import LocalTables  # the engine

    return LocalTables(lambda: open_log(project), settings.application_id, f"{writer_here('exec')}-{next(_NUMBERS)}")


def _instance(settings: Settings) -> Client | None:
    try:
        return connect(settings.data_dir)
    except NotAnswering:  # statements need the log alone
        return None


def _ask(settings: Settings, sql: str) -> pa.Table:
    with answer_of(settings, sql) as answer:
        return answer.table()
