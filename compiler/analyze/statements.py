"""One statement against a catalogue: what it means, ready to be applied."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace

from flowql.compiler.analyze.assertions import Assertion, bind_assertion
from flowql.compiler.analyze.certain_failures import refuse_failing, refuse_failing_values, without_failed_rows
from flowql.compiler.analyze.dependencies import place_of, refuse_hidden
from flowql.compiler.analyze.formats import key_format, value_format
from flowql.compiler.analyze.insert_query import check_insertable, fitted, placed
from flowql.compiler.analyze.insert_row import insert_row, known_target
from flowql.compiler.analyze.ksql_limits import refuse_in_ksql
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.options import QueryOptions
from flowql.compiler.analyze.properties import FOR_INSERT, FOR_SINK, FOR_VIEW, Properties, read_properties
from flowql.compiler.analyze.query import BoundSelect, bind_query
from flowql.compiler.analyze.registered import key_side, value_side, with_schema
from flowql.compiler.analyze.relation import may_have_null_group, sink_schema, sources_read, times_of
from flowql.compiler.analyze.relations.records import as_stream
from flowql.compiler.analyze.relations.retention import Retention
from flowql.compiler.analyze.relations.streams import partitioned, split_keys, stream_of
from flowql.compiler.analyze.relations.view import bind_view, consolidated
from flowql.compiler.analyze.row_changes import (
    bind_change,
    bind_copy,
    bind_insert,
    bind_insert_select,
    refuse_view,
    row_statements,
    rows_given,
)
from flowql.compiler.analyze.sources import altered_source, bind_source, timestamp_of
from flowql.compiler.analyze.standard_limits import refuse_intervals, refuse_unkept
from flowql.compiler.analyze.tables import bind_table, result_topic, with_limits
from flowql.compiler.analyze.types import as_written, resolve_type
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.diagnostics.diagnostic import CompileError
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import (
    AlterSource,
    AssertRow,
    AssertSchema,
    AssertTopic,
    CreateAs,
    CreateSource,
    CreateType,
    Drop,
    InsertInto,
    InsertRow,
    OtherStatement,
    QueryControl,
    SetProperty,
    Statement,
    TypeRef,
)
from flowql.compiler.dialect.standard import tree as t
from flowql.compiler.dialect.standard.statement_tree import Change, CopyRows, CreateTable, CreateView, Insert
from flowql.compiler.dialect.standard.type_names import in_standard_words
from flowql.compiler.dialect.standard.write_expressions import quoted
from flowql.compiler.dialect.standard.write_queries import query_sql
from flowql.compiler.dialect.texts import statement_text
from flowql.compiler.dialect.words import SYSTEM_COLUMNS
from flowql.compiler.plan.logical import ChangeKind, Format, Node, Rekey, Scan, Sink, walk_nodes
from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import InsertValues, SourceDef
from flowql.compiler.plan.types import SqlType
from flowql.compiler.plan.visit import exprs_in

INTERACTIVE = ("SELECT", "SHOW", "LIST", "DESCRIBE", "EXPLAIN", "PRINT")


@dataclass(frozen=True, slots=True)
class BoundSource:
    """CREATE STREAM or TABLE over a topic."""

    source: SourceDef
    or_replace: bool
    if_not_exists: bool
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class BoundQuery:
    """A persistent query. node: its logical plan, a Sink at the root. creates: the sink is new, not inserted into.

    adopts: the sink was declared, and is what this query alone writes from now on.
    """

    node: Node
    sink: SourceDef
    reads: tuple[str, ...]
    options: QueryOptions
    creates: bool
    or_replace: bool = False
    if_not_exists: bool = False
    sql: str = ""
    span: Span = NOWHERE
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class BoundDrop:
    """DROP."""

    name: str
    kind: str
    if_exists: bool
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class BoundType:
    """CREATE TYPE."""

    name: str
    type: SqlType
    written: TypeRef
    if_not_exists: bool
    span: Span = NOWHERE


@dataclass(frozen=True, slots=True)
class BoundRows:
    """INSERT INTO ... VALUES of one row or several."""

    inserts: tuple[InsertValues, ...]


@dataclass(frozen=True, slots=True)
class BoundChange:
    """INSERT, UPDATE or DELETE of a local table."""

    change: TableChange
    span: Span = NOWHERE


Bound = (
    BoundSource | BoundQuery | BoundDrop | BoundType | SetProperty | BoundRows | BoundChange | QueryControl | Assertion
)
_EMPTY: dict[str, str] = {}


def analyze(
    statement: Statement, catalog: Catalog, session: Mapping[str, str] = _EMPTY, needs: Set[str] | None = None
) -> Bound:
    """Bind one statement. Raises CompileError (UnsupportedError for what is not supported yet). needs: see `refuse_hidden`."""
    try:
        refuse_hidden(statement, needs)
        return _checked(statement, catalog, session)
    except CompileError as error:
        if catalog.standard:
            raise type(error)(*map(in_standard_words, error.diagnostics)) from error.__cause__
        raise


def _checked(statement: Statement, catalog: Catalog, session: Mapping[str, str]) -> Bound:
    bound = _bound(statement, catalog, session)
    if isinstance(bound, BoundQuery):
        exprs = exprs_in(bound.node)
        if catalog.standard:
            refuse_unkept(bound.node, exprs)
            bound = replace(bound, node=without_failed_rows(bound.node))
        refuse_failing(exprs, elements=catalog.standard)
    elif isinstance(bound, BoundRows):
        refuse_intervals([e for i in bound.inserts for e in i.values])
        refuse_failing_values(bound.inserts[0].columns, [i.values for i in bound.inserts])
    return bound


def _bound(statement: Statement, catalog: Catalog, session: Mapping[str, str]) -> Bound:
    at = place_of(statement)
    match statement:
        case CreateSource():
            return BoundSource(
                bind_source(statement, catalog, session), statement.or_replace, statement.if_not_exists, at
            )
        case CreateAs():
            return _create_as(statement, catalog, session, at)
        case InsertInto():
            return _insert_query(statement, catalog, session, at)
        case InsertRow():
            return BoundRows((insert_row(statement, catalog, at),))
        case CreateTable():
            source = bind_table(statement, catalog, session, at)
            return BoundSource(source, statement.or_replace, statement.if_not_exists, at)
        case Insert():
            return _insert(statement, catalog, at)
        case Change():
            return BoundChange(bind_change(statement, catalog, at), at)
        case CopyRows():
            return BoundChange(bind_copy(statement, catalog, at), at)
        case Drop():
            return BoundDrop(statement.name, _kind_to_drop(statement, catalog, at), statement.if_exists, at)
        case CreateType() if statement.type is not None:
            made, written = resolve_type(statement.type, catalog, at), as_written(statement.type, catalog)
            return BoundType(statement.name, made, written, statement.if_not_exists, at)
        case SetProperty() | QueryControl():
            return statement
        case AssertRow():
            title = "ASSERT VALUES is for tests, which `flowql test` runs; files of a project define what runs"
            raise mistake("FQ2018", title, at, "defines nothing", help="write it in a file of tests")
        case AssertTopic() | AssertSchema():
            return bind_assertion(statement, catalog)
        case AlterSource():
            altered = with_limits(altered_source(statement, catalog, session), statement, catalog)
            return BoundSource(altered, True, False, at)
        case OtherStatement() if statement.verb in INTERACTIVE:
            raise mistake(
                "FQ2018",
                f"{statement.verb} is an interactive query; files of a project define what runs",
                at,
                "defines nothing",
                help=f"run it in the shell:  flowql shell -c '{statement.verb} ...'",
            )
        case OtherStatement():
            help_ = "change the definition in its file and deploy it" if statement.verb == "ALTER" else ""
            raise unsupported(f"{statement.verb} is not supported yet", at, "not supported yet", help=help_)
    raise unsupported(f"{type(statement).__name__} is not supported yet", at, "not supported yet")


def _kind_to_drop(statement: Drop, catalog: Catalog, at: Span) -> str:
    """A view is the stream or the table that its query gives."""
    found = catalog.sources.get(statement.name)
    if statement.delete_topic and found is not None and found.read_only:
        title = f"cannot delete the topic of read-only {found.kind} {found.name}"
        why = "a SOURCE reads a topic that others own"
        raise mistake(
            "FQ2053", title, at, "created with SOURCE", why=why, help=f"write DROP {found.kind.upper()} {found.name}"
        )
    if found is not None and found.query is not None and catalog.standard and statement.kind != "type":
        return found.kind  # CREATE TABLE ... AS may give a stream, as CREATE VIEW
    if statement.kind != "view" or found is None:
        return "table" if statement.kind == "view" else statement.kind
    if found.query is None:
        title = f"{found.name} is not a view, but a {found.kind} over a topic"
        raise mistake("FQ2053", title, at, f"a {found.kind}", help=f"write DROP {found.kind.upper()} {found.name}")
    return found.kind


# --- CREATE ... AS SELECT ---


def _create_as(statement: CreateAs, catalog: Catalog, session: Mapping[str, str], at: Span) -> BoundQuery:
    """A query of standard SQL is a relation, whatever it reads. All others are ksqlDB's, or streams in Python."""
    if isinstance(statement, CreateView):
        return _create_view(statement, catalog, session, at)
    return _create_query(statement, catalog, session, at)


