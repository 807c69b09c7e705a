"""Every DuckDB lowering gives what the reference gives, for all rows it does not decline."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowql.compiler.functions.casts import can_cast, has_duckdb_cast
from flowql.compiler.functions.duckdb_sql import lower
from flowql.compiler.functions.evaluate import compile_row
from flowql.compiler.functions.registry import all_functions
from flowql.compiler.functions.signatures import FunctionTypeError, Resolution
from flowql.compiler.plan.expr import Call, Column, Expr, Literal
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
    arrow_type,
    decimal,
    map_of,
    struct,
)
from flowql.runtime.operators.kernels import calls_arrow

DEC = decimal(9, 3)
TYPES = (INT, BIGINT, DOUBLE, STRING, DEC, BOOLEAN, DATE, TIMESTAMP, TIME, BYTES, array(INT))
INT_EDGES = [0, 1, -1, 2, -2, 7, 2**31 - 1, -(2**31)]
BIG_EDGES = [*INT_EDGES, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]
DOUBLE_EDGES = [0.0, -0.0, 1.5, -2.5, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 2.0**31, 2.0**63, 0.1]
TEXT_EDGES = [
    "",
    " ",
    "a",
    "A",
    "ab",
    "aXb",
    "é",
    "ß",
    "😀",
    "İ",
    "\t a ",
    "a%b",
    "a_",
    "12",
    "-7",
    "1.5",
    "+3",
    "\\",
    "%",
]
TEXT_EDGES += ["1e3", "99999999999999999999", "2147483648", "NaN", "true", "'", '"', "\n", "x" * 40]
STRATEGIES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.INT: st.sampled_from(INT_EDGES) | st.integers(-(2**31), 2**31 - 1) | st.integers(-5, 12),
    Kind.BIGINT: st.sampled_from(BIG_EDGES) | st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 12),
    Kind.DOUBLE: st.sampled_from(DOUBLE_EDGES) | st.floats() | st.floats(-100, 100),
    Kind.STRING: st.sampled_from(TEXT_EDGES) | st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1)),
    Kind.DECIMAL: st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    Kind.BOOLEAN: st.booleans(),
    Kind.DATE: st.integers(-700_000, 2_900_000) | st.integers(-3, 3),
    Kind.TIMESTAMP: st.integers(-60_000_000_000_000, 250_000_000_000_000) | st.integers(-3, 3),
    Kind.MICROS: st.integers(-60_000_000_000_000_000, 250_000_000_000_000_000) | st.integers(-3, 3),
    Kind.TIME: st.integers(0, 86_399_999),
    Kind.BYTES: st.binary(max_size=4),
}


def values_of(t: SqlType) -> st.SearchStrategy[Any]:
    if t.kind is Kind.ARRAY:
        return st.lists(values_of(t.element), max_size=3) | st.none()
    if t.kind is Kind.STRUCT:
        return st.fixed_dictionaries({n: values_of(f) for n, f in t.fields}) | st.none()
    if t.kind is Kind.MAP:
        return st.dictionaries(STRATEGIES[t.args[0].kind], values_of(t.args[1]), max_size=2) | st.none()
    return STRATEGIES[t.kind] | st.none()


def plain(values: pa.ChunkedArray, t: SqlType) -> list[Any]:
    """DuckDB's result as reference values."""
    if t.kind in (Kind.TIMESTAMP, Kind.MICROS):
        return pc.cast(values, pa.int64()).to_pylist()
    if t.kind is Kind.DATE:
        return pc.cast(values, pa.int32()).to_pylist()
    if t.kind is Kind.TIME:
        return [None if v is None else v // 1000 for v in pc.cast(values, pa.int64()).to_pylist()]
    return values.to_pylist()


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and a == b and str(a) == str(b)


CONNECTION = duckdb.connect(config={"threads": 1})


def check(expr: Expr, columns: list[tuple[str, SqlType]], rows: list[tuple[Any, ...]]) -> None:
    lowered = lower(expr)
    assert lowered is not None
    row_kernel = compile_row([expr], [n for n, _ in columns])
    expected = [row_kernel(r)[0] for r in rows]
    given_rows = pa.table(
        {n: pa.array([r[i] for r in rows], arrow_type(t)) for i, (n, t) in enumerate(columns)},
    )
    result = CONNECTION.sql(f"SELECT {lowered.sql} AS v, {lowered.decline()} AS d FROM given_rows").to_arrow_table()
    assert given_rows.num_rows == result.num_rows
    for row, e, v, d in zip(rows, expected, plain(result["v"], expr.type), result["d"].to_pylist(), strict=True):
        assert d or alike(e, v), f"{expr} of {row}: row kernel {e!r}, vector kernel {v!r}\n{lowered.sql}"


def signatures(name: str) -> list[tuple[SqlType, ...]]:
    """Up to six argument lists the function takes as they are and lowers; spread over the possibilities."""
    function = all_functions()[name]
    found = []
    for n in (3,) if name == "case" else range(1 if name.islower() else 0, 4):
        for types in itertools.product(TYPES, repeat=n):
            if len(set(types)) > 2 and n > 2 and name not in ("case", "LPAD", "RPAD"):
                continue
            try:
                r = function.resolve(types)
                lowers = function.duckdb is not None and function.duckdb([f"c{i}" for i in range(n)], r)
            except (FunctionTypeError, ValueError, IndexError):  # the number of operands is the parser's business
                continue
            if r.args == types and lowers:
                found.append(types)
    return [found[i * len(found) // 6] for i in range(6)] if len(found) > 6 else found


SPECIAL = {"cast", "struct", "field", "array", "subscript"}
# Their text in DuckDB depends on constant arguments, or they give intervals, which no column holds: `function_calls.py` has calls of each.
SPECIAL |= {
    "REPLACE",
    "sql_replace",
    "sql_extract",
    "sql_date_part",
    "sql_date_trunc",
    "sql_round",
    "sql_interval",
    "sql_interval_micros",
}
CASES = [
    (name, types)
    for name, f in all_functions().items()
    if f.duckdb is not None and not f.table and name not in SPECIAL
    for types in signatures(name)
]
# Their statements call functions over columns, which a bare connection does not have: `test_every_function.py` runs them in kernels.
SPECIAL |= {
    name
    for name, types in CASES
    if (lowering := all_functions()[name].duckdb) is not None
    and calls_arrow(lowering([f"c{i}" for i in range(len(types))], all_functions()[name].resolve(types)))
}
CASES = [(name, types) for name, types in CASES if name not in SPECIAL]


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("name", "types"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(map(str, v)))
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_function(name: str, types: tuple[SqlType, ...], data: st.DataObject) -> None:
    r: Resolution = all_functions()[name].resolve(types)
    columns = [(f"c{i}", t) for i, t in enumerate(types)]
    rows = data.draw(st.lists(st.tuples(*map(values_of, types)), min_size=1, max_size=60))
    check(Call(r.result, name, tuple(Column(t, n) for n, t in columns)), columns, rows)


def test_trim_leaves_spaces_that_are_not_ascii() -> None:
    rows = [(t,) for t in ("\xa07", "\u2003x ", " \u3000", "\t a", " ", "")]
    check(Call(STRING, "TRIM", (Column(STRING, "c0"),)), [("c0", STRING)], rows)


@pytest.mark.parametrize("t", [decimal(2, 2), decimal(38, 38)])
def test_a_decimal_without_whole_digits_is_written_with_a_zero(t: SqlType) -> None:
    """DuckDB writes -.01."""
    expr = Call(STRING, "cast", (Column(t, "c"),))
    rows = [(Decimal(n).scaleb(-t.scale),) for n in (-1, 0, 99)]
    if t.precision < 38:
        check(expr, [("c", t)], rows)
    else:
        assert lower(expr) is None


def test_functions_with_lowering_are_covered() -> None:
    lowered = {n for n, f in all_functions().items() if f.duckdb is not None and not f.table}
    assert lowered - {name for name, _ in CASES} <= SPECIAL


CASTS = [(s, t) for s in TYPES for t in (*TYPES, decimal(4, 1), decimal(38, 5)) if has_duckdb_cast(s, t) and s != t]


@pytest.mark.turns("cases")
@pytest.mark.parametrize(("source", "target"), CASTS, ids=str)
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_cast(source: SqlType, target: SqlType, data: st.DataObject) -> None:
    assert can_cast(source, target)
    rows = data.draw(st.lists(st.tuples(values_of(source)), min_size=1, max_size=60))
    check(Call(target, "cast", (Column(source, "c"),)), [("c", source)], rows)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(values_of(array(INT)), values_of(INT), values_of(map_of(STRING, INT)), values_of(STRING)), min_size=1
    )
)
def test_containers(rows: list[tuple[Any, ...]]) -> None:
    columns = [("xs", array(INT)), ("i", INT), ("m", map_of(STRING, INT)), ("k", STRING)]
    xs, i, m, k = (Column(t, n) for n, t in columns)
    shape = struct(("A", INT), ("b c", STRING))
    made = Call(shape, "struct", (i, k))
    rows = [(a, b, None if c is None else list(c.items()), d) for a, b, c, d in rows]
    as_maps = [(a, b, None if c is None else dict(c), d) for a, b, c, d in rows]
    for expr in (
        Call(INT, "subscript", (xs, i)),
        Call(array(INT), "array", (i, Literal(INT, 5), i)),
        Call(STRING, "field", (made, Literal(STRING, "b c"))),
        Call(INT, "subscript", (m, k)),
    ):
        kernel = compile_row([expr], [n for n, _ in columns])
        check_with(expr, columns, rows, [kernel(r)[0] for r in as_maps])


def check_with(
    expr: Expr, columns: list[tuple[str, SqlType]], rows: list[tuple[Any, ...]], expected: list[Any]
) -> None:
    lowered = lower(expr)
    assert lowered is not None
    given_rows = pa.table({n: pa.array([r[j] for r in rows], arrow_type(t)) for j, (n, t) in enumerate(columns)})
    result = CONNECTION.sql(f"SELECT {lowered.sql} AS v FROM given_rows").to_arrow_table()["v"].to_pylist()
    assert len(given_rows) == len(result)
    assert all(map(alike, expected, result)), (expr, expected, result)


EXTREMES = st.sampled_from([*INT_EDGES, 3, None])


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> Expr:
    """A nested INT expression over the columns a and b."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from([Column(INT, "a"), Column(INT, "b"), Literal(INT, 3), Literal(INT, None)]))
    op = draw(st.sampled_from(["add", "sub", "mul", "div", "mod", "case", "COALESCE"]))
    left, right = draw(trees(depth=depth - 1)), draw(trees(depth=depth - 1))
    if op == "case":
        test = Call(BOOLEAN, draw(st.sampled_from(["lt", "eq", "ge"])), (left, right))
        return Call(INT, "case", (Call(BOOLEAN, "not", (test,)), left, right))
    return Call(INT, op, (left, right))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees(), st.lists(st.tuples(EXTREMES, EXTREMES), min_size=1, max_size=30))
def test_nested_expressions(expr: Expr, rows: list[tuple[Any, ...]]) -> None:
    if isinstance(expr, Call):
        check(expr, [("a", INT), ("b", INT)], rows)
