"""Rules for CREATE TABLE, SOURCE, SINK and VIEW, and for INSERT."""

from __future__ import annotations

from sqlglot import exp

from flowql.compiler.dialect.foreign.dialects import identifier
from flowql.compiler.dialect.foreign.translation import Rule, Translation
from flowql.compiler.dialect.foreign.types import type_of
from flowql.compiler.dialect.foreign.untranslated import Node, refuse

# How another system stores rows, which says nothing about what they are.
_STORAGE = (
    exp.PartitionedByProperty, exp.SchemaCommentProperty, exp.Cluster, exp.ClusteredByProperty, exp.SortKeyProperty, exp.ViewAttributeProperty,
    exp.MaterializedProperty, exp.DynamicProperty,
)  # fmt: skip
_IGNORED_OPTIONS = (
    "TARGET_LAG", "WAREHOUSE", "REFRESH_MODE", "INITIALIZE", "COMMENT", "DESCRIPTION", "LABELS", "FORMAT", "PARTITIONED_BY", "PARTITIONING", "BUCKET_COUNT",
    "BUCKETED_BY", "CLUSTER_BY", "DATA_RETENTION_TIME_IN_DAYS", "CHANGE_TRACKING", "ENABLE_REFRESH", "REFRESH_INTERVAL_MINUTES", "SORTED_BY",
)  # fmt: skip
_CONNECTED = ("risingwave", "flink")
_STARTS = ("earliest", "earliest-offset")
_ONCE = "it copies rows once"


def create(tr: Translation, node: Node) -> Node:
    kind = node.args["kind"].upper()
    dynamic = _has(node, exp.DynamicProperty)
    if kind == "SOURCE":
        kind = "TABLE"
    if node.args.get("expression") is not None and kind == "TABLE" and not dynamic:
        refuse(
            node,
            "CREATE TABLE ... AS",
            f"in {tr.dialect} {_ONCE}, and in FlowQL it is a query that runs on",
            "write CREATE VIEW name AS, or CREATE TABLE and INSERT",
        )
    if kind not in ("TABLE", "VIEW", "SINK") or (
        kind == "TABLE" and not isinstance(node.this, exp.Schema) and not dynamic
    ):
        refuse(node, f"CREATE {kind}", "FlowQL has tables, streams and views", "write a table over a topic, or a view")
    for name in ("clone", "refresh", "begin", "unique", "indexes", "with_"):
        if node.args.get(name):
            refuse(node, f"{name.strip('_').upper()} of CREATE {kind}", f"no translation from {tr.dialect} is known")
    as_view = kind in ("VIEW", "SINK") or dynamic
    made = exp.Create(
        this=_header(tr, node, as_view),
        kind="VIEW" if as_view else "TABLE",
        exists=node.args.get("exists"),
        expression=_query(tr, node, kind),
        properties=_properties(tr, node, kind),
    )
    made.comments = node.comments
    return made


def _has(node: Node, kind: type) -> bool:
    properties = node.args.get("properties")
    return properties is not None and any(isinstance(p, kind) for p in properties.expressions)


def _header(tr: Translation, node: Node, as_view: bool) -> Node:
    """The name, with its columns."""
    if not isinstance(node.this, exp.Schema):
        return _name(tr, node.this)
    if as_view:
        return exp.Schema(
            this=_name(tr, node.this.this),
            expressions=[tr.name(c.this if isinstance(c, exp.ColumnDef) else c) for c in node.this.expressions],
        )
    return exp.Schema(
        this=_name(tr, node.this.this),
        expressions=[p for p in map(tr.noted, node.this.expressions) if not isinstance(p, exp.Null)],
    )


def _name(tr: Translation, node: Node) -> Node:
    return exp.Table(this=tr.name(node.this))


def _query(tr: Translation, node: Node, kind: str) -> Node:
    query = node.args.get("expression")
    if query is None:
        return None
    if kind == "SINK" and isinstance(query, exp.Table | exp.From):
        named = query.this if isinstance(query, exp.From) else query
        return exp.Select(expressions=[exp.Star()], from_=exp.From(this=tr(named)))
    return tr(query)


def column(tr: Translation, node: Node) -> Node:
    """A column of a table."""
    kind = node.args.get("kind")
    constraints = [made for c in node.args.get("constraints") or () if (made := _constraint(tr, c)) is not None]
    return exp.ColumnDef(
        this=tr.name(node.this),
        kind=type_of(kind, tr.dialect, in_cast=False) if kind is not None else None,
        constraints=constraints,
    )


def _constraint(tr: Translation, node: Node) -> Node | None:
    kind = node.kind
    if isinstance(kind, exp.CommentColumnConstraint):
        return None
    if isinstance(kind, exp.NotNullColumnConstraint):
        return None if kind.args.get("allow_null") else exp.ColumnConstraint(kind=exp.NotNullColumnConstraint())
    if isinstance(kind, exp.PrimaryKeyColumnConstraint):
        return exp.ColumnConstraint(kind=exp.PrimaryKeyColumnConstraint())
    if isinstance(kind, exp.DefaultColumnConstraint | exp.CheckColumnConstraint):
        return exp.ColumnConstraint(kind=type(kind)(this=tr(kind.this)))
    if isinstance(kind, exp.ComputedColumnConstraint):
        return exp.ColumnConstraint(kind=exp.ComputedColumnConstraint(this=tr(kind.this), persisted=True))
    if tr.as_postgres and isinstance(kind, exp.GeneratedAsIdentityColumnConstraint):
        return exp.ColumnConstraint(kind=tr.copied(kind, ("this",)))
    text = " ".join(node.sql().split())
    return refuse(
        node,
        f"the constraint {text}",
        "FlowQL has NOT NULL, PRIMARY KEY, DEFAULT, CHECK and generated columns",
        "leave it out",
    )


