"""A plan over streaming frames, where Spark's own operators mean exactly what the runtime's do: `lower_streams`.

A streaming frame stands for a topic with one partition, to which micro-batches come one after the other, the rows of each in the order of
their times. Why results are then the same, node by node:

- Projections, filters, EXPLODE, PARTITION BY, UNION and INSERT INTO: each row gives what it gives in a batch, and keeps no state. Of
  records of a topic (`over_topics`) those of one partition are read by one task in their order, and nothing that changes it lies between
  reading and writing; their headers, and records without a value, go along.
- A join of a stream with a table whose frame is a batch: the table does not change any more, so each row meets the version of its
  time, as in a batch. (With the rows that the table's frame had when the stream was started.)
- Inner joins of two streams WITHIN more than the whole range of times that rows may have (1900 to 2200, see `kept_for_good`): no two rows
  are too far apart, and no row is ever so far behind the newest one that the runtime forgets it. So both give every pair of one key, once,
  whichever row comes first, and both keep all rows. The headers of a pair are those of the row with the later time; the runtime's are
  those of the row that it reads later, and which of two topics it reads first is open.
- Aggregations without windows, EMIT CHANGES: groups are never dropped on either side, and the aggregates depend on no order.
- Tumbling and hopping windows, EMIT CHANGES, where the caller says that no row is late. The runtime drops a row from a window when stream
  time, the greatest time of the rows before it that have a key, is at least the end of the window and the grace period. Spark drops it when the
  watermark is at least that end: the greatest time of batches before the *last* one, less the delay (a batch finds rows late by the
  watermark of the batch before it), taken here behind all that drops rows, with the grace period as delay. So what Spark drops the runtime drops,
  not the other way round, and where the runtime drops nothing both give the same. Spark's watermark begins at 1970, so times are moved
  behind it for the window, by a multiple of the advance that is more than the earliest time that is used.

With `semantics="spark"` streams over topics take more, which then means what it means in a job written for Spark:

- Windows are late by Spark's watermark (above), whatever the rows are, and late rows are not counted. EMIT FINAL gives a window in the first
  micro-batch after the one in which the watermark passes its end and grace period, once: output mode append.
- Inner joins of two streams: rows wait for each other until the watermark, which is the least of both sides' greatest times less the grace period, has
  passed the end of their interval.
- A join with a table of a topic: each row meets the newest row of its key when its micro-batch runs.

All else is refused by name: EMIT FINAL (the runtime forgets windows that a jump of time outruns, Spark gives them), sessions and cumulating windows,
other joins of two streams (each side is late by a watermark of its own), HAVING (a row that stops passing must be removed, and Spark would only stop
writing it), tables that change, and what reads an aggregation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.event_times import EARLIEST_MS
from flowql.compiler.plan.expr import ROWTIME, Column
from flowql.compiler.plan.logical import (
    Aggregate,
    Explode,
    Filter,
    Join,
    Node,
    Project,
    Rekey,
    Window,
)
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Schema
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.operators.windows import DAY_MS, grace_of
from flowql.runtime.spark.errors import FrameUnfit, SparkUnsupported
from flowql.runtime.spark.frames.aggregates import check_aggregate
from flowql.runtime.spark.frames.joins import parts_of, rows_here, with_versions
from flowql.runtime.spark.frames.lower import Lowering, check_known
from flowql.runtime.spark.frames.nodes import HANDLERS, Nodes
from flowql.runtime.spark.frames.pairs import kept_for_good, pairs_of
from flowql.runtime.spark.frames.relation import (
    DEFAULT_ROWS,
    LIVE,
    ORDER,
    Refused,
    Relation,
    TableRows,
    any_present,
    check_keys,
    key_of,
    names,
)
from flowql.runtime.spark.frames.source import relation_of
from flowql.runtime.spark.native.aggregates import aggregate_columns
from flowql.runtime.spark.native.frames import NO_VALUE
from flowql.runtime.spark.outline import functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NO_TABLES: Mapping[str, TableRows] = {}
_AT, _WINDOW = "__at", "__window"
LateRows = Literal["exact", "none"]
ELSEWHERE = "run it with `flowql run -t spark`, or as a batch"


@dataclass(frozen=True, slots=True)
class StreamResult:
    """The stream of a query. append: rows. update: of a table, in each micro-batch, the rows that have changed, by `key`.

    frame: the columns of `frames.lower.lower`; of a table without a row time.
    """

    frame: DataFrame
    mode: Literal["append", "update"]
    key: tuple[str, ...] = ()


def lower_streams(
    plan: Plan,
    sources: Mapping[str, DataFrame],
    *,
    tables: Mapping[str, TableRows] = _NO_TABLES,
    late_rows: LateRows = "exact",
) -> dict[str, StreamResult]:
    """The results of a plan over streaming frames of its streams and batch frames of its tables, by name.

    late_rows: `none` says that no row is late, as in a target; without that windows are refused.
    Frames have what `frames.lower.lower` asks of them. Rows whose time cannot be used are left out. Nothing is started. Raises
    SparkUnsupported for what Spark's streams mean otherwise (see the module), FrameUnfit for a frame that does not fit its source.
    """
    check_known(plan, (*sources, *tables))

    def given(source: SourceDef) -> Relation | None:
        if source.name not in sources:
            return None
        frame, streams = sources[source.name], source.kind == "stream"
        if frame.isStreaming != streams:
            of, wanted = ("batch", "streaming") if streams else ("streaming", "batch")
            title = f"the frame of the {source.kind} {source.name} is a {of} frame, and a {wanted} frame is needed here"
            raise FrameUnfit(title, help="read streams with spark.readStream and tables with spark.read")
        return relation_of(source, frame, tables.get(source.name, DEFAULT_ROWS))

    work = Lowering(plan, given, handlers={**STREAM_HANDLERS, Aggregate: partial(_aggregate, late_rows)})
    found: dict[str, StreamResult] = {}
    for query in plan.queries:
        result = _result(work, query)
        earlier = found.get(query.sink)
        if earlier is not None:
            result = StreamResult(earlier.frame.unionAll(result.frame), "append")
        found[query.sink] = result
    return found


def _result(work: Lowering, query: QueryPlan) -> StreamResult:
    relation, schema = work.relation(query), query.logical.schema
    if relation.form == "rows":
        if not relation.frame.isStreaming:
            raise SparkUnsupported("Sink", "none of its inputs is a stream", "run it as a batch", query=query.id)
        return StreamResult(work.rows_of(relation, query), "append")
    if relation.form != "state":
        raise SparkUnsupported("Sink", "a table that changes is written as it changes", ELSEWHERE, query=query.id)
    key = tuple(f.name for f in key_of(schema))
    return StreamResult(relation.frame.selectExpr(*names(schema)), "update", key)


def _filter(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    if inputs[0].form == "state":
        raise Refused("a row that no longer passes the filter must be removed, and Spark cannot remove it", ELSEWHERE)
    passed = HANDLERS[Filter](nodes, node, inputs)
    return replace(passed, frame=_valued(passed).frame)


def _rekey(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """The key of a record without a value is NULL where it is one of its values; none is computed of them."""
    assert isinstance(node.spec, Rekey)
    if node.spec.drop_null:
        return HANDLERS[Rekey](nodes, node, [_valued(inputs[0])])
    below = node.inputs[0].spec
    computed = (
        {c.name for c in below.columns if not isinstance(c.expr, Column)} if isinstance(below, Project) else set()
    )
    if NO_VALUE in inputs[0].carried and any(
        not isinstance(k.expr, Column) or k.expr.name in computed for k in node.spec.keys
    ):
        raise Refused("the key of a record without a value is told by the runtime's operator", ELSEWHERE)
    return HANDLERS[Rekey](nodes, node, inputs)


def _explode(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    return HANDLERS[Explode](nodes, node, [_valued(inputs[0])])


def _project(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """A record without a value keeps its key; none is made of values that are not there."""
    assert isinstance(node.spec, Project)
    keys = [c.expr for c, f in zip(node.spec.columns, node.schema, strict=True) if f.role in ("key", "window")]
    if NO_VALUE in inputs[0].carried and not all(isinstance(k, Column) for k in keys):
        raise Refused("the key of a record without a value is told by the runtime's operator", ELSEWHERE)
    return HANDLERS[Project](nodes, node, inputs)


def _valued(relation: Relation) -> Relation:
    """Without the records that have no value; frames of the caller have none."""
    if NO_VALUE not in relation.carried:
        return relation
    return replace(relation, frame=relation.frame.where(f"NOT {quoted(NO_VALUE)}"))


def _aggregate(
    late_rows: LateRows, _nodes: Nodes, node: Node, inputs: list[Relation], *, finals: bool = False
) -> Relation:
    spec, source, (relation,) = node.spec, node.inputs[0].schema, inputs
    assert isinstance(spec, Aggregate)
    if relation.form != "rows":
        raise Refused("an aggregation of a table must remove earlier versions of rows", ELSEWHERE)
    if spec.emit_final and not finals:
        raise Refused("EMIT FINAL forgets windows that a jump of time outruns, and Spark gives them", ELSEWHERE)
    check_aggregate(spec, source, relation, table=False, placed=False)
    keys = key_of(source)
    frame = relation.frame.where(any_present(keys)) if keys and not spec.null_groups else relation.frame
    by: list[Any] = names(Schema(keys))
    if spec.window is not None:
        if spec.window.kind not in ("tumbling", "hopping"):
            raise Refused(f"{spec.window.kind} windows are closed by the runtime's operator", ELSEWHERE)
        if late_rows != "none":
            reason = "Spark finds a row late a micro-batch after the runtime does, by its watermark"
            raise Refused(reason, 'say that no row is late (late_rows="none"), or run it with `flowql run -t spark`')
        frame, window = _windowed(frame, spec.window)
        by = [*(functions(frame).expr(g) for g in by), window]
    F = functions(frame)
    folded = frame.groupBy(*by).agg(
        *aggregate_columns(spec.aggregates, F, kept=True), F.expr(f"max({quoted(ROWTIME)})").alias(ROWTIME)
    )
    if spec.window is not None:
        folded = _bounds(folded, spec.window)
    elif not by:
        folded = folded.where(f"{quoted(ROWTIME)} IS NOT NULL")
    return Relation(folded.selectExpr(*names(node.schema), quoted(ROWTIME)), "state")


def _moved_ms(window: Window) -> int:
    """How far times are moved: a multiple of the advance, so that windows stay what they are."""
    advance = window.advance_ms or window.size_ms
    return -(EARLIEST_MS - window.size_ms - grace_of(window)) // advance * advance + advance


def _windowed(frame: DataFrame, window: Window) -> tuple[DataFrame, Any]:
    """Rows with a watermark, and Spark's window, which is what takes state away again."""
    F, advance = functions(frame), window.advance_ms or window.size_ms
    timed = frame.withColumn(_AT, F.expr(f"timestamp_millis({quoted(ROWTIME)} + {_moved_ms(window)}L)"))
    marked = timed.withWatermark(_AT, f"{grace_of(window)} milliseconds")
    return marked, F.window(_AT, f"{window.size_ms} milliseconds", f"{advance} milliseconds").alias(_WINDOW)


