"""Calls of patterns with constants, which are read once for all rows, mean what they mean with columns."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from flowql.compiler.functions import inline
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
from flowql.compiler.plan.types import BOOLEAN, INT, STRING, SqlType

STRINGS = ["", "a", "ab", "aab", "b_a", "a\nb", "ä%b", "x" * 2_000 + "ab", None]
LIKES = ["", "%", "a", "a%", "%b", "%a%", "a%b", "%a%b%", "%a%a%b", "_", "a_", "%_b", r"%\%%", "ab\\"]
CALLS: list[tuple[str, SqlType, int, list[tuple[Any, ...]]]] = [
    ("like", BOOLEAN, 0, [(p,) for p in LIKES]),
    ("not_like", BOOLEAN, 0, [(p,) for p in LIKES]),
    ("like", BOOLEAN, 0, [("a!%", "!"), ("a", "!!"), ("x" * 70_000,)]),
    ("REGEXP_LIKE", BOOLEAN, 0, [("a+b",), ("(",), ("^.$",), (r"\bb",)]),
    ("REGEXP_EXTRACT", STRING, 1, [("(a+)(b)?",), ("(a+)(b)?", 2), ("a", 7)]),
    ("REGEXP_REPLACE", STRING, 0, [("a", "$0$0"), ("a|", "x"), ("b$", "")]),
    ("sql_regexp_replace", STRING, 0, [("a", r"<\&>"), ("a", "x", "g"), ("a", "x", "?")]),
]


def meaning(name: str, result: SqlType, args: list[Expr], columns: list[str], row: tuple[Any, ...]) -> list[Any]:
    """The value, and the error where it fails."""
    told: list[str] = []
    kernel = compile_row([Call(result, name, tuple(args))], columns, on_error=lambda _, e: told.append(repr(e)))
    return [*kernel(row), *told]


def _type(value: Any) -> SqlType:
    return INT if isinstance(value, int) else STRING


@pytest.mark.parametrize(("name", "result", "subject", "constants"), CALLS)
def test_constants_mean_what_columns_mean(
    name: str, result: SqlType, subject: int, constants: list[tuple[Any, ...]]
) -> None:
    for given, s in itertools.product(constants, STRINGS):
        args = [*given[:subject], s, *given[subject:]]
        names = [f"c{i}" for i in range(len(args))]
        columns: list[Expr] = [
            Column(STRING if i == subject else _type(v), n) for i, (n, v) in enumerate(zip(names, args, strict=True))
        ]
        literals: list[Expr] = [c if i == subject else Literal(c.type, args[i]) for i, c in enumerate(columns)]
        made = meaning(name, result, literals, names, tuple(args))
        assert made == meaning(name, result, columns, names, tuple(args)), (name, given, s)


@pytest.mark.parametrize("name", ["REGEXP_LIKE", "like", "sql_ilike", "sql_regexp_like"])
def test_a_pattern_in_a_column_beside_a_constant_string_is_read_for_each_row(name: str) -> None:
    for pattern in ("a", "b.", None):
        args: list[Expr] = [Literal(STRING, "ab"), Column(STRING, "P")]
        columns: list[Expr] = [Column(STRING, "S"), Column(STRING, "P")]
        made = meaning(name, BOOLEAN, args, ["S", "P"], ("ab", pattern))
        assert made == meaning(name, BOOLEAN, columns, ["S", "P"], ("ab", pattern))


def test_a_constant_pattern_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    emit = inline.Emitter._prepared
    monkeypatch.setattr(inline.Emitter, "_prepared", lambda *a: made.append(emit(*a)) or made[-1])
    compile_row([Call(BOOLEAN, "like", (Column(STRING, "S"), Literal(STRING, "%a%")))], ["S"])
    compile_row([Call(STRING, "REGEXP_EXTRACT", (Literal(STRING, "a"), Column(STRING, "S")))], ["S"])
    compile_row([Call(BOOLEAN, "like", (Column(STRING, "S"), Column(STRING, "P")))], ["S", "P"])
    assert [m is not None for m in made] == [True, True, False]