def _create_query(statement: CreateAs, catalog: Catalog, session: Mapping[str, str], at: Span) -> BoundQuery:
    query = statement.query
    assert query is not None
    properties = read_properties(statement.properties, FOR_SINK, catalog.fold)
    if not catalog.standard:
        refuse_in_ksql(query, catalog, properties, session)
    bound = bind_query(query, catalog, session, statement.name)
    _check_kind(statement, bound, at)
    text = statement_text(statement.name, statement.kind, query)
    sink = _sink_of_records(statement, bound.node, bound.inherited, properties, catalog, session, at)
    return _created(statement, bound.node, replace(sink, statement=text), properties, at)


def _sink_of_records(
    statement: CreateAs,
    node: Node,
    source: SourceDef,
    properties: Properties,
    catalog: Catalog,
    session: Mapping[str, str],
    at: Span,
) -> SourceDef:
    """A stream or table whose record keys are the key columns of the rows. source: gives the formats that are not said."""
    schema = sink_schema(node.schema)
    topic = _topic_of_result(statement.name, properties, catalog, session)
    null_group = may_have_null_group(node)
    keys = key_format(properties, session, schema.key, source.key_format, at)
    if null_group and keys.name == "KAFKA" and properties.key_format is None:
        keys = replace(keys, name="JSON")  # the KAFKA format cannot write NULL
    values = value_format(properties, session, schema.value, source.value_format, at)
    sides = key_side(topic, properties, at), value_side(topic, properties, at)
    return SourceDef(
        name=statement.name,
        kind="stream" if node.change == "append" else "table",
        topic=topic,
        schema=schema,
        key_format=with_schema(keys, sides[0], schema.key, catalog, session, writes=True),
        value_format=with_schema(values, sides[1], schema.value, catalog, session, writes=True),
        timestamp=timestamp_of(properties, schema, at),
        partitions=properties.partitions,
        times=times_of(node),
        null_group=null_group,
    )


