"""Random expressions of a wanted type over named columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from tests.standard_views.tables import SQL_TYPES, literal

ORDERED = ("int", "bigint", "double", "decimal", "text", "date", "timestamp", "micros")
NUMERIC = ("int", "bigint", "decimal", "double")


@dataclass(frozen=True, slots=True)
class Ref:
    """How an expression may name a column: `text`, and the alias of its relation (empty if it has a name alone)."""

    text: str
    type: str
    name: str
    alias: str = ""


Scope = Sequence[Ref]


class Expressions:
    """All are deterministic, fail for no row, and mean the same in PostgreSQL and DuckDB.

    types: SQL's name of each type. natural: aggregates keep the type that the dialect gives them, which is another one in DuckDB.
    """

    types: Mapping[str, str] = SQL_TYPES
    natural = False

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def column(self, scope: Scope, types: Sequence[str]) -> Ref | None:
        fitting = [r for r in scope if r.type in types]
        return self._rng.choice(fitting) if fitting else None

    def constant(self, type_: str) -> str:
        return self._literal(type_)

    def _literal(self, type_: str) -> str:
        return literal(self._rng, type_, 4)

    def value(self, scope: Scope, type_: str, depth: int = 2) -> str:
        """An expression of this type."""
        found = self.column(scope, (type_,))
        if found is not None and (depth <= 0 or self._rng.random() < 0.6):
            return found.text
        if depth <= 0 or self._rng.random() < 0.15:
            return self.constant(type_)
        return self._computed(scope, type_, depth - 1)

    def any_value(self, scope: Scope, depth: int = 2) -> tuple[str, str]:
        """An expression and its type, which is mostly that of a column."""
        of = [r.type for r in scope if r.type in self.types]
        type_ = self._rng.choice(of) if of and self._rng.random() < 0.9 else self._rng.choice(list(self.types))
        return self.value(scope, type_, depth), type_

    def _computed(self, scope: Scope, type_: str, depth: int) -> str:
        rng = self._rng

        def v(t: str = type_) -> str:
            return self.value(scope, t, depth)

        general = [
            lambda: f"CASE WHEN {self.condition(scope, depth)} THEN {v()} ELSE {v()} END",
            lambda: f"CASE WHEN {self.condition(scope, depth)} THEN {v()} END",
            lambda: f"COALESCE({v()}, {v()})",
            lambda: f"NULLIF({v()}, {v()})",
        ]
        if type_ in ORDERED:
            general += [lambda: f"GREATEST({v()}, {v()})", lambda: f"LEAST({v()}, {v()})"]
        if type_ == "bool":
            return f"({self.condition(scope, depth)})"
        own = {
            "int": [
                lambda: f"({v()} + {v()})",
                lambda: f"({v()} - 1)",
                lambda: f"({v()} % 3)",
                lambda: f"ABS({v()})",
                lambda: f"(- {v()})",
                lambda: f"CAST(LENGTH({v('text')}) AS INT)",
                lambda: f"CAST(EXTRACT(DAY FROM {v('date')}) AS INT)",
                lambda: f"CAST({v('bool')} AS INT)",
            ],
            "bigint": [
                lambda: f"({v()} + {v('int')})",
                lambda: f"({v()} * 2)",
                lambda: f"({v()} % 4)",
                lambda: f"CAST({v('int')} AS BIGINT)",
            ],
            "double": [
                lambda: f"({v()} + {v()})",
                lambda: f"({v()} * 0.5)",
                lambda: f"ABS({v()})",
                lambda: f"CAST({v('int')} AS DOUBLE PRECISION)",
            ],
            "decimal": [
                lambda: f"CAST({v()} + {v()} AS DECIMAL(10, 2))",
                lambda: f"({v()} + {v('int')})",
                lambda: f"ABS({v()})",
                lambda: f"CAST({v('int')} AS DECIMAL(10, 2))",
            ],
            "text": [
                lambda: f"({v()} || {v()})",
                lambda: f"UPPER({v()})",
                lambda: f"LOWER({v()})",
                lambda: f"SUBSTRING({v()} FROM 1 FOR 1)",
                lambda: f"CAST({v('int')} AS VARCHAR)",
                lambda: f"REPLACE({v()}, 'a', 'x')",
            ],
            "date": [
                lambda: f"({v()} + 1)",
                lambda: f"CAST({v('timestamp')} AS DATE)",
                lambda: f"CAST({v('micros')} AS DATE)",
            ],
            "timestamp": [
                lambda: f"({v()} + INTERVAL '1' HOUR)",
                lambda: f"DATE_TRUNC('day', {v()})",
                lambda: f"CAST({v('date')} AS TIMESTAMP)",
            ],
            "micros": [
                lambda: f"({v()} + INTERVAL '0.000001' SECOND)",
                lambda: f"({v()} - INTERVAL '1' DAY)",
                lambda: f"DATE_TRUNC('milliseconds', {v()})",
                lambda: f"CAST({v('timestamp')} AS TIMESTAMP(6))",
                lambda: f"COALESCE({v('timestamp')}, {v()})",
            ],
        }[type_]
        return rng.choice(own if rng.random() < 0.6 else general)()

    def condition(self, scope: Scope, depth: int = 2) -> str:
        """TRUE, FALSE or unknown."""
        rng = self._rng
        if depth > 0 and rng.random() < 0.35:
            a, b = self.condition(scope, depth - 1), self.condition(scope, depth - 1)
            return rng.choice((f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})"))
        flag = self.column(scope, ("bool",))
        if flag is not None and rng.random() < 0.2:
            return rng.choice((flag.text, f"{flag.text} IS TRUE", f"{flag.text} IS NOT FALSE", f"NOT {flag.text}"))
        ref = self.column(scope, ORDERED)
        if ref is None:
            return rng.choice(("1 = 1", "1 = 0"))
        x, t = ref.text, ref.type
        y = self.value(scope, t, depth - 1) if rng.random() < 0.4 else self.constant(t)
        return rng.choice(
            (
                f"{x} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {y}",
                f"{x} {rng.choice(('<>', '<', '>='))} {y}",
                f"{x} IS {rng.choice(('', 'NOT '))}NULL",
                f"{x} {rng.choice(('', 'NOT '))}IN ({y}, {self.constant(t)}{rng.choice(('', '', ', NULL'))})",
                f"{x} {rng.choice(('', 'NOT '))}BETWEEN {self.constant(t)} AND {y}",
                f"{x} IS {rng.choice(('', 'NOT '))}DISTINCT FROM {y}",
                self._like(x) if t == "text" else f"{x} = {y}",
            )
        )

    def _like(self, x: str) -> str:
        return f"{x} {self._rng.choice(('LIKE', 'NOT LIKE'))} '{self._rng.choice(('a%', '%b', '_', '%'))}'"
