"""Options all verbs share, and what they come to: a project, a target, an output format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowql.cli.render import show_diagnostics
from flowql.config.load import load_project, read_project
from flowql.config.project import Project
from flowql.errors import CompileError
from flowql.runtime.app.without_pandas import leave_pandas_out

if TYPE_CHECKING:
    from flowql.compiler.driver import Compiled
    from flowql.compiler.plan.topology import Plan
    from flowql.deploy.settings import Settings


class Output(Enum):
    """How results are written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


class LogLevel(Enum):
    """How serious a line in the log of an instance is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


ProjectOption = Annotated[
    Path | None,
    typer.Option("--project", "-p", help="A folder in the project, or its flowql.yaml.", show_default="here"),
]
TargetOption = Annotated[str | None, typer.Option("--target", "-t", help="A target of flowql.yaml.")]
SelectOption = Annotated[
    list[str] | None, typer.Option("--select", "-s", help="Only this query. Repeatable.", metavar="QUERY")
]
DeployedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        "-s",
        help="Only this query: NAME, +NAME with all inputs, NAME+ with all queries that read its result. Repeatable.",
        metavar="QUERY",
    ),
]
OutputOption = Annotated[Output | None, typer.Option("--output", "-o", help="How to write results.")]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option("--log-level", help="Lowest level to log.", show_default="log_level of the target"),
]
WithoutOption = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        help="Pause this query from the start, until flowql resume. Repeatable.",
        metavar="QUERY",
    ),
]
VarOption = Annotated[list[str] | None, typer.Option("--var", help="A variable's value.", metavar="NAME=VALUE")]


@dataclass(frozen=True, slots=True)
class Scope:
    """The shared options of one call: those after the verb beat those before it.

    A verb takes `ctx: typer.Context` and the options above, and begins with `Scope.of(ctx, project=project, ...)`. several: it is about
    several targets, whose engines may differ.
    """

    start: Path
    target: str | None
    select: tuple[str, ...]
    output: Output
    variables: Mapping[str, str]
    several: bool = False

    @classmethod
    def of(
        cls,
        ctx: typer.Context,
        *,
        project: Path | None = None,
        target: str | None = None,
        select: list[str] | None = None,
        output: Output | None = None,
        var: list[str] | None = None,
    ) -> Scope:
        """Usage errors (a malformed --var) are raised as typer.BadParameter: exit code 2."""
        before: Mapping[str, Any] = ctx.find_root().obj or {}
        return cls(
            project or before.get("project") or Path("."),
            target or before.get("target"),
            tuple(select or before.get("select") or ()),
            output or before.get("output") or Output.TABLE,
            _variables([*(before.get("var") or ()), *(var or ())]),
        )

    def read(self) -> Project:
        """The project; its mistakes are reported when it is compiled, together with those of its SQL."""
        return self._prepared(read_project(self.start, target=self.target, variables=self.variables))

    def load(self) -> Project:
        """The project, without mistakes in its files; SQL is not looked at."""
        return self._prepared(load_project(self.start, target=self.target, variables=self.variables))

    def compile(self, *, previous: Plan | None = None) -> tuple[Project, Compiled]:
        """The project compiled; CompileError with all mistakes of YAML and SQL. Warnings go to stderr."""
        from flowql.config.compile import compile_sources  # half a second: verbs that compile nothing do without

        project = self.read()
        compiled = compile_sources(project, previous=previous)
        if not compiled.ok:
            raise CompileError(*compiled.diagnostics)
        show_diagnostics([d for d in compiled.diagnostics if d.severity == "warning"])
        return project, compiled

    def _prepared(self, project: Project) -> Project:
        """Only Spark needs Arrow's part for pandas."""
        if project.target.engine == "runtime" and not self.several:
            leave_pandas_out()
        return project

    def only(self, *allowed: Output) -> Output:
        """The output format, which must be one of these: exit code 2 otherwise."""
        if self.output not in allowed:
            words = ", ".join(o.value for o in allowed)
            raise typer.BadParameter(f"-o {self.output.value} is not possible here (choose from {words})")
        return self.output


def _variables(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            raise typer.BadParameter(f"--var takes NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def with_log_level(settings: Settings, level: LogLevel | None) -> Settings:
    """The settings of a target with what this call says of its log."""
    return settings if level is None else replace(settings, log_level=level.value)
