"""All checks, in the order in which a mistake would show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import read_project
from flowql.config.project import Project
from flowql.doctor.deep import Bar, examine_deep
from flowql.doctor.finding import Finding, failed, ok, warning
from flowql.doctor.machine import examine_machine
from flowql.doctor.target import examine_target
from flowql.errors import CompileError, RuntimeFailure

NO_PROJECT = "FQ3002"


def examine(
    start: Path,
    target: str | None,
    variables: Mapping[str, str],
    environment: Mapping[str, str],
    deep: Bar | None = None,
) -> Iterator[Finding]:
    """The machine, the project at `start` if there is one, and its targets (or the one that is named).

    deep: shows the progress of reading all data of the targets; without it only sizes and numbers are compared.
    """
    yield from examine_machine()
    try:
        project = read_project(start, target=target, variables=variables)
    except CompileError as error:
        nothing_here = start.exists() and [d.code for d in error.diagnostics] == [NO_PROJECT]
        yield ok("project", "none here: `flowql init` makes one") if nothing_here else _mistakes(len(error.diagnostics))
        return
    compiled, finding = _compiles(project)
    yield finding
    for name, missing in project.undefined.items():
        if target in (None, name):
            yield warning(f"target {name}", f"not examined: {missing[0].title}", missing[0].help)
    named = () if target in project.undefined else (project.target,)
    for each in named if target else project.targets.values():
        yield from examine_target(each, each.app_id or project.name, dict(environment), compiled)
        if deep is not None:
            yield from examine_deep(f"target {each.name}", each, deep)


def _compiles(project: Project) -> tuple[Plan | None, Finding]:
    """Its plan, if it has no mistakes."""
    try:
        compiled = compile_sources(project)
    except RuntimeFailure as error:  # a schema registry that does not answer
        return None, failed("project", str(error), "flowql validate")
    if not compiled.ok:
        return None, _mistakes(len(compiled.diagnostics))
    return compiled.plan, ok("project", f"{project.name}: {len(compiled.plan.queries)} queries, no mistakes")


def _mistakes(count: int) -> Finding:
    return failed("project", f"{count} mistake{'s' * (count != 1)}", "flowql validate   # shows them all")
