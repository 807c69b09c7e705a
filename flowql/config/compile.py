"""A project compiled: what every command starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from flowql.compiler.analyze.registered import REGISTRY
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.diagnostic import Diagnostic
from flowql.compiler.diagnostics.source import NOWHERE
from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.driver import Compiled, compile_project
from flowql.compiler.functions.user import Entry
from flowql.compiler.plan.topology import Plan
from flowql.compiler.schemas.ref import NO_SCHEMAS
from flowql.config.project import Project
from flowql.runtime.serde.registry import registry_at

_NO_PARTITIONS: Mapping[str, int] = {}


def compile_sources(
    project: Project, *, previous: Plan | None = None, topic_partitions: Mapping[str, int] = _NO_PARTITIONS
) -> Compiled:
    """Compile a project; mistakes of its files and of its SQL come together, each at its place in a file. Prints nothing.

    previous: the plan that runs, whose names are kept. topic_partitions: of topics that exist. A project with a schema
    registry asks it for schemas; RegistryUnavailable when it does not answer.
    """
    url = project.properties.get(REGISTRY, "")
    functions, mistakes = functions_of(project)
    compiled = compile_project(
        project.sources,
        dialect=project.dialect,
        properties=project.properties,
        overrides=project.overrides,
        previous=previous,
        topic_partitions=topic_partitions,
        variables=project.variables,
        registry=registry_at(url) if url else NO_SCHEMAS,
        functions=functions,
        prefix=project.target.prefix,
    )
    found = [*project.diagnostics, *mistakes, *project.places.placed(compiled.diagnostics)]
    found += _nothing_listed(project)
    if compiled.ok:
        found += _unknown_queries(project, compiled.plan)
    return replace(compiled, diagnostics=tuple(found))


def functions_of(project: Project) -> tuple[Mapping[str, Entry], list[Diagnostic]]:
    """The functions of the project's modules, or why they cannot be loaded."""
    if not project.modules:
        return {}, []
    from flowql.config.functions import LoadError, load_functions  # most projects have none

    try:
        return load_functions(project.root, list(project.modules)), []
    except LoadError as error:
        span = error.place or project.modules[error.module]
        return {}, [Diagnostic("FQ3012", str(error), span, "", help=error.hint)]


def _nothing_listed(project: Project) -> list[Diagnostic]:
    """A project of nothing compiles; files that lie beside it are not read unless `sql` lists them."""
    if project.sources or project.modules or project.diagnostics:
        return []
    files = sorted(p.name for p in project.root.glob("*.sql"))
    title = f"the project has no statements: {project.file.name} lists neither `sql` nor `queries`"
    why = f"{listing(files)} {'is' if len(files) == 1 else 'are'} not read" if files else ""
    help_ = f"list the files in {project.file.name}:  sql: ['*.sql']"
    return [Diagnostic("FQ3014", title, why=why, help=help_, severity="warning")]


def _unknown_queries(project: Project, plan: Plan) -> list[Diagnostic]:
    """Names in `priorities`, and in `hash_buckets` of the target, that no query has; asked only when all queries are known."""
    known = [n for q in plan.queries for n in (q.id, q.sink)]
    target = project.target
    named = [("`priorities`", name, project.override_spans.get(name, NOWHERE)) for name in project.overrides]
    named += [
        ("`hash_buckets` of the target", name, target.bucket_spans.get(name, NOWHERE))
        for name in target.spark.hash_buckets
    ]
    return [
        Diagnostic(
            "FQ3011",
            f"{where} names `{name}`, but there is no query of that name",
            span,
            "not a query",
            help=did_you_mean(name, known),
        )
        for where, name, span in named
        if name not in known
    ]
