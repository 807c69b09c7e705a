"""Grouped aggregations over complete history: of streams with every kind of window, and of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flowql.compiler.functions.registry import lookup_aggregate
from flowql.compiler.functions.spark_sql import lower
from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Aggregate, AggregateCall, Node, Window
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Schema
from flowql.compiler.plan.types import Kind, SqlType
from flowql.runtime.spark.frames.relation import (
    CURRENT,
    Refused,
    Relation,
    any_present,
    check_keys,
    images_of,
    key_of,
    sql_of,
)
from flowql.runtime.spark.native.aggregates import aggregate_columns, form_of, reason_against
from flowql.runtime.spark.native.keys import constants
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_starts(frame: DataFrame, window: Window) -> DataFrame:
    """One row per window of a row, with its WINDOWSTART; plain arithmetic, as Spark's `window` computes a struct of two timestamps per row.

    Starts are multiples of the advance, before 1970 as well, and no window reaches over 1970 where the plan does not say so
    (`flowql.runtime.operators.windows.WindowedAggregateOperator.starts`).
    """
    F = functions(frame)
    time, size, advance = quoted(ROWTIME), window.size_ms, window.advance_ms or window.size_ms
    if advance == size:
        return frame.withColumn(WINDOW_START, F.expr(_floor(time, size)))
    first, last = f"({time} - {size - advance}L)", _floor(time, advance)
    if not window.over_1970:
        first = f"(CASE WHEN {time} >= 0 THEN greatest(0L, {first}) ELSE {first} END)"
        last = f"(CASE WHEN {time} < 0 THEN least({last}, {-size - -size % advance}L) ELSE {last} END)"
    first = _floor(first, advance)
    # Some rows are in no window, and a sequence that would go down is refused.
    inside = frame if window.over_1970 and advance <= size else frame.where(F.expr(f"{first} <= {last}"))
    starts = f"sequence({first}, {last}, {advance}L)"
    return inside.withColumn(WINDOW_START, F.explode(F.expr(starts)))


def with_cumulated(frame: DataFrame, window: Window) -> DataFrame:
    """One row per cumulating window of a row, with its WINDOWSTART and WINDOWEND: it ends at a multiple of the advance behind the row."""
    time, size, advance = quoted(ROWTIME), window.size_ms, window.advance_ms
    ends = f"sequence({_floor(time, advance)} + {advance}L, {_floor(time, size)} + {size}L, {advance}L)"
    F = functions(frame)
    return frame.withColumn(WINDOW_START, F.expr(_floor(time, size))).withColumn(WINDOW_END, F.explode(F.expr(ends)))


def _floor(time: str, step: int) -> str:
    """The multiple of the step at or before a time; `%` would cut toward 0."""
    return f"({time} - pmod({time}, {step}L))"


def window_end(window: Window) -> str:
    """Spark SQL over WINDOWSTART."""
    return f"{WINDOW_START} + {window.size_ms}L"


_SESSION, _ROWS = "__session", "__rows"  # Spark's window, and the number of the rows of a group


def aggregated(spec: Aggregate, node: Node, source: Schema, relation: Relation, *, place: str = "") -> Relation:
    """A table: one row per group (and window). EMIT FINAL gives the same, as all windows are over when nothing comes any more.

    place: Spark SQL by which rows of a topic come one after the other, instead of their times; `choose` says what is native then.
    For a table the rows present at the end are aggregated. A group whose rows have all been removed stays, with the aggregates of an
    empty group, unless the plan counts the rows of groups.
    """
    table = relation.form != "rows"
    if table:
        relation = _images(relation, source)
    if not place:
        check_aggregate(spec, source, relation, table=table)
    keys, known = key_of(source), constants(node.inputs[0])  # of equal values Spark would hash and compare each
    frame = relation.frame.where(any_present(keys)) if keys and not spec.null_groups else relation.frame
    groups_by: list[Any] = [quoted(f.name) for f in keys if f.name not in known]
    if spec.window is not None:
        frame, added = WINDOWS[spec.window.kind](frame, spec.window)
        groups_by += added
    F = functions(frame)
    time = F.expr(f"max({quoted(ROWTIME)})").alias(ROWTIME)
    found = {c.name: F.expr(_in_order(c)).alias(c.name) for c in spec.aggregates if not table and by_order(c)}
    others = tuple(c for c in spec.aggregates if c.name not in found)
    made = aggregate_columns(others, F, place=place or _order(spec), only=CURRENT if table else "")
    found |= {c.name: column for c, column in zip(others, made, strict=True)}
    columns = [found[c.name] for c in spec.aggregates]
    if spec.counted:
        columns.append(F.expr(f"count_if({CURRENT})").alias(_ROWS))
    elif spec.window is not None and spec.window.kind == "session":
        columns.append(F.expr("count(*)").alias(_ROWS))
    folded = frame.groupBy(*groups_by).agg(*columns, time)
    if spec.counted:
        folded = folded.where(f"{_ROWS} > 0")
    if not groups_by:
        folded = folded.where(f"{quoted(ROWTIME)} IS NOT NULL")  # Spark gives a row for nothing at all
    if spec.window is not None:
        known |= _bounds(spec.window)
    if known:
        told = (f"{known[f.name]} AS {quoted(f.name)}" if f.name in known else quoted(f.name) for f in node.schema)
        folded = folded.selectExpr(*told, quoted(ROWTIME))
    return Relation(folded, "state", timed=not table, grows=not spec.counted)


def _images(relation: Relation, source: Schema) -> Relation:
    """The rows of a table that was not given another key (`drop_rekey` takes such a Rekey away), or of one that was."""
    if relation.form == "images":
        return relation
    if relation.form == "versions":
        return images_of(relation, source)
    return grown(relation)


def grown(relation: Relation) -> Relation:
    """A computed table as images: its groups are known at the end, if no key was ever left out."""
    if not relation.grows:
        raise Refused(
            "groups of a computed table stay when their last row is removed, and the earlier rows are unknown"
        )
    frame = relation.frame.selectExpr("*", f"TRUE AS {CURRENT}")
    return Relation(frame, "images", timed=False)


def check_aggregate(spec: Aggregate, source: Schema, relation: Relation, *, table: bool, placed: bool = True) -> None:
    """Raises Refused for keys and aggregates that are not Spark's own. placed: all rows of a group come at once."""
    check_keys(key_of(source))
    if spec.window is not None and table:
        raise Refused("windows over a table")
    for call in spec.aggregates:
        if table and not _can_be_undone(call):
            raise Refused(f"{call.function} over a table needs changes that no longer exist")
        ordered = placed and not table and by_order(call)
        if not ordered and (reason := reason_against(call, bounded=placed, placed=placed)):
            raise Refused(reason)
        if call.function in ("MIN", "MAX") and call.args[0].type.kind is Kind.DOUBLE:
            raise Refused(f"{call.function} of DOUBLE: the result may show 0.0 or -0.0")
        if _is_placed(call) and not all(map(_ordered, (a.type for a in call.args))):
            raise Refused(f"{call.function} of {call.args[0].type}: rows of one time cannot be put in order")
        for arg in call.args:
            sql_of(arg, relation)


