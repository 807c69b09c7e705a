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
        known = _partitions(other, catalog)
        sized: dict[str, str | int] = {} if known is None else {"PARTITIONS": known}
        properties = {**({} if declared.value is not None else _of_topic(other)), **sized, **properties}
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
    """The properties of a second declaration over the topic of another one."""
    return {
        "KAFKA_TOPIC": other.topic,
        "KEY_FORMAT": other.key_format.name,
        "VALUE_FORMAT": other.value_format.name,
    }


def _partitions(source: SourceDef, catalog: Catalog) -> int | None:
    """Those that are declared of a stream or table, or of what its query reads; None where nothing says it."""
    if source.partitions is not None or source.query is None:
        return source.partitions
    read = [s for n, s in catalog.sources.items() if source.query in catalog.readers.get(n, ()) and n != source.name]
    return max((p for s in read if (p := _partitions(s, catalog)) is not None), default=None)
