"""INSERT, UPDATE and DELETE of a deployed project's tables."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from flowql.api.querying import answer_of
from flowql.compiler.functions.user import finding
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.deploy.functions import find_function
from flowql.deploy.settings import Settings
from flowql.query.answer import Done
from flowql.server.following import deployed

if TYPE_CHECKING:
    import pyarrow as pa


def execute(project: Project, settings: Settings, text: str, *, one_returns: bool = False) -> list[Done]:
    """Carry out statements in order, each as one transaction. What precedes one that fails stays done.

    one_returns: exactly one of them must have RETURNING. Raises CompileError or QueryError before anything is done; CommandError,
    RuntimeFailure.
    """
    from flowql.query.changing import carry_out  # the engine

    with finding(partial(find_function, settings.project_dir)):  # of the project, in CHECK and generated columns
        return carry_out(
            text,
            deployed(settings).plan.sources,
            lambda: open_log(project),
            settings.application_id,
            lambda sql: _ask(settings, sql),
            f"flowql-exec-{os.getpid()}",
            dialect=project.dialect,
            variables=project.variables,
            one_returns=one_returns,
        )


def _ask(settings: Settings, sql: str) -> pa.Table:
    with answer_of(settings, sql) as answer:
        return answer.table()
