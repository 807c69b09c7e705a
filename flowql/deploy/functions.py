"""Functions of the project, in the process that runs its queries."""

from __future__ import annotations

from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.user import is_users, module_name, plain_name
from flowql.compiler.plan.expr import Call, walk
from flowql.compiler.plan.logical import walk_nodes
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.visit import exprs_of
from flowql.config.functions import LoadError
from flowql.config.modules import Modules
from flowql.errors import CommandError

CODE = "FQ3012"


def functions_of(plan: Plan) -> set[str]:
    """The versions of functions of the project that a plan calls."""
    exprs = (e for q in plan.queries for n in walk_nodes(q.logical) for spec in exprs_of(n.spec) for e in walk(spec))
    return {e.name for e in exprs if isinstance(e, Call) and is_users(e.name)}


def register_functions(modules: Modules) -> str:
    """Before queries start: why not all are here, or nothing. Queries that call one that is not here fail and say so; others run."""
    try:
        modules.register()
    except LoadError as error:
        return f"{error.module}: {error}"
    return ""


def check_functions(plan: Plan, root: str) -> None:
    """Have what a plan calls ready. root: the project's folder. Raises CommandError where modules have another version of it here, or none."""
    wanted = functions_of(plan)
    if all(lookup(name) is not None for name in wanted):
        return
    try:
        Modules(root, tuple(sorted({module_name(name) for name in wanted}))).register()
    except LoadError as error:
        raise CommandError(f"{error.module}: {error}", code=CODE, help=error.hint) from error
    missing = sorted(plain_name(name) for name in wanted if lookup(name) is None)
    if missing:
        title = f"the instance has another version of {', '.join(missing)} than this project"
        help_ = "deploy again if the module was just edited; on another machine, bring the same files there"
        raise CommandError(title, code=CODE, help=help_)