def primary_key(tr: Translation, node: Node) -> Node:
    """PRIMARY KEY (a, b), whether it is enforced there or not."""
    return exp.PrimaryKey(
        expressions=[tr.name(e if isinstance(e, exp.Identifier) else e.find(exp.Identifier)) for e in node.expressions]
    )


def named_constraint(tr: Translation, node: Node) -> Node:
    """CONSTRAINT name PRIMARY KEY (a)."""
    keys = [e for e in node.expressions if isinstance(e, exp.PrimaryKey)]
    if len(node.expressions) != 1 or not keys:
        refuse(node, f"the constraint {node.name}", "FlowQL has primary keys and checks", "leave it out")
    return primary_key(tr, keys[0])


def watermark(tr: Translation, node: Node) -> Node:
    return exp.WatermarkColumnConstraint(this=tr(node.this), expression=tr(node.expression))


def _properties(tr: Translation, node: Node, kind: str) -> Node:
    given = node.args.get("properties")
    kept = [
        p for p in (_property(tr, p, kind) for p in (given.expressions if given is not None else ())) if p is not None
    ]
    return exp.Properties(expressions=kept) if kept else None


def _property(tr: Translation, node: Node, kind: str) -> Node | None:
    """The FlowQL property with the same effect. None for settings of storage, and for addresses of brokers, which belong in `flowql.yaml`."""
    if isinstance(node, _STORAGE) or (isinstance(node, exp.FileFormatProperty) and tr.dialect not in _CONNECTED):
        return None
    if isinstance(node, exp.FileFormatProperty | exp.EncodeProperty) and tr.dialect == "risingwave":
        if node.args.get("properties") or node.args.get("key"):
            refuse(node, "options of ENCODE", "formats have no such option", "leave them out")
        if kind != "SINK":
            tr.behind += f" {'FORMAT' if isinstance(node, exp.FileFormatProperty) else 'ENCODE'} {node.name.upper()}"
        return None
    if type(node) is exp.Property:
        return _option(tr, node, kind)
    text = " ".join(node.sql().split())
    return refuse(node, f"`{text[:60]}`", f"no translation from {tr.dialect} is known", "leave it out")


def _option(tr: Translation, node: Node, kind: str) -> Node | None:
    name = _dotted(node.this)
    value = node.args["value"]
    text = value.name if value is not None else ""
    if tr.dialect not in _CONNECTED:
        if name.upper() in _IGNORED_OPTIONS:
            return None
        return refuse(node, f"the option {name}", f"no translation from {tr.dialect} is known", "leave it out")
    if name.lower().startswith("properties.") or (name.lower() == "scan.startup.mode" and text.lower() in _STARTS):
        return None
    if kind == "SINK":
        if name.lower() == "topic":
            return exp.Property(this=exp.var("KAFKA_TOPIC"), value=exp.Literal.string(text))
        if name.lower() in ("type", "primary_key", "force_append_only") or (
            name.lower() == "connector" and text.lower() == "kafka"
        ):
            return None
        return refuse(
            node,
            f"the option {name} of a sink",
            "a view writes its rows to a topic",
            "leave it out, or read the topic with another system",
        )
    return exp.Property(this=exp.Literal.string(name), value=exp.Literal.string(text))


def _dotted(node: Node) -> str:
    return f"{_dotted(node.this)}.{node.expression.name}" if isinstance(node, exp.Dot) else str(node.name)


def insert(tr: Translation, node: Node) -> Node:
    for name, value in node.args.items():
        if (
            value
            and name not in ("this", "expression", "with_")
            and not (tr.as_postgres and name in ("conflict", "returning"))
        ):
            refuse(
                node,
                f"{'INSERT OVERWRITE' if name == 'overwrite' else name.strip('_').upper() + ' of INSERT'}",
                f"no translation from {tr.dialect} is known",
            )
    target = node.this
    made = _name(tr, target.this if isinstance(target, exp.Schema) else target)
    if isinstance(target, exp.Schema):
        made = exp.Schema(this=made, expressions=[tr.name(c) for c in target.expressions])
    return exp.Insert(
        this=made,
        expression=_by_position(tr, node, tr(node.expression)),
        with_=tr.argument(node.args.get("with_")),
        conflict=tr.argument(node.args.get("conflict")),
        returning=tr.argument(node.args.get("returning")),
    )


def _by_position(tr: Translation, node: Node, query: Node) -> Node:
    """A query that goes on writing to a topic: its columns get the names of the topic's, in whose order they are."""
    columns = tr.kinds.relation(node.this) if tr.dialect in _CONNECTED and isinstance(node.this, exp.Table) else None
    if columns is None or not isinstance(query, exp.Select) or query.args.get("from_") is None or query.find(exp.Star):
        return query
    if len(columns) == len(query.expressions):
        named = zip(query.expressions, columns, strict=True)
        query.set("expressions", [exp.Alias(this=e.unalias(), alias=identifier(n)) for e, n in named])
    return query


def conflict(tr: Translation, node: Node) -> Node:
    return tr.copied(node, tuple(node.arg_types))


DECLARATIONS: dict[type, Rule] = {
    exp.Create: create, exp.ColumnDef: column, exp.PrimaryKey: primary_key, exp.Constraint: named_constraint, exp.WatermarkColumnConstraint: watermark, exp.Insert: insert,
    exp.OnConflict: conflict, exp.Returning: conflict,
}  # fmt: skip
