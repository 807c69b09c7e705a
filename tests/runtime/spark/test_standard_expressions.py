"""Standard SQL on Spark: every lowered text gives what a database gives, with a NULL in each place."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flowql.compiler.functions.registry import lookup_aggregate
from flowql.compiler.functions.spark_sql import lower, lower_predicate
from flowql.compiler.functions.sums import exact_sum
from flowql.compiler.plan.expr import Column
from flowql.compiler.plan.logical import AggregateCall
from flowql.compiler.plan.types import BIGINT, BOOLEAN, INT, arrow_type
from flowql.runtime.batch import to_python
from flowql.runtime.spark.native.aggregates import aggregate_columns, reason_against
from flowql.runtime.spark.native.frames import from_spark
from tests.property.standard_expressions import answers, bound, rows, table, texts

SUMMED = {INT: [None, 1, -2, 2**31 - 1, -(2**31), 7], BIGINT: [None, 1, -2, 2**63 - 1, -(2**63), 10]}

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.turns("sessions")]


def test_spark_says_what_a_database_says(spark: SparkSession, tmp_path: Path) -> None:
    """Values, and which rows a filter keeps by the text that is given to Spark's sources."""
    pq.write_table(table().append_column("row__", pa.array(range(len(rows())))), tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path)).coalesce(1).cache()
    known = [(t, e, a, x) for t, e, a in zip(texts(), bound(), answers(), strict=True) if (x := lower(e)) is not None]
    not_lowered = sorted({t for t, e in zip(texts(), bound(), strict=True) if lower(e) is None})
    assert all("LIKE u" in t or "LIKE NULL" in t for t in not_lowered), not_lowered  # as everywhere: constant patterns
    items = [f"{x.sql} AS x{i}" for i, (_, _, _, x) in enumerate(known)]
    found = frame.selectExpr("row__", *items).toArrow().combine_chunks().sort_by("row__")
    wrong = []
    for i, (text, e, wanted, _) in enumerate(known):
        values = to_python(from_spark(found[f"x{i}"].combine_chunks(), e.type), e.type)
        wrong += [f"{text} of {r}: {v}, not {w}" for r, v, w in zip(rows(), values, wanted, strict=True) if v != w]
    conditions = [(t, a, x.sql) for t, e, a, _ in known if e.type == BOOLEAN and (x := lower_predicate(e)) is not None]
    counts = frame.selectExpr(*(f"count_if({sql}) AS c{i}" for i, (_, _, sql) in enumerate(conditions))).toArrow()
    for i, (text, wanted, _) in enumerate(conditions):
        if counts[f"c{i}"][0].as_py() != wanted.count(True):
            wrong.append(f"WHERE {text} keeps {counts[f'c{i}'][0]}, not {wanted.count(True)}")
    frame.unpersist()
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("name", ["sql_sum", "sql_avg"])
def test_sums_of_integers_are_those_of_the_runtime(spark: SparkSession, name: str) -> None:
    """Of groups of random values, and of one that has none."""
    from pyspark.sql import functions

    function, chance = lookup_aggregate(name), Random(3)
    assert function is not None
    for t, values in SUMMED.items():
        groups = [[chance.choice(values) for _ in range(n)] for n in (0, 1, 2, 3, 3, 6, 7, 9, 11)] + [[None, None]]
        r = function.resolve((t,), ())
        call = AggregateCall("x", name, (Column(t, "v"),), r.result)
        assert reason_against(call, bounded=True, placed=True) == ""
        rows = [{"g": i, "v": v} for i, group in enumerate(groups) for v in [None, *group]]
        frame = spark.createDataFrame(pa.Table.from_pylist(rows, pa.schema({"g": pa.int32(), "v": arrow_type(t)})))
        made = {x["g"]: x["x"] for x in frame.groupBy("g").agg(*aggregate_columns((call,), functions)).collect()}
        for i, group in enumerate(groups):
            acc = function.initial(r, ())
            for v in group:
                acc = function.add(r, ())(acc, v)
            assert made[i] == function.result(r, ())(acc), group


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_sum_that_cannot_be_exact_ends_the_job(spark: SparkSession, ansi: str) -> None:
    """Of lower bits that are few, so that the sum of the upper ones overflows after some rows, and of many, after as many rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    big = session.range(4, numPartitions=1).selectExpr("9223372036854775807L AS v")
    assert big.limit(2).selectExpr(f"{exact_sum('v', 1)} AS s").first() == (2 * (2**63 - 1),)
    for bits, n in [(1, 4), (62, 2)]:
        with pytest.raises(Exception, match=r"beyond what is added exactly|overflow"):
            big.limit(n).selectExpr(f"{exact_sum('v', bits)} AS s").first()
