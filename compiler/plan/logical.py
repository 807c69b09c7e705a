"""Operators as immutable descriptions, and the logical plan as a tree of them.

One vocabulary serves three readers: the optimiser rewrites trees of `Node`, the runtime runs the same
specs inside a `flowql.compiler.plan.topology.Topology`, Spark lowers the tree. A spec holds what an operator
*is*; what changes while it runs lives in the runtime.

Change kinds of a node's output: `append` (a stream: each row is an event; op DELETE marks a record whose
value is null), `upsert` (a table: rows are INSERT / UPDATE_AFTER / DELETE per key), `retract` (a table whose
updates travel as adjacent UPDATE_BEFORE, UPDATE_AFTER rows and whose DELETE rows carry the old values).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flowql.compiler.plan.asynchronous import AsyncMap
from flowql.compiler.plan.changes import (
    Consolidate,
    EquiJoin,
    GroupAggregate,
    Over,
    SetOperation,
    TemporalJoin,
    TopN,
    VersionJoin,
)
from flowql.compiler.plan.event_times import USUAL_TIMES, EventTimes
from flowql.compiler.plan.expr import Expr
from flowql.compiler.plan.processors import Process
from flowql.compiler.plan.schema import NO_COLUMNS, Schema
from flowql.compiler.plan.temporal_filters import TemporalFilter
from flowql.compiler.plan.types import SqlType
from flowql.compiler.plan.watermarks import AppendOnly, Closing, EmitClosed

ChangeKind = Literal["append", "upsert", "retract"]
JoinKind = Literal["inner", "left", "right", "full"]
JoinShape = Literal["stream-stream", "stream-table", "table-table", "foreign-key"]


@dataclass(frozen=True, slots=True)
class NamedExpr:
    """An output column and the expression that computes it."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class SchemaRef:
    """A schema that records name by its id.

    kind: AVRO, JSON or PROTOBUF. id: 0 where the registry gives it when the schema is first written. references: texts by
    the name under which `text` imports them. message: PROTOBUF, the message of the text that records are; empty: the first.
    registry: URL of the registry that numbers it; empty: the plan itself is the registry.
    """

    kind: str
    text: str
    id: int = 0
    subject: str = ""
    references: tuple[tuple[str, str], ...] = ()
    message: str = ""
    registry: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """How one side (key or value) of a topic's records is written.

    name: JSON, DELIMITED, KAFKA, NONE, AVRO, JSON_SR, PROTOBUF, PROTOBUF_NOSR. wrap: a single column is written as an object.
    delimiter: DELIMITED only. A key is never wrapped unless it has several columns (Protobuf: always).
    schema: what AVRO, JSON_SR and PROTOBUF are written with; None where keys are only hashed.
    nullable: PROTOBUF only, OPTIONAL or WRAPPER; without one a NULL scalar is written as 0, false or an empty text.
    standard: JSON is read as standard SQL has it: names of fields in any case, and a number beyond its integer type or with a fraction makes
    the record bad. Without, as ksqlDB reads it: such a number is wrapped or cut.
    """

    name: str
    wrap: bool = True
    delimiter: str = ","
    schema: SchemaRef | None = None
    nullable: str = ""
    standard: bool = False


@dataclass(frozen=True, slots=True)
class TimestampSpec:
    """The column that gives a record's time. `pattern` (java.time style) for STRING columns, else empty."""

    column: str
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class OnError:
    """The effect of a column that cannot be read in a record's value: NULL, `default`, or its query fails."""

    column: str
    action: Literal["null", "default", "fail"]
    default: int | float | str | bool | None = None