def _topic_of_result(name: str, properties: Properties, catalog: Catalog, session: Mapping[str, str]) -> str:
    return catalog.naming.made(properties.topic or result_topic(name, session), catalog.topics())


def _created(statement: CreateAs, node: Node, sink: SourceDef, properties: Properties, at: Span) -> BoundQuery:
    return BoundQuery(
        with_sink(node, sink, properties.partitions),
        replace(sink, timestamp=None),  # it is for what the sink writes; readers take the record's own time
        sources_read(node),
        properties.options,
        True,
        statement.or_replace,
        statement.if_not_exists,
        sink.statement,
        at,
    )


def _create_view(statement: CreateView, catalog: Catalog, session: Mapping[str, str], at: Span) -> BoundQuery:
    """A view. Where rows of streams are only added it is a stream (`relations.records`); else a table, which keeps a row per row identity."""
    properties = read_properties(statement.properties, FOR_VIEW, catalog.fold)
    retention = Retention(properties.retention_ms, properties.span("RETENTION"))
    is_stream = statement.kind == "stream"
    tree, by = split_keys(statement.tree) if is_stream else (statement.tree, ())
    view, columns = bind_view(tree, statement.columns, catalog, at, retention)
    records = stream_of(view, tree, statement.name) if is_stream else as_stream(view)
    if records is not None:
        _refuse_system_columns(columns, at)
        records = partitioned(records, tree, by, columns) if by else records
        first = catalog.sources[_first_read(records)]
        sink = _sink_of_records(statement, records, first, properties, catalog, session, at)
        sink = replace(sink, columns=columns)
    else:
        topic = _topic_of_result(statement.name, properties, catalog, session)
        sink = _sink_of_relation(statement.name, topic, view, columns, properties, session, at)
    text = f"CREATE {sink.kind.upper()} {statement.name} AS {query_sql(statement.tree)}"
    node = consolidated(view) if records is None else records
    return _created(statement, node, replace(sink, statement=text), properties, at)


