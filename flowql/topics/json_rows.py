"""Rows of JSON as columns of a declared stream or table: times may be ISO texts, numbers keep their digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind, SqlType
from flowql.errors import CommandError
from flowql.runtime.errors import BadRecord
from flowql.runtime.serde.json import values_of
from flowql.topics.producing import NOT_A_ROW
from flowql.topics.python_values import NotOfType, column_of
from flowql.topics.typed_texts import FORMS, from_text, retyped

_TEMPORAL = frozenset((Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.MICROS))
_NESTED = frozenset((Kind.ARRAY, Kind.MAP, Kind.STRUCT))


def json_table(rows: Sequence[Mapping[str, Any]], source: SourceDef, *, declared_only: bool = False) -> pa.Table:
    """The members of JSON objects as columns, which have the declared types. Fractions are Decimal. Raises CommandError for a value that is not of
    its column's type.

    declared_only: leaves out members that are no columns, as of a webhook; otherwise they become columns of their own, which the writer refuses.
    """
    fields = {f.name.casefold(): f for f in source.schema if f.role in ("key", "value")}
    names = dict.fromkeys(name for row in rows for name in row)
    if declared_only:
        names = {name: None for name in names if name.casefold() in fields}
        if not names:
            title = f"no member of the JSON is a column of {source.name}"
            raise CommandError(
                title, code=NOT_A_ROW, help=f"its columns are {', '.join(f.name for f in fields.values())}"
            )
    columns = [_column(n, [row.get(n) for row in rows], fields.get(n.casefold()), source) for n in names]
    return pa.table(columns, names=list(names))


def _column(name: str, values: list[Any], field: Any, source: SourceDef) -> pa.Array:
    try:
        if field is None:
            return column_of(values, None)
        return column_of(values_of(_typed(values, field.type), field.type, field.name), field.type)
    except (BadRecord, NotOfType) as error:
        of = (
            f"column {name} of {source.name} is {field.type}"
            if field is not None
            else f"{source.name} has no column {name}"
        )
        help_ = FORMS.get(field.type.kind, "") if field is not None else ""
        raise CommandError(f"{of}: {error}", code=NOT_A_ROW, help=help_) from error


def _typed(values: list[Any], t: SqlType) -> list[Any]:
    """The values with ISO texts turned into the numbers that the JSON format has for times."""
    if t.kind in _TEMPORAL:
        return [from_text(v, t.kind) if type(v) is str and v.strip() else v for v in values]
    return [retyped(v, t) for v in values] if t.kind in _NESTED else values
