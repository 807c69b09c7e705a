"""The rows of an answer on their way to the client, and what a statement did. Passing them on loads no engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from flowql.query.errors import NAMES

CHUNK_ROWS = 2_048  # of an answer: what DuckDB computes at a time
Begun = Callable[[Callable[[], None]], None]  # gets what breaks a query off, from any thread


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of an answer in batches, which can be taken once; `close` it if the rest is not needed.

    The schema's metadata has the number of the commit under SEQUENCE (`flowql.query.errors`); if the relations are
    not at the same offsets of their input, the reason is under APART.
    """

    schema: pa.Schema
    batches: Generator[pa.RecordBatch]

    def close(self) -> None:
        self.batches.close()

    def table(self) -> pa.Table:
        """All of it at once."""
        return pa.Table.from_batches(list(self.batches), self.schema)

    @classmethod
    def of(cls, table: pa.Table) -> Answer:
        """Rows that are in memory."""
        return cls(table.schema, (batch for batch in table.to_batches()))


@dataclass(frozen=True, slots=True)
class Done:
    """The result of an INSERT, UPDATE or DELETE. verb: in upper case. rows: the number of changed rows. returned: the rows of RETURNING, if there are any.
    tick: views that have reached it show the change (`flowql.query.tick_text`).
    """

    verb: str
    table: str
    rows: int
    returned: pa.Table | None = None
    tick: str = ""


def returned(done: Sequence[Done]) -> pa.Table:
    """The rows of the one statement that has RETURNING."""
    (found,) = [d.returned for d in done if d.returned is not None]
    return found


def named_schema(names: Sequence[str], types: Sequence[pa.DataType], metadata: Mapping[bytes, bytes]) -> pa.Schema:
    """The schema of an answer. Names that several columns have are made different; its metadata then has all as they are written, under NAMES."""
    if len(set(names)) < len(names):
        metadata = {**metadata, NAMES: json.dumps(list(names)).encode()}
    return pa.schema([pa.field(n, t) for n, t in zip(unique(names), types, strict=True)], metadata)


def unique(names: Sequence[str]) -> list[str]:
    """Column names that differ, so that a row can be an object."""
    found: list[str] = []
    for name in names:
        candidate, n = name, 1
        while candidate in found:
            candidate, n = f"{name}_{n}", n + 1
        found.append(candidate)
    return found