def _first_read(node: Node) -> str:
    """The leftmost source."""
    while not isinstance(node.spec, Scan):
        node = node.inputs[0]
    return node.spec.source


def _sink_of_relation(
    name: str,
    topic: str,
    view: Node,
    columns: tuple[str, ...],
    properties: Properties,
    session: Mapping[str, str],
    at: Span,
) -> SourceDef:
    """Its record key is the row identity, which JSON alone can write. Its value holds the selected columns."""
    if not {properties.key_format, properties.value_format} <= {None, "JSON"}:
        value_format(properties, session, (), Format("JSON"), at)  # what is wrong with the format comes first
        raise unsupported(
            "a view over tables in another format than JSON is not supported yet", at, help="leave the format out"
        )
    if properties.timestamp is not None:
        raise unsupported("TIMESTAMP of a view over tables is not supported yet", at, help="leave it out")
    return SourceDef(
        name=name,
        kind="table",
        topic=topic,
        schema=view.schema,
        key_format=Format("JSON", wrap=False),
        value_format=value_format(properties, session, view.schema.value, Format("JSON"), at),
        partitions=properties.partitions,
        times=times_of(view),
        null_group=True,
        relation=True,
        columns=columns,
    )


def _refuse_system_columns(columns: tuple[str, ...], at: Span) -> None:
    """The records of a stream have columns of these names."""
    taken = [c for c in columns if c.upper() in SYSTEM_COLUMNS]
    if taken:
        title = f"reserved column name in select: `{taken[0]}`"
        raise mistake(
            "FQ2008", title, at, "reserved", help=f"give it an alias, as in  {taken[0]} AS my_{taken[0].lower()}"
        )


def _check_kind(statement: CreateAs, bound: BoundSelect, at: Span) -> None:
    is_table = bound.node.change != "append"
    if statement.kind == "stream" and is_table:
        what = "an aggregation" if bound.aggregated else "a table"
        title = f"invalid result type: the SELECT of {statement.name} gives a TABLE ({what}), not a STREAM"
        raise mistake("FQ2025", title, at, "the result is a table", help=f"write CREATE TABLE {statement.name} AS")
    if statement.kind == "table" and not is_table:
        title = f"invalid result type: the SELECT of {statement.name} gives a STREAM, not a TABLE"
        raise mistake(
            "FQ2025",
            title,
            at,
            "the result is a stream",
            help=f"write CREATE STREAM {statement.name} AS, or add GROUP BY",
        )


def with_sink(node: Node, sink: SourceDef, partitions: int | None = None) -> Node:
    """The plan of a query that writes the rows of `node`. partitions: of a topic that is created."""
    parts = len(node.schema.key) > 1 and node.change == "append" and any(_keeps_null(n) for n in walk_nodes(node))
    spec = Sink(
        sink.name,
        sink.topic,
        sink.kind,
        sink.key_format,
        sink.value_format,
        sink.timestamp,
        partitions,
        null_key_parts=parts,
        times=replace(sink.times, ahead_ms=None),  # readers look at the clock
        null_group=sink.null_group,
    )
    change: ChangeKind = "append" if node.change == "append" else "upsert"
    return Node(spec, (node,), node.schema, change)


