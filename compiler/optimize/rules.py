"""The rules in their order, and the driver that applies them."""

from __future__ import annotations

from collections.abc import Callable

from flowql.compiler.optimize.close_groups import close_groups
from flowql.compiler.optimize.drop_rekey import drop_rekey
from flowql.compiler.optimize.fold_constants import fold_constants
from flowql.compiler.optimize.fold_groups import fold_groups
from flowql.compiler.optimize.fold_sessions import fold_sessions
from flowql.compiler.optimize.mark_appends import mark_appends
from flowql.compiler.optimize.merge_projects import merge_projects
from flowql.compiler.optimize.prune_columns import prune_columns
from flowql.compiler.optimize.push_filter import push_filter
from flowql.compiler.optimize.push_into_changes import push_into_changes
from flowql.compiler.plan.logical import Node
from flowql.compiler.plan.verify import PlanInvariantError

Rule = Callable[[Node], Node]
RULES: tuple[Rule, ...] = (
    fold_constants,
    push_filter,
    push_into_changes,
    fold_sessions,
    close_groups,
    fold_groups,
    merge_projects,
    drop_rekey,
    prune_columns,
    mark_appends,
)


def optimise(node: Node, *, rules: tuple[Rule, ...] = RULES) -> list[tuple[str, Node]]:
    """Applies every rule once. Returns the names of the rules that changed something, each with the node after it.

    Raises PlanInvariantError when a rule changed the output schema: a bug of the rule, never of the user.
    """
    steps: list[tuple[str, Node]] = []
    for rule in rules:
        after = rule(node)
        if after.schema != node.schema or after.change != node.change:
            raise PlanInvariantError(f"rule {rule.__name__} changed the output from {node.schema} to {after.schema}")
        if after != node:
            steps.append((rule.__name__, after))
        node = after
    return steps
