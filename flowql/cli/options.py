"""Options all verbs share, and what they come to: a project, a target, an output format."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flowql.cli.render import show_diagnostics
from flowql.config.load import load_project, read_project
from flowql.config.project import Project
from flowql.config.sections import LogLevel
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


KEYWORD = inspect.Parameter.KEYWORD_ONLY
TABLE_OR_JSON = (Output.TABLE, Output.JSON)
OR_CSV = (*TABLE_OR_JSON, Output.CSV)
# Word of `scoped` -> the option.
_SHARED = {
    "project": ProjectOption,
    "target": TargetOption,
    "select": SelectOption,
    "deployed": DeployedOption,
    "output": OutputOption,
    "var": VarOption,
}


def scoped(
    options: str, *, outputs: tuple[Output, ...] = TABLE_OR_JSON
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a verb the shared options, behind its own, and calls it with the Scope that they and those before the verb make.

    options: words of `_SHARED`, in the order of --help. outputs: formats that -o may name, where it is one of the options. A verb with
    subcommands is not called for them; its options hold for the subcommand.
    """
    shared = [
        inspect.Parameter(_name(word), KEYWORD, default=None, annotation=_SHARED[word]) for word in options.split()
    ]

    def decorate(verb: Callable[..., None]) -> Callable[..., None]:
        @wraps(verb)
        def command(ctx: typer.Context, **given: Any) -> None:
            after = {p.name: given.pop(p.name) for p in shared}
            if ctx.invoked_subcommand is not None:
                root = ctx.find_root()
                root.obj = {**(root.obj or {}), **{k: v for k, v in after.items() if v is not None}}
                return
            scope = Scope.of(ctx, **after)
            if "output" in after:
                scope.only(*outputs)
            verb(scope, **given)

        _, *own = inspect.signature(verb, eval_str=True).parameters.values()
        context = inspect.Parameter("ctx", KEYWORD, annotation=typer.Context)
        taken = [p.replace(kind=KEYWORD) for p in (context, *own, *shared)]
        command.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in taken}
        return command

    return decorate


def _name(word: str) -> str:
    return "select" if word == "deployed" else word


@dataclass(frozen=True, slots=True)
class Scope:
    """The shared options of one call: those after the verb beat those before it. Verbs get it from `scoped`.

    several: it is about several targets, whose engines may differ.
    """

    start: Path
    target: str | None
    select: tuple[str, ...]
    output: Output
    variables: Mapping[str, str]
    several: bool = False

    @classmethod
    def of(cls, ctx: typer.Context, **after: Any) -> Scope:
        """Usage errors (a malformed --var) are raised as typer.BadParameter: exit code 2."""
        before: Mapping[str, Any] = ctx.find_root().obj or {}
        given = {name: after.get(name) or before.get(name) for name in ("project", "target", "select", "output")}
        return cls(
            given["project"] or Path("."),
            given["target"],
            tuple(given["select"] or ()),
            given["output"] or Output.TABLE,
            _variables([*(before.get("var") or ()), *(after.get("var") or ())]),
        )

    @property
    def as_json(self) -> bool:
        return self.output is Output.JSON

    def read(self) -> Project:
        """The project; its mistakes are reported when it is compiled, together with those of its SQL."""
        return self._prepared(read_project(self.start, target=self.target, variables=self.variables))

    def load(self) -> Project:
        """The project, without mistakes in its files; SQL is not looked at."""
        return self._prepared(load_project(self.start, target=self.target, variables=self.variables))

    def compile(
        self, *, previous: Plan | None = None, concerned: Callable[[Plan], Iterable[str]] | None = None
    ) -> tuple[Project, Compiled]:
        """The project compiled; CompileError with all mistakes of YAML and SQL. Warnings go to stderr.

        concerned: the ids of the queries whose warnings are shown, by default all. Warnings about no single query are always shown.
        """
        from flowql.config.compile import compile_sources  # half a second: verbs that compile nothing do without

        project = self.read()
        compiled = compile_sources(project, previous=previous)
        if not compiled.ok:
            raise CompileError(*compiled.diagnostics)
        shown = None if concerned is None else {"", *concerned(compiled.plan)}
        warnings = [d for d in compiled.diagnostics if d.severity == "warning"]
        show_diagnostics([d for d in warnings if shown is None or d.query in shown])
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
    return settings if level is None else replace(settings, log_level=level)
