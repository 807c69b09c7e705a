"""`--without`: queries that are paused before an instance begins them, as one that freezes it at each start has to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from flowql.cli.render import note
from flowql.compiler.plan.topology import Plan
from flowql.deploy.control import with_paused
from flowql.deploy.settings import UNSUPPORTED_TARGET
from flowql.errors import CommandError
from flowql.server.supervised import is_started_again


def left_out(
    names: Sequence[str] | None, engine: Literal["runtime", "spark"], deployed: Plan, wanted: Plan | None = None
) -> tuple[str, ...]:
    """The ids of these queries, of the project (`wanted`) or deployed. CommandError for an unknown name.

    An instance that its watchdog process has started again pauses none: the first start has, and `flowql resume` may have been called since.
    """
    if not names or is_started_again():
        return ()
    if engine == "spark":
        title = "--without is not supported with `engine: spark`: a query cannot be paused before the instance begins"
        raise CommandError(title, code=UNSUPPORTED_TARGET, help="flowql pause QUERY  when it runs")
    project = wanted or Plan()
    known = (*project.queries, *(q for q in deployed.queries if q.id not in project.by_id))
    ids = with_paused(replace(project, queries=known), names, paused=True)[1]
    return tuple(ids)


def note_left_out(ids: Sequence[str]) -> None:
    for query in ids:
        note(f"{query} is paused; it continues with:  flowql resume {query}")
