"""Functions of the project, in the process that runs its queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from flowql.compiler.functions.registry import register_of_project, registered_of_project
from flowql.compiler.functions.user import Entry, is_users, module_name, plain_name
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.visit import functions_called
from flowql.config.functions import LoadError, load_functions, load_query_functions
from flowql.config.load import load_project
from flowql.config.reader import texts_under
from flowql.errors import CommandError, ProjectError
from flowql.runtime.events import WARNING, say
from flowql.runtime.functions.interactive import InteractiveFunction

CODE = "FQ3012"


_last: tuple[Plan, frozenset[str]] | None = None  # what `functions_of` said: status asks it again and again of one plan


def functions_of(plan: Plan) -> frozenset[str]:
    """The versions of functions of the project that a plan calls."""
    global _last
    last = _last
    if last is None or last[0] is not plan:
        found = frozenset(name for q in plan.queries for name in functions_called(q.logical) if is_users(name))
        last = _last = plan, found
    return last[1]


def find_function(root: str, name: str) -> None:
    """Registers it, and all others of its module, as they are there now. root: the project's folder. name: as in plans."""
    try:
        _register(root, {module_name(name)})
    except LoadError as error:
        say(WARNING, "functions.failed", f"{error.module}: {error}")


def check_functions(plan: Plan, root: str) -> None:
    """Have what a plan calls ready. root: the project's folder. Raises CommandError where modules have another version of it here, or none."""
    wanted = functions_of(plan)
    if all(map(registered_of_project, wanted)):
        return
    try:
        _register(root, {module_name(name) for name in wanted})
    except LoadError as error:
        raise CommandError(f"{error.module}: {error}", code=CODE, help=error.hint) from error
    missing = sorted(plain_name(name) for name in wanted if not registered_of_project(name))
    if missing:
        title = f"the instance has another version of {', '.join(missing)} than this project"
        help_ = "deploy again if the module was just edited; for a rollback, or on another machine, bring the files of that version there"
        raise CommandError(title, code=CODE, help=help_)


def functions_to_compile(root: str) -> Mapping[str, Entry]:
    """Functions that push queries can call, from the present files of the project. Raises CommandError."""
    try:
        modules = _modules(root)
        return load_functions(Path(root), modules) if modules else {}
    except LoadError as error:
        raise CommandError(f"{error.module}: {error}", code=CODE, help=error.hint) from error


def interactive_functions(root: str) -> Mapping[str, InteractiveFunction]:
    """Functions as interactive queries call them, from the present files of the project, by their names in SQL. Raises CommandError."""
    try:
        return load_query_functions(Path(root), _modules(root))
    except LoadError as error:
        raise CommandError(f"{error.module}: {error}", code=CODE, help=error.hint) from error


def _modules(root: str) -> list[str]:
    """Those that flowql.yaml names: also where only a deployment knows its variables, or its other files are being edited."""
    try:
        return list(load_project(Path(root)).modules)
    except ProjectError:
        with suppress(OSError):
            return texts_under((Path(root) / "flowql.yaml").read_text(), "functions")
        return []


def _register(root: str, modules: Collection[str]) -> None:
    for function in load_functions(Path(root), sorted(modules)).values():
        register_of_project(function)
