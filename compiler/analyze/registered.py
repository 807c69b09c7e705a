"""Schemas of a registry at CREATE: columns taken from one, and the one that a side is written with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from flowql.compiler.analyze.mistakes import mistake
from flowql.compiler.analyze.properties import Properties, SideProperties
from flowql.compiler.catalog.catalog import Catalog, find_subject, schema_by_id
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.plan.logical import Format, SchemaRef
from flowql.compiler.plan.schema import Field, Role
from flowql.compiler.plan.types import Kind, SqlType, array, map_of, struct
from flowql.compiler.schemas import avro
from flowql.compiler.schemas.ref import (
    KINDS,
    PROTOBUF_FORMATS,
    REGISTRY_FORMATS,
    content_id,
    schema_for,
    subject_of,
    type_of,
)

REGISTRY = "ksql.schema.registry.url"


@dataclass(frozen=True, slots=True)
class Side:
    """The key or the value of a topic's records."""

    topic: str
    is_key: bool
    properties: SideProperties
    span: Span = NOWHERE

    @property
    def name(self) -> str:
        return "key" if self.is_key else "value"

    @property
    def role(self) -> Role:
        return "key" if self.is_key else "value"

    @property
    def id_property(self) -> str:
        return f"{self.name.upper()}_SCHEMA_ID"


def check_schema_id(side: Side, fmt: str, *, has_columns: bool) -> None:
    """A schema id stands for columns, and only formats with a registry have one."""
    if side.properties.schema_id is None:
        return
    if fmt not in REGISTRY_FORMATS:
        which = side.name.upper()
        title = (
            f"{which}_FORMAT should support schema inference when {side.id_property} is provided; the format is {fmt}"
        )
        raise mistake(
            "FQ2011", title, side.properties.span, f"not with {fmt}", help=f"use one of {', '.join(REGISTRY_FORMATS)}"
        )
    if has_columns:
        title = f"table elements and {side.id_property} cannot both exist for a create statement"
        raise mistake("FQ2011", title, side.properties.span, "columns are given too", help="leave one of them out")


def inferred_fields(side: Side, fmt: str, catalog: Catalog, *, wrap: bool) -> tuple[list[Field], SchemaRef | None]:
    """The columns of a side as its registered schema has them, and that schema.

    A key that has no schema gives no columns. wrap: the value is an object of columns. Names fold like unquoted ones, except
    under a schema that is named by its id.
    """
    given = side.properties.schema_id
    ref = schema_by_id(catalog, given) if given is not None else find_subject(catalog, _subject(side))
    if ref is None and side.is_key and given is None:
        return [], None
    if ref is None or ref.kind != KINDS[fmt]:
        what = f"id {given}" if given is not None else f"message {side.name}s on topic '{side.topic}'"
        title = f"schema for {what} does not exist in the Schema Registry"
        help_ = "write the columns after the name, or register the schema first"
        raise mistake("FQ2015", title, side.span, "which columns?", help=help_ if ref is None else f"it is {ref.kind}")
    ref = replace(ref, message=side.properties.schema_name if ref.kind == "PROTOBUF" else "")
    type_ = _read(ref, side)
    if given is None:
        type_ = _folded(type_, catalog.fold)
    if type_.kind is Kind.STRUCT and (fmt in PROTOBUF_FORMATS or (wrap and not side.is_key)):
        return [Field(n, f, side.role) for n, f in type_.fields], ref
    if wrap and not side.is_key:
        title = f"the schema of message values on topic '{side.topic}' is {type_}, not a record of columns"
        raise mistake(
            "FQ2016", title, side.span, "no columns", help="add WRAP_SINGLE_VALUE=false to read it as one column"
        )
    return [Field(_fold("ROWKEY" if side.is_key else "ROWVAL", catalog.fold), type_, side.role)], ref