def _keeps_null(node: Node) -> bool:
    """Whether the node gives rows a new key that may be NULL, as PARTITION BY does."""
    if not isinstance(node.spec, Rekey) or node.spec.drop_null:
        return False
    return [k.name for k in node.spec.keys] != [f.name for f in node.inputs[0].schema.key]


# --- INSERT of standard SQL: the target decides what it is ---


def _insert(statement: Insert, catalog: Catalog, at: Span) -> BoundChange | BoundRows | BoundQuery:
    """A change of a local table; for all else records that are written once, or a query that keeps running."""
    rows = rows_given(statement)
    target = known_target(statement.target, catalog, at)
    refuse_view(target, at, "INSERT")
    if target.is_own_table and rows is not None:
        return BoundChange(bind_insert(statement, rows, target, catalog, at), at)
    if target.is_own_table:
        return BoundChange(bind_insert_select(statement, target, catalog, at), at)
    if statement.on_conflict is not None:
        raise unsupported(
            "ON CONFLICT is for local tables",
            statement.on_conflict.span,
            f"{target.name} is over a topic",
            help="a record with the key of another replaces it",
        )
    if statement.returning:
        raise unsupported(
            "RETURNING is for local tables",
            statement.returning[0].span,
            f"{target.name} is over a topic",
            help="leave it out",
        )
    if rows is None:
        return _insert_relation(statement, target, catalog, at)
    inserts = row_statements(statement, rows)
    if inserts is None:
        raise unsupported("DEFAULT is for local tables", at, f"{target.name} is over a topic", help="give the value")
    return BoundRows(tuple(insert_row(i, catalog, at) for i in inserts))


# --- INSERT INTO ... SELECT ---


def _insert_query(statement: InsertInto, catalog: Catalog, session: Mapping[str, str], at: Span) -> BoundQuery:
    assert statement.query is not None
    properties = read_properties(statement.properties, FOR_INSERT)
    target = find_source(catalog, statement.target, at)
    check_insertable(target, at)
    if not catalog.standard:
        refuse_in_ksql(statement.query, catalog, properties, session)
    bound = bind_query(statement.query, catalog, session, target.name)
    if bound.node.change != "append":
        title = f"INSERT INTO {target.name}: the SELECT gives a TABLE, not a STREAM"
        raise mistake("FQ2040", title, statement.query.span, "the result is a table")
    node = fitted(bound.node, target, at, standard=catalog.standard)
    text = statement_text(target.name, "", statement.query, insert=True)
    return _inserting(node, target, properties, text, at)


def _inserting(node: Node, target: SourceDef, properties: Properties, text: str, at: Span) -> BoundQuery:
    reads = sources_read(node)
    return BoundQuery(with_sink(node, target), target, reads, properties.options, False, sql=text, span=at)


def _insert_relation(statement: Insert, target: SourceDef, catalog: Catalog, at: Span) -> BoundQuery:
    """A query of standard SQL that keeps running, and appends the rows of its relation."""
    properties = read_properties(statement.properties, FOR_INSERT)
    check_insertable(target, at)
    assert statement.query is not None
    if isinstance(statement.query.body, t.Values):
        title = "a sub-query in VALUES for a stream is not supported yet"
        raise unsupported(title, at, "not supported yet", help="write  INSERT INTO stream SELECT ...")
    view, columns = bind_view(statement.query, (), catalog, at, Retention())
    records = stream_of(view, statement.query, target.name)
    node = placed(records, columns, statement.columns, target, at)
    listed = f" ({', '.join(map(quoted, statement.columns))})" if statement.columns else ""
    return _inserting(node, target, properties, f"INSERT INTO {target.name}{listed} {query_sql(statement.query)}", at)
