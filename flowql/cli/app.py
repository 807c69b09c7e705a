"""The `flowql` program: its verbs, what holds for all of them, and what it exits with.

Exit codes: 0 done, 1 failed, 2 used wrongly (of `plan`: there are changes), 3 (of `status`) the instance runs and does not answer, 130 interrupted.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from flowql.cli.options import OutputOption, ProjectOption, SelectOption, TargetOption, VarOption
from flowql.cli.render import note, show_diagnostics, show_failure
from flowql.errors import CommandError, CompileError, RuntimeFailure, diagnostics_of

# --- Examples for `--help`, of commands whose own text has none: what to type, and what that does ---

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "validate": (
        ("flowql validate", "this project"),
        ("flowql validate -o json", "for an editor or a build"),
    ),
    "explain": (
        ("flowql explain", "all queries"),
        ("flowql explain LARGE_ORDERS", "one query"),
        ("flowql explain LARGE_ORDERS -t spark", "how each node runs on Spark"),
        ("flowql explain FQ2002", "an error's page"),
    ),
    "compile": (("flowql compile > plan.json", "for both engines"),),
    "run": (
        ("flowql run", "until Ctrl-C"),
        ("flowql run --until-caught-up", "until all existing records are processed"),
        ("flowql run -t spark", "on Spark"),
        ("flowql run -s LARGE_ORDERS", "one query"),
    ),
    "deploy": (
        ("flowql plan", "what would change"),
        ("flowql deploy", "apply it"),
        ("flowql deploy --prune", "also end queries that the project no longer has"),
    ),
    "status": (("flowql status", "one line per query"), ("flowql status -o json", "everything, for programs")),
    "serve": (("flowql serve", "the default target"),),
    "stop": (("flowql stop", "the default target"), ("flowql stop -t kafka", "another target")),
    "state ls": (("flowql state ls", "all stores"),),
    "state scan": (("flowql state scan SPENT_PER_HOUR ada", "one key"),),
    "verify": (("flowql verify --targets default,spark", "the runtime against Spark"),),
    "topic ls": (("flowql topic ls", "the default target"), ("flowql topic ls -t kafka", "another target")),
    "topic create": (("flowql topic create orders --partitions 4", "four partitions"),),
    "topic describe": (("flowql topic describe orders", "partitions, times, queries"),),
    "topic delete": (("flowql topic delete orders", "asks first on a terminal"),),
    "topic produce": (("flowql topic produce orders 'ada:{\"ID\": 6}'", "KEY:VALUE"),),
    "topic consume": (
        ("flowql topic consume orders", "all records"),
        ("flowql topic consume orders | head -3", "the first three"),
    ),
    "app delete": (
        ("flowql app delete -t kafka", "only lists"),
        ("flowql app delete -t kafka --results --yes", "also deletes results"),
    ),
    "app reset": (("flowql app reset", "only lists"), ("flowql app reset --yes", "deletes state and positions")),
    "metrics show": (("flowql metrics show", "the default target"),),
    "metrics names": (("flowql metrics names -o json", "for a program"),),
    "bench nexmark": (
        ("flowql bench nexmark --queries q0,q1 --events 1000000", "two queries"),
        ("flowql bench nexmark --queries all --engine spark", "all, on Spark"),
    ),
    "bench data": (("flowql bench data --parquet events", "into a folder"),),
    "kafka up": (("flowql kafka up", "port 9092, or a free one"), ("flowql kafka up --port 0", "a free one")),
    "kafka down": (("flowql kafka down", "keeps its records"),),
    "kafka status": (("flowql kafka status -o json", "for a program"),),
}


def with_examples(command: str, text: str) -> str:
    """The help of a command: examples at its end, and lines that are to be typed left as they are."""
    blocks = [block for block in text.split("\n\n") if block.strip()]
    given = EXAMPLES.get(command, ())
    width = max((len(typed) for typed, _ in given), default=0)
    if given:
        blocks.append("\n".join(f"{typed:{width}}   {does}" for typed, does in given))
    return "\n\n".join(f"\b\n{block}" if _is_typed(block) else block for block in blocks)


def _is_typed(block: str) -> bool:
    """Whether every line begins with the program's name: help is not to flow it into a paragraph."""
    return all(line.strip().startswith("flowql ") for line in block.splitlines())


