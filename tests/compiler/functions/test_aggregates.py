"""Aggregates: folding, undoing, merging, and the partial forms in DuckDB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowql.compiler.functions import builtin
from flowql.compiler.functions.numeric import NumericOverflow
from flowql.compiler.functions.registry import lookup, lookup_aggregate
from flowql.compiler.functions.signatures import FunctionTypeError
from flowql.compiler.plan.types import (
    BIGINT,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Kind,
    SqlType,
    array,
    arrow_type,
    decimal,
    duckdb_type,
    struct,
)

assert builtin.FAMILIES


class Folded:
    """An aggregate bound to types, for tests."""

    def __init__(self, name: str, types: Sequence[SqlType], init: tuple[Any, ...] = ()) -> None:
        self.f = lookup_aggregate(name)
        assert self.f is not None
        self.init = init
        self.r = self.f.resolve(tuple(types), init)

    def part(self, name: str) -> Any:
        maker = getattr(self.f, name)
        return maker and maker(self.r, self.init)

    def fold(self, rows: Sequence[tuple[Any, ...]]) -> Any:
        acc, add = self.part("initial"), self.part("add")
        for row in rows:
            acc = add(acc, *row)
        return acc

    def value(self, *values: Any) -> Any:
        return self.part("result")(self.fold([v if isinstance(v, tuple) else (v,) for v in values]))


@pytest.mark.parametrize(
    ("name", "types", "init", "values", "expected"),
    [
        ("COUNT", (), (), [(), ()], 2),
        ("COUNT", (INT,), (), [1, None], 1),
        ("SUM", (INT,), (), [2**31 - 1, 1, None], -(2**31)),
        ("SUM", (INT,), (), [None], 0),
        ("SUM", (decimal(4, 1),), (), [Decimal("5.4"), Decimal("100.1")], Decimal("105.5")),
        ("AVG", (INT,), (), [1, 2, None, 2], 5 / 3),
        ("AVG", (INT,), (), [None], 0.0),
        ("MIN", (STRING,), (), ["b", None, "a"], "a"),
        ("MAX", (DOUBLE,), (), [1.0, -math.inf], 1.0),
        ("COLLECT_LIST", (STRING,), (), ["b", None, "b"], ["b", None, "b"]),
        ("COLLECT_LIST", (INT,), (1,), [0, 100], [0]),
        ("COLLECT_SET", (array(INT),), (), [[1], [1], None, None], [[1], None]),
        ("COUNT_DISTINCT", (INT,), (), [1, 1, None, 2], 2),
        ("HISTOGRAM", (STRING,), (), ["a", "b", "a", None], {"a": 2, "b": 1}),
        ("ATTR", (STRING,), (), ["1", "1"], "1"),
        ("ATTR", (STRING,), (), ["1", None], None),
        ("TOPK", (BIGINT,), (3,), [100, 99, 7, 100], [100, 100, 99]),
        ("TOPK", (INT, STRING), (1,), [(0, "z"), (5, None)], [{"sort_col": 5, "col0": None}]),
        ("TOPKDISTINCT", (BIGINT,), (3,), [100, 99, 7, 100, 8], [100, 99, 8]),
        ("EARLIEST_BY_OFFSET", (INT,), (), [None, 12, 13], 12),
        ("EARLIEST_BY_OFFSET", (INT,), (False,), [None, 13], None),
        ("EARLIEST_BY_OFFSET", (INT,), (2, False), [None, 13, 14], [None, 13]),
        ("EARLIEST_BY_OFFSET", (INT,), (2,), [None], []),
        ("LATEST_BY_OFFSET", (INT,), (), [1, None], 1),
        ("LATEST_BY_OFFSET", (INT,), (False,), [1, None], None),
        ("LATEST_BY_OFFSET", (INT,), (2,), [1, 2, 3], [2, 3]),
        ("STDDEV_SAMP", (INT,), (), [0, 10], 50.0),
        ("STDDEV_SAMPLE", (DOUBLE,), (), [10.0, 12.0, 13.0], 1.5275252316519465),
        ("SUM_LIST", (array(BIGINT),), (), [[1, None], [2, 2], None], 5),
    ],
)
def test_value(name: str, types: tuple[SqlType, ...], init: tuple[Any, ...], values: list[Any], expected: Any) -> None:
    assert (
        Folded(name, types, init).value(*values) == pytest.approx(expected)
        if isinstance(expected, float)
        else (Folded(name, types, init).value(*values) == expected)
    )


def test_correlation() -> None:
    f = Folded("CORRELATION", (INT, INT))
    assert math.isnan(f.value((1, 8)))
    assert f.value((1, 8), (-3, -2), (None, 4)) == pytest.approx(1.0)


def test_a_decimal_sum_that_overflows_is_an_error_of_the_value() -> None:
    with pytest.raises(NumericOverflow):
        Folded("SUM", (decimal(2, 1),)).value(Decimal("9.9"), Decimal("0.1"))


@pytest.mark.parametrize(
    ("name", "types", "init"),
    [("SUM", (STRING,), ()), ("TOPK", (INT,), ()), ("TOPK", (INT,), (0,)), ("MIN", (array(INT),), ()), ("AVG", (), ())],
)
def test_wrong_arguments(name: str, types: tuple[SqlType, ...], init: tuple[Any, ...]) -> None:
    with pytest.raises(FunctionTypeError, match=name):
        Folded(name, types, init)


PAIR = struct(("N", INT), ("S", STRING))


def test_extremes_of_structs_go_field_by_field_with_null_first() -> None:
    rows = [{"N": 1, "S": "b"}, {"N": 2, "S": None}, None, {"N": 2, "S": "a"}, {"N": None, "S": "z"}]
    assert Folded("MAX", (PAIR,)).value(*rows) == {"N": 2, "S": "a"}
    assert Folded("MIN", (PAIR,)).value(*rows) == {"N": None, "S": "z"}
    assert Folded("MAX", (struct(("P", PAIR)),)).value({"P": rows[0]}, {"P": None}) == {"P": rows[0]}
    with pytest.raises(FunctionTypeError, match="MAX"):
        Folded("MAX", (struct(("N", INT), ("XS", array(INT))),))


SMALL = st.lists(st.tuples(st.integers(-3, 3) | st.none()), max_size=8)
UNDOABLE = ["COUNT", "SUM", "AVG", "COLLECT_LIST", "ATTR", "STDDEV_SAMP"]
MERGED = [*UNDOABLE, "MIN", "MAX", "COLLECT_SET", "COUNT_DISTINCT", "LATEST_BY_OFFSET", "EARLIEST_BY_OFFSET"]


@pytest.mark.parametrize("name", UNDOABLE)
@settings(max_examples=20, deadline=None)
@given(rows=SMALL, data=st.data())
def test_undo_takes_a_row_back(name: str, rows: list[tuple[int | None]], data: st.DataObject) -> None:
    f = Folded(name, (INT,))
    row = data.draw(st.tuples(st.integers(-3, 3) | st.none()))
    undone = f.part("undo")(f.fold([*rows, row]), *row)
    assert f.part("result")(undone) == pytest.approx(f.part("result")(f.fold(rows)))


@pytest.mark.parametrize("name", MERGED)
@settings(max_examples=20, deadline=None)
@given(a=SMALL, b=SMALL)
def test_merge_is_folding_on(name: str, a: list[tuple[int | None]], b: list[tuple[int | None]]) -> None:
    f = Folded(name, (INT,))
    merged = f.part("merge")(f.fold(a), f.fold(b))
    assert f.part("result")(merged) == pytest.approx(f.part("result")(f.fold([*a, *b])))


VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.sampled_from([2**63 - 1, -(2**63)]) | st.integers(-9, 9),
    DOUBLE: st.sampled_from([math.nan, math.inf, -0.0, 1.5]) | st.floats(-100, 100),
    decimal(9, 3): st.integers(-(10**6), 10**6).map(lambda n: Decimal(n).scaleb(-3)),
    STRING: st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1), max_size=3),
    DATE: st.integers(-10_000, 40_000),
    TIMESTAMP: st.integers(-(10**12), 10**13),
    PAIR: st.fixed_dictionaries({"N": st.integers(-3, 3), "S": st.sampled_from("abc")}),
}
PARTIALS = [
    (n, t)
    for n in ("COUNT", "SUM", "AVG", "MIN", "MAX")
    for t in VALUES
    if n in ("COUNT", "MIN", "MAX") or t.is_numeric
]
CONNECTION = duckdb.connect(config={"threads": 1})


@pytest.mark.parametrize(("name", "t"), PARTIALS, ids=str)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_partial_results_equal_folding(name: str, t: SqlType, data: st.DataObject) -> None:
    f = Folded(name, (t,))
    values = data.draw(st.lists(VALUES[t] | st.none(), max_size=20))
    given_values = pa.table({"x": pa.array(values, arrow_type(t))})
    sql = ", ".join(_reference_sql(f"{name}(CAST(x AS {duckdb_type(f.r.args[0])}))", t) for name in f.f.arrow)
    row = CONNECTION.sql(f"SELECT {sql} FROM given_values").to_arrow_table()
    assert given_values.num_columns == 1
    partial = f.part("from_partial")(*(c.to_pylist()[0] for c in row.columns))
    found = f.part("result")(f.part("merge")(f.part("initial"), partial))
    cast = (lambda v: float(v)) if f.r.args[0] == DOUBLE and t != DOUBLE else (lambda v: v)
    expected = f.value(*(None if v is None else cast(v) for v in values))
    assert type(found) is type(expected)
    assert found == expected or found == pytest.approx(expected, nan_ok=True, rel=1e-9)


def _reference_sql(sql: str, t: SqlType) -> str:
    """Dates and times as the integers that stand for them; counts and sums as they are."""
    if sql.startswith(("count", "sum")):
        return sql
    if t.kind in (Kind.TIMESTAMP, Kind.TIME):
        return f"epoch_ms({sql})"
    return f"CAST({sql} - DATE '1970-01-01' AS INTEGER)" if t.kind is Kind.DATE else sql


def test_decimals_of_38_digits_keep_them_all() -> None:
    """Python's operators round to 28."""
    wide = decimal(38, 2)
    big, one = Decimal("123456789012345678901234567890123456.78"), Decimal("0.01")
    total = lookup_aggregate("SUM")
    assert total is not None
    r = total.resolve((wide,), ())
    assert total.add(r, ())(big, one) == Decimal("123456789012345678901234567890123456.79")
    assert total.undo is not None
    assert total.undo(r, ())(big, one) == Decimal("123456789012345678901234567890123456.77")
    for name in ("ABS", "neg"):
        function = lookup(name)
        assert function is not None
        assert function.reference(function.resolve((wide,)))(big).copy_abs() == big
