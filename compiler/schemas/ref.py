"""Formats that keep a schema beside the records, and how a side of a topic is named in a registry."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from flowql.compiler.plan.logical import Format, Scan, SchemaRef
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.types import SqlType, struct
from flowql.compiler.schemas import avro, json_schema, protobuf

KINDS = {"AVRO": "AVRO", "JSON_SR": "JSON", "PROTOBUF": "PROTOBUF", "PROTOBUF_NOSR": "PROTOBUF"}
REGISTRY_FORMATS = ("AVRO", "JSON_SR", "PROTOBUF")
PROTOBUF_FORMATS = ("PROTOBUF", "PROTOBUF_NOSR")
DEBEZIUM = "DEBEZIUM_JSON"  # values alone: change events of tables of other systems, which are read and never written
JSON_OBJECT = "JSON_OBJECT"  # keys alone: an object also of a single column, as Kafka Connect and Flink write them


def subject_of(topic: str, *, is_key: bool) -> str:
    """The subject under which a registry keeps the schemas of a topic's side (`TopicNameStrategy`)."""
    return f"{topic}-{'key' if is_key else 'value'}"


def is_wrapped(fmt: Format, fields: Sequence[Field], *, is_key: bool) -> bool:
    """Whether the columns are fields of one object; else the single column is the whole side."""
    return len(fields) != 1 or fmt.name in PROTOBUF_FORMATS or (fmt.wrap and not is_key)


def schema_for(fmt: Format, fields: Sequence[Field], *, is_key: bool, name: str = "") -> SchemaRef:
    """The schema that FlowQL writes these columns with. name: of the record or message, as the user wants it."""
    columns = struct(*((f.name, f.type) for f in fields))
    wrapped = is_wrapped(fmt, fields, is_key=is_key)
    if fmt.name == "AVRO":
        text = avro.schema_text(columns, wrapped=wrapped, name=name)
    elif fmt.name == "JSON_SR":
        text = json_schema.schema_text(columns, wrapped=wrapped, name=name)
    else:
        text = protobuf.schema_text(columns, nullable=fmt.nullable, name=name)
    return SchemaRef(KINDS[fmt.name], text)


def content_id(ref: SchemaRef) -> int:
    """The id of a schema that no registry has numbered: the same for the same text in every process and after a restart."""
    data = "\0".join((ref.kind, ref.text, *(part for r in ref.references for part in r)))
    return zlib.crc32(data.encode()) & 0x7FFF_FFFF or 1


_READERS: dict[str, Callable[[SchemaRef], SqlType]] = {
    "AVRO": lambda ref: avro.type_of(ref.text),
    "JSON": lambda ref: json_schema.type_of(ref.text),
    "PROTOBUF": lambda ref: protobuf.type_of(ref.text, ref.references, ref.message),
}


def type_of(ref: SchemaRef) -> SqlType:
    """The SQL type of a registered schema: a STRUCT of records and messages. Raises ValueError with what SQL cannot hold."""
    return _READERS[ref.kind](ref)


# --- The compiler's view of a schema registry. It only reads: the writers of records register schemas ---


class SchemaLookup(Protocol):
    """A registry of schemas. Both methods may wait for a network and raise what their implementation says."""

    def latest(self, subject: str) -> SchemaRef | None:
        """The newest schema of a subject; None when the subject does not exist."""
        ...

    def by_id(self, schema_id: int) -> SchemaRef | None:
        """The schema of that id; None when there is none."""
        ...


class NoSchemas:
    """A registry without schemas."""

    def latest(self, subject: str) -> SchemaRef | None:
        return None

    def by_id(self, schema_id: int) -> SchemaRef | None:
        return None


NO_SCHEMAS = NoSchemas()


# --- The part of a definition that decides how records are read: less than all that its source declares, where columns are found by name ---


def reads_by_name(fmt: Format, declared: Sequence[Field]) -> bool:
    """Whether a value's columns are found by their names, so that each is read alike whatever else is declared.

    declared: the columns of the value. DELIMITED is positional: all columns count. So do those of a value that is one bare column.
    """
    if fmt.name not in ("JSON", DEBEZIUM, *KINDS):
        return False
    return fmt.name in (DEBEZIUM, *PROTOBUF_FORMATS) or fmt.wrap or len(declared) > 1


def read_alike(scan: Scan) -> Scan:
    """The scan without what makes no difference to how a column is read: equal ones decode equal columns equally.

    Of a value whose columns are found by name that is every declared column but the timestamp. A record of AVRO, JSON_SR or
    PROTOBUF names the schema it was written with, so the one declared with the source does not count either; but PROTOBUF_NOSR
    has no other.
    """
    fmt = scan.value_format
    if not reads_by_name(fmt, scan.declared.value):
        return scan
    if fmt.schema is not None and fmt.name in REGISTRY_FORMATS:
        fmt = replace(fmt, schema=replace(fmt.schema, text="", id=0, references=()))
    time = scan.timestamp.column if scan.timestamp is not None else ""
    kept = tuple(f for f in scan.declared.fields if f.role != "value" or f.name == time)
    return replace(scan, value_format=replace(fmt, wrap=True), declared=Schema(kept, scan.declared.window))
