"""Bound, typed expressions: immutable trees whose meaning is given by `flowql.compiler.functions`.

There are five node kinds. Operators, CASE, CAST and constructors are `Call`s of reserved names
(`add`, `and`, `case`, `cast`, `array`, ...), so a lowering is a table of names, not a class hierarchy.
Spans are for messages: they take no part in equality or in the plan codec.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.plan.types import BOOLEAN, SqlType

ROWTIME = "__rowtime"  # system column of every batch: record timestamp, int64 ms
LiteralValue = bool | int | float | str | bytes | Decimal | None


@dataclass(frozen=True, slots=True)
class Expr:
    """Base of the five node kinds; carries the type of the value."""

    type: SqlType


@dataclass(frozen=True, slots=True)
class Column(Expr):
    """A column of the input row by its (unique) name."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Literal(Expr):
    """A constant in its reference representation (see `flowql.compiler.plan.types`)."""

    value: LiteralValue
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call(Expr):
    """A function or operator applied to arguments; `name` is a key of the function catalogue, upper case.

    `case`: args are when1, then1, when2, then2, ..., else (else always present, maybe a NULL literal).
    `cast`: one argument, cast to `type`. `struct`: one argument per field of `type`, in order.
    `field`: a struct and a STRING literal. `subscript`: an array or map and an index or key.
    """

    name: str
    args: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Lambda(Expr):
    """A lambda argument of a function. Its `type` is the type of `body`."""

    params: tuple[str, ...]
    body: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LambdaVar(Expr):
    """A reference to a parameter of an enclosing lambda."""

    name: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


def children(e: Expr) -> tuple[Expr, ...]:
    if isinstance(e, Call):
        return e.args
    if isinstance(e, Lambda):
        return (e.body,)
    return ()


def walk(*exprs: Expr) -> list[Expr]:
    """The expressions and every one below them, parents first."""
    found, left = list[Expr](), [*reversed(exprs)]
    while left:
        found.append(first := left.pop())
        left.extend(reversed(children(first)))
    return found


def columns_of(*exprs: Expr) -> frozenset[str]:
    """Names of the input columns that the expressions read."""
    return frozenset(n.name for n in walk(*exprs) if isinstance(n, Column))


def conjuncts(e: Expr) -> list[Expr]:
    """The parts of a conjunction, left to right."""
    if isinstance(e, Call) and e.name == "and":
        return [c for a in e.args for c in conjuncts(a)]
    return [e]


def conjunction(parts: Sequence[Expr]) -> Expr:
    whole = parts[0]
    for p in parts[1:]:
        whole = Call(BOOLEAN, "and", (whole, p))
    return whole
