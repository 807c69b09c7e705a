"""The `flowql` program: its verbs, what holds for all of them, and what it exits with.

Exit codes: 0 done, 1 failed, 2 used wrongly, 130 interrupted.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module, metadata
from typing import Annotated, Any

import typer

from flowql.cli.examples import with_examples
from flowql.cli.options import OutputOption, ProjectOption, SelectOption, TargetOption, VarOption
from flowql.cli.render import note, show_diagnostics, show_failure
from flowql.errors import CommandError, CompileError, RuntimeFailure

# One line per verb: `flowql.cli.<verb>` has `command` (a function) or `app` (a typer.Typer with verbs of its own).
VERBS = (
    "init",
    "import",
    "doctor",
    "validate",
    "explain",
    "lineage",
    "plan",
    "topic",
    "run",
    "deploy",
    "dev",
    "serve",
    "status",
    "top",
    "priority",
    "metrics",
    "logs",
    "pause",
    "resume",
    "stop",
    "query",
    "shell",
    "state",
    "subscribe",
    "verify",
    "test",
    "bench",
    "kafka",
)
_MODULES = {"import": "importing"}  # a word of Python's own cannot name a module
REPORT = "this is a bug of FlowQL: please report it with the command, the project and the output of FLOWQL_DEBUG=1"


def build_app(verbs: Sequence[str] = VERBS) -> typer.Typer:
    """The program with these verbs."""
    app = typer.Typer(
        name="flowql",
        help="Streaming SQL: SQL files in, running queries out.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    for verb in verbs:
        module = import_module(f"flowql.cli.{_MODULES.get(verb, verb)}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
        else:
            command: Callable[..., Any] = module.command
            app.command(verb)(command)
    return app


def program(verbs: Sequence[str] = VERBS) -> Any:
    """The program as Click has it, with an example in the help of each command."""
    root: Any = typer.main.get_command(build_app(verbs))
    for path, command in commands_of(root):
        command.help = with_examples(path, inspect.cleandoc(command.help or ""))
    return root


def commands_of(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that can be typed, as (its words, it), in the order of --help."""
    for name, command in group.commands.items():
        path = f"{before} {name}".strip()
        if hasattr(command, "commands"):
            yield from commands_of(command, path)
        else:
            yield path, command


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(metadata.version("flowql"))
        raise typer.Exit


def _common(
    ctx: typer.Context,
    project: ProjectOption = None,
    target: TargetOption = None,
    select: SelectOption = None,
    output: OutputOption = None,
    var: VarOption = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Options given before the verb hold for it, too."""
    ctx.obj = {"project": project, "target": target, "select": select, "output": output, "var": var}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program and exit. Mistakes of the user are shown as diagnostics on stderr, never as a traceback."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        program(_needed(arguments))(arguments, prog_name="flowql")
        code = 0
    except (CompileError, CommandError, RuntimeFailure, BrokenPipeError, KeyboardInterrupt, OSError) as e:
        code = _failed(e)
    except Exception as e:  # the last resort: say what to do instead of a page of frames
        show_failure("FQ5000", f"internal error: {type(e).__name__}: {e}", REPORT)
        if os.environ.get("FLOWQL_DEBUG"):
            traceback.print_exc()
        code = 1
    raise SystemExit(code)


def _needed(arguments: Sequence[str]) -> Sequence[str]:
    """The verb that is asked for, so that the others need not be imported; all of them for help and completion."""
    first = arguments[0] if arguments else ""
    return (first,) if first in VERBS else VERBS


def _failed(e: BaseException) -> int:
    match e:
        case CompileError():
            show_diagnostics(e.diagnostics)
        case CommandError():
            show_diagnostics([e.diagnostic()])
        case RuntimeFailure():
            show_failure(e.code, str(e))
        case KeyboardInterrupt():
            note("interrupted")
            return 130
        case BrokenPipeError():
            # Whoever reads has seen enough; without this the interpreter complains again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        case OSError():
            show_failure("FQ5002", f"{e.filename}: {e.strerror}" if e.filename else str(e))
    return 1
