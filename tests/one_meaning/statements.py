"""A batch: tables, their rows, and statements that all ways are asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.one_meaning.expressions import WideExpressions
from tests.one_meaning.tables import LooseTable, SumsTable, WideTable, cast_back
from tests.standard_views.case import CHOICE
from tests.standard_views.queries import Maker, Query, listed
from tests.standard_views.sources import Source
from tests.standard_views.tables import Relation

TABLES = (2, 3)
ROWS = (6, 14)
LOOSE, SUMS = (
    "loose",
    "sums",
)  # the tables whose rows are written with values of other types, and whose sums depend on the order
_SUMMED = ("AVG(id)", "SUM(x)", "AVG(x)", "SUM(x) FILTER (WHERE id < 2)", "SUM(x + 1)", "SUM(DISTINCT x)")
_HALVES = "ROUND(x / 2) AS o0, (id / -2) AS o1"  # between two whole numbers: other statements rarely come there
_OVER = ("PARTITION BY g", "", "ORDER BY ts", "PARTITION BY g ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW")


@dataclass(frozen=True, slots=True)
class Statement:
    """text: with `{here|elsewhere}` where systems, or streams and tables, have other words. labels: the clauses in it."""

    text: str
    labels: frozenset[str] = frozenset()

    @property
    def over_tables(self) -> str:
        return CHOICE.sub(r"\1", self.text)

    @property
    def for_postgres(self) -> str:
        """A query with CORRESPONDING has its columns in one order on both sides."""
        return CHOICE.sub(lambda m: "" if m[1].lower() == "corresponding" else m[1], self.text)

    def over(self, prefix: str, relations: tuple[Relation, ...]) -> str:
        """The statement over streams of that prefix, which have no key that others would depend on."""
        text = CHOICE.sub(lambda m: m[1] or m[2], self.text)
        return _over(text, prefix, relations)


def _over(text: str, prefix: str, relations: tuple[Relation, ...]) -> str:
    for r in relations:
        text = re.sub(rf"\b{r.name}\b", cast_back(prefix + r.name, r.columns), text)
    return text


@dataclass(frozen=True, slots=True)
class Batch:
    """tables: with their next changes. rows: of each table, as literals."""

    seed: int
    tables: tuple[WideTable, ...]
    rows: tuple[list[tuple[str, ...]], ...]
    statements: tuple[Statement, ...]

    def inserts(self, i: int) -> Iterator[str]:
        """What writes the rows of a table; those with values of other types one by one, as several have one type in PostgreSQL."""
        table, rows = self.tables[i].relation, self.rows[i]
        names = ", ".join(c.name for c in table.columns)
        for part in [[r] for r in rows] if table.name == LOOSE else [rows]:
            yield f"INSERT INTO {table.name} ({names}) VALUES {', '.join(f'({chr(44).join(r)})' for r in part)}"

    @property
    def relations(self) -> tuple[Relation, ...]:
        return tuple(t.relation for t in self.tables)


def batch(seed: int, count: int) -> Batch:
    """So many statements over the tables of a seed."""
    rng = Random(f"tables {seed}")
    tables = tuple(WideTable(f"t{i}", rng) for i in range(rng.randint(*TABLES)))
    relations, loose = [t.relation for t in tables], LooseTable(LOOSE, rng)
    tables = (*tables, loose, SumsTable(SUMS, rng))
    rows = tuple(t.rows(rng.randint(*ROWS)) for t in tables)
    written = Statement(
        f"SELECT {', '.join(c.name for c in loose.relation.columns)} FROM {LOOSE}", frozenset({"assignment"})
    )
    made = (_statement(f"{seed} {n}", relations) for n in range(2, count))
    return Batch(seed, tables, rows, (written, Statement(_summed(rng), frozenset({"sums of doubles"})), *made))


def _summed(rng: Random) -> str:
    calls, keys, kind = rng.sample(_SUMMED, 3), rng.choice(("g", "")), rng.random()
    if kind > 0.6:
        return f"SELECT g, {_HALVES} FROM {SUMS}"
    if kind < 0.3:
        over = (f"{rng.choice(('SUM', 'AVG'))}(x) OVER ({rng.choice(_OVER)}) AS o{n}" for n in range(2))
        return f"SELECT g, ts, {', '.join(over)} FROM {SUMS}"
    items = ", ".join(f"{call} AS o{n}" for n, call in enumerate(calls))
    return f"SELECT {keys}, {items} FROM {SUMS} GROUP BY {keys}" if keys else f"SELECT {items} FROM {SUMS}"


def _statement(seed: str, relations: list[Relation]) -> Statement:
    rng, labels = Random(f"statement {seed}"), set[str]()
    maker = _Maker(rng, relations, WideExpressions(rng, labels))
    text = (maker.values() if rng.random() < 0.35 else maker.view()).sql
    return Statement(text, frozenset(maker.labels | labels))


class _Maker(Maker):
    """Fewer conditions than a view has whose rows come and go: an empty result shows no difference."""

    def values(self) -> Query:
        """Many values of one relation."""
        self.labels.add("values of rows")
        source = self.sources.source(0) if self.rng.random() < 0.3 else self.sources.single()
        items = [self.exprs.any_value(source.scope, 3) for _ in range(self.rng.randint(4, 8))]
        text, columns = listed(items)
        return Query(f"SELECT {text} FROM {source.sql}", columns, source.rows)

    def _where(self, source: Source, depth: int) -> str:
        rng = self.rng
        parts = list(source.where or ())
        if rng.random() < 0.25:
            self.labels.add("where")
            parts.append(self.exprs.condition(source.scope, 1))
        if depth > 0 and rng.random() < 0.35:
            parts.append(self.subqueries.condition(source.scope))
        return f" WHERE {' AND '.join(parts)}" if parts else ""
