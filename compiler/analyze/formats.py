"""Which schemas a format can hold, and the format of a side from property, source and session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowql.compiler.analyze.mistakes import mistake, unsupported
from flowql.compiler.analyze.options import DEFAULT_KEY, DEFAULT_VALUE, WRAP_SINGLE
from flowql.compiler.analyze.properties import Properties, SideProperties, check_format_name
from flowql.compiler.catalog.names import listing
from flowql.compiler.diagnostics.source import NOWHERE, Span
from flowql.compiler.plan.logical import Format
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.types import Kind, SqlType
from flowql.compiler.schemas.avro import is_name as is_avro_name
from flowql.compiler.schemas.ref import DEBEZIUM, JSON_OBJECT, PROTOBUF_FORMATS, REGISTRY_FORMATS

_NESTED = (Kind.ARRAY, Kind.MAP, Kind.STRUCT)
_KAFKA = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.STRING, Kind.BYTES)


def key_format(
    properties: Properties, session: Mapping[str, str], fields: Sequence[Field], inherited: Format | None, span: Span
) -> Format:
    """The format of a record key: as given, else that of the source, else the session's default, else KAFKA."""
    name = properties.key_format
    if name is None and inherited is not None and not (inherited.name == "NONE" and fields):
        name = inherited.name
    if name is None:
        name = check_format_name(session.get(DEFAULT_KEY, "KAFKA"), span)
    delimiter = _delimiter(name, "KEY", properties, inherited)
    at = properties.span("KEY_FORMAT") if properties.key_format else span
    _check_schema_properties("KEY", name, properties.key_schema)
    check_key_types(fields, at if at != NOWHERE else span)
    check_columns("key", name, fields, at if at != NOWHERE else span)
    nullable = _nullable(name, properties.key_schema, inherited)
    return Format(name, wrap=False, delimiter=delimiter, nullable=nullable)


def value_format(
    properties: Properties, session: Mapping[str, str], fields: Sequence[Field], inherited: Format | None, span: Span
) -> Format:
    """The format of a record value: as given, else that of the source, else the session's default."""
    if properties.value_format == DEBEZIUM and inherited is not None:
        title = "results are not written as Debezium's events"
        raise unsupported(title, properties.span("VALUE_FORMAT"), "only read", help="write  VALUE_FORMAT = 'JSON'")
    # Results computed from change events are written as rows.
    read = "JSON" if inherited is not None and inherited.name == DEBEZIUM else inherited.name if inherited else None
    name = properties.value_format or read
    if name is None:
        if DEFAULT_VALUE not in session:
            title = "the statement is missing the 'VALUE_FORMAT' property in its WITH clause"
            raise mistake(
                "FQ2014", title, span, "which format?", help=f"add VALUE_FORMAT='JSON', or set {DEFAULT_VALUE}"
            )
        name = check_format_name(session[DEFAULT_VALUE], span)
    delimiter = _delimiter(name, "VALUE", properties, inherited)
    at = properties.span("VALUE_FORMAT") if properties.value_format else span
    _check_schema_properties("VALUE", name, properties.value_schema)
    check_columns("value", name, fields, at if at != NOWHERE else span)
    nullable = _nullable(name, properties.value_schema, inherited)
    wrap = _wrap(name, properties, session, fields)
    return Format(name, wrap=wrap, delimiter=delimiter, nullable=nullable)


# Which formats take which properties of a schema.
_SCHEMA_ID, _NAME, _NULLABLE = REGISTRY_FORMATS, ("AVRO", "PROTOBUF", "JSON_SR"), PROTOBUF_FORMATS


def _check_schema_properties(side: str, name: str, given: SideProperties) -> None:
    for is_given, formats, what in (
        (given.schema_id is not None, _SCHEMA_ID, f"{side}_SCHEMA_ID (schemaId)"),
        (bool(given.schema_name), _NAME, f"{side}_SCHEMA_FULL_NAME (fullSchemaName)"),
        (bool(given.nullable), _NULLABLE, f"{side}_PROTOBUF_NULLABLE_REPRESENTATION (nullableRepresentation)"),
    ):
        if is_given and name not in formats:
            title = f"{name} does not support {what}"
            raise mistake("FQ2011", title, given.span, "only for formats with a schema", help=f"for {listing(formats)}")
    if given.schema_name and name != "JSON_SR" and not all(map(is_avro_name, given.schema_name.split("."))):
        title = f"{side}_SCHEMA_FULL_NAME {given.schema_name!r} is not a name in {name}"
        raise mistake(
            "FQ2011", title, given.span, "not a name", help="write letters, digits and _, with dots between parts"
        )


def _nullable(name: str, given: SideProperties, inherited: Format | None) -> str:
    if given.nullable:
        return given.nullable
    return inherited.nullable if inherited is not None and inherited.name == name else ""


def _wrap(name: str, properties: Properties, session: Mapping[str, str], fields: Sequence[Field]) -> bool:
    wrap = properties.wrap
    if wrap is None:
        single = len(fields) == 1 and name not in PROTOBUF_FORMATS
        return not single or session.get(WRAP_SINGLE, "true").lower() == "true"
    at = properties.span("WRAP_SINGLE_VALUE")
    if len(fields) != 1:
        title = "'WRAP_SINGLE_VALUE' is only valid for single-field value schemas"
        raise mistake("FQ2011", title, at, f"the value has {len(fields)} columns", help="leave WRAP_SINGLE_VALUE out")
    bare, whole = name in ("KAFKA", "DELIMITED") and wrap, name in PROTOBUF_FORMATS and not wrap
    if name == "NONE" or bare or whole:
        title = f"format {name} does not support 'WRAP_SINGLE_VALUE' set to '{str(wrap).lower()}'"
        raise mistake("FQ2011", title, at, "JSON and AVRO only")
    return wrap


