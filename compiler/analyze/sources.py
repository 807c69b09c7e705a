"""CREATE STREAM and CREATE TABLE over a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flowql.compiler.analyze.formats import check_columns, key_format, value_format
from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.on_error import on_errors
from flowql.compiler.analyze.options import DEFAULT_KEY, DEFAULT_VALUE
from flowql.compiler.analyze.properties import FOR_SOURCE, Properties, read_properties
from flowql.compiler.analyze.registered import Side, check_schema_id, inferred_fields, key_side, value_side, with_schema
from flowql.compiler.analyze.types import resolve_type
from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.catalog.names import did_you_mean, listing
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.dialect.ast import AlterSource, ColumnDef, CreateSource
from flowql.compiler.dialect.elements import WRONG_KEYS
from flowql.compiler.dialect.words import SYSTEM_COLUMNS
from flowql.compiler.functions.java_time import parts_of
from flowql.compiler.plan.logical import Format, SchemaRef, TimestampSpec
from flowql.compiler.plan.schema import Field, Role, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import BYTES, STRING, Kind, SqlType, array, struct
from flowql.compiler.schemas.ref import DEBEZIUM, JSON_OBJECT, REGISTRY_FORMATS, subject_of

RESERVED = SYSTEM_COLUMNS
_ROLES: dict[str, Role] = {"value": "value", "key": "key", "primary_key": "key", "header": "header"}
_JSON = ("JSON", "JSON_SR", JSON_OBJECT)
_HEADERS = array(struct(("KEY", STRING), ("VALUE", BYTES)))


def bind_source(statement: CreateSource, catalog: Catalog, session: Mapping[str, str]) -> SourceDef:
    """The source a CREATE statement defines."""
    at = statement.name_span if statement.name_span != NOWHERE else statement.span
    properties = read_properties(statement.properties, FOR_SOURCE, catalog.fold)
    declared = _columns(statement, catalog)
    _check_events(statement, properties, catalog, at)
    if properties.topic is None:
        raise mistake(
            "FQ2014",
            f"{statement.name} is missing the 'KAFKA_TOPIC' property",
            at,
            "over which topic?",
            help="add KAFKA_TOPIC='...'",
        )
    partitioned = properties.partitions is not None
    topic = catalog.naming.declared(statement.name, properties.topic, catalog.topics(), partitioned=partitioned)
    sides = (key_side(topic, properties, at), value_side(topic, properties, at))
    _check_forms(declared, at)
    fields, found = _inferred(declared, sides, properties, catalog, session)
    schema = Schema(tuple(fields), properties.window)
    keys = key_format(properties, session, schema.key, None, at)
    values = value_format(properties, session, schema.value, None, at)
    if catalog.standard:
        keys, values = (replace(f, standard=f.name in _JSON) for f in (keys, values))
    if not fields:
        title = f"{statement.name} has no columns, and {values.name} has no schema to take them from"
        raise mistake("FQ2014", title, at, "which columns?", help="write (id INT KEY, name STRING, ...) after the name")
    keys = _with_schema(keys, sides[0], schema.key, catalog, session, found[0])
    values = _with_schema(values, sides[1], schema.value, catalog, session, found[1])
    _check_keys(statement, schema, at)
    return SourceDef(
        name=statement.name,
        kind=statement.kind,
        topic=topic,
        schema=schema,
        key_format=keys,
        value_format=values,
        timestamp=timestamp_of(properties, schema, at),
        partitions=properties.partitions,
        times=properties.times,
        on_error=on_errors(statement.columns, schema, values),
        read_only=statement.read_only,
        statement=statement.text,
        watermark=statement.watermark,
        partitioner=properties.partitioner,
    )


def _check_forms(fields: Sequence[Field], at: Span) -> None:
    """Records of a topic hold texts in any form. Raises UnsupportedError."""
    for field in fields:
        form = _form_in(field.type)
        if form:
            title = f"{form} as the type of column {field.name} of a topic"
            help = f"declare it STRING, and write  CAST({field.name} AS {form})  in a view"
            raise unsupported(f"{title} is not supported", at, f"{form} of a topic", help=help)


def _form_in(t: SqlType) -> str:
    parts = (*t.args, *(f for _, f in t.fields))
    return t.form or next((form for p in parts if (form := _form_in(p))), "")


def _inferred(
    declared: Sequence[Field],
    sides: tuple[Side, Side],
    properties: Properties,
    catalog: Catalog,
    session: Mapping[str, str],
) -> tuple[Sequence[Field], tuple[SchemaRef | None, SchemaRef | None]]:
    """The columns, those of a side without any taken from its registered schema, and the schemas they come from."""
    names = (
        properties.key_format or session.get(DEFAULT_KEY, "KAFKA").upper(),
        properties.value_format or session.get(DEFAULT_VALUE, "").upper(),
    )
    wrap = properties.wrap is not False
    fields: list[Field] = [*declared]
    found: list[SchemaRef | None] = [None, None]
    for i, side in enumerate(sides):
        has = any(f.role == side.role for f in declared)
        check_schema_id(side, names[i], has_columns=has)
        if not has and names[i] in REGISTRY_FORMATS:
            made, found[i] = inferred_fields(side, names[i], catalog, wrap=wrap)
            fields = [*made, *fields] if side.is_key else [*fields, *made]
    for field in fields if found[0] is not None or found[1] is not None else ():
        if [f.name for f in fields].count(field.name) > 1:
            title = f"column {field.name} is in the key and in the value of topic {sides[0].topic}"
            at = sides[0].span
            raise mistake("FQ2004", title, at, "twice", help="write the columns of both, with other names for the key")
    if found[1] is not None:  # header columns stay behind
        fields.sort(key=lambda f: f.role == "header")
    return fields, (found[0], found[1])


def _with_schema(
    fmt: Format,
    side: Side,
    fields: Sequence[Field],
    catalog: Catalog,
    session: Mapping[str, str],
    found: SchemaRef | None,
) -> Format:
    if found is not None:
        return replace(fmt, schema=replace(found, subject=found.subject or subject_of(side.topic, is_key=side.is_key)))
    return with_schema(fmt, side, fields, catalog, session, writes=False)


def _columns(statement: CreateSource, catalog: Catalog) -> Sequence[Field]:
    fields: dict[str, Field] = {}
    for column in statement.columns:
        if column.name in RESERVED:
            title = f"'{column.name}' is a reserved column name and cannot name a column"
            raise mistake("FQ2008", title, column.span, "reserved", help="choose another name")
        if column.name in fields:
            raise mistake(
                "FQ2004", f"column {column.name} of {statement.name} is defined twice", column.span, "defined before"
            )
        type_ = resolve_type(column.type, catalog, column.span)
        _check_role(statement, column, type_)
        fields[column.name] = Field(column.name, type_, _ROLES[column.role], column.header_key)
    # Key columns come first in a schema, as they do in every output.
    return [*(f for f in fields.values() if f.role == "key"), *(f for f in fields.values() if f.role != "key")]


def _check_role(statement: CreateSource, column: ColumnDef, type_: SqlType) -> None:
    kind = statement.kind
    if (kind, column.role) in WRONG_KEYS:
        written, right = WRONG_KEYS[kind, column.role]
        title = f"column {column.name} of {kind} {statement.name} is a {written} column"
        raise mistake("FQ2025", title, column.span, f"{kind}s have a {right}", help=f"write {right}")
    if column.role != "header":
        return
    if statement.kind == "table":
        raise mistake(
            "FQ2025",
            f"table {statement.name} has header column {column.name}",
            column.span,
            "only streams can have header columns",
        )
    wanted = BYTES if column.header_key else _HEADERS
    if type_ != wanted:
        clause = f"HEADER('{column.header_key}')" if column.header_key else "HEADERS"
        raise mistake(
            "FQ2005",
            f"invalid type for {clause} column {column.name}: expected {wanted}, got {type_}",
            column.span,
            f"must be {wanted}",
        )
    headers = [c for c in statement.columns if c.role == "header"]
    if any(not c.header_key for c in headers) and any(c.header_key for c in headers):
        title = f"{statement.name} has a column of all HEADERS and one of a single HEADER"
        help = "take all HEADERS and find the header in the array, or name each HEADER('key')"
        raise mistake("FQ2004", title, column.span, "one or the other", help=help)
    same = [c for c in headers if c.header_key == column.header_key]
    if len(same) > 1 and same[0] is not column:
        raise mistake(
            "FQ2004",
            f"two columns of {statement.name} read the same header",
            column.span,
            f"{same[0].name} reads it already",
        )


def _check_events(statement: CreateSource, properties: Properties, catalog: Catalog, at: Span) -> None:
    """Checks a source whose records are Debezium's events."""
    if properties.value_format != DEBEZIUM:
        return
    span = properties.span("VALUE_FORMAT") if "VALUE_FORMAT" in properties.spans else properties.span("FORMAT")
    if not catalog.standard:
        title = f"{DEBEZIUM} is a format of standard SQL"
        raise mistake("FQ2012", title, span, "not in this dialect", help="write  dialect: standard  in flowql.yaml")
    if statement.kind != "table":
        title = f"{statement.name} is a stream: Debezium's events insert, update and delete rows of a table"
        help = f"write  CREATE TABLE {statement.name} (..., PRIMARY KEY (...))"
        raise mistake("FQ2025", title, at, "not a table", help=help)
    if properties.key_format not in (None, JSON_OBJECT):
        title = f"keys of Debezium's events are read as {JSON_OBJECT}, not as {properties.key_format}"
        raise mistake("FQ2011", title, properties.span("KEY_FORMAT"), "another format", help="leave KEY_FORMAT out")
    if properties.window is not None:
        raise mistake("FQ2011", "Debezium's events have no windows", properties.span("WINDOW_TYPE"), "no windows")
    for column in statement.columns:
        if column.properties:
            title = f"ON_ERROR of {column.name} of a table of Debezium's events"
            raise unsupported(title, column.properties[0].span, "a dead letter", help="leave it out")


