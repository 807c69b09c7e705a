"""A whole query as Spark's own operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from compiler.plan.logical import Scan, Sink, walk_nodes
from compiler.plan.schema import Schema
from compiler.plan.topology import Plan, QueryPlan
from runtime.spark.files_columns import FileRows
from runtime.spark.native.nodes import Lowering
from runtime.spark.native.topics import decode, encode, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["bounded", "streaming"]


@dataclass(frozen=True, slots=True)
class NativeQuery:
    """What a native query gives.

    rows: a frame of `schema` (columns by name, then the row time). In a bounded run over a table: its final rows.
    letters: code, message, rowtime of rows whose expressions failed; a job of its own over the same sources. None: nothing can.
    """

    rows: DataFrame
    schema: Schema
    letters: DataFrame | None


def lower_query(query: QueryPlan, tables: Mapping[str, DataFrame]) -> NativeQuery:
    """The query over frames by source name. `choose.is_native` must hold for it."""
    # One sub-topology: no repartition, so that a group's rows come from one partition, in its order.
    lowering = Lowering(tables, placed=len(query.subtopologies) == 1)
    rows = lowering.frame(query.logical)
    found = lowering.letters
    letters = reduce(lambda a, b: a.unionAll(b), found) if found else None
    return NativeQuery(rows, query.logical.schema, letters)


def native_query(
    _spark: SparkSession, _plan: Plan, query: QueryPlan, tables: Mapping[str, DataFrame], _mode: Mode = "bounded"
) -> DataFrame:
    """The rows of `lower_query`, for who needs no dead letters."""
    return lower_query(query, tables).rows


def native_bounded(
    _spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    sources: DataFrame | None,
    partitions: Mapping[str, int],
    *,
    files: Mapping[str, FileRows] | None = None,
) -> DataFrame:
    """EMITTED rows of a query, as `stage.exact.exact_bounded` gives them: the final rows of a table, all rows of a stream.

    sources: PACKED rows of the topics read; files: by source name, of those that are files. Dead letters are among the rows.
    """
    tables = {name: f.good for name, f in (files or {}).items()}
    bad = [letters for f in (files or {}).values() if (letters := f.bad()) is not None]
    native = lower_query(query, tables | _decoded(plan, query, sources, set(tables), None))
    emitted = _encoded(query, native, partitions)
    letters = [*([native.letters] if native.letters is not None else []), *bad]
    return reduce(lambda rows, one: rows.unionAll(told(one, query.id)), letters, emitted)


def native_streaming(
    _spark: SparkSession,
    plan: Plan,
    query: QueryPlan,
    sources: DataFrame,
    partitions: Mapping[str, int],
    letters: Path,
) -> DataFrame:
    """EMITTED rows of each micro-batch over a stream of PACKED rows: of a table the last of each key that changed.

    To be started in output mode update. letters: the folder where dead letters of decoding wait for the commit (`log_letters`).
    """
    native = lower_query(query, _decoded(plan, query, sources, set(), letters))
    assert native.letters is None, "`choose` leaves what may fail to the runtime"
    return _encoded(query, native, partitions)


def _decoded(
    plan: Plan, query: QueryPlan, sources: DataFrame | None, known: Collection[str], letters: Path | None
) -> dict[str, DataFrame]:
    """Frames of the topics that the query reads, by source name, but of those that are known."""
    tables: dict[str, DataFrame] = {}
    for node in walk_nodes(query.logical):
        if isinstance(node.spec, Scan) and node.spec.source not in {*known, *tables}:
            source = plan.source(node.spec.source)
            assert source is not None, f"the plan has no source {node.spec.source}"
            assert sources is not None, f"no rows are given for {node.spec.topic}"
            tables[source.name] = decode(sources, source, node.schema, query.id, letters=letters, schemas=plan.schemas)
    return tables


def _encoded(query: QueryPlan, native: NativeQuery, partitions: Mapping[str, int]) -> DataFrame:
    sink = query.logical.spec
    assert isinstance(sink, Sink)
    return encode(native.rows, sink, query.logical.schema, partitions[sink.topic], query.id)