def _bounds(folded: DataFrame, window: Window) -> DataFrame:
    """WINDOWSTART and WINDOWEND in ms. Windows that reach over 1970 hold rows only where the plan says so."""
    start, end = (f"unix_millis({_WINDOW}.{part}) - {_moved_ms(window)}L" for part in ("start", "end"))
    found = folded.selectExpr("*", f"{start} AS {WINDOW_START}", f"{end} AS {WINDOW_END}")
    if window.kind == "hopping" and not window.over_1970:
        found = found.where(f"{WINDOW_START} >= 0 OR {WINDOW_END} <= 0")
    return found


def _join(_nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    """A row meets the version that holds at its time: from its own time on, up to that of the next."""
    spec, (left, right) = node.spec, inputs
    assert isinstance(spec, Join)
    if kept_for_good(node):
        return _pairs(node, left, right, None)
    if spec.shape != "stream-table":
        raise Refused(f"a join of {spec.shape.replace('-', ' and ')} goes by the times of both sides", ELSEWHERE)
    if right.form != "versions" or right.frame.isStreaming:
        raise Refused(
            "a row meets the table as it was at its time, and of a computed table only changes come", ELSEWHERE
        )
    b, parts = node.inputs[1].schema, parts_of(node)
    over = f"OVER (PARTITION BY {', '.join(parts)} ORDER BY __from, __order)"
    told = right.frame.selectExpr(
        *(f"{quoted(f.name)} AS {p}" for f, p in zip(key_of(b), parts, strict=True)),
        f"{quoted(ROWTIME)} AS __from",
        f"{ORDER} AS __order",
        f"struct({', '.join([*names(b), LIVE])}) AS __met",
    )
    versions = told.selectExpr("*", f"lead(__from) {over} AS __to").where("__to IS NULL OR __to > __from")
    versions = versions.selectExpr(*(f"{p} AS {p}_there" for p in parts), "__from", "__to", "__met")
    return _meeting(node, left, versions, " AND __time >= __from AND (__to IS NULL OR __time < __to)")


def _meeting(node: Node, left: Relation, versions: DataFrame, holds: str = "") -> Relation:
    """versions: at most one of a key for which `holds`, in `__met`, with the columns of the key called `..._there`."""
    parts, rows = parts_of(node), rows_here(node, left)
    same = " AND ".join(f"{p} {'=' if len(parts) == 1 else '<=>'} {p}_there" for p in parts)
    return with_versions(rows.join(versions, functions(rows).expr(same + holds), "left"), node, parts)


def _pairs(node: Node, left: Relation, right: Relation, delay_ms: int | None) -> Relation:
    assert isinstance(node.spec, Join)
    if node.spec.kind != "inner":
        raise Refused("rows that meet nothing come as stream time passes, by the runtime's operator", ELSEWHERE)
    a, b = (i.schema for i in node.inputs)
    if a.window is not None or b.window is not None:
        raise Refused("streams with windowed keys are joined by the runtime's operator", ELSEWHERE)
    check_keys((*key_of(a), *key_of(b)), ELSEWHERE)
    # A row without a key would be kept in the state for good.
    lefts, rights = left.frame.where(any_present(a.key)), right.frame.where(any_present(b.key))
    made = pairs_of(node.spec, lefts, a, rights, b, node.schema, delay_ms=delay_ms, carried=left.carried)
    return Relation(made, "rows", carried=left.carried)


def _join_as_spark(nodes: Nodes, node: Node, inputs: list[Relation]) -> Relation:
    spec, (left, right) = node.spec, inputs
    assert isinstance(spec, Join)
    if spec.shape == "stream-table":
        if right.form != "state":
            raise Refused("the table is not a separate topic", ELSEWHERE)
        return _met_now(node, left, right)
    if spec.shape != "stream-stream" or kept_for_good(node):
        return _join(nodes, node, inputs)
    return _pairs(node, left, right, DAY_MS if spec.grace_ms is None else spec.grace_ms)


def _met_now(node: Node, left: Relation, right: Relation) -> Relation:
    """right: the rows of a table now, one per key."""
    a, b = (i.schema for i in node.inputs)
    check_keys((*key_of(a), *key_of(b)), ELSEWHERE)
    told = right.frame.selectExpr(
        *(f"{quoted(f.name)} AS {p}_there" for f, p in zip(key_of(b), parts_of(node), strict=True)),
        f"struct({', '.join(names(b))}, TRUE AS {LIVE}) AS __met",
    )
    return _meeting(node, left, told)


# As `HANDLERS`, for streams: what is not said here is the same there.
STREAM_HANDLERS: dict[type[Any], Any] = {
    **HANDLERS,
    Project: _project,
    Filter: _filter,
    Rekey: _rekey,
    Explode: _explode,
    Aggregate: partial(_aggregate, "exact"),
    Join: _join,
}
SPARK_HANDLERS: dict[type[Any], Any] = {
    **STREAM_HANDLERS,
    Aggregate: partial(_aggregate, "none", finals=True),
    Join: _join_as_spark,
}
