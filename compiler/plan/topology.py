"""The physical plan: queries as sub-topologies of operators with pinned names; what `plan.json` holds.

A sub-topology is a set of operators that run in one task per partition. Sub-topologies are joined by
repartition topics (`ExchangeSink` -> `ExchangeSource`). Names of operators, stores and internal topics
are given at first deploy and never derived from a hash (docs/internals/decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from flowql.compiler.plan.event_times import USUAL_TIMES, EventTimes
from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.logical import ChangeKind, Format, Node, OnError, Scan, SchemaRef, Sink, Spec, TimestampSpec
from flowql.compiler.plan.priorities import OnChange, Priority
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.tables import HIDDEN, ROW_NUMBER, TableChange, TableRules
from flowql.compiler.plan.types import BIGINT
from flowql.compiler.plan.watermarks import Watermark

PLAN_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ExchangeSink:
    """The writing end of a repartition: rows go to partition murmur2(encoded columns) of `topic`.

    by: the columns that decide; None: the key columns. marks: every partition is told how far the watermark of the writing task is.
    null_group: rows whose key is NULL belong together, on partition 0; otherwise they stay on their own partition.
    """

    topic: str
    key_format: Format
    by: tuple[str, ...] | None = None
    null_group: bool = False
    marks: bool = False


@dataclass(frozen=True, slots=True)
class ExchangeSource:
    """The reading end of a repartition; its schema equals that of the `ExchangeSink`, and so does `marks`."""

    topic: str
    marks: bool = False


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """A logical store of one operator.

    kind: `table` (key -> row), `window` (key, window start -> row), `session` (key -> live sessions),
    `join` (key, time bucket -> rows). key/value: the columns it shows when queried (window bounds included in key).
    retention_ms: for window, session and join stores, how long after its end a segment is kept.
    """

    name: str
    kind: Literal["table", "window", "session", "join"]
    key: Schema
    value: Schema
    retention_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator in a sub-topology. `inputs` are ids of operators of the same sub-topology."""

    id: str
    spec: Spec | ExchangeSink | ExchangeSource
    inputs: tuple[str, ...]
    schema: Schema
    change: ChangeKind
    stores: tuple[StoreSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Operators in topological order (inputs first). `topics`: the topics its sources read, co-partitioned."""

    number: int
    operators: tuple[Operator, ...]
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class SourceDef:
    """A stream or table in the catalogue: over a topic, written by a query or by others.

    relation: a relation of standard SQL whose rows are inserted, updated and deleted: a local table, or a view over such.
    columns: those that can be seen, in the order in which they were declared; empty: as in the schema. rules: of a local table.
    watermark: how far behind the latest one a row may be; only of a source to which rows are added alone. partitioner: see `Scan`.
    """

    name: str
    kind: Literal["stream", "table"]
    topic: str
    schema: Schema
    key_format: Format
    value_format: Format
    timestamp: TimestampSpec | None = None
    partitions: int | None = None
    read_only: bool = False  # CREATE SOURCE ...
    query: str | None = None  # id of the query that writes it, if one does
    statement: str = ""  # text of the statement that made it
    times: EventTimes = USUAL_TIMES
    on_error: tuple[OnError, ...] = ()
    null_group: bool = False  # see `Sink`
    relation: bool = False
    columns: tuple[str, ...] = ()
    rules: TableRules | None = None
    watermark: Watermark | None = None
    partitioner: str = ""

    @property
    def is_own_table(self) -> bool:
        """Whether its rows are changed by INSERT, UPDATE and DELETE, and by nothing else."""
        return self.rules is not None

    @property
    def visible(self) -> tuple[str, ...]:
        """Names of the columns that can be seen, in order."""
        names = self.columns or self.schema.names
        return tuple(n for n in names if not n.startswith(HIDDEN)) if self.relation else names

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell its rows apart, as far as they can be seen: its key, or all."""
        return tuple(f.name for f in self.schema.key if not f.name.startswith(HIDDEN)) or self.visible

    @property
    def shown(self) -> Schema:
        """The columns that can be seen, in order."""
        if not self.relation and not self.columns:
            return self.schema
        return Schema(tuple(f for n in self.visible for f in self.schema if f.name == n), self.schema.window)

    @property
    def is_hidden(self) -> bool:
        """Whether no statement declared it: `NO_ROWS`."""
        return self.name == NO_ROWS.name


# Read by views that read no other table: it never has rows. Its one partition is where their own rows are made.
NO_ROWS = SourceDef(
    "__no_rows",
    "table",
    "__no_rows",
    Schema((Field(ROW_NUMBER, BIGINT, "key"),)),
    Format("JSON", wrap=False),
    Format("JSON"),
    partitions=1,
    relation=True,
    rules=TableRules(append_only=True),
)


def scan_of(source: SourceDef) -> Scan:
    """The source operator that reads all a source declares."""
    return Scan(
        source.name,
        source.topic,
        source.kind,
        source.key_format,
        source.value_format,
        source.timestamp,
        declared=source.schema,
        times=source.times,
        on_error=source.on_error,
        null_group=source.null_group,
        partitioner=source.partitioner,
    )


@dataclass(frozen=True)
class QueryPlan:
    """A persistent query.

    id: stable (`CSAS_NAME`, `CTAS_NAME`, `INSERT_NAME_n`, or what the user named it).
    definition: hash of the bound, unoptimised logical plan: the compatibility check, never a name.
    sink: name of the stream or table it writes. logical: optimised tree (Spark lowers it).
    repartitions: names of its internal topics. generation: see `flowql.compiler.plan.generations`. on_change: whether a new text is to
    compute all history, or what comes from then on (`flowql.compiler.plan.forward`); None: not said, and it calls functions of the project
    that give other values each time. unrepeatable: these, by the names that people use.
    """

    id: str
    sink: str
    sql: str
    definition: str
    logical: Node
    subtopologies: tuple[SubTopology, ...]
    priority: Priority = "normal"
    weight: int = 4
    latency_target_ms: int | None = None
    repartitions: tuple[str, ...] = ()
    generation: int = 1
    on_change: OnChange | None = "rebuild"
    unrepeatable: tuple[str, ...] = ()

    @cached_property
    def topic(self) -> str:
        """The topic of its sink."""
        return sink_of(self).topic


def sink_of(query: QueryPlan) -> Sink:
    """How it writes its results."""
    for sub in query.subtopologies:
        for op in sub.operators:
            if isinstance(op.spec, Sink):
                return op.spec
    raise AssertionError(f"{query.id} writes no results")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class InsertValues:
    """A row that is written once at deploy: key and value expressions are constants by column name.

    occurrence: how many equal ones the plan has before it. Each of them is a row of its own.
    """

    target: str
    columns: tuple[str, ...]
    values: tuple[Expr, ...]
    rowtime: int | None = None
    occurrence: int = 0


@dataclass(frozen=True)
class Plan:
    """The whole project: what `plan.json` holds and both engines run. What is derived is computed at most once.

    paused: ids of queries that wait for `flowql resume`. schemas: all that records may name which this plan or one before it
    wrote, where no registry keeps them. changes: statements that change rows of local tables, each run once.
    prefix: put before the names of all topics that FlowQL creates.
    """

    sources: tuple[SourceDef, ...] = ()
    queries: tuple[QueryPlan, ...] = ()
    inserts: tuple[InsertValues, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    paused: tuple[str, ...] = ()
    format: int = PLAN_FORMAT
    schemas: tuple[SchemaRef, ...] = ()
    changes: tuple[TableChange, ...] = ()
    prefix: str = ""

    @property
    def listed(self) -> tuple[SourceDef, ...]:
        """Sources that people declared or queries make."""
        return tuple(s for s in self.sources if not s.is_hidden)

    @cached_property
    def by_name(self) -> Mapping[str, SourceDef]:
        """The sources."""
        return {s.name: s for s in reversed(self.sources)}

    def source(self, name: str) -> SourceDef | None:
        return self.by_name.get(name)

    @cached_property
    def by_id(self) -> Mapping[str, QueryPlan]:
        return {q.id: q for q in self.queries}

    @cached_property
    def writers(self) -> Mapping[str, tuple[QueryPlan, ...]]:
        """Topic -> the queries that write it: first the one that creates it, for its options hold, then INSERT INTO as in the plan."""
        creators, found = {s.query for s in self.sources}, dict[str, tuple[QueryPlan, ...]]()
        for query in self.queries:
            topic = query.topic
            others = found.get(topic, ())
            found[topic] = (query, *others) if query.id in creators else (*others, query)
        return found


def stores_of(plan: Plan) -> Iterator[tuple[QueryPlan, StoreSpec]]:
    """Every store, with the query it belongs to."""
    for query in plan.queries:
        for sub in query.subtopologies:
            for op in sub.operators:
                for store in op.stores:
                    yield query, store
