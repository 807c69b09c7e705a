"""INSERT, UPDATE and DELETE of a deployed project's tables."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from flowql.api.asking import asking
from flowql.api.following import deployed
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues
from flowql.config.project import Project
from flowql.config.storage import open_log
from flowql.deploy.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa


def execute(project: Project, settings: Settings, text: str) -> list[tuple[str, str, int]]:
    """Carry out statements in order, each as one transaction: (verb, table, number of rows). What precedes one that fails stays done.

    Raises CompileError before anything is done; CommandError, RuntimeFailure.
    """
    from flowql.compiler.driver import compile_changes  # loads the parser: 0.5 s
    from flowql.query.changing import execute_change, write_rows

    there = deployed(settings)
    sources = {s.name: s for s in there.plan.sources}
    changes = compile_changes(
        SourceText("", text), there.plan.sources, dialect=project.dialect, variables=project.variables
    )
    done: list[tuple[str, str, int]] = []
    with closing(open_log(project)) as log:
        for change in _grouped(changes):
            if isinstance(change, TableChange):
                source = sources[change.target]
                rows = execute_change(
                    log, source, change, settings.application_id, _now_ms(), lambda sql: _ask(settings, sql)
                )
                done.append((change.kind.upper(), change.target, rows))
            else:
                writer = f"flowql-exec-{os.getpid()}"
                rows = write_rows(log, there.plan.sources, change, writer, _now_ms())
                done.append(("INSERT", change[0].target, rows))
    return done


def _grouped(changes: Sequence[TableChange | InsertValues]) -> list[TableChange | list[InsertValues]]:
    """Consecutive rows of one stream or table together."""
    found: list[TableChange | list[InsertValues]] = []
    for change in changes:
        last = found[-1] if found else None
        if isinstance(change, TableChange):
            found.append(change)
        elif isinstance(last, list) and last[0].target == change.target:
            last.append(change)
        else:
            found.append([change])
    return found


def _ask(settings: Settings, sql: str) -> pa.Table:
    with asking(settings, sql) as answer:
        return answer.table()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
