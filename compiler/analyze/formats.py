"""Which schemas a format can hold, and the format of a side from property, source and session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.analyze.mistakes import mistake
from compiler.analyze.properties import Properties, check_format_name
from compiler.diagnostics.source import NOWHERE, Span
from compiler.plan.logical import Format
from compiler.plan.schema import Field
from compiler.plan.types import Kind, SqlType

DEFAULT_KEY = "ksql.persistence.default.format.key"
DEFAULT_VALUE = "ksql.persistence.default.format.value"
WRAP_SINGLE = "ksql.persistence.wrap.single.values"
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
    delimiter = _delimiter(name, properties.key_delimiter, inherited, properties.span("KEY_DELIMITER"))
    at = properties.span("KEY_FORMAT") if properties.key_format else span
    check_key_types(fields, at if at != NOWHERE else span)
    _check_schema("key", name, fields, at if at != NOWHERE else span)
    return Format(name, wrap=False, delimiter=delimiter)


def value_format(
    properties: Properties, session: Mapping[str, str], fields: Sequence[Field], inherited: Format | None, span: Span
) -> Format:
    """The format of a record value: as given, else that of the source, else the session's default."""
    name = properties.value_format or (inherited.name if inherited is not None else None)
    if name is None:
        if DEFAULT_VALUE not in session:
            title = "the statement is missing the 'VALUE_FORMAT' property in its WITH clause"
            raise mistake(
                "FQ2014", title, span, "which format?", help=f"add VALUE_FORMAT='JSON', or set {DEFAULT_VALUE}"
            )
        name = check_format_name(session[DEFAULT_VALUE], span)
    delimiter = _delimiter(name, properties.value_delimiter, inherited, properties.span("VALUE_DELIMITER"))
    at = properties.span("VALUE_FORMAT") if properties.value_format else span
    _check_schema("value", name, fields, at if at != NOWHERE else span)
    return Format(name, wrap=_wrap(name, properties, session, fields), delimiter=delimiter)


def _wrap(name: str, properties: Properties, session: Mapping[str, str], fields: Sequence[Field]) -> bool:
    at = properties.span("WRAP_SINGLE_VALUE")
    if properties.wrap is not None and len(fields) != 1:
        title = "'WRAP_SINGLE_VALUE' is only valid for single-field value schemas"
        raise mistake("FQ2011", title, at, f"the value has {len(fields)} columns", help="leave WRAP_SINGLE_VALUE out")
    if properties.wrap is not None and (name == "NONE" or (name in ("KAFKA", "DELIMITED") and properties.wrap)):
        value = str(properties.wrap).lower()
        raise mistake("FQ2011", f"format {name} does not support 'WRAP_SINGLE_VALUE' set to '{value}'", at, "JSON only")
    if len(fields) != 1:
        return True
    if properties.wrap is not None:
        return properties.wrap
    return session.get(WRAP_SINGLE, "true").lower() == "true"


def _delimiter(name: str, given: str | None, inherited: Format | None, span: Span) -> str:
    if given is None:
        return inherited.delimiter if inherited is not None and inherited.name == name else ","
    if name != "DELIMITED":
        raise mistake("FQ2011", f"{name} does not support a delimiter", span, "only for DELIMITED")
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


def _check_schema(side: str, name: str, fields: Sequence[Field], span: Span) -> None:
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
    if name == "JSON":
        for f in fields:
            if _has_odd_map(f.type):
                raise mistake(
                    "FQ2013",
                    f"JSON only supports MAP types with STRING keys; column {f.name} is {f.type}",
                    span,
                    "keys of JSON objects are strings",
                )


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
