"""Which calls are made: every function of a dialect over the types that it takes, and lambdas."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import NAMES, Function, all_functions
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.expr import Call, Column, Expr, Lambda, LambdaVar
from flowql.compiler.plan.types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    JSONB,
    MICROS,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    SqlType,
    array,
    decimal,
    map_of,
    struct,
)
from tests.property.function_calls import OPERANDS

Dialect = Literal["ksql", "standard"]
DEC, WIDE = decimal(9, 3), decimal(38, 10)
LISTS = (array(INT), array(STRING), array(array(INT)), array(struct(("k", STRING), ("v", INT))))
TYPES = (
    INT, BIGINT, DOUBLE, STRING, DEC, WIDE, BOOLEAN, BYTES, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, MICROS, INTERVAL, JSONB, *LISTS, map_of(STRING, INT),
    map_of(STRING, STRING), struct(("A", STRING), ("B", array(STRING))),
)  # fmt: skip
FEW = (INT, DOUBLE, STRING, WIDE, BYTES, TIMESTAMP, DATE, INTERVAL, JSONB, array(STRING))
FEWER = (INT, STRING, array(STRING))
SIGNATURES_MAX = 12  # of one function


@cache
def functions(dialect: Dialect) -> tuple[str, ...]:
    """The names of a dialect's deterministic functions in the catalogue."""
    standard = set(NAMES.values())
    found = [n for n, f in all_functions().items() if f.deterministic and n not in ("struct", "field")]
    return tuple(n for n in found if (n in standard or n.startswith("sql_")) == (dialect == "standard"))


@cache
def signatures(name: str) -> tuple[Resolution, ...]:
    """Argument types that a function takes as they are, at most SIGNATURES_MAX lists of them."""
    function, found = all_functions()[name], dict[Resolution, None]()
    for n in range(1, 6):
        if name.islower() and name in OPERANDS and n not in OPERANDS[name]:
            continue
        for types in itertools.product({1: TYPES, 2: TYPES, 3: FEW}.get(n, FEWER), repeat=n):
            if n > 1 and len(set(types)) > 2:
                continue
            r = _resolved(function, types)
            if r is not None and r.args == types:
                found[r] = None
    every = list(found)
    step = max(len(every) / SIGNATURES_MAX, 1)
    return tuple(every[int(i * step)] for i in range(min(len(every), SIGNATURES_MAX)))


def _resolved(function: Function, types: tuple[SqlType, ...]) -> Resolution | None:
    try:
        return function.resolve(types)
    except (FunctionTypeError, ValueError, IndexError, AttributeError):
        return None


Kernel = Callable[[Sequence[Any]], Any]


@cache
def kernel(name: str, r: Resolution) -> Kernel:
    """The row kernel of a call; a list function of FROM by its reference."""
    function = all_functions()[name]
    if function.table:
        call = function.reference(r)
        return lambda row: None if function.null_propagating and None in row else call(*row)
    columns = [f"C{i}" for i in range(len(r.args))]
    e = Call(r.result, name, tuple(Column(t, c) for t, c in zip(r.args, columns, strict=True)))
    return compile_row([e], columns)


@cache
def lambdas() -> dict[str, tuple[Resolution, Kernel]]:
    """Functions that take lambdas which grow what they get."""
    s, x, k, v = (LambdaVar(STRING, n) for n in "sxkv")
    texts, pairs = array(STRING), map_of(STRING, STRING)

    def twice(e: Expr) -> Expr:
        return Call(STRING, "CONCAT", (e, e))

    made: dict[str, tuple[tuple[SqlType, ...], Expr]] = {
        "REDUCE": (
            (texts, STRING),
            Call(STRING, "REDUCE", (Column(texts, "C0"), Column(STRING, "C1"), Lambda(STRING, ("s", "x"), twice(s)))),
        ),
        "REDUCE+": (
            (texts, STRING),
            Call(
                STRING,
                "REDUCE",
                (Column(texts, "C0"), Column(STRING, "C1"), Lambda(STRING, ("s", "x"), Call(STRING, "add", (s, s)))),
            ),
        ),
        "TRANSFORM": (
            (texts,),
            Call(texts, "TRANSFORM", (Column(texts, "C0"), Lambda(STRING, ("x",), twice(twice(x))))),
        ),
        "TRANSFORM map": (
            (pairs,),
            Call(
                pairs,
                "TRANSFORM",
                (Column(pairs, "C0"), Lambda(STRING, ("k", "v"), k), Lambda(STRING, ("k", "v"), twice(v))),
            ),
        ),
    }
    found = {}
    for name, (types, e) in made.items():
        columns = [f"C{i}" for i in range(len(types))]
        found[name] = (Resolution(types, e.type), compile_row([e], columns))
    return found
