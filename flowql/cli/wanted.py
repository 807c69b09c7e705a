"""What a project wants to run, compiled against what runs."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.plan.topology import Plan
from flowql.cli.options import Scope
from flowql.cli.render import show_diagnostics
from flowql.config.compile import compile_sources
from flowql.config.load import read_project
from flowql.config.project import Project
from flowql.deploy.assertions import check_assertions
from flowql.deploy.stages import select
from flowql.errors import CompileError


def read(scope: Scope) -> Project:
    """The project; its mistakes are reported by `wanted_plan`, together with those of its SQL."""
    return read_project(scope.start, target=scope.target, variables=scope.variables)


def wanted_plan(project: Project, scope: Scope, *, running: Plan, topics: Mapping[str, int], warn: bool = True) -> Plan:
    """The plan of the project, or of the queries selected. Raises CompileError with all mistakes.

    warn: show warnings, and look whether what the project asserts holds.
    """
    compiled = compile_sources(project, previous=running, topic_partitions=topics)
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    if warn:
        show_diagnostics(compiled.diagnostics)
        check_assertions(compiled.assertions, project, compiled.plan)
    return select(compiled.plan, scope.select)
