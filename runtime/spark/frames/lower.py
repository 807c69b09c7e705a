"""The entry point: a plan over DataFrames. `lower(plan, {"ORDERS": frame})["SPENT"]` is the result of a query."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

from flowql.compiler.functions.spark_text import quoted
from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.logical import Aggregate, Format, Scan, walk_nodes
from flowql.compiler.plan.schema import WINDOW_END, WINDOW_START, Schema
from flowql.compiler.plan.topology import Plan, QueryPlan, SourceDef
from flowql.runtime.spark.errors import FrameUnfit, SparkUnsupported
from flowql.runtime.spark.frames.nodes import HANDLERS, Handler, Nodes
from flowql.runtime.spark.frames.relation import DEFAULT_ROWS, Relation, TableRows, state_of
from flowql.runtime.spark.frames.source import TIME_COLUMN, relation_of
from flowql.runtime.spark.outline import OUTLINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    Frame: TypeAlias = DataFrame
    Session: TypeAlias = SparkSession
    Sources: TypeAlias = Mapping[str, DataFrame]
    Results: TypeAlias = dict[str, DataFrame]

_NO_TABLES: Mapping[str, TableRows] = {}


def lower(plan: Plan, sources: Sources, *, tables: Mapping[str, TableRows] = _NO_TABLES) -> Results:
    """The result of every query of a plan by the name of the stream or table that it makes, over complete history.

    sources: a batch frame per stream or table that no query makes, by its name. It has the key and value columns that are declared,
    under exactly their names, of the declared types (see `flowql.compiler.plan.types.spark_type`) or narrower ones, and the event time: the
    column that TIMESTAMP names, else `ROWTIME`, either as BIGINT ms since 1970 or as a timestamp of either kind (one without a zone
    is UTC). TIME is an INT, the ms of the day; WINDOWSTART and WINDOWEND stand beside a windowed key, as BIGINT ms. Columns beside
    these are not looked at. A table may have no time: its rows count from the beginning.

    tables: how rows of a table's frame follow each other, by its name.

    A result has the columns of its stream or table under their names, WINDOWSTART and WINDOWEND (BIGINT ms) behind the key where it
    is windowed (if they are no columns already), and that of a stream ROWTIME (BIGINT ms). That of a stream is all its rows; that of
    a table its rows at the end, one per key and window. Nothing is computed before the caller asks a result for it.

    Complete history means: all rows are there, as if in the order of their times, and none is late. A stream row meets the version
    of a table with the greatest time up to its own, of equal ones too. Rows of a table with one sequence (time) and several values
    count as the greatest of them, field by field in declared order. LATEST_BY_OFFSET is the latest by time, of tied rows the greatest. When
    the last row was read everything closes: EMIT FINAL gives every window, an outer join every row that met nothing.

    Values whose expression fails are NULL, as everywhere; rows whose time cannot be used, and rows of tables without a key, are left
    out, as they are where they become dead letters. Results depend on no order of rows and on no setting of the session.

    Raises SparkUnsupported for what has no such form, FrameUnfit for a frame that does not fit its source.
    """
    check_known(plan, (*sources, *tables))
    work = Lowering(plan, lambda source: _given(source, sources, tables))
    return {q.sink: work.result(q.sink) for q in plan.queries}


def outline(plan: Plan, query: QueryPlan, read: Collection[str], *, in_python: bool = True) -> None:
    """Raises SparkUnsupported where the query, or one whose results it reads, has no form over frames. Needs no Spark.

    read: names of sources of which frames are given. in_python: expressions may be Arrow UDFs of the reference, as in `Nodes.letters`.
    """

    def blank(source: SourceDef) -> Relation | None:
        timed = source.kind == "stream" or source.timestamp is not None
        return (
            Relation(OUTLINE, "rows" if source.kind == "stream" else "versions", timed=timed)
            if source.name in read
            else None
        )

    Lowering(plan, blank, letters={} if in_python else None).relation(query)


def _given(source: SourceDef, sources: Sources, tables: Mapping[str, TableRows]) -> Relation | None:
    if source.name not in sources:
        return None
    return relation_of(source, sources[source.name], tables.get(source.name, DEFAULT_ROWS))


def check_known(plan: Plan, given: Iterable[str]) -> None:
    """Raises FrameUnfit for a name that no stream or table of the plan has."""
    for name in given:
        if plan.source(name) is None:
            known = ", ".join(s.name for s in plan.sources if s.query is None)
            raise FrameUnfit(f"the plan has no stream or table {name}", help=f"it reads {known}")


@dataclass(slots=True)
class Lowering:
    """A plan being lowered, query by query.

    given: what is read under the name of a source, None if no frame is given. letters: None, or the frames of rows that failed, by
    query id, as `Nodes.letters`. keep: what stands in the place of the result of a query where others read it, for it to be kept.
    handlers: what nodes are, as `nodes.HANDLERS`.
    """

    plan: Plan
    given: Callable[[SourceDef], Relation | None]
    letters: dict[str, list[DataFrame]] | None = None
    keep: Callable[[QueryPlan, Relation], Relation] = lambda _query, relation: relation
    handlers: Mapping[type[Any], Handler] = field(default_factory=lambda: HANDLERS)
    made: dict[str, Relation] = field(default_factory=dict)  # by query id
    read: dict[str, Relation] = field(default_factory=dict)  # by source name
    under_way: list[str] = field(default_factory=list)

    def result(self, name: str) -> DataFrame:
        """The frame of the queries that write a stream or table."""
        writers = [q for q in self.plan.queries if q.sink == name]
        relations = [self.relation(q) for q in writers]
        schema = writers[0].logical.schema
        if relations[0].form == "rows":
            rows = (self.rows_of(r, q) for r, q in zip(relations, writers, strict=True))
            return reduce(lambda a, b: a.unionAll(b), rows)
        if len(writers) > 1:
            self._refuse(writers[1], "Sink", "several queries write one table, and which row is the last is not known")
        return state_of(relations[0], schema).frame.selectExpr(*map(quoted, _columns(schema)))

    def rows_of(self, relation: Relation, query: QueryPlan) -> DataFrame:
        """The rows of a stream as a result: its columns under their names, and ROWTIME."""
        if relation.form != "rows":
            self._refuse(query, "Sink", "the changes of a table are written to a stream")
        columns = _columns(query.logical.schema)
        time = [] if TIME_COLUMN in columns else [f"{quoted(ROWTIME)} AS {TIME_COLUMN}"]
        return relation.frame.selectExpr(*map(quoted, columns), *time)

    def _refuse(self, query: QueryPlan, node: str, reason: str, way_round: str = "run it on the runtime") -> None:
        raise SparkUnsupported(node, reason, way_round, query=query.id)

    def relation(self, query: QueryPlan) -> Relation:
        """The frame of a query."""
        if query.id in self.made:
            return self.made[query.id]
        if query.id in self.under_way:
            self._refuse(query, "Scan", "it reads what it writes, directly or through others")
        self.under_way.append(query.id)
        try:
            self.made[query.id] = self.keep(query, self._nodes(query).relation(query.logical))
        except Exception:
            if self.letters is not None:
                self.letters.pop(query.id, None)  # of what was lowered of it
            raise
        finally:  # a second attempt gives the same reason, not that the query reads what it writes
            self.under_way.pop()
        return self.made[query.id]

    def _nodes(self, query: QueryPlan) -> Nodes:
        scans = [n.spec for n in walk_nodes(query.logical) if isinstance(n.spec, Scan)]
        relations = {s.source: self._source(s.source, query) for s in scans}
        letters = None if self.letters is None else self.letters.setdefault(query.id, [])
        return Nodes.of(query, relations, letters, self.handlers)

    def _source(self, name: str, reader: QueryPlan) -> Relation:
        """The frame read under a name: the given one, and the results of queries that write to its topic."""
        if name in self.read:
            return self.read[name]
        source = self.plan.source(name)
        assert source is not None, f"the plan has no source {name}"
        self._no_values(source, reader)
        writers = [q for q in self.plan.queries if self._topic(q.sink) == source.topic]
        found = [self._written(q, source, reader) for q in writers]
        if (outside := self.given(source)) is not None:
            found.append(outside)
        if not found:
            raise FrameUnfit(f"no frame is given for {name}", help=f"query {reader.id} reads it")
        if len(found) > 1:
            if any(r.form != "rows" for r in found):
                self._refuse(reader, "Scan", f"several write the table {name}, and which row is the last is not known")
            columns = [quoted(n) for n in (*source.schema.names, ROWTIME)]
            frames = [r.frame.selectExpr(*columns) for r in found]
            found = [Relation(reduce(lambda a, b: a.unionAll(b), frames), "rows")]
        self.read[name] = found[0]
        return found[0]

    def _topic(self, name: str) -> str:
        source = self.plan.source(name)
        return source.topic if source is not None else ""

    def _no_values(self, source: SourceDef, reader: QueryPlan) -> None:
        targets = {self._topic(i.target) for i in self.plan.inserts}
        if source.topic in targets:
            reason = f"{source.name} gets rows by INSERT INTO ... VALUES, which are not part of a frame"
            self._refuse(reader, "Scan", reason, "put the rows into the frame and leave the statement out")

    def _written(self, query: QueryPlan, source: SourceDef, reader: QueryPlan) -> Relation:
        """The result of a query under the names of a source over its topic."""
        relation, written = self.relation(query), query.logical.schema
        _check_format(query, source.value_format, written, reader)
        if source.timestamp is not None and source.query != query.id:
            self._refuse(reader, "Scan", f"{source.name} takes the time of rows that {query.id} writes from a column")
        if source.kind == "stream" and relation.form != "rows":
            final = any(isinstance(n.spec, Aggregate) and n.spec.emit_final for n in walk_nodes(query.logical))
            if not final or not relation.grows:
                self._refuse(
                    reader, "Scan", f"{source.name} is a stream of the changes of a table, and only its end is known"
                )
            relation = Relation(relation.frame, "rows")
        if source.kind == "table" and relation.form == "rows":
            self._refuse(reader, "Scan", f"{source.name} is a table of rows that {query.id} writes as a stream")
        return relation.select(_renamed(source, written, query, reader))


def _columns(schema: Schema) -> list[str]:
    """The key first, behind it the bounds of its window."""
    windows = [w for w in (WINDOW_START, WINDOW_END) if schema.window is not None and w not in schema.names]
    key = [f.name for f in schema.key]
    return [*key, *windows, *(n for n in schema.names if n not in key)]


def _renamed(source: SourceDef, written: Schema, query: QueryPlan, reader: QueryPlan) -> list[str]:
    """Key columns by place, value columns by name; the bounds of windows where the key has them."""
    keys = [f for f in source.schema if f.role == "key"]
    fits = len(keys) == len(written.key) and all(a.type == b.type for a, b in zip(keys, written.key, strict=False))
    if len(keys) > 1:
        fits = fits and [f.name for f in keys] == [f.name for f in written.key]
    fits = fits and (source.schema.window is None) == (written.window is None)
    pairs = [(b.name, a.name) for a, b in zip(keys, written.key, strict=False)]
    for f in source.schema:
        if f.role == "value":
            held = written.get(f.name)
            fits = fits and held is not None and held.role == "value" and held.type == f.type
            pairs.append((f.name, f.name))
    if not fits:
        reason = f"{source.name} reads what {query.id} writes under other columns or types"
        raise SparkUnsupported("Scan", reason, "declare it with the columns that are written", query=reader.id)
    if written.window is not None:
        pairs += [(w, w) for w in (WINDOW_START, WINDOW_END)]
    return [f"{quoted(a)} AS {quoted(b)}" for a, b in pairs]


def _check_format(query: QueryPlan, value: Format, written: Schema, reader: QueryPlan) -> None:
    """Frames carry values, topics carry texts of them: through some formats a NULL comes out as something else."""
    lossy = value.name in ("DELIMITED", "KAFKA", "NONE") or (value.name.startswith("PROTOBUF") and not value.nullable)
    bare = len(written.value) == 1 and not value.wrap
    if lossy or bare:
        reason = (
            f"what {query.id} writes is read through {value.name}, in which a NULL is told from other values no more"
        )
        raise SparkUnsupported("Scan", reason, "write it as JSON or AVRO", query=reader.id)
