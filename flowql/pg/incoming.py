"""COPY ... FROM STDIN: rows that a client sends."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.pg.errors import PgError
from flowql.pg.statements import Statement
from flowql.runtime.topology.bulk_insert import GivenRows
from flowql.topics.table_files import TableFile
from flowql.topics.table_load import given_rows

BYTES_MAX = 256 << 20  # of one transaction's COPYs, whose rows are in memory until the commit


@dataclass(slots=True)
class Incoming:
    """A COPY in progress. rest: the statements after it in a simple query; None in the extended protocol. room: bytes that it may send."""

    source: SourceDef
    change: TableChange
    rest: Sequence[Statement] | None
    room: int
    size: int = 0
    _parts: list[bytes] = field(default_factory=list)

    def add(self, data: bytes) -> None:
        """Raises PgError if the data exceeds `room`."""
        self.size += len(data)
        if self.size > self.room:
            title = f"a transaction copies {BYTES_MAX >> 20} MB at most"
            raise PgError("54000", title, help="copy in several transactions, or load a file with  flowql import")
        self._parts.append(data)

    def rows(self) -> GivenRows:
        """All rows that were sent. Call it once. Raises CommandError, StatementFailed."""
        origin = self.change.copied
        assert origin is not None
        origin = replace(origin, format=origin.format or "text")
        stream = io.BytesIO(b"".join(self._parts))
        self._parts.clear()
        return given_rows(TableFile(f"COPY {self.source.name}", self.source, self.change, stream, origin), _unseen)


def _unseen(size: int) -> None:
    """Shows no progress."""


def copies_from(statement: Statement) -> bool:
    """Whether it is COPY ... FROM."""
    depth = 0
    for word in statement.words if statement.verb == "COPY" else ():
        depth += {"(": 1, ")": -1}.get(word.text, 0) if word.kind == "op" else 0
        if depth == 0 and word.upper in ("FROM", "TO"):
            return word.upper == "FROM"
    return False
