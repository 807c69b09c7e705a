"""The part of a definition that decides how records are read: less than all that its source declares, where columns are found by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from flowql.compiler.plan.logical import Format, Scan
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.schemas.ref import DEBEZIUM, KINDS, PROTOBUF_FORMATS, REGISTRY_FORMATS


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
