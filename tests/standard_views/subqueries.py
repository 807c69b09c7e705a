"""Random sub-queries, tied to the query around them or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.standard_views.expressions import ORDERED, Ref
from tests.standard_views.sources import shown
from tests.standard_views.tables import Column

if TYPE_CHECKING:
    from tests.standard_views.queries import Maker


class Subqueries:
    def __init__(self, maker: Maker) -> None:
        self._maker, self._rng, self._exprs = maker, maker.rng, maker.exprs

    def condition(self, scope: Sequence[Ref]) -> str:
        """A condition of WHERE."""
        kind = self._rng.choices(
            (
                "exists",
                "not exists",
                "in",
                "not in",
                "scalar",
                "row in",
                "any",
                "in within or",
                "quantified",
                "two levels",
            ),
            (2.2, 2.2, 2, 2.4, 2, 3.2, 0.4, 2.6, 2.2, 2.2),
        )[0]
        match kind:
            case "exists" | "not exists":
                self._maker.labels.add(kind)
                sql, inner = self._from()
                return f"{kind.upper()} (SELECT {self._rng.choice(('1', '*'))} {sql}{self._ties(inner, scope, loose=True)})"
            case "in" | "not in":
                return self._in(scope, kind.upper())
            case "row in":
                return self._row_in(scope)
            case "any":
                return self._in(scope, "= ANY")
            case "in within or":
                self._maker.labels.add("IN below OR")
                return f"({self._in(scope, 'IN')} OR {self._exprs.condition(scope, 0)})"
            case "quantified":
                return self._quantified(scope)
            case "two levels":
                return self._two_levels(scope)
        return self._compared(scope)

    def _quantified(self, scope: Sequence[Ref]) -> str:
        self._maker.labels.add("any or all")
        op = f"{self._rng.choice(('<', '<=', '>', '>=', '=', '<>'))} {self._rng.choice(('ANY', 'ALL'))}"
        made = self._in(scope, op)
        return f"NOT ({made})" if self._rng.random() < 0.2 else made

    def _two_levels(self, scope: Sequence[Ref]) -> str:
        """A sub-query inside a sub-query that names columns of the query around both."""
        self._maker.labels.add("two levels")
        sql, inner = self._from()
        both = (*inner, *scope)
        deeper, deepest = self._from()
        condition = self._exprs.condition((*deepest, *scope), 1)
        tie = self._ties(deepest, both, loose=True) or " WHERE TRUE"
        word = self._rng.choice(("EXISTS", "NOT EXISTS"))
        self._maker.labels |= {"exists", word.lower()}
        return f"EXISTS (SELECT 1 {sql} WHERE {word} (SELECT 1 {deeper}{tie} AND {condition}))"

    def lateral(self, scope: Sequence[Ref]) -> tuple[str, tuple[Ref, ...], float]:
        """A lateral query, its columns, and about how many rows it has for each row."""
        rng, exprs, alias = self._rng, self._exprs, self._maker.alias("l")
        sql, inner = self._from()
        both = (*inner, *scope)
        where = self._ties(inner, scope, loose=True) if rng.random() < 0.6 else f" WHERE {exprs.condition(both, 1)}"
        kind = rng.choice(("aggregate", "first rows", "rows", "distinct", "groups", "no from"))
        value, type_ = exprs.any_value(both, 1)
        columns, rows = (Column("o0", type_),), 3.0
        if kind == "aggregate":
            ordered = exprs.column(both, ORDERED)
            first = f"COUNT(*) AS o0, MAX({ordered.text})" if ordered is not None else "COUNT(*) AS o0, COUNT(*)"
            query = f"SELECT {first} AS o1 {sql}{where}"
            columns = (Column("o0", "bigint"), Column("o1", ordered.type if ordered is not None else "bigint"))
            rows = 1
        elif kind == "first rows":
            order = ", ".join(self._maker.total_order(inner))
            query = f"SELECT {value} AS o0 {sql}{where} ORDER BY {order} LIMIT {rng.randint(1, 2)}"
        elif kind == "groups":
            key, key_type = exprs.any_value(inner, 0)
            query = f"SELECT {key} AS o0, COUNT(*) AS o1 {sql}{where} GROUP BY {key}"
            columns = (Column("o0", key_type), Column("o1", "bigint"))
            if not any(r.text in key for r in inner):  # a number would be a position
                query = f"SELECT COUNT(*) AS o0 {sql}{where}"
                columns = (Column("o0", "bigint"),)
        elif kind == "no from":
            query, rows = f"SELECT {exprs.value(scope, type_, 1)} AS o0", 1
        else:
            query = f"SELECT {'DISTINCT ' if kind == 'distinct' else ''}{value} AS o0 {sql}{where}"
        return f"LATERAL ({query}) AS {alias}", shown(alias, columns), rows

    def _from(self) -> tuple[str, tuple[Ref, ...]]:
        relation = self._rng.choice(self._maker.relations)
        alias = self._maker.alias("s")
        return f"FROM {relation.name} AS {alias}", shown(alias, relation.columns)

    def _ties(self, inner: Sequence[Ref], scope: Sequence[Ref], *, loose: bool) -> str:
        """WHERE of a sub-query: equal to columns of the outer query, and conditions of its own."""
        rng = self._rng
        parts = []
        pairs = [(a, b) for a in inner for b in scope if a.type == b.type and a.type in ORDERED]
        if pairs and rng.random() < 0.8:
            self._maker.labels.add("correlated")
            for a, b in rng.sample(pairs, min(len(pairs), rng.choice((1, 1, 1, 2)))):
                parts.append(f"{a.text} = {b.text}")
            if loose and rng.random() < 0.25:
                a, b = rng.choice(pairs)
                parts.append(f"{a.text} {rng.choice(('<', '<>', '>='))} {b.text}")
        if rng.random() < 0.4:
            parts.append(self._exprs.condition(inner, 1))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _in(self, scope: Sequence[Ref], op: str) -> str:
        rng = self._rng
        sql, inner = self._from()
        operand = self._exprs.column(scope, ORDERED)
        if operand is None:
            return "1 = 1"
        if op in ("IN", "NOT IN"):
            self._maker.labels.add(op.lower())
        left = operand.text if rng.random() < 0.8 else self._exprs.value(scope, operand.type, 1)
        value = self._exprs.value(inner, operand.type, 1)
        ties = self._ties(inner, scope, loose=False) if rng.random() < 0.3 else ""
        if not ties and rng.random() < 0.4:
            ties = f" WHERE {self._exprs.condition(inner, 1)}"
        return f"{left} {op} (SELECT {rng.choice(('', '', 'DISTINCT '))}{value} {sql}{ties})"

    def _row_in(self, scope: Sequence[Ref]) -> str:
        sql, inner = self._from()
        pairs = [(a, b) for a in inner for b in scope if a.type == b.type and a.type in ORDERED]
        if len(pairs) < 2:
            return self._in(scope, "IN")
        self._maker.labels.add("row in")
        chosen = self._rng.sample(pairs, 2)
        left, right = ", ".join(b.text for _, b in chosen), ", ".join(a.text for a, _ in chosen)
        return f"({left}) IN (SELECT {right} {sql})"

    def scalar(self, scope: Sequence[Ref], type_: str | None = None) -> tuple[str, str]:
        """A sub-query as a value, and its type."""
        rng = self._rng
        sql, inner = self._from()
        found = self._exprs.column(inner, (type_,) if type_ else (*ORDERED,))
        self._maker.labels.add("scalar sub-query")
        ties = self._ties(inner, scope, loose=True) if rng.random() < 0.75 else ""
        if found is None or (type_ in (None, "bigint") and rng.random() < 0.3):
            if type_ not in (None, "bigint"):
                return self._exprs.constant(type_ or "int"), type_ or "int"
            return f"(SELECT COUNT(*) {sql}{ties})", "bigint"
        function = rng.choice(("MIN", "MAX"))
        return f"(SELECT {function}({found.text}) {sql}{ties})", found.type

    def _compared(self, scope: Sequence[Ref]) -> str:
        operand = self._exprs.column(scope, ORDERED)
        if operand is None:
            return "1 = 1"
        value, _ = self.scalar(scope, operand.type)
        return f"{operand.text} {self._rng.choice(('=', '<', '>=', '<>'))} {value}"
