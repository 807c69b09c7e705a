"""One case: tables, views and changes as a list of statements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Literal

from tests.standard_views.queries import Maker
from tests.standard_views.tables import Relation, Table

CHOICE = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")  # {ours|DuckDB's}: what DuckDB has only in other words
TABLES, VIEWS, CHANGES = (2, 3), (3, 6), (6, 12)


@dataclass(frozen=True, slots=True)
class Step:
    """A statement. sql: of a view its query. reference: the same for DuckDB, if it is another one. name: of the table or view."""

    kind: Literal["table", "view", "change"]
    sql: str
    name: str = ""
    reference: str = ""
    labels: frozenset[str] = frozenset()


def case(seed: int) -> list[Step]:
    """The statements of a seed: tables, then changes, views among them."""
    rng = Random(seed)
    tables = [Table(f"t{i}", rng) for i in range(rng.randint(*TABLES))]
    steps = [Step("table", t.definition(), t.relation.name, t.definition(keyed=False)) for t in tables]
    views = _views(rng, [t.relation for t in tables], rng.randint(*VIEWS))
    early = rng.randint(0, len(views))
    steps += views[:early]
    late = views[early:]
    steps += [Step("change", t.insert(rng.randint(2, 6)), t.relation.name) for t in tables if rng.random() < 0.9]
    count = rng.randint(*CHANGES)
    between = rng.randint(0, count)
    for n in range(count):
        if n == between:
            steps += late[: len(late) // 2]
            late = late[len(late) // 2 :]
        table = rng.choice(tables)
        steps.append(Step("change", table.change(), table.relation.name))
    return steps + late


def _views(rng: Random, relations: list[Relation], count: int) -> list[Step]:
    known = list(relations)
    made: list[Step] = []
    for i in range(count):
        maker = Maker(Random(rng.random()), known)
        query = maker.view()
        name = f"v{i}"
        sql, reference = (CHOICE.sub(rf"\{n}", query.sql) for n in (1, 2))
        made.append(Step("view", sql, name, reference if reference != sql else "", frozenset(maker.labels)))
        view = Relation(name, query.columns, min(query.rows, 60))
        if view.exact and query.rows < 120:
            known.append(view)
    return made