def _check_keys(statement: CreateSource, schema: Schema, span: Span) -> None:
    if statement.kind == "table" and not schema.key:
        title = f"tables require a PRIMARY KEY; {statement.name} has none"
        raise mistake("FQ2022", title, span, "no PRIMARY KEY", help="write PRIMARY KEY after the key column")
    if schema.window is not None and not schema.key:
        raise mistake("FQ2022", f"windowed sources require a key column; {statement.name} has none", span, "no KEY")


def altered_source(statement: AlterSource, catalog: Catalog, session: Mapping[str, str]) -> SourceDef:
    """The source with the columns that ALTER adds behind its own."""
    source = find_source(catalog, statement.name, statement.name_span)
    if source.kind != statement.kind:
        title = f"{source.name} is a {source.kind}; write ALTER {source.kind.upper()} {source.name}"
        raise mistake("FQ2053", title, statement.name_span, f"a {source.kind}")
    if source.read_only or catalog.writers.get(source.name):
        why = "it is read-only" if source.read_only else "queries write it, and they decide its columns"
        title = f"ALTER is not supported on {source.kind} {source.name}: {why}"
        raise mistake("FQ2052", title, statement.name_span, "cannot change", help="change the statement that makes it")
    added: list[Field] = []
    for column in statement.columns:
        if column.name in (*source.schema.names, *(f.name for f in added), *RESERVED):
            title = f"{source.name} has a column {column.name} already"
            raise mistake("FQ2004", title, column.span, "taken", help="choose another name")
        if column.role != "value":
            title = f"ALTER adds columns of the value; {column.name} is a {column.role.replace('_', ' ').upper()}"
            raise mistake("FQ2025", title, column.span, "not of the value")
        added.append(Field(column.name, resolve_type(column.type, catalog, column.span)))
    values = (*source.schema.value, *added)
    rest = tuple(f for f in source.schema.fields if f.role == "header")
    fmt = source.value_format
    check_columns("value", fmt.name, values, statement.span)
    side = value_side(source.topic, Properties(), statement.name_span)
    fmt = with_schema(replace(fmt, schema=None), side, values, catalog, session, writes=True)
    schema = Schema((*source.schema.key, *values, *rest), source.schema.window)
    columns = (*source.columns, *(f.name for f in added)) if source.columns else ()
    return replace(source, schema=schema, value_format=fmt, columns=columns)


