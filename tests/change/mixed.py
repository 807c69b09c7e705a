"""What runs after a deployment of a part of the files, or without `--prune`: definitions of several projects, side by side.

Each of these projects is one whose end does not depend on the order in which queries get on. Their mixture may not be: a window that is
in no file any more runs on over a stream that gets a row of INSERT VALUES, and which rows are late depends on when that comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flowql.compiler.plan.topology import Plan
from tests.change.project import Alias, Definition, InsertInto, InsertRow, Project, Query, Source, Unfit


class Texts:
    """The definitions of everything that may run."""

    def __init__(self) -> None:
        self._queries: dict[tuple[str, str], Query] = {}  # by id and definition
        self._declared: dict[str, Source | Alias] = {}  # by name, the newest

    def remember(self, project: Project, plan: Plan) -> None:
        """plan: of the project."""
        ids = _ids(project)
        self._queries |= {(q.id, q.definition): ids[q.id] for q in plan.queries}
        self._declared |= {d.name: d for d in project.definitions if isinstance(d, Source | Alias)}

    def fit(self, plan: Plan, partitions: int) -> bool:
        """Whether what runs of this plan comes to the same end in whatever order it gets on."""
        names = {s.name for s in plan.sources}
        declared = [d for d in self._declared.values() if d.name in names]
        queries = [self._queries[q.id, q.definition] for q in plan.queries]
        rows = [InsertRow(f"row {n}", i.target, (), 0) for n, i in enumerate(plan.inserts)]
        try:
            Project(tuple(_in_order([*declared, *queries, *rows])), partitions).relations()
        except Unfit:
            return False
        return True


def _ids(project: Project) -> dict[str, Query]:
    """Queries by the ids that a plan has for them."""
    found: dict[str, Query] = {}
    inserts = Counter[str]()
    for query in project.queries:
        if isinstance(query, InsertInto):
            inserts[query.target] += 1
            found[f"INSERT_{query.target}_{inserts[query.target]}"] = query
        else:
            found |= {f"CSAS_{query.name}": query, f"CTAS_{query.name}": query}
    return found


def _in_order(definitions: Iterable[Definition]) -> list[Definition]:
    """So that each finds what it reads; those that do not find it come last."""
    left, found, known = list(definitions), list[Definition](), set[str]()
    while ready := [d for d in left if known.issuperset(d.reads)]:
        found += ready
        known |= {d.name for d in ready}
        left = [d for d in left if d not in ready]
    return [*found, *left]