def _delimiter(name: str, side: str, properties: Properties, inherited: Format | None) -> str:
    given = properties.key_delimiter if side == "KEY" else properties.value_delimiter
    if given is None:
        return inherited.delimiter if inherited is not None and inherited.name == name else ","
    if name != "DELIMITED":
        raise mistake(
            "FQ2011", f"{name} does not support a delimiter", properties.span(f"{side}_DELIMITER"), "only for DELIMITED"
        )
    return given


def check_key_types(fields: Sequence[Field], span: Span) -> None:
    """No part of a key may hold a map: maps have no fixed order, so equal keys could have different bytes."""
    for f in fields:
        if contains_kind(f.type, Kind.MAP):
            why = "equal maps may be written differently, so equal keys could land on different partitions"
            title = f"map keys, including types that contain maps, are not supported: key column {f.name} is {f.type}"
            raise mistake("FQ2013", title, span, "a map in the key", why=why)


def contains_kind(t: SqlType, kind: Kind) -> bool:
    return (
        t.kind is kind
        or any(contains_kind(a, kind) for a in t.args)
        or any(contains_kind(f, kind) for _, f in t.fields)
    )


def describe(fields: Sequence[Field]) -> str:
    """`K` STRING KEY, `V` INT."""
    return ", ".join(f"`{f.name}` {f.type}{' KEY' if f.role == 'key' else ''}" for f in fields)


def check_columns(side: str, name: str, fields: Sequence[Field], span: Span) -> None:
    """Whether a format can hold the columns of a side (`key`, `value`)."""
    if name == (DEBEZIUM if side == "key" else JSON_OBJECT):
        help = "write  KEY_FORMAT = 'JSON_OBJECT'" if side == "key" else "write  VALUE_FORMAT = 'JSON'"
        raise mistake("FQ2013", f"{name} is not a format of a {side}", span, f"not for a {side}", help=help)
    if name == "NONE" and fields:
        title = f"the 'NONE' format can only be used when no columns are defined; got {describe(fields)} in the {side}"
        raise mistake("FQ2013", title, span, f"{side} has columns")
    if name == "KAFKA":
        _check_kinds(side, name, fields, _KAFKA, span)
        if len(fields) > 1:
            title = f"the 'KAFKA' format only supports a single field as {side}; got {describe(fields)}"
            raise mistake(
                "FQ2013", title, span, "several columns", help=f"use another {side.upper()}_FORMAT, for example JSON"
            )
    if name == "DELIMITED":
        _check_kinds(side, name, fields, tuple(k for k in Kind if k not in _NESTED), span)
    if name in ("JSON", "JSON_SR", "AVRO", DEBEZIUM, JSON_OBJECT):
        for f in fields:
            if _has_odd_map(f.type):
                raise mistake(
                    "FQ2013",
                    f"{name.removesuffix('_SR')} only supports MAP types with STRING keys; column {f.name} is {f.type}",
                    span,
                    "keys of its maps are strings",
                )
    if name == "AVRO":
        _check_avro_names(fields, span)
    if name in PROTOBUF_FORMATS:
        _check_protobuf(fields, span)


def _check_avro_names(fields: Sequence[Field], span: Span) -> None:
    for owner, n in [("", f.name) for f in fields] + [(f.name, n) for f in fields for n in _field_names(f.type)]:
        if not is_avro_name(n):
            inside = f" of column {owner}" if owner else ""
            title = f"schema is not compatible with Avro: the name {n}{inside} has a character that Avro does not allow"
            raise mistake("FQ2013", title, span, "not a name in Avro", help="give it an alias of letters, digits and _")


def _field_names(t: SqlType) -> list[str]:
    inner = [n for a in t.args for n in _field_names(a)]
    return inner + [n for name, f in t.fields for n in (name, *_field_names(f))]


def _check_protobuf(fields: Sequence[Field], span: Span) -> None:
    """A repeated field repeats one value: neither a list nor a map; and keys of its maps are whole numbers or texts."""
    for f in fields:
        if found := _unwritable(f.type):
            title = f"PROTOBUF cannot hold {found} of column {f.name} ({f.type})"
            raise mistake("FQ2013", title, span, "cannot be written as PROTOBUF", help="put it into a STRUCT")


def _unwritable(t: SqlType) -> str:
    many = (Kind.ARRAY, Kind.MAP)
    if t.kind in many and t.element.kind in many:
        return f"{t.element.kind.value} inside {t.kind.value}"
    if t.kind is Kind.MAP and t.args[0].kind not in (Kind.STRING, Kind.INT, Kind.BIGINT, Kind.BOOLEAN):
        return f"a MAP with {t.args[0].kind.value} keys"
    return next((w for p in (*t.args, *(f for _, f in t.fields)) if (w := _unwritable(p))), "")


def _check_kinds(side: str, name: str, fields: Sequence[Field], kinds: Sequence[Kind], span: Span) -> None:
    for f in fields:
        if f.type.kind not in kinds:
            title = (
                f"the '{name}' format does not support type '{f.type.kind.value}' of {side} column {f.name} ({f.type})"
            )
            raise mistake(
                "FQ2013",
                title,
                span,
                f"cannot be written as {name}",
                help=f"use another {side.upper()}_FORMAT, for example JSON",
            )


def _has_odd_map(t: SqlType) -> bool:
    if t.kind is Kind.MAP and t.args[0].kind is not Kind.STRING:
        return True
    return any(_has_odd_map(a) for a in t.args) or any(_has_odd_map(f) for _, f in t.fields)
