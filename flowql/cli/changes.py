"""The options of `flowql plan` and `flowql deploy`, and the deployment that they ask for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Annotated, Any, Literal

import typer

from flowql.api.deploying import deploy_request, rolled_back, wanted_plan
from flowql.cli.options import KEYWORD, Scope, WithoutOption
from flowql.cli.place import Place
from flowql.cli.render import note, show_diagnostics
from flowql.compiler.plan.deployed import Deployed
from flowql.compiler.plan.topology import Plan
from flowql.config.project import Project
from flowql.deploy.control import with_paused
from flowql.deploy.request import DeployRequest
from flowql.deploy.selection import find_query
from flowql.deploy.settings import UNSUPPORTED_TARGET
from flowql.errors import CommandError
from flowql.server.supervised import is_started_again

# --- `--without`: queries that are paused before an instance begins them, as one that freezes it at each start has to be ---


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


_Repeated = list[str] | None


def _deployment_number(text: str) -> int:
    if not text.isdecimal():
        raise typer.BadParameter(f"{text} is not the number of a deployment; to deploy one query: --select {text}")
    return int(text)


# Field of `Asked` -> the option, and its value where it is not given.
_OPTIONS: Mapping[str, tuple[Any, Any]] = {
    "number": (
        Annotated[
            int | None,
            typer.Argument(
                help="With --rollback: number in `flowql deployments`.",
                metavar="[ID]",
                show_default=False,
                parser=_deployment_number,
            ),
        ],
        None,
    ),
    "without": (WithoutOption, None),
    "prune": (Annotated[bool, typer.Option("--prune", help="Remove queries that the project no longer has.")], False),
    "rebuild": (
        Annotated[bool, typer.Option("--rebuild", help="Discard state that no longer fits and recompute it.")],
        False,
    ),
    "full_refresh": (
        Annotated[_Repeated, typer.Option("--full-refresh", help="Rebuild this unchanged query.", metavar="QUERY")],
        None,
    ),
    "rollback": (
        Annotated[bool, typer.Option("--rollback", help="Roll back to the previous deployment, or to ID.")],
        False,
    ),
    "forward": (
        Annotated[bool, typer.Option("--forward", help="Apply changed SQL to new records only, without a rebuild.")],
        False,
    ),
    "shadow": (
        Annotated[bool, typer.Option("--shadow", help="Build new generations; `flowql promote` swaps them in.")],
        False,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options as given. number: of the deployment to roll back to."""

    number: int | None = None
    prune: bool = False
    rebuild: bool = False
    full_refresh: Sequence[str] = ()
    rollback: bool = False
    forward: bool = False
    shadow: bool = False
    accept_history: bool = False
    without: Sequence[str] = ()

    def check(self, scope: Scope) -> None:
        """Raises usage errors."""
        if self.number is not None and not self.rollback:
            title = f"{self.number}: a number is for --rollback; to deploy one query: --select QUERY"
            raise typer.BadParameter(title)
        if self.rollback and (scope.select or self.full_refresh):
            raise typer.BadParameter("--rollback concerns all queries: it takes neither --select nor --full-refresh")

    def against(
        self, scope: Scope, place: Place, project: Project, deployed: Deployed, topics: Mapping[str, int]
    ) -> tuple[Plan, DeployRequest]:
        """The plan to deploy and its options. deployed: the deployment that is on record there."""
        if self.rollback:
            wanted, request = rolled_back(*place.history(plans=True), self.number)
        else:
            there = place.topics()
            wanted = wanted_plan(project, running=deployed.plan, topics=topics, warn=show_diagnostics, there=there)
            request = self.request(scope, project, wanted, deployed.plan)
        without = left_out(self.without, project.target.engine, deployed.plan, wanted)
        request = replace(request, accept_history=self.accept_history, forward=self.forward, shadow=self.shadow)
        return wanted, replace(request, without=without)

    def request(self, scope: Scope, project: Project, wanted: Plan, running: Plan) -> DeployRequest:
        """The deployment of the project, without the options that a rollback has too."""
        request = deploy_request(scope.select, project, wanted, running, prune=self.prune, rebuild=self.rebuild)
        refresh = tuple(find_query(wanted, name).id for name in self.full_refresh)
        return replace(request, refresh=refresh, about=replace(request.about, how=self._how(refresh)))

    def _how(self, refresh: Sequence[str]) -> str:
        how = "deploy --forward" if self.forward else "deploy"
        return f"{how}, full refresh of {', '.join(refresh)}" if refresh else how


def deploying(verb: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a deployment to a verb, before its own. The verb gets the Scope and an `Asked` with their values."""
    scope, _, *own = inspect.signature(verb, eval_str=True).parameters.values()
    options = [inspect.Parameter(n, KEYWORD, default=d, annotation=a) for n, (a, d) in _OPTIONS.items()]

    @wraps(verb)
    def command(scope: Scope, **given: Any) -> None:
        options = {name: given.pop(name) for name in _OPTIONS}
        repeated = {name: options[name] or () for name in ("full_refresh", "without")}
        asked = Asked(**{**options, **repeated})
        asked.check(scope)
        verb(scope, asked, **given)

    taken = [scope, *options, *(p.replace(kind=KEYWORD) for p in own)]
    command.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    return command
