"""The rows of an answer on their way to the client. Passing them on loads no engine."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import pyarrow as pa


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
