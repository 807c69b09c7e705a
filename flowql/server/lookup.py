"""Rows of a table by the values of columns: requests as SELECT statements, whose conditions on keys are look-ups."""

from __future__ import annotations

import re
from collections.abc import Mapping

from flowql.compiler.diagnostics.suggest import did_you_mean
from flowql.compiler.functions.duckdb_sql import quoted
from flowql.compiler.functions.duckdb_text import quoted_text
from flowql.compiler.plan.schema import Field
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import Kind
from flowql.server.bodies import Malformed

_WHOLE = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]{1,40})?")
_TEMPORAL = {Kind.DATE: "DATE", Kind.TIME: "TIME", Kind.TIMESTAMP: "TIMESTAMP", Kind.MICROS: "TIMESTAMP"}


def select(source: SourceDef, values: Mapping[str, str]) -> str:
    """The statement for rows whose columns equal the values. Raises Malformed for an unknown column and for what is no value of its type."""
    fields = {f.name.casefold(): f for f in source.schema if f.role in ("key", "value", "window")}
    conditions = [
        f"{quoted(_field(name, fields, source).name)} = {_literal(name, text, fields)}" for name, text in values.items()
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT * FROM {quoted(source.name)}{where}"


def _field(name: str, fields: Mapping[str, Field], source: SourceDef) -> Field:
    field = fields.get(name.casefold())
    if field is None:
        names = [f.name for f in fields.values()]
        hint = did_you_mean(name, names) or f"its columns are {', '.join(names)}"
        raise Malformed(f"{source.name} has no column {name}; {hint}")
    return field


def _literal(name: str, text: str, fields: Mapping[str, Field]) -> str:
    t = fields[name.casefold()].type
    kind = t.kind
    if kind is Kind.STRING and "\0" not in text:
        return quoted_text(text)
    if kind in (Kind.INT, Kind.BIGINT) and _WHOLE.fullmatch(text):
        return text
    if kind in (Kind.DECIMAL, Kind.DOUBLE) and _NUMBER.fullmatch(text):
        return text
    if kind is Kind.BOOLEAN and text.lower() in ("true", "false"):
        return text.upper()
    if kind in _TEMPORAL and "\0" not in text:
        return f"CAST({quoted_text(text.removesuffix('Z'))} AS {_TEMPORAL[kind]})"
    raise Malformed(f"`{name}` is not a valid {t}")