@dataclass(frozen=True, slots=True)
class Scan:
    """Read a source: decode the records of one topic.

    schema of the node: the columns wanted (pruned), key columns first; roles tell where each is read from.
    kind: `stream` or `table`. A table source keeps its rows in a store when someone needs them or their old values.
    null_group: see `Sink`. partitioner: who placed its records (`flowql.compiler.plan.partitioners`); empty: not said.
    """

    source: str
    topic: str
    kind: Literal["stream", "table"]
    key_format: Format
    value_format: Format
    timestamp: TimestampSpec | None = None
    throw_on_invalid_timestamp: bool = False
    # All value columns the source declares, in order: DELIMITED and single-column formats are positional.
    declared: Schema = NO_COLUMNS
    times: EventTimes = USUAL_TIMES
    on_error: tuple[OnError, ...] = ()  # of other columns: a dead letter
    null_group: bool = False
    partitioner: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """Compute columns. Reads one input; changes neither key nor row order.

    drop_failed: a row for which an expression fails is left out (standard SQL); without it the value is NULL.
    """

    columns: tuple[NamedExpr, ...]
    drop_failed: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Keep rows whose predicate is true. Over a table a row that stops passing becomes a DELETE."""

    predicate: Expr


@dataclass(frozen=True, slots=True)
class Explode:
    """Table functions in the select list: one output row per element, the shorter columns padded with NULL.

    `functions` are calls of table functions; `columns` may refer to their results by name (`__explode_0`, ...).
    drop_failed: see `Project`; a row whose lists fail has no elements.
    """

    functions: tuple[NamedExpr, ...]
    drop_failed: bool = False


@dataclass(frozen=True, slots=True)
class Rekey:
    """Give rows a new key; the planner cuts a repartition here where the new key needs one.

    `keys` name the new key columns; the node's schema lists them first, other columns follow.
    drop_null: rows whose key is null (any part) are dropped, as GROUP BY and joins do; PARTITION BY keeps them.
    """

    keys: tuple[NamedExpr, ...]
    drop_null: bool


@dataclass(frozen=True, slots=True)
class Window:
    """A window of a grouped aggregation. `grace_ms` None means the dialect's default (24 h minus size, at least 0).

    Cumulating windows start as tumbling ones and end at every multiple of the advance up to their size.

    over_1970: no window reaches over 1970, as none starts before it in ksqlDB; unless a source says that its times begin before that.
    """

    kind: Literal["tumbling", "hopping", "cumulating", "session"]
    size_ms: int  # of a session: the gap
    advance_ms: int
    grace_ms: int | None = None
    retention_ms: int | None = None
    over_1970: bool = False


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of a grouped aggregation.

    function: name in `flowql.compiler.functions.aggregates`. args: expressions over the input row.
    init: constant arguments that configure the function (K of TOPK, limits, IGNORE NULLS flags).
    """

    name: str
    function: str
    args: tuple[Expr, ...]
    type: SqlType
    init: tuple[bool | int | float | str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Group by the key of the input (a `Rekey` has put it there) and fold.

    Output: key columns, WINDOWSTART and WINDOWEND when windowed, then one column per aggregate.
    carried: input columns that are part of the group key expression and stay visible (none usually).
    Input of change kind `retract` is folded with undo.
    null_groups: rows whose key is NULL are a group as others are (standard SQL); without it they are left out.
    counted: the state of a group has the number of its rows behind the accumulators, and a group without rows goes.
    closing: keys that follow a watermark, without a window; a closed group is forgotten, and its result stays.
    emit_final: a window or group has a result when it is closed, and never one that changes.
    """

    aggregates: tuple[AggregateCall, ...]
    window: Window | None = None
    emit_final: bool = False
    null_groups: bool = False
    counted: bool = False
    closing: tuple[Closing, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """Join two inputs on their keys (each was rekeyed before if needed).

    Output columns: those of the node's schema, found by name in the left or right input (names are unique;
    `key_name` is the output key column, taken from whichever side is present).
    before_ms/after_ms: a right row matches if left.time - before_ms <= right.time <= left.time + after_ms.
    grace_ms: None means the legacy behaviour (outer rows are emitted eagerly, 24 h retention).
    foreign_key: for shape foreign-key, the expression over the left row that gives the right key.
    """

    shape: JoinShape
    kind: JoinKind
    key_name: str
    before_ms: int = 0
    after_ms: int = 0
    grace_ms: int | None = None
    foreign_key: Expr | None = None


@dataclass(frozen=True, slots=True)
class Materialise:
    """Keep the latest row per key of a table, and turn `upsert` into `retract` (old values become known).

    null_group: a row whose key is NULL is kept, too; otherwise it is dropped.
    """

    null_group: bool = False


@dataclass(frozen=True, slots=True)
class Union:
    """Rows of all inputs, in arrival order. All inputs have the node's schema."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Write rows to a topic. Key columns of the input schema become the record key, value columns the value.

    timestamp: a column that gives the record's time instead of the row time.
    times: which ones that column may give.
    null_key_parts: a key of several columns that are all NULL is written with its NULLs (after PARTITION BY), not as a
    null key (a record that came without a key).
    null_group: a row of the table may have NULL as its key (a group of standard SQL), which is written as a value of the key's format.
    """

    name: str
    topic: str
    kind: Literal["stream", "table"]
    key_format: Format
    value_format: Format
    timestamp: TimestampSpec | None = None
    partitions: int | None = None
    null_key_parts: bool = False
    times: EventTimes = USUAL_TIMES
    null_group: bool = False


ChangeSpec = (
    GroupAggregate
    | EquiJoin
    | TemporalJoin
    | VersionJoin
    | SetOperation
    | TopN
    | Over
    | Consolidate
    | AppendOnly
    | EmitClosed
    | TemporalFilter
)
Spec = (
    Scan
    | Project
    | Filter
    | Explode
    | AsyncMap
    | Rekey
    | Aggregate
    | Join
    | Materialise
    | Union
    | Process
    | Sink
    | ChangeSpec
)


@dataclass(frozen=True, slots=True)
class Node:
    """A logical node: a spec, its inputs, the schema and change kind of what it gives out."""

    spec: Spec
    inputs: tuple[Node, ...]
    schema: Schema
    change: ChangeKind = "append"


def walk_nodes(node: Node) -> list[Node]:
    """`node` and all nodes below, inputs first: a topological order."""
    found, left = [], [node]
    while left:
        found.append(last := left.pop())
        left.extend(last.inputs)
    return found[::-1]
