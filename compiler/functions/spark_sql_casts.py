"""Spark lowerings of standard SQL's casts: NULL where the reference raises, and `fails` is TRUE there."""

from __future__ import annotations

from collections.abc import Sequence

from flowql.compiler.functions.registry import lower_on_spark
from flowql.compiler.functions.signatures import Resolution
from flowql.compiler.functions.spark_text import null_where
from flowql.compiler.functions.sql_arithmetic import RANGES
from flowql.compiler.plan.types import Kind, spark_type


def _rounded(v: str, r: Resolution) -> str:
    """DECIMAL: halves away from zero; DOUBLE: to the even number."""
    kind = r.args[0].kind
    if kind is Kind.DECIMAL:
        return f"round({v}, 0)"
    return f"rint({v})" if kind is Kind.DOUBLE else v


def _out_of_range(args: Sequence[str], r: Resolution) -> str:
    if r.args[0].kind is Kind.BOOLEAN:
        return ""
    low, high = RANGES[r.result.kind]
    v = _rounded(args[0], r)
    if r.args[0].kind is Kind.DOUBLE:
        return f"(isnan({args[0]}) OR {v} < CAST('{low}' AS DOUBLE) OR {v} >= CAST('{high + 1}' AS DOUBLE))"
    wide = f"CAST({v} AS DECIMAL(38, 0))"
    return f"({wide} < CAST('{low}' AS DECIMAL(38, 0)) OR {wide} > CAST('{high}' AS DECIMAL(38, 0)))"


def _integer(args: Sequence[str], r: Resolution) -> str:
    fails = _out_of_range(args, r)
    sql = f"CAST({_rounded(args[0], r)} AS {spark_type(r.result)})"
    return null_where(fails, sql) if fails else sql


lower_on_spark("sql_to_int sql_to_bigint", _integer, _out_of_range)


def _boolean(args: Sequence[str], r: Resolution) -> str:
    """Texts go to the reference."""
    return f"({args[0]} <> 0)" if r.args[0].kind is Kind.INT else ""


lower_on_spark("sql_to_boolean", _boolean)
