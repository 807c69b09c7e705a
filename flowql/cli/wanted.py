"""What a project wants to run, compiled against what runs."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from os.path import relpath

from flowql.cli.options import Scope
from flowql.cli.render import show_diagnostics
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.plan.deployed import About
from flowql.compiler.plan.topology import Plan
from flowql.config.compile import compile_sources
from flowql.config.load import read_project
from flowql.config.project import Project
from flowql.deploy.asked import Asked
from flowql.deploy.assertions import check_assertions
from flowql.deploy.selection import chosen
from flowql.errors import CompileError


def read(scope: Scope) -> Project:
    """The project; its mistakes are reported by `wanted_plan`, together with those of its SQL."""
    return read_project(scope.start, target=scope.target, variables=scope.variables)


def wanted_plan(project: Project, *, running: Plan, topics: Mapping[str, int], warn: bool = True) -> Plan:
    """The plan of the whole project. Raises CompileError with all mistakes.

    warn: show warnings, and look whether what the project asserts holds.
    """
    compiled = compile_sources(project, previous=running, topic_partitions=topics)
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    if warn:
        show_diagnostics([d for d in compiled.diagnostics if d.severity == "warning"])
        check_assertions(compiled.assertions, project, compiled.plan)
    return compiled.plan


def _files(project: Project) -> tuple[tuple[str, str], ...]:
    """The files of SQL, each with a hash of its text."""
    texts = [(s.path, s.text) for s in project.sources if isinstance(s, SourceText)]
    names = dict.fromkeys(path for path, _ in texts)
    whole = {n: "\n".join(text for path, text in texts if path == n) for n in names}
    root = project.root.resolve()
    return tuple((relpath(name, root), sha256(text.encode()).hexdigest()[:12]) for name, text in whole.items())


def asked_of(
    scope: Scope, project: Project, wanted: Plan, running: Plan, *, prune: bool = False, rebuild: bool = False
) -> Asked:
    """What the options of a verb ask of a deployment."""
    ids = chosen(scope.select, wanted, running)
    about = About("deploy", _files(project))
    return Asked(None if ids is None else tuple(sorted(ids)), prune=prune, rebuild=rebuild, about=about)
