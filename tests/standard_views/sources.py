"""Random FROM clauses: tables, views and derived tables, and their joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.standard_views.expressions import ORDERED, Ref
from tests.standard_views.tables import Column, Relation

if TYPE_CHECKING:
    from tests.standard_views.queries import Maker

SIZE_MAX = 900.0
BESIDE_MAX = 40.0  # rows that may each have rows of their own beside them


@dataclass(frozen=True, slots=True)
class Source:
    """What stands behind FROM. rows: about how many. star: the columns of `*`, if their names differ.

    where: conditions that tie relations with commas between them; None if there are no commas.
    """

    sql: str
    scope: tuple[Ref, ...]
    rows: float
    star: tuple[Column, ...] | None = None
    where: tuple[str, ...] | None = None


def shown(alias: str, columns: Sequence[Column]) -> tuple[Ref, ...]:
    """Columns as expressions may name them."""
    return tuple(Ref(f"{alias}.{c.name}", c.type, c.name, alias) for c in columns)


class Sources:
    def __init__(self, maker: Maker) -> None:
        self._maker, self._rng = maker, maker.rng

    def source(self, depth: int) -> Source:
        """One relation, or a join of up to four."""
        rng, labels = self._rng, self._maker.labels
        made = self._single(depth)
        joins = rng.choices((0, 1, 2, 3, 4), (10, 9, 2.2, 0.8, 0.6))[0]
        for n in range(joins):
            made = self._joined(made, depth)
            if n == 2:
                labels.add("four relations")
        return made

    def single(self) -> Source:
        """One relation by its name."""
        return self._of(self._rng.choice(self._maker.relations))

    def _single(self, depth: int) -> Source:
        rng, maker = self._rng, self._maker
        if depth > 0 and rng.random() < 0.09:
            return self._values()
        if depth > 0 and rng.random() < 0.22:
            maker.labels.add("derived table")
            query = maker.query(depth - 1, exact=True)
            alias, columns, names = maker.alias("q"), query.columns, ""
            if rng.random() < 0.2:
                columns = tuple(Column(f"{maker.rng.choice('abxyz')}{i}", c.type) for i, c in enumerate(columns))
                names = f" ({', '.join(c.name for c in columns)})"
            return Source(f"({query.sql}) AS {alias}{names}", shown(alias, columns), query.rows, columns)
        return self.single()

    def _of(self, relation: Relation) -> Source:
        maker = self._maker
        alias = maker.alias()
        if not relation.is_table:
            maker.labels.add("common table" if relation.name.startswith("cte") else "view on view")
        return Source(
            f"{relation.name} {self._rng.choice(('', 'AS '))}{alias}",
            shown(alias, relation.columns),
            relation.rows,
            relation.columns,
        )

    def _values(self) -> Source:
        """Rows that are in no table."""
        rng, alias = self._rng, self._maker.alias("v")
        self._maker.labels.add("values")
        types = [rng.choice(("int", "bigint", "text", "date")) for _ in range(rng.randint(1, 3))]
        rows = [f"({', '.join(self._maker.exprs.constant(t) for t in types)})" for _ in range(rng.randint(1, 4))]
        columns = tuple(Column(f"x{i}", t) for i, t in enumerate(types))
        names = ", ".join(c.name for c in columns)
        return Source(f"(VALUES {', '.join(rows)}) AS {alias}({names})", shown(alias, columns), len(rows), columns)

    def _beside(self, left: Source) -> Source:
        """Each row of the left with rows that depend on it: of a lateral query or of a function."""
        rng = self._rng
        outer = tuple(r for r in left.scope if r.alias)
        kind = rng.choice(("lateral", "lateral", "lateral", "unnest", "unnest", "generate_series", "generate_series"))
        self._maker.labels.add(kind)
        if kind == "lateral":
            text, scope, rows = self._maker.subqueries.lateral(outer)
        else:
            text, scope, rows = self._function(kind, outer)
        scope, rows = (*left.scope, *scope), left.rows * rows
        if left.where is not None:
            return Source(f"{left.sql}, {text}", scope, rows, where=left.where)
        words = (("CROSS JOIN", ""), ("LEFT JOIN", " ON TRUE"), ("JOIN", " ON TRUE"))
        word, on = rng.choice(words)
        if word == "LEFT JOIN" and kind != "lateral" and rng.random() < 0.3:
            on = f" ON {self._maker.exprs.condition(scope, 1)}"
        return Source(f"{left.sql} {word} {text}{on}", scope, rows)

    def _function(self, kind: str, outer: Sequence[Ref]) -> tuple[str, tuple[Ref, ...], float]:
        rng, exprs, alias = self._rng, self._maker.exprs, self._maker.alias("f")
        if kind == "generate_series":
            number = exprs.value(outer, "int", 1)
            call = (
                f"generate_series({rng.choice(('0', '1'))}, LEAST(GREATEST({number}, 0), 3){rng.choice(('', ', 2'))})"
            )
            return f"{call} AS {alias}(x)", shown(alias, (Column("x", "int"),)), 2
        type_ = rng.choice(("int", "text", "bigint"))
        array = f"ARRAY[{', '.join(exprs.value(outer, type_, 1) for _ in range(rng.randint(1, 3)))}]"
        if rng.random() < 0.4:
            array = f"CASE WHEN {exprs.condition(outer, 1)} THEN {array} END"
        columns = (Column("x", type_), Column("n", "bigint"))
        if rng.random() < 0.5:
            return f"UNNEST({array}) WITH ORDINALITY AS {alias}(x, n)", shown(alias, columns), 2
        return f"UNNEST({array}) AS {alias}(x)", shown(alias, columns[:1]), 2

    def _joined(self, left: Source, depth: int) -> Source:
        rng, maker = self._rng, self._maker
        if depth > 0 and left.rows < BESIDE_MAX and rng.random() < 0.42 and any(r.alias for r in left.scope):
            return self._beside(left)
        if rng.random() < 0.34:
            made = self._by_names(left)
            if made is not None:
                return made
        own = [r for r in maker.relations if f"{r.name} " in left.sql.split("(")[0]]
        if rng.random() < 0.12 and own:
            maker.labels.add("self join")
            right = self._of(own[0])
        else:
            right = self._single(depth - 1)
        kind = rng.choices(("inner", "left", "right", "full", "cross", "comma", "non-equi"), (3, 3, 2, 2, 1.2, 2, 1.6))[
            0
        ]
        if left.where is not None:
            kind = "comma"  # a JOIN would bind first
        if kind in ("cross", "non-equi") and left.rows * right.rows > SIZE_MAX:
            kind = "inner"
        named = {c.name for c in right.scope}  # a name alone would be ambiguous
        scope = (*(r for r in left.scope if r.alias or r.name not in named), *right.scope)
        pairs = self._pairs(left, right)
        if not pairs:
            return left
        on = self._condition(pairs, scope)
        rows = max(left.rows, right.rows) * 1.5
        maker.labels.add(f"{kind} join")
        match kind:
            case "cross":
                return Source(f"{left.sql} CROSS JOIN {right.sql}", scope, left.rows * right.rows)
            case "comma":
                tied = left.rows * right.rows > SIZE_MAX or rng.random() < 0.7
                where = (*(left.where or ()), *((on,) if tied else ()))
                rows = rows if tied else left.rows * right.rows
                return Source(f"{left.sql}, {right.sql}", scope, rows, where=where)
            case "non-equi":
                a, b = rng.choice(pairs)
                on = f"{a} {rng.choice(('<', '<=', '>', '<>'))} {b}"
                if rng.random() < 0.3:
                    on += f" AND {maker.exprs.condition(scope, 0)}"
                word = rng.choice(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN"))
                return Source(f"{left.sql} {word} {right.sql} ON {on}", scope, left.rows * right.rows / 2)
        word = {"inner": rng.choice(("JOIN", "INNER JOIN"))}.get(
            kind, rng.choice((kind.upper(), f"{kind.upper()} OUTER")) + " JOIN"
        )
        return Source(f"{left.sql} {word} {right.sql} ON {on}", scope, rows)

    def _pairs(self, left: Source, right: Source) -> list[tuple[str, str]]:
        """Columns of both sides that may be compared; those of the same name first."""
        numbers = ("int", "bigint")
        found = [
            (a.text, b.text)
            for a in left.scope
            if a.alias
            for b in right.scope
            if a.type == b.type or (a.type in numbers and b.type in numbers)
            if a.type in ORDERED
        ]
        return found[:6]

    def _condition(self, pairs: Sequence[tuple[str, str]], scope: Sequence[Ref]) -> str:
        rng = self._rng
        chosen = rng.sample(list(pairs), min(len(pairs), rng.choice((1, 1, 1, 2))))
        op = "IS NOT DISTINCT FROM" if rng.random() < 0.07 else "="
        parts = [f"{a} {op} {b}" if rng.random() < 0.7 else f"{b} {op} {a}" for a, b in chosen]
        if rng.random() < 0.3:
            self._maker.labels.add("condition in ON")
            parts.append(self._maker.exprs.condition(scope, 1))
        return " AND ".join(parts)

    def _some_columns(
        self, relation: Relation, common: list[str], types: Mapping[str, str]
    ) -> tuple[Relation, list[str]]:
        """A query of the relation that has a column or two in common, and these."""
        names = self._rng.sample(common, min(len(common), self._rng.choice((1, 2))))
        columns = [c for c in relation.columns if c.name in names or c.name not in types]
        text = f"(SELECT {', '.join(c.name for c in columns)} FROM {relation.name})"
        return replace(relation, name=text, columns=tuple(columns)), [c.name for c in columns if c.name in names]

    def _by_names(self, left: Source) -> Source | None:
        """A join with USING or NATURAL of a single relation; the columns in common have a name alone."""
        rng, maker = self._rng, self._maker
        if left.star is None or "(" in left.sql:
            return None
        relation = rng.choice(maker.relations)
        types = {c.name: c.type for c in left.star}
        common = [c.name for c in relation.columns if types.get(c.name) == c.type and c.type in ORDERED]
        others = [c.name for c in relation.columns if c.name in types and c.name not in common]
        if not common:
            return None
        kind = rng.choice(("", "INNER ", "LEFT ", "RIGHT ", "FULL "))
        natural = rng.random() < 0.5
        if natural and (len(common) > 2 or others):  # of some columns, so that few have one name
            relation, common = self._some_columns(relation, common, types)
            others = []
        right = self._of(relation)
        if natural and len(common) <= 2 and not others:
            names = common
            sql = f"{left.sql} NATURAL {kind}JOIN {right.sql}"
            maker.labels.add("natural join")
        else:
            names = rng.sample(common, min(len(common), rng.choice((1, 1, 2))))
            sql = f"{left.sql} {kind}JOIN {right.sql} USING ({', '.join(names)})"
            maker.labels.add("using join")
        merged = tuple(Ref(n, types[n], n) for n in names)
        return Source(sql, (*merged, *left.scope, *right.scope), max(left.rows, right.rows) * 1.5)
