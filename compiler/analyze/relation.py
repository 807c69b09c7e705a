"""Building blocks of logical plans: scans, projections that keep roles, and what a relation's key is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from flowql.compiler.analyze.scope import Scope
from flowql.compiler.plan.event_times import USUAL_TIMES, EventTimes
from flowql.compiler.plan.expr import Column, Expr
from flowql.compiler.plan.logical import (
    Aggregate,
    Filter,
    Join,
    Materialise,
    NamedExpr,
    Node,
    Project,
    Rekey,
    Scan,
    walk_nodes,
)
from flowql.compiler.plan.schema import WINDOW_FIELDS, Field, Role, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BIGINT, INT

_POSITION = (Field("ROWPARTITION", INT, "pseudo"), Field("ROWOFFSET", BIGINT, "pseudo"))


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a relation's key: plan names under which it can be selected, best first.

    synthetic: the key is no column of any source (a join on expressions); it is selected by this name.
    texts: the same as a user would write them, for messages.
    """

    viable: tuple[str, ...]
    texts: tuple[str, ...]
    synthetic: bool = False


@dataclass(frozen=True, slots=True)
class Relation:
    """The result of a FROM clause: a node, the names it offers, its key.

    sources: all definitions read, left to right. The first decides formats that are not given.
    """

    node: Node
    scope: Scope
    keys: tuple[KeyColumn, ...]
    sources: tuple[SourceDef, ...]

    @property
    def is_table(self) -> bool:
        return self.node.change != "append"


def times_of(node: Node) -> EventTimes:
    """Also those of all sources: what their scans let through, those of the result do too."""
    return reduce(EventTimes.hull, (n.spec.times for n in walk_nodes(node) if isinstance(n.spec, Scan)), USUAL_TIMES)


def sources_read(node: Node) -> tuple[str, ...]:
    """Names of the streams and tables that are scanned, each once."""
    return tuple(dict.fromkeys(n.spec.source for n in walk_nodes(node) if isinstance(n.spec, Scan)))


def scan(source: SourceDef, session: Mapping[str, str]) -> Node:
    """A scan of all columns of a source; the optimiser prunes those that are not read."""
    window = WINDOW_FIELDS if source.schema.window is not None else ()
    rest = tuple(f for f in source.schema.fields if f.role != "key")
    schema = Schema((*source.schema.key, *window, *rest, *_POSITION), source.schema.window)
    spec = Scan(
        source.name,
        source.topic,
        source.kind,
        source.key_format,
        source.value_format,
        source.timestamp,
        session.get("ksql.timestamp.throw.on.invalid", "false").lower() == "true",
        Schema(source.schema.value),
        source.times,
        source.on_error,
        source.null_group,
        source.partitioner,
    )
    return Node(spec, (), schema, "append" if source.kind == "stream" else "upsert")


def project(node: Node, columns: Sequence[NamedExpr]) -> Node:
    """A projection. A column that passes a key or window column on keeps its role; all others are values."""
    schema = Schema(tuple(Field(c.name, c.expr.type, _role(node.schema, c)) for c in columns), node.schema.window)
    return Node(Project(tuple(columns)), (node,), schema, node.change)


def _role(schema: Schema, c: NamedExpr) -> Role:
    found = schema.get(c.expr.name) if isinstance(c.expr, Column) else None
    if found is None or found.role not in ("key", "window"):
        return "value"
    return found.role if found.role == "key" or found.name == c.name else "value"


def with_key_roles(node: Node, keys: Sequence[str]) -> Node:
    """The projection `node` with exactly these columns as key, in front."""
    fields = {f.name: f for f in node.schema.fields}
    first = [replace(fields[k], role="key") for k in keys]
    rest = [replace(f, role="value") if f.role == "key" else f for n, f in fields.items() if n not in keys]
    rest.sort(key=lambda f: f.role != "window")
    schema = Schema((*first, *rest), node.schema.window)
    spec = node.spec
    if isinstance(spec, Project):
        by_name = {c.name: c for c in spec.columns}
        spec = replace(spec, columns=tuple(by_name[n] for n in schema.names))
    return Node(spec, node.inputs, schema, node.change)


def rekey(node: Node, keys: Sequence[NamedExpr], *, drop_null: bool) -> Node:
    """New key columns in front; all others become values."""
    names = {k.name for k in keys}
    first = [Field(k.name, k.expr.type, "key") for k in keys]
    rest = [Field(f.name, f.type, "value") for f in node.schema.fields if f.name not in names]
    return Node(Rekey(tuple(keys), drop_null), (node,), Schema((*first, *rest)), node.change)


def retracting(node: Node) -> Node:
    """The same table with old values known. State is added where the values are first lost: above scans."""
    if node.change != "upsert":
        return node
    if isinstance(node.spec, (Project, Filter, Rekey)):
        return replace(node, inputs=tuple(retracting(i) for i in node.inputs), change="retract")
    if isinstance(node.spec, (Aggregate, Join)):
        return replace(node, change="retract")
    return Node(Materialise(may_have_null_group(node)), (node,), node.schema, "retract")


def may_have_null_group(node: Node) -> bool:
    """Whether a row of a table may have NULL as its key: a group of standard SQL."""
    if node.change == "append":
        return False
    specs = [n.spec for n in walk_nodes(node)]
    return any(s.null_groups if isinstance(s, Aggregate) else isinstance(s, Scan) and s.null_group for s in specs)


def filtered(node: Node, predicate: Expr) -> Node:
    """Rows that pass. Over a table the old values must be known, to retract only what was given out."""
    below = retracting(node)
    return Node(Filter(predicate), (below,), below.schema, below.change)


def sink_schema(schema: Schema) -> Schema:
    """The columns of a result in the catalogue: keys and values. Window bounds are part of the key and are no columns."""
    return Schema(tuple(f for f in schema.fields if f.role in ("key", "value")), schema.window)
