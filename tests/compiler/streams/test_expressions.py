"""Expressions of Python are bound as the same text of SQL is: drawn at random, with all mistakes that they have."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql import Expression, StreamsBuilder, col, fn, lit, udf, when
from flowql.compiler.driver import Compiled
from flowql.compiler.functions.user_types import DefinitionError
from tests.compiler.streams.plans import compiled, plan_of

Pair = tuple[Any, str]
LEAVES: list[Pair] = [
    (col("price"), "PRICE"),
    (col("quantity"), "QUANTITY"),
    (col("ID"), "ID"),
    (col("state"), "STATE"),
    (col("ship").field("zip"), "SHIP->ZIP"),
    (col("tags")[1], "TAGS[1]"),
    (3, "3"),
    (-7, "-7"),
    (3_000_000_000, "3000000000"),
    (2.5, "2.5e0"),
    (Decimal("1.25"), "1.25"),
    ("it's", "'it''s'"),
    (True, "TRUE"),
    (None, "NULL"),
]
BINARY = {"+": "+", "-": "-", "*": "*", "/": "/", "%": "%", "==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}  # fmt: skip
APPLY = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b,
    "%": lambda a, b: a % b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
}  # fmt: skip


def expression(value: Any) -> Expression:
    return value if isinstance(value, Expression) else lit(value)


def binary(sign: str, a: Pair, b: Pair) -> Pair:
    text = {"&": "AND", "|": "OR"}.get(sign) or BINARY[sign]
    return APPLY[sign](expression(a[0]), b[0]), f"(({a[1]}) {text} ({b[1]}))"


def larger(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    one = st.one_of(
        st.builds(lambda a: (~expression(a[0]), f"(NOT ({a[1]}))"), inner),
        st.builds(lambda a: (-expression(a[0]), f"(-({a[1]}))"), inner),
        st.builds(lambda a: (expression(a[0]).is_null(), f"(({a[1]}) IS NULL)"), inner),
        st.builds(lambda a: (expression(a[0]).is_not_null(), f"(({a[1]}) IS NOT NULL)"), inner),
        st.builds(lambda a: (expression(a[0]).cast(float), f"CAST({a[1]} AS DOUBLE)"), inner),
        st.builds(lambda a: (expression(a[0]).cast("DECIMAL(9, 2)"), f"CAST({a[1]} AS DECIMAL(9, 2))"), inner),
        st.builds(lambda a: (expression(a[0]).cast(str), f"CAST({a[1]} AS STRING)"), inner),
        st.builds(lambda a: (fn.ABS(a[0]), f"ABS({a[1]})"), inner),
        st.builds(lambda a: (fn.ucase(a[0]), f"UCASE({a[1]})"), inner),
        st.builds(lambda a: (expression(a[0]).like("a%"), f"(({a[1]}) LIKE 'a%')"), inner),
    )
    two = st.one_of(
        st.builds(binary, st.sampled_from([*BINARY, "&", "|"]), inner, inner),
        st.builds(lambda a, b: (expression(a[0]).is_in(b[0], 1), f"(({a[1]}) IN ({b[1]}, 1))"), inner, inner),
        st.builds(lambda a, b: (fn.COALESCE(a[0], b[0]), f"COALESCE({a[1]}, {b[1]})"), inner, inner),
        st.builds(
            lambda a, b: (expression(a[0]).is_distinct_from(b[0]), f"(({a[1]}) IS DISTINCT FROM ({b[1]}))"), inner, inner
        ),
        st.builds(
            lambda a, b, c: (expression(a[0]).between(b[0], c[0]), f"(({a[1]}) BETWEEN ({b[1]}) AND ({c[1]}))"),
            inner, inner, inner,
        ),
        st.builds(
            lambda a, b, c: (
                when(expression(a[0]), b[0]).otherwise(c[0]),
                f"CASE WHEN {a[1]} THEN {b[1]}{'' if c[0] is None else f' ELSE {c[1]}'} END",
            ),
            inner, inner, inner,
        ),
    )  # fmt: skip
    return one | two


def said(made: Compiled) -> list[tuple[str, str]]:
    """Codes and titles, but for those that show what is written. Equal ones once: two of one line of Python have one place."""
    return list(dict.fromkeys((d.code, "" if d.code == "FQ2026" else d.title) for d in made.diagnostics))


@settings(max_examples=400, deadline=None)
@given(st.recursive(st.sampled_from(LEAVES), larger, max_leaves=8))
def test_an_expression_is_bound_as_its_text_is(pair: Pair) -> None:
    s = StreamsBuilder("S")
    s.stream("ORDERS").map_values(x=expression(pair[0])).to("T")
    a, b = compiled("", s), compiled(f"CREATE STREAM T AS SELECT ID, {pair[1]} AS X FROM ORDERS;")
    if pair[1] == "ID":
        return  # of SQL it is the key
    assert said(a) == said(b), pair[1]
    assert [q.logical for q in a.plan.queries] == [q.logical for q in b.plan.queries]


def test_constants() -> None:
    s = StreamsBuilder("S")
    values = {"d": date(2024, 2, 1), "t": datetime(2024, 2, 1, 3, 4, 5), "a": [1, 2], "s": {"`x`": 1.5}}
    s.stream("ORDERS").map_values(**{k: lit(v) for k, v in values.items()}).to("T")
    sql = """CREATE STREAM T AS SELECT ID, CAST('2024-02-01' AS DATE) AS D, CAST('2024-02-01T03:04:05.000' AS TIMESTAMP) AS T,
             ARRAY[1, 2] AS A, STRUCT(`x` := 1.5e0) AS S FROM ORDERS;"""
    assert plan_of("", s).queries[0].logical == plan_of(sql).queries[0].logical


def test_a_lambda_is_one_of_sql() -> None:
    s = StreamsBuilder("S")
    s.stream("ORDERS").map_values(t=fn.TRANSFORM(col("tags"), lambda tag: fn.UCASE(tag))).to("T")
    sql = "CREATE STREAM T AS SELECT ID, TRANSFORM(TAGS, TAG => UCASE(TAG)) AS T FROM ORDERS;"
    assert plan_of("", s).queries[0].logical == plan_of(sql).queries[0].logical


def test_names_in_back_ticks_are_as_written() -> None:
    s = StreamsBuilder("S")
    s.stream("ORDERS").map_values(**{"`total`": col("`PRICE`") * 2}).to("`t`")
    assert (
        plan_of("", s).queries[0].logical
        == plan_of("CREATE STREAM `t` AS SELECT ID, PRICE * 2 AS `total` FROM ORDERS;").queries[0].logical
    )


@udf(name="TWICE")
def twice(x: float) -> float:
    return 2 * x


def test_a_function_is_called_by_what_declares_it() -> None:
    assert repr(fn(twice, col("price"))) == "TWICE(PRICE)"


MISTAKES = {
    "and": (lambda: bool(col("a") > 1), "an expression has no truth value"),
    "iterated": (lambda: list(col("a")), "an expression cannot be iterated over"),
    "constant": (lambda: lit(object()), "has no constant in SQL"),
    "infinite": (lambda: lit(float("inf")), "inf has no constant in SQL"),
    "large": (lambda: col("a") + 2**63, "out of the range of BIGINT"),
    "name": (lambda: col(""), "'' is not a valid name of a column"),
    "in_nothing": (lambda: col("a").is_in(), "is_in() has no values"),
    "function": (lambda: fn("a b", 1), "'a b' is not a function that SQL can call"),
    "python_function": (lambda: fn(print, 1), "is not a function that SQL can call"),
    "cast": (lambda: col("a").cast(object), "has no SQL type"),
}


@pytest.mark.parametrize("name", list(MISTAKES))
def test_mistakes_are_named(name: str) -> None:
    write, title = MISTAKES[name]
    with pytest.raises(DefinitionError, match=title.replace("(", r"\(").replace(")", r"\)")) as caught:
        write()
    assert caught.value.hint


def test_a_null_that_is_cast_to_a_text_has_no_type_beside_numbers() -> None:
    """It was found by the expressions above: the compiler failed."""
    sql = "CREATE STREAM T AS SELECT ID, CASE WHEN ID > 1 THEN PRICE ELSE CAST(NULL AS STRING) END AS X FROM ORDERS;"
    assert [str(f.type) for f in plan_of(sql).queries[0].logical.schema] == ["BIGINT", "DOUBLE"]
