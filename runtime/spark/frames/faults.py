"""The faults of rows of the frames that a plan reads: in numbers (`faults`), and one by one (`bad_rows`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from flowql.compiler.functions.spark_text import quoted, text
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.spark.errors import FrameUnfit
from flowql.runtime.spark.frames.lower import check_known
from flowql.runtime.spark.frames.relation import DEFAULT_ROWS, KEY, ORDER, SEQUENCE, TableRows
from flowql.runtime.spark.frames.source import FILE, ROW, Prepared, prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def faults(plan: Plan, sources: Mapping[str, DataFrame], tables: Mapping[str, TableRows]) -> DataFrame:
    """One row per source: SOURCE, and as BIGINT ROWS, BAD_TIMES, NO_KEY (rows that are left out, each counted once) and TIES.

    TIES is the number of keys of a table at one time (one `sequence_by`) with several values, of which the greatest counts; equal rows
    are no tie. Values that an expression of a query fails at are not counted. The counts are computed, in one pass over each source,
    when the caller asks for the rows. Raises FrameUnfit as `lower`.
    """
    check_known(plan, (*sources, *tables))
    if not sources:
        raise FrameUnfit("no frames are given", help="name each with its stream or table")
    parts = []
    for name, frame in sources.items():
        source = plan.source(name)
        assert source is not None, "known"
        parts.append(faults_of(source, prepared(source, frame, tables.get(name, DEFAULT_ROWS))))
    return reduce(lambda a, b: a.unionAll(b), parts)


def faults_of(source: SourceDef, made: Prepared) -> DataFrame:
    """The row of `faults` of one source."""
    from pyspark.sql import functions as F

    usable, keyed = made.usable or "TRUE", made.keyed or "TRUE"
    counted = [
        F.expr("count(*)").alias("ROWS"),
        F.expr(f"count_if(NOT ({usable}))").alias("BAD_TIMES"),
        F.expr(f"count_if(({usable}) AND NOT ({keyed}))").alias("NO_KEY"),
    ]
    if source.kind == "table":
        kept = f"CASE WHEN ({usable}) AND ({keyed}) THEN {ORDER} END"
        tied = F.expr(f"NOT (min({kept}) <=> max({kept}))").alias("tied")
        groups = made.frame.groupBy(KEY, SEQUENCE).agg(*counted, tied)
        totals = [f"coalesce(sum({quoted(n)}), 0L) AS {quoted(n)}" for n in ("ROWS", "BAD_TIMES", "NO_KEY")]
        folded = groups.selectExpr(*totals, "count_if(tied) AS TIES")
    else:
        folded = made.frame.agg(*counted).selectExpr("*", "0L AS TIES")
    return folded.selectExpr(f"{text(source.name)} AS SOURCE", "*")


def bad_rows(made: Prepared) -> DataFrame | None:
    """Rows of `nodes.LETTERS_DDL`, one for each that is left out, with its file and number in it; None where none can be."""
    faults = (*made.bad, *made.unkeyed)
    if not faults:
        return None
    code = " ".join(f"WHEN {f.condition} THEN {f.code}" for f in faults)
    message = " ".join(f"WHEN {f.condition} THEN {f.message}" for f in faults)
    at = f"concat(coalesce({FILE}, '?'), ', row ', coalesce(CAST({ROW} AS STRING), '?'), ': ')"
    where = at if FILE in made.frame.columns else "''"
    wrong = made.frame.where(" OR ".join(f"({f.condition})" for f in faults))
    return wrong.selectExpr(
        f"CASE {code} END AS code", f"array(concat({where}, CASE {message} END)) AS messages", "0L AS rowtime"
    )
