"""Precedence, node shapes and spans of expressions."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flowql.compiler.diagnostics.diagnostic import ParseError
from flowql.compiler.diagnostics.source import SourceText
from flowql.compiler.dialect.ast import Ast, Func, Lit, Name
from flowql.compiler.dialect.parser import parse_expression
from flowql.compiler.dialect.standard.tree import Call
from tests.compiler.dialect.outline import check
from tests.compiler.dialect.writing import to_sql


def parse(text: str, dialect: str = "ksql") -> Ast:
    return parse_expression(SourceText("x.sql", text), "ksql" if dialect == "ksql" else "standard")


def test_precedence_and_spans() -> None:
    check(
        "not a or b = 1 + 2 * -c and d",
        """
        or              not a or b = 1 + 2 * -c and d
          not             not a
            name A          a
          and             b = 1 + 2 * -c and d
            eq              b = 1 + 2 * -c
              name B          b
              add             1 + 2 * -c
                int 1           1
                mul             2 * -c
                  int 2           2
                  neg             -c
                    name C          c
            name D          d
        """,
    )


def test_parentheses_belong_to_the_span_of_what_holds_them() -> None:
    check(
        "(a or b) and c or (d)",
        """
        or              (a or b) and c or (d)
          and             (a or b) and c
            or              a or b
              name A          a
              name B          b
            name C          c
          name D          d
        """,
    )


def test_arithmetic_groups_to_the_left() -> None:
    assert parse("a - b - c") == parse("(a - b) - c")
    assert parse("a / b % c") == parse("(a / b) % c")
    assert parse("a - -1") == Func("sub", (Name(("A",)), Lit("int", -1)))


def test_access_to_structs_arrays_and_maps() -> None:
    check(
        "s.a->b['k'][-1]->`c`",
        """
        field           s.a->b['k'][-1]->`c`
          subscript       s.a->b['k'][-1]
            subscript       s.a->b['k']
              field           s.a->b
                name S.A        s.a
                string B        b
              string k        'k'
            int -1          -1
          string c        `c`
        """,
    )


def test_constructors() -> None:
    check(
        "struct(a := array[1, 2], `b` := map('k' := null))",
        """
        struct          struct(a := array[1, 2], `b` := map('k' := null))
          string A        a
          array           array[1, 2]
            int 1           1
            int 2           2
          string b        `b`
          map             map('k' := null)
            string k        'k'
            null None       null
        """,
    )


def test_lambdas() -> None:
    check(
        "reduce(m, 0, (s, k, v) => s + v) > len(filter(a, x => x))",
        """
        gt              reduce(m, 0, (s, k, v) => s + v) > len(filter(a, x => x))
          REDUCE          reduce(m, 0, (s, k, v) => s + v)
            name M          m
            int 0           0
            lambda S K V    (s, k, v) => s + v
              add             s + v
                name S          s
                name V          v
          LEN             len(filter(a, x => x))
            FILTER          filter(a, x => x)
              name A          a
              lambda X        x => x
                name X          x
        """,
    )


def test_case_of_both_forms() -> None:
    assert parse("CASE x WHEN 1 THEN 'a' ELSE 'b' END") == parse("CASE WHEN x = 1 THEN 'a' ELSE 'b' END")
    bare = parse("CASE WHEN a THEN 1 WHEN b THEN 2 END")
    assert isinstance(bare, Func)
    assert (bare.name, len(bare.args)) == ("case", 4)


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("a IS NULL", "is_null", 1),
        ("a IS NOT NULL", "is_not_null", 1),
        ("a IS DISTINCT FROM b", "is_distinct", 2),
        ("a IS NOT DISTINCT FROM b", "is_not_distinct", 2),
        ("a BETWEEN 1 AND 2 + 3", "between", 3),
        ("a NOT BETWEEN 1 AND 2", "not_between", 3),
        ("a IN (1, 2, 3)", "in", 4),
        ("a NOT IN (b OR c)", "not_in", 2),
        ("a LIKE 'x%'", "like", 2),
        ("a NOT LIKE 'x!%' ESCAPE '!'", "not_like", 3),
        ("a <> b", "ne", 2),
        ("a != b", "ne", 2),
        ("a || b", "CONCAT", 2),
        ("count(*)", "COUNT", 0),
    ],
)
def test_operators(text: str, name: str, count: int) -> None:
    ast = parse(text)
    assert isinstance(ast, Func)
    assert (ast.name, len(ast.args)) == (name, count)


@pytest.mark.parametrize(
    ("text", "lit"),
    [
        ("1", Lit("int", 1)),
        ("-2147483648", Lit("int", -(2**31))),
        ("2147483648", Lit("bigint", 2**31)),
        ("-9223372036854775808", Lit("bigint", -(2**63))),
        ("0010", Lit("int", 10)),
        ("1.50", Lit("decimal", Decimal("1.50"))),
        ("-.5", Lit("decimal", Decimal("-0.5"))),
        ("1.", Lit("decimal", Decimal(1))),
        ("1e3", Lit("double", 1000.0)),
        ("-4.9E-324", Lit("double", -5e-324)),
        ("'it''s \\ here'", Lit("string", "it's \\ here")),
        ("True", Lit("bool", True)),
        ("null", Lit("null", None)),
        ("interval '2' minutes", Lit("interval", 120_000)),
    ],
)
def test_literals(text: str, lit: Lit) -> None:
    ast = parse(text)
    assert ast == lit
    assert repr(getattr(ast, "value", None)) == repr(lit.value)  # 1.50 keeps its scale, True is no 1
    assert ast.span.length == len(text)


def test_names_fold_by_dialect_unless_quoted() -> None:
    assert parse("Foo.`Bar`") == Name(("FOO", "Bar"))
    assert parse('"Foo"') == Name(("Foo",))
    assert parse("Foo.`Bar`", "standard") == Name(("foo", "Bar"))
    assert parse("`a``b`") == Name(("a`b",))


def test_system_columns_have_one_name_in_every_dialect() -> None:
    assert parse("windowStart", "standard") == parse("windowStart") == Name(("WINDOWSTART",))
    assert parse("b.rowtime", "standard") == Name(("b", "ROWTIME"))
    assert parse('"rowtime"', "standard") == Name(("rowtime",))


def test_casts_and_typed_literals() -> None:
    check(
        "cast(a as map<string, decimal(4, 2)>)",
        """
        cast MAP<STRING, DECIMAL(4, 2)>cast(a as map<string, decimal(4, 2)>)
          name A          a
        """,
    )
    assert to_sql(parse("date '2024-05-01'")) == "CAST('2024-05-01' AS DATE)"


def test_the_unit_of_a_time_function_is_a_text() -> None:
    assert parse("timestampadd(days, 3, t)") == Func(
        "TIMESTAMPADD", (Lit("string", "DAYS"), Lit("int", 3), Name(("T",)))
    )
    assert parse("greatest(days, hours)") == Func("GREATEST", (Name(("DAYS",)), Name(("HOURS",))))


def test_words_that_are_only_sometimes_keywords_are_names() -> None:
    for word in ("key", "date", "map", "array", "struct", "emit", "size", "topic", "source", "interval"):
        assert parse(word) == Name((word.upper(),))


def test_standard_aggregates() -> None:
    ast = parse("sum(distinct x) filter (where x > 0)", "standard")
    assert isinstance(ast, Call)
    assert ast.distinct
    assert ast.filter == parse("x > 0", "standard")


@pytest.mark.parametrize(
    "nested", ["(" * 400 + "a" + ")" * 400, "NOT " * 900 + "a", "- " * 900 + "a", "+" * 5000 + "b c"]
)
def test_no_text_exhausts_the_stack(nested: str) -> None:
    with pytest.raises(ParseError):
        parse(nested)


def test_long_rows_of_operators_stay_shallow_or_are_refused() -> None:
    ast: Ast = parse(" OR ".join(f"a = {i}" for i in range(2000)))
    depth = 0
    while isinstance(ast, Func):
        ast, depth = ast.args[0], depth + 1
    assert depth < 30
    for text in ("a" + " + a" * 3000, "a" + " * a" * 3000, "a" + "->b" * 3000):
        with pytest.raises(ParseError):
            parse(text)


def test_names_may_begin_with_a_digit_and_numbers_have_no_letters() -> None:
    assert parse("0x1F") == Name(("0X1F",))
    assert parse("1r.2C") == Name(("1R", "2C"))
    for text in ("1.5x", "1.2.3", "1e+"):
        with pytest.raises(ParseError):
            parse(text)


def test_forty_levels_are_fine() -> None:
    assert parse("f(" * 40 + "a" + ")" * 40).span.length == 121
