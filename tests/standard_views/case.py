"""One case: tables, views and changes as a list of statements."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from tests.standard_views.queries import Maker
from tests.standard_views.tables import SQL_TYPES, Column, Relation, Table, literal

CHOICE = re.compile(r"\{([^{}|]*)\|([^{}|]*)\}")  # {ours|DuckDB's}: what DuckDB has only in other words
# What no edit touches; a place in an ORDER BY is one, as rows that are equal in the others would be in no order.
HELD = re.compile(r"'[^']*'|\{[^{}]*\}|\b\d+(?= (?:ASC |DESC )?NULLS )")
EDITS = (
    (r"(?<![\w.(-])\d+(?![\w.])", ("0", "1", "2", "3", "7")),
    (r"(?<= )(=|<>|<|>|<=|>=)(?= )", ("=", "<>", "<", ">", "<=", ">=")),
    (r"\b(SUM|MIN|MAX|AVG)(?=\()", ("SUM", "MIN", "MAX", "AVG")),
    (r"\bCOUNT\((?=\w)", ("COUNT(DISTINCT ", "MIN(", "MAX(")),
    (r"\b(ROW_NUMBER|RANK|DENSE_RANK)(?=\(\))", ("ROW_NUMBER", "RANK", "DENSE_RANK")),
    (r"\b(INNER|LEFT|RIGHT|FULL)(?= JOIN)", ("INNER", "LEFT", "RIGHT", "FULL")),
    (
        r"\b(UNION|INTERSECT|EXCEPT)( ALL)?(?= )",
        ("UNION", "UNION ALL", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"),
    ),
    (r"\bAND\b(?! (ROW|CURRENT|UNBOUNDED|\d|TIMESTAMP))", ("OR", "AND NOT")),
    (r"\b(NOT )?(EXISTS|IN)(?= \()", ("EXISTS", "NOT EXISTS", "IN", "NOT IN")),
    (r"\bDESC\b", ("ASC",)),
    (r"^SELECT (?!DISTINCT)", ("SELECT DISTINCT ",)),
)
TABLES, VIEWS, CHANGES = (2, 3), (3, 6), (6, 12)


@dataclass(frozen=True, slots=True)
class Step:
    """A statement. sql: of a view its query. reference: the same for DuckDB, if it is another one. name: of the table or view.
    text: of a view, both of its queries in one.

    An edit gives a view another query, or drops it (no query): the project is deployed again as a whole.
    """

    kind: Literal["table", "view", "change", "edit"]
    sql: str
    name: str = ""
    reference: str = ""
    labels: frozenset[str] = frozenset()
    text: str = ""


def case(seed: int, *, edits: bool = False) -> list[Step]:
    """The statements of a seed: tables, then changes, views among them; with `edits` those of the same seed, and views that are edited."""
    rng, kinds = Random(seed), Random(f"tables {seed}")
    appending = kinds.choice((0.0, 0.0, 0.4, 1.0))
    tables = [Table(f"t{i}", rng, appends=kinds.random() < appending) for i in range(rng.randint(*TABLES))]
    steps = [Step("table", t.definition(), t.relation.name, t.definition(promised=False)) for t in tables]
    made, constant = _without_table(Random(f"no table {seed}"))
    views = made + _views(rng, [*(t.relation for t in tables), *constant], rng.randint(*VIEWS))
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
    steps += late
    return _with_edits(steps, Random(f"edits {seed}")) if edits else steps


def _without_table(rng: Random) -> tuple[list[Step], list[Relation]]:
    """In a quarter of the cases a view that reads no table, whose rows the other views may read beside those of tables."""
    if rng.random() < 0.75:
        return [], []
    types = ("int", "text", "bigint")
    rows = [
        tuple(literal(rng, t, 4) if rng.random() < 0.9 else f"CAST(NULL AS {SQL_TYPES[t]})" for t in types)
        for _ in range(4)
    ]
    listed = ", ".join(f"({', '.join(r)})" for r in rows)
    series = f"generate_series({rng.randint(-2, 1)}, {rng.randint(1, 5)})"
    query = rng.choice(
        (
            f"SELECT a, c, CAST(b AS BIGINT) AS b FROM (VALUES {listed}) AS t (a, c, b)",
            f"SELECT DISTINCT a, c, CAST(b AS BIGINT) AS b FROM (VALUES {listed}) AS t (a, c, b) WHERE a > 0",
            f"SELECT CAST(n AS INT) AS a, 'a' AS c, CAST(n * n AS BIGINT) AS b FROM {series} AS g (n)",
            "SELECT 1 AS a, 'ab' AS c, CAST(NULL AS BIGINT) AS b",
        )
    )
    view = _view("v_constant", query, frozenset({"no table"}))
    return [view], [Relation("v_constant", tuple(map(Column, "acb", types)), 4)]


def _with_edits(steps: list[Step], rng: Random) -> list[Step]:
    views: dict[str, Step] = {}
    made: list[Step] = []
    for step in steps:
        made.append(step)
        if step.kind == "view":
            views[step.name] = step
        elif step.kind == "change" and views and rng.random() < 0.6:
            edit = edited(rng.choice(list(views.values())), rng)
            views[edit.name] = edit
            made.append(edit)
    return made


def edited(view: Step, rng: Random) -> Step:
    """The view with another query, mostly of the same columns. Now and then it is dropped, and comes back with the next edit."""
    if not view.sql:
        return replace(_view(view.name, view.text, view.labels), kind="edit")
    if rng.random() < 0.1:
        return replace(view, kind="edit", sql="", reference="")
    return replace(_view(view.name, _changed(view.text, rng), view.labels), kind="edit")


def _changed(text: str, rng: Random) -> str:
    """One number, operator, function or word is another one."""
    plain = HELD.sub(lambda m: "#" * len(m[0]), text)
    found = [(m, words) for pattern, words in EDITS for m in re.finditer(pattern, plain)]
    if not found:
        return text
    match, words = rng.choice(found)
    return text[: match.start()] + rng.choice(words) + text[match.end() :]


def _view(name: str, text: str, labels: frozenset[str]) -> Step:
    sql, reference = (CHOICE.sub(rf"\{n}", text) for n in (1, 2))
    return Step("view", sql, name, reference if reference != sql else "", labels, text)


def _views(rng: Random, relations: list[Relation], count: int) -> list[Step]:
    known = list(relations)
    made: list[Step] = []
    for i in range(count):
        maker = Maker(Random(rng.random()), known)
        query = maker.view()
        name = f"v{i}"
        made.append(_view(name, query.sql, frozenset(maker.labels)))
        view = Relation(name, query.columns, min(query.rows, 60))
        if view.exact and query.rows < 120:
            known.append(view)
    return made
