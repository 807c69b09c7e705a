"""Random queries over relations, as SQL text: what stands around a SELECT, and its kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.standard_views.aggregates import aggregate
from tests.standard_views.expressions import ORDERED, Expressions, Ref
from tests.standard_views.sources import Source, Sources, shown
from tests.standard_views.subqueries import Subqueries
from tests.standard_views.tables import Column, Relation
from tests.standard_views.windows import window_call

Labels = set[str]


@dataclass(frozen=True, slots=True)
class Query:
    """A query. rows: about how many it gives."""

    sql: str
    columns: tuple[Column, ...]
    rows: float


class Maker:
    """Makes the queries of one view. labels: what is in them."""

    def __init__(self, rng: Random, relations: Sequence[Relation], exprs: Expressions | None = None) -> None:
        self.rng, self.relations = rng, list(relations)
        self.labels: Labels = set()
        self.exprs = exprs or Expressions(rng)
        self.sources = Sources(self)
        self.subqueries = Subqueries(self)
        self._aliases = 0

    def alias(self, stem: str = "r") -> str:
        self._aliases += 1
        return f"{stem}{self._aliases}"

    def view(self) -> Query:
        """A whole view."""
        rng, kept = self.rng, list(self.relations)
        prefix = ""
        if rng.random() < 0.1:
            prefix = self._common_tables()
        query = self.query(2)
        self.relations = kept
        return Query(prefix + query.sql, query.columns, query.rows)

    def _common_tables(self) -> str:
        self.labels.add("with")
        written = []
        for _ in range(self.rng.choice((1, 1, 2))):
            name = self.alias("cte")
            query = self.query(0, exact=True)
            columns, names = query.columns, ""
            if self.rng.random() < 0.3:
                columns = tuple(Column(f"x{i}", c.type) for i, c in enumerate(columns))
                names = f" ({', '.join(c.name for c in columns)})"
            written.append(f"{name}{names} AS ({query.sql})")
            self.relations += [Relation(name, columns, query.rows)] * 2
        return f"WITH {', '.join(written)} "

    def query(self, depth: int, *, exact: bool = False) -> Query:
        """depth: how many queries may stand inside one another. exact: every column may be computed from."""
        rng = self.rng
        kinds: list[tuple[float, Callable[[int], Query]]] = [
            (3.0, self._plain),
            (2.2, self._grouped),
            (0.7, self._global),
            (2.5, self._grouping_sets),
            (0.8, self._distinct_on),
            (2.6, self._windowed),
            (0.9, self._top_rows),
            (1.6, self._limited),
        ]
        kinds.append((1.1, self._grouped_by_key))
        if depth > 0:
            kinds.append((4.8, self._set_operation))
        for _ in range(20):
            labels = set(self.labels)
            made = rng.choices([k for _, k in kinds], [w for w, _ in kinds])[0](depth)
            if not exact or all(c.type in self.exprs.types for c in made.columns):
                return made
            self.labels = labels
        return self._plain(0)

    # --- SELECTs ---

    def _plain(self, depth: int) -> Query:
        rng = self.rng
        source = self.sources.source(depth)
        where = self._where(source, depth)
        if source.star is not None and rng.random() < 0.15:
            return Query(f"SELECT * FROM {source.sql}{where}", source.star, source.rows)
        items: list[tuple[str, str]] = []
        for _ in range(rng.randint(1, 4)):
            items.append(self.exprs.any_value(source.scope, rng.choice((0, 0, 1, 2))))
        if depth > 0 and rng.random() < 0.12:
            items.append(self.subqueries.scalar(source.scope))
        distinct = rng.random() < 0.25
        if distinct:
            self.labels.add("distinct")
        text, columns = listed(items)
        return Query(f"SELECT {'DISTINCT ' if distinct else ''}{text} FROM {source.sql}{where}", columns, source.rows)

    def _where(self, source: Source, depth: int) -> str:
        rng, scope = self.rng, source.scope
        parts = list(source.where or ())
        if rng.random() < 0.45:
            self.labels.add("where")
            parts.append(self.exprs.condition(scope))
        if depth > 0 and rng.random() < 0.9:
            parts += [self.subqueries.condition(scope) for _ in range(rng.choice((1, 1, 1, 2)))]
        rng.shuffle(parts)
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _keys(self, scope: Sequence[Ref], most: int) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for _ in range(self.rng.randint(1, most)):
            e, t = self.exprs.any_value(scope, self.rng.choice((0, 0, 0, 1)))
            # A constant is no key: PostgreSQL reads a number as a position.
            if any(r.text in e for r in scope) and e not in [x for x, _ in found]:
                found.append((e, t))
        return found

    def _grouped(self, depth: int) -> Query:
        rng = self.rng
        source = self.sources.source(depth)
        where = self._where(source, depth)
        keys = self._keys(source.scope, 2)
        if not keys:
            return self._global_over(source.sql, source.scope, where)
        self.labels.add("group by")
        items = [k for k in keys if rng.random() < 0.9]
        items += [self._aggregate(source.scope) for _ in range(rng.randint(0 if items else 1, 3))]
        if depth > 0 and items and rng.random() < 0.6 and (call := self._over_groups(keys, source.scope)):
            items.append(call)
        text, columns = listed(items)
        having = ""
        if rng.random() < 0.35:
            self.labels.add("having")
            having = f" HAVING {self._having(keys, source.scope)}"
        written = [e for e, _ in keys]
        if rng.random() < 0.15 and items[: len(keys)] == keys:
            written = [str(i + 1) for i in range(len(keys))]
        return Query(
            f"SELECT {text} FROM {source.sql}{where} GROUP BY {', '.join(written)}{having}",
            columns,
            max(source.rows / 2, 1),
        )

    def _grouped_by_key(self, depth: int) -> Query:
        """By a primary key, with other columns of its table in the select list."""
        rng = self.rng
        tables = [r for r in self.relations if r.key]
        if not tables:
            return self._plain(depth)
        table, alias = rng.choice(tables), self.alias("k")
        own = shown(alias, table.columns)
        others = rng.sample([r for r in own if r.name not in table.key], len(own) - len(table.key))[:2]
        if not others:
            return self._plain(depth)
        self.labels.add("group by key")
        keys = ", ".join(f"{alias}.{k}" for k in table.key)
        items = [(r.text, r.type) for r in own if r.name in table.key or r in others]
        text, columns = listed([*items, self._aggregate(own)])
        where = f" WHERE {self.exprs.condition(own, 1)}" if rng.random() < 0.4 else ""
        more = "".join(f", {r.text}" for r in others)
        sql = f"SELECT {text} FROM {table.name} AS {alias}{where} GROUP BY {keys}{{|{more}}}"
        return Query(sql, columns, table.rows)

    def _over_groups(self, keys: Sequence[tuple[str, str]], scope: Sequence[Ref]) -> tuple[str, str] | None:
        number = self.exprs.column(scope, ("int", "bigint"))
        key = next((e for e, t in keys if t in ORDERED), None)
        if number is None or key is None:
            return None
        self.labels.add("over groups")
        return (
            f"RANK() OVER (ORDER BY SUM({number.text}) DESC NULLS LAST, {key} NULLS FIRST)"
            if self.rng.random() < 0.5
            else f"SUM(COUNT(*)) OVER (PARTITION BY {key})",
            "bigint",
        )

    def _having(self, keys: Sequence[tuple[str, str]], scope: Sequence[Ref]) -> str:
        number = self.exprs.column(scope, ("int", "bigint", "decimal"))
        options = ["COUNT(*) > 1", "COUNT(*) < 3"]
        if number is not None:
            options += [f"SUM({number.text}) > 1", f"NOT (MIN({number.text}) = 1)", f"MAX({number.text}) IS NOT NULL"]
        options += [f"({e}) IS NOT NULL AND COUNT(*) <> 2" for e, _ in keys]
        return self.rng.choice(options)

    def _having_many(self, rows: int) -> str:
        """Now and then only groups of more rows."""
        if self.rng.random() >= 0.15:
            return ""
        self.labels.add("having")
        return f" HAVING COUNT(*) > {rows}"

    def _aggregate(self, scope: Sequence[Ref]) -> tuple[str, str]:
        return aggregate(self.rng, self.exprs, scope, self.labels)

    def _global(self, depth: int) -> Query:
        source = self.sources.source(depth)
        return self._global_over(source.sql, source.scope, self._where(source, depth))

    def _global_over(self, source: str, scope: Sequence[Ref], where: str) -> Query:
        self.labels.add("global aggregate")
        text, columns = listed([self._aggregate(scope) for _ in range(self.rng.randint(1, 3))])
        having = self._having_many(2)
        return Query(f"SELECT {text} FROM {source}{where}{having}", columns, 1)

    def _grouping_sets(self, depth: int) -> Query:
        rng = self.rng
        source = self.sources.source(depth)
        where = self._where(source, 0)
        keys = self._keys(source.scope, 3)
        if not keys:
            return self._global_over(source.sql, source.scope, where)
        if not self.exprs.natural:  # DuckDB takes a merged column and that of its side for two, PostgreSQL and FlowQL for one: see `recorded.py`
            merged = {r.text for r in source.scope if "." not in r.text}
            keys = [k for k in keys if k[0].rpartition(".")[2] not in merged or k[0] in merged] or keys[:1]
        names = [e for e, _ in keys]
        kind = rng.choice(("grouping sets", "rollup", "cube"))
        self.labels.add(kind)
        if kind == "grouping sets":
            sets = [rng.sample(names, rng.randint(0, len(names))) for _ in range(rng.randint(1, 3))]
            sets[0] = names
            written = f"GROUPING SETS ({', '.join('(' + ', '.join(s) + ')' for s in sets)})"
        else:
            written = f"{kind.upper()} ({', '.join(names)})"
        items = [*keys, *(self._aggregate(source.scope) for _ in range(rng.randint(0, 2)))]
        if rng.random() < 0.6:
            self.labels.add("grouping")
            items.append((f"GROUPING({', '.join(rng.sample(names, rng.randint(1, len(names))))})", "bigint"))
        text, columns = listed(items)
        having = self._having_many(1)
        sql = f"SELECT {text} FROM {source.sql}{where} GROUP BY {written}{having}"
        return Query(sql, columns, source.rows * 2)

    def _distinct_on(self, depth: int) -> Query:
        rng = self.rng
        source = self.sources.source(depth)
        keys = self._keys(source.scope, 2)
        if not keys:
            return self._plain(depth)
        self.labels.add("distinct on")
        where = self._where(source, 0)
        order = [f"{e}{self._direction()}" for e, _ in keys] + self.total_order(source.scope)
        text, columns = listed([self.exprs.any_value(source.scope, 1) for _ in range(rng.randint(1, 3))])
        on = ", ".join(e for e, _ in keys)
        return Query(
            f"SELECT DISTINCT ON ({on}) {text} FROM {source.sql}{where} ORDER BY {', '.join(order)}",
            columns,
            source.rows / 2,
        )

    def _direction(self) -> str:
        return self.rng.choice(("", " DESC")) + self.rng.choice((" NULLS FIRST", " NULLS LAST"))

    def total_order(self, scope: Sequence[Ref]) -> list[str]:
        """Rows that compare equal are equal."""
        refs = self.rng.sample(list(scope), len(scope))
        return [f"{r.text}{self._direction()}" for r in refs]

    def _windowed(self, depth: int) -> Query:
        rng = self.rng
        source = self.sources.source(min(depth, 1))
        where = self._where(source, depth)
        items = [self.exprs.any_value(source.scope, 1) for _ in range(rng.randint(0, 2))]
        total = ", ".join(self.total_order(source.scope))
        items += [window_call(self, source.scope, total) for _ in range(rng.choice((2, 3, 3, 4)))]
        text, columns = listed(items)
        return Query(f"SELECT {text} FROM {source.sql}{where}", columns, source.rows)

    def _top_rows(self, depth: int) -> Query:
        """The first rows of each group, by the number of the row."""
        rng = self.rng
        source = self.sources.source(depth)
        self.labels.add("row_number top-n")
        key, _ = self.exprs.any_value(source.scope, 0)
        order = ", ".join(self.total_order(source.scope))
        function = rng.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        text, columns = listed([self.exprs.any_value(source.scope, 0) for _ in range(rng.randint(1, 3))])
        where = self._where(source, 0)
        inner = f"SELECT {text}, {function}() OVER (PARTITION BY {key} ORDER BY {order}) AS rn FROM {source.sql}{where}"
        alias, n = self.alias("top"), rng.randint(1, 3)
        limit = rng.choice((f"rn <= {n}", f"rn < {n + 1}", f"rn = {n}", f"{alias}.rn <= {n}"))
        names = ", ".join(c.name for c in columns)
        return Query(
            f"SELECT {names}{', rn' if rng.random() < 0.4 else ''} FROM ({inner}) AS {alias} WHERE {limit}",
            columns,
            source.rows / 2,
        )

    def _limited(self, depth: int) -> Query:
        """The first rows in the order of all columns, and maybe of others in front of them."""
        made = self.query(min(depth, 1), exact=True)
        rng = self.rng
        if any(part in made.sql for part in (" LIMIT ", " OFFSET ", "DISTINCT ON")):
            return made
        self.labels.add("limit")
        places = [str(i + 1) for i in range(len(made.columns))]
        rng.shuffle(places)
        order = ", ".join(
            f"{p if rng.random() < 0.6 else made.columns[int(p) - 1].name}{self._direction()}" for p in places
        )
        if ", rn FROM (" in made.sql:  # the number of a row that `_top_rows` may show beside its columns
            order += ", rn"
        n = rng.randint(1, 5)
        tail = f" LIMIT {n}"
        if rng.random() < 0.7:
            self.labels.add("offset")
            tail = rng.choice((f" LIMIT {n} OFFSET {rng.randint(0, 3)}", f" OFFSET {rng.randint(1, 3)}"))
        return Query(f"{made.sql} ORDER BY {order}{tail}", made.columns, min(n, made.rows))

    # --- set operations ---

    def _set_operation(self, depth: int) -> Query:
        rng = self.rng
        types = [rng.choice(list(self.exprs.types)) for _ in range(rng.randint(1, 2))]
        types[0] = rng.choice(("int", "int", "text", "bigint", types[0]))
        parts = [self._of_types(types) for _ in range(rng.choice((2, 2, 2, 3)))]
        sql = parts[0].sql
        for part in parts[1:]:
            op = rng.choice(("union", "union all", "intersect", "intersect all", "except", "except all"))
            self.labels.add(op)
            if op.startswith("union") and rng.random() < 0.6:
                self.labels.add("corresponding")
                op += " {corresponding|by name}"
            sql = f"{sql} {op.upper()} {part.sql}" if rng.random() < 0.7 else f"({sql}) {op.upper()} ({part.sql})"
        return Query(sql, parts[0].columns, sum(p.rows for p in parts))

    def _of_types(self, types: Sequence[str]) -> Query:
        source = self.sources.source(0)
        text, columns = listed([(self.exprs.value(source.scope, t, 1), t) for t in types])
        return Query(f"SELECT {text} FROM {source.sql}{self._where(source, 0)}", columns, source.rows)


def listed(items: Sequence[tuple[str, str]]) -> tuple[str, tuple[Column, ...]]:
    """The select list, each item under a name of its own."""
    columns = tuple(Column(f"o{i}", t) for i, (_, t) in enumerate(items))
    return ", ".join(f"{e} AS {c.name}" for (e, _), c in zip(items, columns, strict=True)), columns
