"""An answer on its way to a client: rows as far as the client has taken them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flowql.pg.encode import data_rows
from flowql.pg.messages import spread
from flowql.pg.types import PgColumn, columns_of
from flowql.query.answer import Answer

PIECE_BYTES = 256 << 10  # of an answer that is encoded before it is sent
Encode = Callable[[pa.RecordBatch], bytes]


@dataclass(slots=True)
class Rows:
    """Rows of an answer in order. Blocking; one thread at a time. rows: how many were taken."""

    columns: list[PgColumn]
    batches: Iterator[pa.RecordBatch]
    close: Callable[[], None]
    formats: list[int] = field(default_factory=list)
    rows: int = 0
    _left: pa.RecordBatch | None = None
    _ahead: tuple[bytes, bool] | None = None

    @classmethod
    def of(cls, answer: Answer, formats: Sequence[int] = ()) -> Rows:
        columns = columns_of(answer.schema)
        return cls(columns, answer.batches, answer.close, spread(formats, len(columns)))

    @classmethod
    def of_table(cls, table: pa.Table, columns: list[PgColumn] | None = None, formats: Sequence[int] = ()) -> Rows:
        found = columns_of(table.schema) if columns is None else columns
        return cls(found, iter(table.to_batches(2_048)), lambda: None, spread(formats, len(found)))

    @property
    def is_live(self) -> bool:
        """Whether more may come when there are none."""
        return False

    def is_ready(self) -> bool:
        """Whether there are rows, or no more will come. Blocking."""
        return True

    def encoded(self, batch: pa.RecordBatch, encode: Encode | None) -> bytes:
        """As messages of a query, or those of COPY that `encode` writes."""
        return encode(batch) if encode is not None else data_rows(batch, self.columns, self.formats)

    def taken(self, count: int | None) -> Iterator[pa.RecordBatch]:
        """So many of the next rows; None: all, or all that are there."""
        while count is None or count > 0:
            batch = self._left if self._left is not None else next(self.batches, None)
            self._left = None
            if batch is None:
                return
            if count is not None and batch.num_rows > count:
                batch, self._left = batch.slice(0, count), batch.slice(count)
            count = None if count is None else count - batch.num_rows
            yield batch

    def read_ahead(self) -> None:
        """Makes the first piece of all rows in the call that begins the statement, as another call for it takes longer than a look-up."""
        self._ahead = self.piece()

    def taken_ahead(self) -> tuple[bytes, bool] | None:
        """That piece, once."""
        ahead, self._ahead = self._ahead, None
        return ahead

    def piece(self, limit: int = 0, encode: Encode | None = None) -> tuple[bytes, bool]:
        """Some of the next rows as messages, and whether these were the last ones. limit: of all rows that are taken; 0: none."""
        parts, size = list[bytes](), 0
        while size < PIECE_BYTES and not (limit and self.rows >= limit):
            batch = self._left if self._left is not None else next(self.batches, None)
            self._left = None
            if batch is None:
                return b"".join(parts), True
            if limit and self.rows + batch.num_rows > limit:
                taken = limit - self.rows
                batch, self._left = batch.slice(0, taken), batch.slice(taken)
            self.rows += batch.num_rows
            parts.append(self.encoded(batch, encode))
            size += len(parts[-1])
        return b"".join(parts), False