def _check_pattern(pattern: str, span: Span) -> None:
    try:
        parts_of(pattern)
    except ValueError as problem:
        help = "write literal letters in quotes: yyyy-MM-dd''T''HH:mm:ss"
        raise mistake("FQ2011", f"TIMESTAMP_FORMAT: {problem}", span, "not a pattern", help=help) from None


def timestamp_of(properties: Properties, schema: Schema, span: Span) -> TimestampSpec | None:
    """The TIMESTAMP property against a schema."""
    if properties.timestamp is None:
        if properties.timestamp_format is not None:
            raise mistake(
                "FQ2011", "TIMESTAMP_FORMAT needs TIMESTAMP", properties.span("TIMESTAMP_FORMAT"), "of which column?"
            )
        return None
    at = properties.span("TIMESTAMP")
    at = at if at != NOWHERE else span
    found = schema.get(properties.timestamp)
    if found is None or found.role not in ("key", "value"):
        names = [f.name for f in schema.fields if f.role in ("key", "value")]
        hint = did_you_mean(properties.timestamp, names) or f"columns are {listing(names)}"
        raise mistake(
            "FQ2002",
            f"the TIMESTAMP column {properties.timestamp} is not in the schema",
            at,
            "unknown column",
            help=hint,
        )
    pattern = properties.timestamp_format or ""
    kind = found.type.kind
    _check_pattern(pattern, properties.span("TIMESTAMP_FORMAT"))
    if kind in (Kind.BIGINT, Kind.TIMESTAMP) and pattern:
        raise mistake(
            "FQ2011",
            f"TIMESTAMP_FORMAT is for STRING columns; {found.name} is {found.type}",
            properties.span("TIMESTAMP_FORMAT"),
            "not needed",
        )
    if kind in (Kind.BIGINT, Kind.TIMESTAMP) or (kind is Kind.STRING and pattern):
        return TimestampSpec(found.name, pattern)
    title = f"timestamp column {found.name} should be BIGINT, TIMESTAMP, or a STRING with TIMESTAMP_FORMAT; it is {found.type}"
    raise mistake("FQ2005", title, at, "cannot give a time")