def _read(ref: SchemaRef, side: Side) -> SqlType:
    subject = ref.subject or f"id {ref.id}"
    try:
        return type_of(ref)
    except LookupError:
        title = f"schema for message {side.name}s on topic '{side.topic}' does not exist in the Schema Registry: no message {ref.message}"
        raise mistake("FQ2015", title, side.span, "which message?") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        title = f"the schema {subject} of topic '{side.topic}' cannot be read as columns: {problem}"
        raise mistake("FQ2016", title, side.span, "no columns", help="write the columns after the name") from None


def with_schema(
    fmt: Format, side: Side, fields: Sequence[Field], catalog: Catalog, session: Mapping[str, str], *, writes: bool
) -> Format:
    """The format with the schema that records are written with.

    writes: a query will write the topic. It registers a schema of its own, while a source that others write has theirs.
    """
    if fmt.name not in KINDS or not fields:
        return fmt
    if side.properties.schema_id is not None:
        return replace(fmt, schema=_by_id(fmt, side, fields, catalog))
    if fmt.name == "PROTOBUF_NOSR":
        return replace(fmt, schema=schema_for(fmt, fields, is_key=side.is_key))
    subject = _subject(side)
    known = None if writes else find_subject(catalog, subject)
    if known is not None and known.kind == KINDS[fmt.name]:
        return replace(
            fmt, schema=replace(known, message=side.properties.schema_name if known.kind == "PROTOBUF" else "")
        )
    made = schema_for(fmt, fields, is_key=side.is_key, name=side.properties.schema_name)
    url = session.get(REGISTRY, "")
    made = replace(made, subject=subject, registry=url, id=0 if url else content_id(made))
    return replace(fmt, schema=made)


def _by_id(fmt: Format, side: Side, fields: Sequence[Field], catalog: Catalog) -> SchemaRef:
    """The schema of an id, which has to have the columns, in their order; those that it adds get their default."""
    inferred, ref = inferred_fields(side, fmt.name, catalog, wrap=fmt.wrap)
    assert ref is not None
    missing = [f for f in fields if (f.name, f.type) not in [(i.name, i.type) for i in inferred]]
    names = [i.name for i in inferred]
    ordered = [names.index(f.name) for f in fields if f.name in names]
    whole = len(fields) == len(inferred) == 1 and fields[0].type == inferred[0].type and side.is_key
    if (missing or ordered != sorted(ordered)) and not whole:
        wrong = missing or list(fields)
        shown = [listing([f"`{f.name}` {f.type}" for f in some]) for some in (wrong, inferred)]
        title = f"the following {side.name} columns are changed, missing or reordered: [{shown[0]}]; schema from schema registry is [{shown[1]}]"
        raise mistake("FQ2017", title, side.properties.span, f"schema {ref.id} has other columns")
    needed = avro.required_fields(ref.text) if ref.kind == "AVRO" and fmt.wrap else []
    ungiven = [n for n in needed if n not in [f.name for f in fields]]
    if ungiven and not whole:
        title = f"schema {ref.id} needs the field {listing(ungiven)}, which has no default and is not a valid {side.name} column"
        raise mistake("FQ2017", title, side.properties.span, "a field without a value", help="select a column for it")
    return replace(ref, subject=_subject(side))


def _subject(side: Side) -> str:
    return subject_of(side.topic, is_key=side.is_key)


def _fold(name: str, fold: str) -> str:
    return name.upper() if fold == "upper" else name.lower()


def _folded(type_: SqlType, fold: str) -> SqlType:
    """The type with the names of its fields folded, through all levels."""
    if type_.kind is Kind.STRUCT:
        return struct(*((_fold(n, fold), _folded(f, fold)) for n, f in type_.fields))
    if type_.kind is Kind.ARRAY:
        return array(_folded(type_.element, fold))
    return map_of(type_.args[0], _folded(type_.element, fold)) if type_.kind is Kind.MAP else type_


def key_side(topic: str, properties: Properties, span: Span) -> Side:
    return Side(topic, True, properties.key_schema, span)


def value_side(topic: str, properties: Properties, span: Span) -> Side:
    return Side(topic, False, properties.value_schema, span)
