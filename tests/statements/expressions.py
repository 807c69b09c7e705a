"""Expressions by the grammar, of a wanted type: columns, literals, operators, functions of the catalogue, lambdas.

Most are well typed, so that they get through the binder to the optimizer and the planner; some are not, on purpose.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from flowql.compiler.functions import builtin
from flowql.compiler.functions.casts import can_cast
from flowql.compiler.functions.registry import all_aggregates, all_functions
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)

assert builtin.FAMILIES
POINT = struct(("X", INT), ("Y", DOUBLE))
TYPES = (INT, BIGINT, DOUBLE, decimal(9, 2), STRING, BOOLEAN, BYTES, DATE, TIME, TIMESTAMP, array(INT), array(STRING),
         map_of(STRING, DOUBLE), POINT)  # fmt: skip
NUMBERS = (INT, BIGINT, DOUBLE, decimal(9, 2))
LITERALS: dict[Kind, Sequence[str]] = {
    Kind.INT: ("0", "1", "-1", "7", "2147483647", "-2147483648"),
    Kind.BIGINT: ("2147483648", "-9223372036854775808", "9223372036854775807"),
    Kind.DOUBLE: ("1e0", "-2.5E3", "1e308", "4.9e-324"),
    Kind.DECIMAL: ("1.5", "-0.01", "9999999.99", "12345678901234567890.123456789"),
    Kind.STRING: ("''", "'a'", "'it''s'", "'😀 é'", "'2024-02-30'", "'%_'", "'1e2'", "'x\\'"),
    Kind.BOOLEAN: ("true", "FALSE"),
    Kind.DATE: ("DATE '2024-02-29'", "CAST('1970-01-01' AS DATE)"),
    Kind.TIME: ("TIME '23:59:59'", "CAST('00:00' AS TIME)"),
    Kind.TIMESTAMP: ("TIMESTAMP '2024-02-29T12:00:00'", "CAST('1970-01-01T00:00:00.000' AS TIMESTAMP)"),
    Kind.BYTES: ("TO_BYTES('00ff', 'hex')", "TO_BYTES('', 'utf8')"),
}
Column = tuple[str, SqlType]  # as it is written, its type


@cache
def signatures() -> dict[SqlType, list[tuple[str, tuple[SqlType, ...]]]]:
    """Scalar functions and argument types, by the type of the result."""
    found: dict[SqlType, list[tuple[str, tuple[SqlType, ...]]]] = {}
    draw = random.Random(1)
    triples = draw.sample(list(itertools.product(TYPES, repeat=3)), 300)
    candidates = [*(t for n in range(3) for t in itertools.product(TYPES, repeat=n)), *triples]
    for name, function in all_functions().items():
        if name.islower() or function.table:
            continue
        for types in candidates:
            try:
                result = function.resolve(types).result
            except (FunctionTypeError, ValueError, IndexError):
                continue
            found.setdefault(result, []).append((name, types))
    return found


@cache
def aggregates() -> list[tuple[str, tuple[SqlType, ...], tuple[str, ...]]]:
    """Aggregates, the types of their arguments, and constants behind them."""
    found = []
    for name, function in all_aggregates().items():
        for types in [*((t,) for t in TYPES), *itertools.product(TYPES, repeat=2)]:
            for constants in ((), (3,), (3, False), (True,)):
                if function.constants(len(types) + len(constants)) != len(constants):
                    continue
                with contextlib.suppress(FunctionTypeError, ValueError, IndexError, TypeError):
                    function.resolve(types, constants)
                    found.append((name, types, tuple(map(str, constants))))
    return found


@dataclass(frozen=True, slots=True)
class Expressions:
    """Writes expressions over columns. wrong: how often one is of another type or names what is not there."""

    rng: random.Random
    columns: Sequence[Column]
    wrong: float = 0.006

    def any(self, depth: int) -> str:
        return self.of(self.type(), depth)

    def type(self) -> SqlType:
        return self.rng.choice(TYPES)

    def of(self, t: SqlType, depth: int) -> str:
        """An expression of type `t`, of at most so many levels."""
        if self.rng.random() < self.wrong:
            return self.rng.choice(
                ["nowhere", "s.nowhere", "NO_SUCH(1)", "NULL", "*", "x -> y", self.of(self.type(), depth)]
            )
        if depth <= 0 or self.rng.random() < 0.25:
            return self._leaf(t)
        makers = [self._function, self._function, self._case, self._cast, self._coalesce]
        makers += {
            Kind.BOOLEAN: [self._comparison, self._logic, self._membership, self._null_test, self._like, self._between],
            Kind.STRING: [self._concatenation, self._from_map, self._field],
            Kind.ARRAY: [self._array, self._lambda],
            Kind.MAP: [self._map],
            Kind.STRUCT: [self._struct],
        }.get(t.kind, [])
        if t in NUMBERS:
            makers += [self._arithmetic, self._arithmetic, self._element, self._field]
        return self.rng.choice(makers)(t, depth - 1)

    def _leaf(self, t: SqlType) -> str:
        mine = [text for text, of in self.columns if of == t]
        if mine and self.rng.random() < 0.7:
            return self.rng.choice(mine)
        return self.literal(t)

    def literal(self, t: SqlType) -> str:
        if t.kind is Kind.ARRAY:
            return f"ARRAY[{', '.join(self.literal(t.element) for _ in range(self.rng.randint(1, 3)))}]"
        if t.kind is Kind.MAP:
            return f"MAP({self.literal(t.args[0])} := {self.literal(t.element)})"
        if t.kind is Kind.STRUCT:
            return f"STRUCT({', '.join(f'{n} := {self.literal(f)}' for n, f in t.fields)})"
        return self.rng.choice(LITERALS[t.kind])

    def _function(self, t: SqlType, depth: int) -> str:
        found = signatures().get(t)
        if not found:
            return self._leaf(t)
        name, types = self.rng.choice(found)
        return f"{name}({', '.join(self.of(a, depth) for a in types)})"

    def _case(self, t: SqlType, depth: int) -> str:
        whens = " ".join(
            f"WHEN {self.of(BOOLEAN, depth)} THEN {self.of(t, depth)}" for _ in range(self.rng.randint(1, 2))
        )
        other = f" ELSE {self.of(t, depth)}" if self.rng.random() < 0.7 else ""
        return f"CASE {whens}{other} END"

    def _cast(self, t: SqlType, depth: int) -> str:
        sources = [s for s in TYPES if can_cast(s, t)] or TYPES
        return f"CAST({self.of(self.rng.choice(sources), depth)} AS {t})"

    def _coalesce(self, t: SqlType, depth: int) -> str:
        return f"{self.rng.choice(('COALESCE', 'IFNULL'))}({self.of(t, depth)}, {self.of(t, depth)})"

    def _arithmetic(self, t: SqlType, depth: int) -> str:
        operator = self.rng.choice("+-*/%")
        return f"({self.of(t, depth)} {operator} {self.of(self.rng.choice(NUMBERS[:2]), depth)})"

    def _comparison(self, _t: SqlType, depth: int) -> str:
        of = self.type()
        operator = self.rng.choice(["=", "<>", "!=", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
        return f"({self.of(of, depth)} {operator} {self.of(of, depth)})"

    def _logic(self, t: SqlType, depth: int) -> str:
        if self.rng.random() < 0.3:
            return f"NOT ({self.of(t, depth)})"
        return f"({self.of(t, depth)} {self.rng.choice(('AND', 'OR'))} {self.of(t, depth)})"

    def _membership(self, _t: SqlType, depth: int) -> str:
        of = self.type()
        items = ", ".join(self.of(of, depth) for _ in range(self.rng.randint(1, 3)))
        return f"{self.of(of, depth)} {self.rng.choice(('', 'NOT '))}IN ({items})"

    def _null_test(self, _t: SqlType, depth: int) -> str:
        return f"{self.any(depth)} IS {self.rng.choice(('', 'NOT '))}NULL"

    def _like(self, _t: SqlType, depth: int) -> str:
        escape = " ESCAPE '!'" if self.rng.random() < 0.2 else ""
        return f"{self.of(STRING, depth)} {self.rng.choice(('', 'NOT '))}LIKE {self.of(STRING, 0)}{escape}"

    def _between(self, _t: SqlType, depth: int) -> str:
        of = self.rng.choice((*NUMBERS, STRING, DATE, TIMESTAMP))
        return f"{self.of(of, depth)} BETWEEN {self.of(of, depth)} AND {self.of(of, depth)}"

    def _concatenation(self, t: SqlType, depth: int) -> str:
        return f"({self.of(t, depth)} {self.rng.choice(('+', '||'))} {self.of(t, depth)})"

    def _element(self, t: SqlType, depth: int) -> str:
        return f"{self.of(array(t), depth)}[{self.of(INT, 0)}]"

    def _from_map(self, t: SqlType, depth: int) -> str:
        return f"{self.of(map_of(STRING, t), depth)}[{self.of(STRING, 0)}]"

    def _field(self, t: SqlType, depth: int) -> str:
        return f"STRUCT(a := {self.of(t, depth)}, b := {self.any(0)})->a"

    def _array(self, t: SqlType, depth: int) -> str:
        return f"ARRAY[{', '.join(self.of(t.element, depth) for _ in range(self.rng.randint(1, 3)))}]"

    def _map(self, t: SqlType, depth: int) -> str:
        return f"MAP({self.of(t.args[0], depth)} := {self.of(t.element, depth)})"

    def _struct(self, t: SqlType, depth: int) -> str:
        return f"STRUCT({', '.join(f'{n} := {self.of(f, depth)}' for n, f in t.fields)})"

    def _lambda(self, t: SqlType, depth: int) -> str:
        source = self.type()
        inner = replace(self, columns=[*self.columns, ("x", source)])
        over = self.of(array(source), depth)
        if source == t.element and self.rng.random() < 0.5:
            return f"FILTER({over}, x => {inner.of(BOOLEAN, depth)})"
        return f"TRANSFORM({over}, x => {inner.of(t.element, depth)})"

    def aggregate(self, depth: int) -> str:
        """A call of an aggregate."""
        if self.rng.random() < 0.2:
            return "COUNT(*)"
        name, types, constants = self.rng.choice(aggregates())
        return f"{name}({', '.join([*(self.of(t, depth) for t in types), *constants])})"
