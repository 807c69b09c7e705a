"""Which part of a store an interactive query can need: never less than what meets its conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.compiler.analyze.relations.asked import Readable
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.driver import asked_query
from flowql.compiler.plan import types as t
from flowql.compiler.plan.schema import Field, Schema
from flowql.query.asked import bound
from flowql.query.lookup import Points, Range, access
from flowql.query.statement import Condition, Literal, Statement

KEY = (Field("K", t.STRING, "key"), Field("N", t.BIGINT, "key"))
texts = st.text("ab\0", max_size=3)
numbers = st.integers(-3, 3)


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    operator = draw(st.sampled_from(["=", "<", "<=", ">", ">="]))
    count = draw(st.integers(1, 3)) if operator == "=" else 1
    if draw(st.booleans()):
        return Condition("k", operator, tuple(Literal("STRING", draw(texts)) for _ in range(count)))
    return Condition("n", operator, tuple(Literal("INTEGER", str(draw(numbers))) for _ in range(count)))


def meets(key: tuple[str, int], c: Condition) -> bool:
    value = key[0] if c.column == "k" else key[1]
    wanted = [v.text if c.column == "k" else int(v.text) for v in c.values]
    match c.operator:
        case "=":
            return value in wanted
        case "<":
            return value < wanted[0]  # type: ignore[operator]
        case "<=":
            return value <= wanted[0]  # type: ignore[operator]
        case ">":
            return value > wanted[0]  # type: ignore[operator]
    return value >= wanted[0]  # type: ignore[operator]


def is_in(key: tuple[str, int], part: Points | Range) -> bool:
    if isinstance(part, Points):
        return key in part.keys
    return (part.low is None or key >= part.low) and (part.high is None or key < part.high)


@given(st.lists(conditions(), max_size=4), texts, numbers)
def test_every_key_that_meets_the_conditions_is_read(found: list[Condition], k: str, n: int) -> None:
    if all(meets((k, n), c) for c in found):
        assert is_in((k, n), access(KEY, found))


def equal(column: str, kind: str, *values: str) -> Condition:
    return Condition(column, "=", tuple(Literal(kind, v) for v in values))


def test_a_whole_key_is_looked_up() -> None:
    found = access(KEY, [equal("k", "STRING", "a", "b"), equal("n", "INTEGER", "1")])
    assert found == Points((("a", 1), ("b", 1)))


def test_a_prefix_is_a_range() -> None:
    assert access(KEY, [equal("k", "STRING", "a")]) == Range(("a",), ("a\0",))


def test_a_literal_of_another_type_narrows_nothing() -> None:
    assert access(KEY, [equal("k", "INTEGER", "1"), equal("n", "NUMERIC", "1.0")]) == Range()


def test_a_key_part_without_a_column_ends_the_prefix() -> None:
    assert access((KEY[0], None), [equal("k", "STRING", "a")]) == Range(("a",), ("a\0",))


@pytest.mark.parametrize(
    "where", ["id = CAST(77 AS BIGINT)", "70 + 7 = id", "id IN (77, 77::BIGINT)", "id::BIGINT = 77"]
)
def test_a_constant_that_is_written_as_an_expression_is_looked_up(where: str) -> None:
    key = Field("id", t.INT)
    sql, known = f"SELECT * FROM v WHERE {where}", {"v": Readable(Schema((key,)), ("id",), ())}
    tree = asked_query(SourceText("", sql))
    assert tree is not None
    statement = bound(Statement(sql, frozenset({"v"})), tree, known, {}, lambda: 0)
    assert access([key], statement.conditions["v"]) == Points(((77,),))
