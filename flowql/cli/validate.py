"""`flowql validate` and `compile`: all mistakes of a project, and its plan."""

from __future__ import annotations

from flowql.cli.options import Scope, scoped
from flowql.cli.render import counted, print_json, print_text, show_diagnostics
from flowql.compiler.plan import codec
from flowql.config.compile import compile_sources
from flowql.config.load import read_project
from flowql.errors import CompileError


@scoped("project target output var")
def validate(scope: Scope) -> None:
    """Check the project and show all mistakes."""
    found = read_project(scope.start, target=scope.target, variables=scope.variables)
    compiled = compile_sources(found)
    if scope.as_json:
        print_json(
            {
                "ok": compiled.ok,
                "diagnostics": [
                    {
                        "code": d.code,
                        "severity": d.severity,
                        "title": d.title,
                        "path": d.span.path,
                        "line": d.span.line,
                        "column": d.span.column,
                        "length": d.span.length,
                        "label": d.label,
                        "why": d.why,
                        "help": d.help,
                        "unsupported": d.unsupported,
                    }
                    for d in compiled.diagnostics
                ],
            }
        )
    if not compiled.ok:
        raise CompileError(*compiled.diagnostics)
    show_diagnostics(compiled.diagnostics)
    if not scope.as_json:
        plan = compiled.plan
        sources = sum(s.query is None for s in plan.listed)
        print_text(
            f"{found.name}: {counted(sources, 'source')}, {counted(len(plan.queries), 'query', 'queries')}, no mistakes"
        )


# --- `flowql compile`: the compiled project, as `plan.json` ---


@scoped("project target output var")
def compile(scope: Scope) -> None:
    """Compile the project and print the plan as JSON, for programs.

    `POST /v1/plan` and `POST /v1/deployments` take this document. `flowql explain` shows the plan to people.
    """
    print_text(codec.dumps(scope.compile()[1].plan))
