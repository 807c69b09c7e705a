"""The rows of a source that cannot be used, one by one: what becomes of them as dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowql.runtime.spark.frames.source import FILE, ROW, Prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def bad_rows(made: Prepared) -> DataFrame | None:
    """Rows of `native.expressions.LETTERS_DDL`, one for each that is left out, with its file and number in it; None where none can be."""
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
