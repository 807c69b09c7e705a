"""A whole query as Spark's own operators: a batch that aggregates one stream over its topic. Whether it may be one is for `flowql.runtime.spark.choose` to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from flowql.compiler.functions.spark_sql import SparkSql, lower, lower_predicate
from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME, Expr
from flowql.compiler.plan.logical import Aggregate, Filter, Node, Project, Rekey, Scan, Sink, walk_nodes
from flowql.compiler.plan.schema import WINDOW_END
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.runtime.spark.native.aggregates import aggregate_columns
from flowql.runtime.spark.native.expressions import column
from flowql.runtime.spark.native.frames import LETTERS, OFFSET, PARTITION
from flowql.runtime.spark.native.keys import constants
from flowql.runtime.spark.native.topics import decode, encode
from flowql.runtime.spark.native.windows import window_end, with_starts
from flowql.runtime.spark.shapes import Emitting

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def lower_query(query: QueryPlan, tables: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of a query over frames by source name: columns by name, then the row time. `choose.is_native` must hold for it."""
    # One sub-topology: no repartition, so that a group's rows come from one partition, in its order.
    return Lowering(tables, placed=len(query.subtopologies) == 1).frame(query.logical)


def native_bounded(
    _spark: SparkSession, plan: Plan, query: QueryPlan, sources: DataFrame, partitions: Mapping[str, int]
) -> Emitting:
    """EMITTED rows of a query over PACKED rows, as `stage.exact.exact_bounded` gives them: the final rows of a table, dead letters too."""
    return encoded(query, lower_query(query, _decoded(plan, query, sources)), partitions)


def _decoded(plan: Plan, query: QueryPlan, sources: DataFrame) -> dict[str, DataFrame]:
    """Frames of the topics that the query reads, by source name."""
    tables: dict[str, DataFrame] = {}
    for node in walk_nodes(query.logical):
        if isinstance(node.spec, Scan) and node.spec.source not in tables:
            source = plan.source(node.spec.source)
            assert source is not None, f"the plan has no source {node.spec.source}"
            tables[source.name] = decode(sources, source, node.schema, query.id, schemas=plan.schemas)
    return tables


def encoded(query: QueryPlan, rows: DataFrame, partitions: Mapping[str, int]) -> Emitting:
    sink = query.logical.spec
    assert isinstance(sink, Sink)
    return encode(rows, sink, query.logical.schema, partitions[sink.topic], query.id)


@dataclass(frozen=True, slots=True)
class Lowering:
    """One query being lowered. tables: source name -> frame.

    placed: places of rows stay true behind a Rekey, as nothing is repartitioned. Rows that are dead letters of decoding (they have
    LETTERS) go all the way through, as groups of their own, so that records are decoded once. No expression of it can fail.
    """

    tables: Mapping[str, DataFrame]
    placed: bool = False

    def frame(self, node: Node) -> DataFrame:
        """The rows a node gives: its columns by name and the row time. It may have others, which are not used."""
        spec = node.spec
        match spec:
            case Scan():
                return self.tables[spec.source]
            case Sink():
                return self.frame(node.inputs[0])
            case Project(columns):
                frame = self.frame(node.inputs[0])
                made = _named([_text(c.expr) for c in columns], node)
                return frame.selectExpr(*made, quoted(ROWTIME), *_names_beside(frame))
            case Filter(predicate):
                frame, passes = self.frame(node.inputs[0]), lower_predicate(predicate)
                return frame.where(_or_letter(frame, F.expr(_sql(passes, predicate))))
            case Rekey():
                return self._rekey(node, spec)
            case Aggregate():
                return self._aggregate(node, spec)
        raise AssertionError(f"{type(spec).__name__} is not native")

    def _rekey(self, node: Node, spec: Rekey) -> DataFrame:
        """Key columns first. Rows of several source partitions meet behind it: their places mean nothing any more."""
        frame = self.frame(node.inputs[0])
        carried = [quoted(n) for n in node.schema.names[len(spec.keys) :]]
        made = _named([*(_text(k.expr) for k in spec.keys), *carried], node)
        rows = frame.selectExpr(*made, quoted(ROWTIME), *_names_beside(frame, places=self.placed))
        known = constants(node)
        keys = " AND ".join(f"{quoted(k.name)} IS NOT NULL" for k in spec.keys if k.name not in known)
        return rows.where(_or_letter(rows, F.expr(keys))) if spec.drop_null and keys else rows

    def _aggregate(self, node: Node, spec: Aggregate) -> DataFrame:
        source = node.inputs[0]
        frame = self.frame(source)
        keys = [f.name for f in source.schema.key]
        if source.schema.window is not None:
            keys += [f.name for f in source.schema if f.role == "window"]
        known = isinstance(source.spec, Rekey) and source.spec.drop_null
        if (
            keys and not known and not spec.null_groups
        ):  # a record without a key; a relation without key columns has one group for all
            present = reduce(lambda a, b: a | b, (column(k).isNotNull() for k in keys))
            frame = frame.where(_or_letter(frame, present))
        groups, beside = list(map(column, keys)), _beside(frame)
        added: dict[str, str] = {}  # columns that a group's key tells: Spark need neither hash nor sort by them
        if spec.window is not None:
            frame, start = with_starts(frame, spec.window)
            added = constants(source)
            groups = [*(column(k) for k in keys if k not in added), start]
            added[WINDOW_END] = window_end(spec.window)
        groups += beside
        time = F.max(column(ROWTIME)).alias(ROWTIME)
        folded = frame.groupBy(*groups).agg(*aggregate_columns(spec.aggregates, F), time)
        if not groups:
            folded = folded.where(column(ROWTIME).isNotNull())  # Spark gives a row for nothing at all
        return folded.selectExpr("*", *(f"{text} AS {quoted(n)}" for n, text in added.items())) if added else folded


def _named(texts: Sequence[str], node: Node) -> list[str]:
    """Spark SQL that gives the columns of a node their names."""
    return [f"{text} AS {quoted(name)}" for text, name in zip(texts, node.schema.names, strict=True)]


def _names_beside(frame: DataFrame, *, places: bool = True) -> list[str]:
    """The columns of a frame that are not the relation's: where rows come from, and dead letters."""
    known = (PARTITION, OFFSET, LETTERS) if places else (LETTERS,)
    present = frame.columns
    return [quoted(n) for n in known if n in present]


def _beside(frame: DataFrame) -> list[Column]:
    return [F.col(n) for n in _names_beside(frame, places=False)]


def _or_letter(frame: DataFrame, condition: Column) -> Column:
    return condition | column(LETTERS).isNotNull() if LETTERS in frame.columns else condition


def _text(e: Expr) -> str:
    return _sql(lower(e), e)


def _sql(lowered: SparkSql | None, e: Expr) -> str:
    assert lowered is not None, f"`choose` leaves {e} to the runtime"
    return lowered.sql
