"""COPY ... TO STDOUT: what is copied, and how its rows are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from flowql.pg import messages
from flowql.pg.encode import copy_csv, copy_text, csv_header
from flowql.pg.errors import PgError, unsupported
from flowql.pg.statements import Statement, Word, split, syntax_error
from flowql.pg.types import PgColumn


@dataclass(frozen=True, slots=True)
class Copy:
    """delimiter, null: None for what the format has."""

    sql: str
    is_csv: bool = False
    header: bool = False
    delimiter: str | None = None
    null: str | None = None

    def head(self, columns: Sequence[PgColumn]) -> bytes:
        if not self.header:
            return b""
        if self.is_csv:
            return messages.copy_data(csv_header([c.name for c in columns], self.delimiter or ","))
        return messages.copy_data((self.delimiter or "\t").join(c.name for c in columns).encode() + b"\n")

    def encoder(self, columns: Sequence[PgColumn]) -> Callable[[pa.RecordBatch], bytes]:
        if self.is_csv:
            return lambda batch: copy_csv(batch, columns, self.delimiter or ",", self.null or "")
        return lambda batch: copy_text(
            batch, columns, self.delimiter or "\t", "\\N" if self.null is None else self.null
        )


def copy_of(statement: Statement) -> Copy:
    """Raises PgError."""
    words = statement.words
    to = next((n for n, w in enumerate(words) if w.upper == "TO" and _depth(words, n) == 0), None)
    if to is None or to < 2:
        raise syntax_error(statement, len(words))
    if to + 1 >= len(words) or words[to + 1].upper != "STDOUT":
        raise PgError("42501", "rows can be copied only to STDOUT", help="in psql:  \\copy (SELECT ...) TO 'file'")
    return _with_options(Copy(_query(statement, to)), words[to + 2 :])


def _query(statement: Statement, to: int) -> str:
    words = statement.words
    if words[1].text == "(":
        inner = statement.sql[words[1].end : words[to - 1].start]
        if words[to - 1].text != ")" or not (found := split(inner)) or not _is_copied(found[0]):
            raise unsupported("COPY takes a SELECT")
        return inner
    named = next((n for n in range(1, to) if words[n].text == "("), to)
    name = statement.sql[words[1].start : words[named - 1].end]
    columns = statement.sql[words[named].end : words[to - 1].start] if named < to else "*"
    return f"SELECT {columns} FROM {name}"


def _is_copied(query: Statement) -> bool:
    return query.verb == "SUBSCRIBE" or (query.is_read and not query.is_write)


def _depth(words: Sequence[Word], at: int) -> int:
    return sum({"(": 1, ")": -1}.get(w.text, 0) for w in words[:at] if w.kind == "op")


def _with_options(copy: Copy, words: Iterable[Word]) -> Copy:
    rest = [w for w in words if w.text not in ("(", ")", ",") and w.upper not in ("WITH", "AS")]
    while rest:
        name, value = rest.pop(0).upper, None
        match name:
            case "FORMAT":
                value = rest.pop(0).upper if rest else ""
                if value not in ("CSV", "TEXT"):
                    raise unsupported(f"COPY in {value} format")
                copy = replace(copy, is_csv=value == "CSV")
            case "CSV":
                copy = replace(copy, is_csv=True)
            case "HEADER":
                given = (
                    rest.pop(0).upper if rest and rest[0].upper in ("TRUE", "FALSE", "ON", "OFF", "1", "0") else "TRUE"
                )
                copy = replace(copy, header=given in ("TRUE", "ON", "1"))
            case "DELIMITER" | "NULL" if rest and rest[0].kind in ("string", "escaped"):
                word = rest.pop(0)
                value = "\t" if word.text.lower() == "e'\\t'" else word.value
                copy = replace(copy, delimiter=value) if name == "DELIMITER" else replace(copy, null=value)
            case "ENCODING" if rest:
                rest.pop(0)
            case _:
                raise PgError("42601", f'option "{name.lower()}" of COPY is not supported')
    if copy.delimiter is not None and len(copy.delimiter) != 1:
        raise PgError("0A000", "COPY delimiter must be a single one-byte character")
    return copy
