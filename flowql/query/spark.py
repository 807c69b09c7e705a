"""The relations of a Spark target for interactive queries: topics of its log, internal stores out of Spark's checkpoints, and files that stand for topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from flowql.compiler.plan.expr import ROWTIME
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.query.committed import Commit
from flowql.query.relations import Relation, TopicRelation, ambiguous, arrow_schema, spans_of
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.query.views import ROWTIME as TIME
from flowql.query.views import StoreView, store_views
from flowql.runtime.spark.engine.file_rows import ReadRows


@dataclass(frozen=True, slots=True)
class SparkCommit(Commit):
    """The last committed batch of each query. A table whose rows no store keeps is read from its topic.

    files: how to read the sources whose rows are in files and not in their topics. They are read as they are when the interactive query is answered.
    """

    newest: Callable[[], int] = lambda: 0
    files: Mapping[str, ReadRows] = field(default_factory=dict)

    def at_rest(self) -> bool:
        """No query has committed since: topics and state can be read together."""
        return self.newest() == self.snapshot.sequence

    def relations(self) -> dict[str, Callable[[], Relation]]:
        kept = {s.name for s in self.snapshot.stores()}
        found = Commit.relations(self)
        for _, make in store_views(self.plan):
            name = make.spec.name
            source = self.plan.source(name)
            if source is not None:
                found[name] = self._table(source, make)  # its topic needs no Spark to be read
            elif name not in kept:
                del found[name]  # natively, Spark keeps it in a form of its own; in a batch nothing is kept
        for name, read in self.files.items():
            source = self.plan.source(name)
            assert source is not None, f"the plan has no source {name}"
            found[name] = partial(FilesRelation, TopicRelation(name, source, self.log, {}), read)
        return found

    def not_kept(self, name: str) -> str:
        stores = {make.spec.name.casefold() for _, make in store_views(self.plan)}
        if name.casefold() not in stores:
            return ""
        return "Spark keeps it in a form of its own, or nowhere in a batch: ask the table, or keep stores with  streams: exact  and --rebuild"

    def _table(self, source: SourceDef, make: Callable[[], StoreView]) -> Callable[[], Relation]:
        return lambda: self._table_of(source, make().schema)

    def _table_of(self, source: SourceDef, schema: Schema) -> Relation:
        """The source says that keys have a window, the store has its bounds as columns. A view of standard SQL shows its columns as declared."""
        if source.relation:
            return TopicRelation(source.name, source, self.log, spans_of(self.log, source.topic))
        bounds = tuple(f for f in schema if f.role == "window" and source.schema.get(f.name) is None)
        read = replace(source, schema=Schema((*source.schema.fields, *bounds), source.schema.window))
        return TableOfTopic(TopicRelation(source.name, read, self.log, spans_of(self.log, source.topic)), schema)


@dataclass(frozen=True, slots=True)
class TableOfTopic:
    """A table by the last record of each key, with the columns its store would have."""

    topic: TopicRelation
    schema: Schema

    def again(self) -> TableOfTopic:
        return replace(self, topic=self.topic.again())

    @property
    def name(self) -> str:
        return self.topic.name

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        for batch in self.topic.batches(conditions, columns, room):
            yield batch.select(self.schema.names)


@dataclass(frozen=True, slots=True)
class FilesRelation:
    """A stream or table read from the files that stand for its topic, with the columns that its topic would have."""

    topic: TopicRelation
    read: ReadRows

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def schema(self) -> Schema:
        return self.topic.schema

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        del conditions
        names, schema = self.topic.source.schema.names, arrow_schema(self.schema)
        for rows in self.read(None if ambiguous(self.schema) else columns):
            room.take(rows.nbytes)
            found = {name: rows.column(name) for name in rows.schema.names if name in names}
            found.setdefault(TIME, rows.column(ROWTIME))
            arrays = [found[f.name] if f.name in found else pa.nulls(len(rows), f.type) for f in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)