# `flowql.cli.<verb>` has `command` (a function) or `app` (a typer.Typer with verbs of its own); a module of several verbs (`_MODULES`) has a function
# for each. Each summary is the first paragraph of the verb's help. It stands here too, so `flowql --help` imports no verb.
VERBS = {
    "init": "Create a small working project.",
    "doctor": "Check the machine, the project and its targets.",
    "validate": "Check the project and show all mistakes.",
    "explain": "Show the plan of queries or statements, or an error's page.",
    "lineage": "Show inputs and dependents of streams and tables.",
    "compile": "Compile the project and print the plan as JSON, for programs.",
    "plan": "Show what `flowql deploy` would change, and change nothing.",
    "run": "Run the project here, until Ctrl-C.",
    "deploy": "Deploy the project to an instance in the background.",
    "dev": "Run the project here, and deploy at every save.",
    "serve": "Run the deployed project, until Ctrl-C.",
    "status": "Show the queries of an instance and their progress.",
    "top": "Show each query's share of the processor, rates and lag.",
    "logs": "Show the instance's log.",
    "pause": "Pause queries; their state and positions are kept.",
    "resume": "Resume paused queries where they stopped.",
    "stop": "Stop the background instance, after a commit.",
    "backup": "Copy the log and state of a target as of one commit.",
    "restore": "Replace the data of a stopped target with its newest backup.",
    "query": "Query tables and internal stores with SQL.",
    "exec": "Insert, update and delete rows of tables.",
    "shell": "Query, subscribe and describe in an interactive SQL shell.",
    "subscribe": "Print new rows of a stream or changes of a table.",
    "backfill": "Compute history on Spark, then continue on the runtime.",
    "verify": "Compare the results of targets over the same input.",
    "test": "Run the tests in folder `tests`, in memory, in milliseconds.",
    "diff": "Compare a serving result with its new generation.",
    "promote": "Swap in the generation built by `deploy --shadow`.",
    "abandon": "Drop a new generation; the serving one continues.",
    "deployments": "Show recent deployments: when, what changed, and the outcome.",
    "import": "Load files into tables, and import SQL of other systems.",
    "export": "Export projects for other systems.",
    "app": "Delete or reset an application's data.",
    "spark": "Package a project for a Spark cluster, and submit it.",
    "topic": "Topics and their records.",
    "dlq": "List, repair and replay dead letters.",
    "log": "The embedded log and its files.",
    "priority": "Show and change how queries share the processor.",
    "metrics": "Metrics for Prometheus, and a dashboard for Grafana.",
    "state": "Read the state stores of queries.",
    "bench": "Measure this machine.",
    "kafka": "A local Kafka broker for trials.",
}
UNTIL_STOPPED = frozenset({"serve", "run"})  # they run an instance, which a watchdog looks after
_MODULES = {
    "import": "importing",  # a word of Python's own cannot name a module, and `app` is the program
    "app": "application",
    "compile": "validate",
    "restore": "backup",
    "serve": "run",
    **dict.fromkeys(("pause", "resume", "stop", "diff", "promote", "abandon"), "control"),
}
_CONTENTS: tuple[list[str], ...] = ([], ["-h"], ["--help"], ["--version"])  # what is answered without any verb
REPORT = "this is a bug of FlowQL: please report it with the command, the project and the output of FLOWQL_DEBUG=1"


def build_app(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The program with these verbs."""
    app = _without_verbs()
    for verb in verbs:
        module = import_module(f"flowql.cli.{_MODULES.get(verb, verb)}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb)
        else:
            app.command(verb, cls=getattr(module, "Command", None))(
                getattr(module, "command", None) or getattr(module, verb)
            )
    return app


def contents() -> Any:
    """The program as `--help` shows it: every verb, and none of them loaded."""
    app = _without_verbs()
    for verb, summary in VERBS.items():
        app.command(verb, help=summary)(_not_loaded)
    return typer.main.get_command(app)


def _not_loaded() -> None:
    raise AssertionError("the contents are to be read")


def _without_verbs() -> typer.Typer:
    app = typer.Typer(
        name="flowql",
        help="Streaming SQL: SQL files in, running queries out.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_common)
    return app


def program(verbs: Iterable[str] = VERBS) -> Any:
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
        from importlib import metadata  # with the mail parser and zip files: 0.02 s

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
    if arguments is None and not UNTIL_STOPPED.isdisjoint(sys.argv[1:]):
        from flowql.server.supervised import become_supervised

        become_supervised(next((a for a in sys.argv[1:] if a in VERBS), ""), sys.argv[1:])
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        wanted = contents() if _only_contents(arguments) else program(_needed(arguments))
        wanted(arguments, prog_name="flowql")
        code = 0
    except (CompileError, CommandError, RuntimeFailure, BrokenPipeError, KeyboardInterrupt, OSError) as e:
        code = _failed(e)
    except Exception as e:  # the last resort: say what to do instead of a page of frames
        show_failure("FQ5000", f"internal error: {type(e).__name__}: {e}", REPORT)
        if os.environ.get("FLOWQL_DEBUG"):
            traceback.print_exc()
        code = 1
    raise SystemExit(code)


def _only_contents(arguments: Sequence[str]) -> bool:
    return arguments in _CONTENTS and not any(name.endswith("_COMPLETE") for name in os.environ)


def _needed(arguments: Sequence[str]) -> Iterable[str]:
    """The verb that is asked for, so that the others need not be imported; all of them where the verb comes later."""
    first = arguments[0] if arguments else ""
    return (first,) if first in VERBS else VERBS


def _failed(e: BaseException) -> int:
    match e:
        case CompileError() | CommandError() | RuntimeFailure():
            show_diagnostics(diagnostics_of(e))
        case KeyboardInterrupt():
            note("interrupted")
            return 130
        case BrokenPipeError():
            # The reader has closed the pipe; without this the interpreter complains again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        case OSError():
            show_failure("FQ5002", f"{e.filename}: {e.strerror}" if e.filename else str(e))
    return 1
