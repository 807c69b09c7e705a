"""The text of a statement as it stood in its script, with the few changes an import makes to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from flowql.compiler.diagnostics.source import SourceText, Span
from flowql.compiler.dialect.ast import Statement, TypeRef
from flowql.compiler.dialect.cursor import Positions
from flowql.compiler.dialect.generator import quote_name, type_sql
from flowql.compiler.dialect.walks import walk
from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import SourceDef
from flowql.compiler.plan.types import SqlType
from flowql.ksqldb.scripts import ScriptStatement

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Rewriting:
    """A text and replacements in it, each of a range that no other one touches."""

    def __init__(self, piece: ScriptStatement) -> None:
        self._source, self._start = piece.source, piece.start
        self._positions = Positions(piece.source)
        self._edits: dict[tuple[int, int], str] = {}

    @classmethod
    def of(cls, text: str) -> Rewriting:
        """A text of our own."""
        return cls(ScriptStatement(SourceText("", text), 0, (), Span("", 1, 1)))

    def drop_words(self, *words: str) -> None:
        """Leave the first occurrence of these words out."""
        found = re.search(r"\b" + r"\s+".join(words) + r"\s+", self._source.text, re.IGNORECASE)
        if found is not None:
            self._edits[found.span()] = ""

    def insert_after(self, span: Span, text: str) -> None:
        """Put a text behind what a span of the statement covers, and behind what was put there before."""
        end = self._range(span)[1]
        self._edits[end, end] = self._edits.get((end, end), "") + text

    def expand_type(self, statement: Statement, name: str, type_: SqlType) -> None:
        """Write a custom type out where the statement names it."""
        for ref in walk(statement):
            if isinstance(ref, TypeRef) and ref.known is None and ref.name == name:
                self._edits[self._range(ref.span)] = type_sql(type_)

    def __str__(self) -> str:
        text = self._source.text
        for (start, end), new in sorted(self._edits.items(), reverse=True):
            text = text[:start] + new + text[end:]
        return text[self._start :]

    def _range(self, span: Span) -> tuple[int, int]:
        start = self._positions.offset(span)
        return start, start + span.length


def with_values(text: str, variables: Mapping[str, str]) -> str:
    """The text with the values of its variables in their place."""
    return _VARIABLE.sub(lambda m: variables.get(m[1], m[0]), text)


def source_sql(source: SourceDef) -> str:
    """CREATE STREAM or TABLE with all columns and properties, as the catalogue knows a source.

    >>> from flowql.compiler.plan.logical import Format
    >>> from flowql.compiler.plan.types import INT
    >>> source = SourceDef("S", "stream", "s", Schema((Field("V", INT),)), Format("KAFKA"), Format("JSON"))
    >>> print(source_sql(source))
    CREATE STREAM S (
      V INT
    ) WITH (KAFKA_TOPIC='s', KEY_FORMAT='KAFKA', VALUE_FORMAT='JSON')
    """
    read_only = "SOURCE " if source.read_only else ""
    columns = ",\n".join(f"  {_column(source, f)}" for f in source.schema if f.role in ("key", "value", "header"))
    properties = ", ".join(f"{n}={_constant(v)}" for n, v in _properties(source))
    name = quote_name(source.name)
    return f"CREATE {read_only}{source.kind.upper()} {name} (\n{columns}\n) WITH ({properties})"


def _column(source: SourceDef, f: Field) -> str:
    role = {"key": " KEY" if source.kind == "stream" else " PRIMARY KEY", "header": " HEADERS"}.get(f.role, "")
    if f.header_key:
        role = f" HEADER({_constant(f.header_key)})"
    return f"{quote_name(f.name)} {type_sql(f.type)}{role}"


def _properties(source: SourceDef) -> Iterator[tuple[str, str | int | bool]]:
    yield "KAFKA_TOPIC", source.topic
    if source.partitions is not None:
        yield "PARTITIONS", source.partitions
    for side, fmt in (("KEY", source.key_format), ("VALUE", source.value_format)):
        yield f"{side}_FORMAT", fmt.name
        if fmt.delimiter != ",":
            yield f"{side}_DELIMITER", {"\t": "TAB", " ": "SPACE"}.get(fmt.delimiter, fmt.delimiter)
        if fmt.nullable:
            yield f"{side}_PROTOBUF_NULLABLE_REPRESENTATION", fmt.nullable
    if not source.value_format.wrap:
        yield "WRAP_SINGLE_VALUE", False
    if source.timestamp is not None:
        yield "TIMESTAMP", quote_name(source.timestamp.column)
        if source.timestamp.pattern:
            yield "TIMESTAMP_FORMAT", source.timestamp.pattern
    window = source.schema.window
    if window is not None:
        yield "WINDOW_TYPE", "SESSION" if window.size_ms is None else "TUMBLING"
        if window.size_ms is not None:
            yield "WINDOW_SIZE", f"{window.size_ms} MILLISECONDS"


def _constant(value: str | int | bool) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value).lower()


__all__ = ["Rewriting", "Schema", "source_sql", "with_values"]
