"""Streams and tables that builders declare, as CREATE statements."""

from __future__ import annotations

from flowql.compiler.catalog.catalog import Catalog, find_source
from flowql.compiler.dialect.ast import ColumnDef, CreateSource, Property, TypeRef
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.streams.rows import RowType
from flowql.compiler.streams.steps import Declared
from flowql.compiler.streams.trees import fold


def source_of(declared: Declared, name: str, like: str, catalog: Catalog) -> CreateSource:
    """CREATE STREAM or TABLE over a topic. like: the stream or table that it has its topic from, or its key."""
    other = find_source(catalog, like, declared.at) if like else None
    columns = [*_key(declared, other, catalog), *_values(declared, other, catalog)]
    properties = dict(declared.properties)
    if other is not None:
        properties = {**_of_topic(other), **properties} if declared.value is None else _sized(properties, other)
    given = tuple(Property(k, v, declared.at, declared.at) for k, v in properties.items())
    return CreateSource(
        "", declared.at, name=name, kind=declared.kind, columns=tuple(columns), properties=given, name_span=declared.at
    )


def _key(declared: Declared, other: SourceDef | None, catalog: Catalog) -> list[ColumnDef]:
    if declared.key is not None:
        return _columns(declared, declared.key, catalog, key=True)
    return [] if other is None else [_column(declared, f.name, f, key=True) for f in other.schema.key]


def _values(declared: Declared, other: SourceDef | None, catalog: Catalog) -> list[ColumnDef]:
    if declared.value is not None:
        return _columns(declared, declared.value, catalog, key=False)
    return [] if other is None else [_column(declared, f.name, f, key=False) for f in other.schema.value]


def _columns(declared: Declared, row: RowType, catalog: Catalog, *, key: bool) -> list[ColumnDef]:
    return [_column(declared, fold(n, catalog.fold), Field(n, t), key=key) for n, t in row.fields]


def _column(declared: Declared, name: str, field: Field, *, key: bool) -> ColumnDef:
    ref = TypeRef(field.type, span=declared.at)
    if not key:
        return ColumnDef(name, ref, span=declared.at)
    return ColumnDef(name, ref, "primary_key" if declared.kind == "table" else "key", span=declared.at)


def _of_topic(other: SourceDef) -> dict[str, str | int]:
    """What a second declaration says of the topic of another one."""
    found: dict[str, str | int] = {
        "KAFKA_TOPIC": other.topic,
        "KEY_FORMAT": other.key_format.name,
        "VALUE_FORMAT": other.value_format.name,
    }
    return _sized(found, other)


def _sized(properties: dict[str, str | int], other: SourceDef) -> dict[str, str | int]:
    """With the number of partitions of the other one, where it is declared."""
    if other.partitions is None or "PARTITIONS" in properties:
        return properties
    return {**properties, "PARTITIONS": other.partitions}
