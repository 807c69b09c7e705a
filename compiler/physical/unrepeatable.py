"""Functions that give another value each time: where a value has to be the same again, they are refused.

A record may be processed again after a failure, and must then have the key that it had. The old row of a table is computed again to take it out of
what was made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.relations.records import only_adds
from flowql.compiler.functions.registry import lookup
from flowql.compiler.functions.user import is_users, plain_name
from flowql.compiler.plan.expr import Call, Expr, walk
from flowql.compiler.plan.logical import Node, Project, Rekey, walk_nodes
from flowql.compiler.plan.visit import calls_in, exprs_of, functions_called, substitute

_HELP = "store the value: a column of a stream is computed once"


def unrepeatable_calls(root: Node) -> tuple[str, ...]:
    """Functions that a plan calls and that give other values each time."""
    found = {call.name for call in calls_in(root) if _gives_others(call)}
    return _plain({*found, *filter(is_users, _varying(root))})


def checked_unrepeatable(root: Node) -> tuple[str, ...]:
    """As `unrepeatable_calls`, without functions that are built in. Raises CompileError for a call in a key, or over rows that are computed
    again.
    """
    varying = _varying(root)
    if varying:
        _refuse(root)
    return _plain(filter(is_users, varying))


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(map(plain_name, names)))


def _varying(root: Node) -> set[str]:
    return {name for name in functions_called(root) if _varies(name)}


def _refuse(root: Node) -> None:
    for node in walk_nodes(root):
        is_key = isinstance(node.spec, Rekey)
        calls = [
            c
            for e in (_keys(node) if is_key else exprs_of(node.spec))
            for c in walk(e)
            if isinstance(c, Call) and _gives_others(c)
        ]
        if not calls:
            continue
        name = f"{plain_name(calls[0].name).removeprefix('sql_').upper()}, which gives another value each time"
        if is_key:
            why = (
                "a record that is processed again after a failure would have another key, and its results another place"
            )
            raise mistake(
                "FQ2027", f"the key is computed by {name}", calls[0].span, "another each time", why=why, help=_HELP
            )
        if any(i.change == "retract" and not only_adds(i) for i in node.inputs):
            why = "when a row of a table changes or goes, its old value is computed again to take it out of the results"
            title = f"a value of a table is computed by {name}"
            raise mistake("FQ2027", title, calls[0].span, "another each time", why=why, help=_HELP)


def _keys(node: Node) -> Sequence[Expr]:
    """The expressions of a new key, over the columns that are below all projections."""
    exprs, below = exprs_of(node.spec), node.inputs[0]
    while isinstance(below.spec, Project):
        made = {c.name: c.expr for c in below.spec.columns}
        exprs, below = tuple(substitute(e, made) for e in exprs), below.inputs[0]
    return exprs


def _gives_others(call: Call) -> bool:
    """Whether it gives another value each time. With arguments, UNIX_TIMESTAMP and its like are of these alone."""
    return (is_users(call.name) or not call.args) and _varies(call.name)


def _varies(name: str) -> bool:
    function = lookup(name)
    return function is not None and not function.deterministic