def _can_be_undone(call: AggregateCall) -> bool:
    function = lookup_aggregate(call.function)
    return function is not None and function.undo is not None and function.spark is not None


def _is_placed(call: AggregateCall) -> bool:
    form = form_of(call)
    return form is not None and form.placed


def _ordered(t: SqlType) -> bool:
    return t.kind not in (Kind.MAP, Kind.DOUBLE) and all(map(_ordered, (*t.args, *(f for _, f in t.fields))))


def by_order(call: AggregateCall) -> bool:
    """Sums of doubles: their last digits depend on the order of addition, which is that of the rows' times, of tied rows that of values."""
    return call.function in ("SUM", "AVG") and call.args[0].type.kind is Kind.DOUBLE


def _in_order(call: AggregateCall) -> str:
    """Spark SQL of such a sum. The values of a group are in memory together."""
    found = lower(call.args[0])
    assert found is not None, "checked"
    value = f"CASE WHEN {found.sql} IS NOT NULL THEN struct({quoted(ROWTIME)} AS t, {found.sql} AS v) END"
    total = f"aggregate(array_sort(collect_list({value})), CAST(0 AS DOUBLE), (a, e) -> a + e.v)"
    if call.function == "SUM":
        return total
    return (
        f"CASE WHEN count({found.sql}) = 0 THEN CAST(0 AS DOUBLE) ELSE {total} / CAST(count({found.sql}) AS DOUBLE) END"
    )


def _order(spec: Aggregate) -> str:
    """One order of rows for all of LATEST_BY_OFFSET and EARLIEST_BY_OFFSET of a node: by time, then by their arguments.

    So values of tied rows are not mixed: the last row of all is one row. Rows that are equal in this are equal in what is shown.
    """
    found = [lower(a) for c in spec.aggregates if _is_placed(c) for a in c.args]
    return f"struct({', '.join([quoted(ROWTIME), *(x.sql for x in found if x is not None)])})"


def _tumbling(frame: DataFrame, window: Window) -> tuple[DataFrame, list[Any]]:
    return with_starts(frame, window), [WINDOW_START]


def _cumulating(frame: DataFrame, window: Window) -> tuple[DataFrame, list[Any]]:
    return with_cumulated(frame, window), [WINDOW_START, WINDOW_END]


def _sessions(frame: DataFrame, window: Window) -> tuple[DataFrame, list[Any]]:
    """Spark merges rows of a key that are exactly the gap apart, as we do; its sessions end the gap after their last row."""
    F = functions(frame)
    at = F.expr(f"timestamp_millis({quoted(ROWTIME)})")
    return frame, [F.session_window(at, f"{window.size_ms} milliseconds").alias(_SESSION)]


def _bounds(window: Window) -> dict[str, str]:
    """Spark SQL of those bounds of a window that are not among the columns it is grouped by.

    Those of a session depend on the number of its rows: a condition on the bounds of Spark's window alone is moved before the aggregation
    by Spark's optimiser, and there decides on single rows.
    """
    if window.kind == "session":
        start, end = (f"CASE WHEN {_ROWS} > 0 THEN unix_millis({_SESSION}.{part}) END" for part in ("start", "end"))
        return {WINDOW_START: start, WINDOW_END: f"{end} - {window.size_ms}L"}
    return {WINDOW_END: window_end(window)} if window.kind in ("tumbling", "hopping") else {}


# Rows, and the columns that tell their window, by name or as such; one per kind of `flowql.compiler.plan.logical.Window`, a test looks.
WINDOWS: dict[str, Callable[[DataFrame, Window], tuple[DataFrame, list[Any]]]] = {
    "tumbling": _tumbling,
    "hopping": _tumbling,
    "cumulating": _cumulating,
    "session": _sessions,
}
