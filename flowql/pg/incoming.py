"""COPY ... FROM STDIN: rows that a client sends."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.pg.binary_rows import read_binary
from flowql.pg.errors import PgError
from flowql.pg.statements import Statement
from flowql.runtime.topology.bulk_insert import GivenRows
from flowql.topics.table_files import TableFile, read_rows
from flowql.topics.table_load import all_rows

BYTES_MAX = 256 << 20  # of one transaction's COPYs, whose rows are in memory until the commit


class CopyMemory:
    """The memory of rows of COPY until they are committed, of all clients together. Any thread."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max, self.taken = bytes_max, 0
        self._lock = threading.RLock()  # guards what is taken; a collection in `take` may end a `Held`

    def take(self, size: int) -> None:
        """Raises PgError if too little is free. size: negative to give back."""
        with self._lock:
            if size > 0 and self.taken + size > self.bytes_max:
                title = f"clients copy more than {self.bytes_max >> 20:,} MB at the same time"
                help_ = "copy in smaller transactions, or give the target more:  memory: 2 GB   # in flowql.yaml"
                raise PgError("53200", title, help=help_)
            self.taken += size


class Held:
    """The memory of one COPY. It is given back when this object is deleted."""

    def __init__(self, memory: CopyMemory) -> None:
        self._memory, self._size = memory, 0

    def add(self, size: int) -> None:
        """Raises PgError."""
        self._memory.take(size)
        self._size += size

    def __del__(self) -> None:
        self._memory.take(-self._size)


@dataclass(slots=True)
class Incoming:
    """A COPY in progress. rest: the statements after it in a simple query; None in the extended protocol. room: bytes that it may send."""

    source: SourceDef
    change: TableChange
    rest: Sequence[Statement] | None
    room: int
    held: Held
    size: int = 0
    _parts: list[bytes] = field(default_factory=list)

    def add(self, data: bytes) -> None:
        """Raises PgError if the data exceeds `room`, or the memory of all clients."""
        if self.size + len(data) > self.room:
            title = f"a transaction copies {BYTES_MAX >> 20} MB at most"
            raise PgError("54000", title, help="copy in several transactions, or load a file with  flowql import")
        self.held.add(len(data))
        self.size += len(data)
        self._parts.append(data)

    def rows(self) -> GivenRows:
        """All rows that were sent. Call it once. Raises CommandError, StatementFailed."""
        origin = self.change.copied
        assert origin is not None
        origin = replace(origin, format=origin.format or "text")
        data = b"".join(self._parts)
        self._parts.clear()
        file = TableFile(f"COPY {self.source.name}", self.source, self.change, io.BytesIO(data), origin)
        if self.is_binary:
            return all_rows(file, *read_binary(file, data))
        return all_rows(file, *read_rows(file, lambda _: None))

    @property
    def is_binary(self) -> bool:
        return self.change.copied is not None and self.change.copied.format == "binary"


def copies_from(statement: Statement) -> bool:
    """Whether it is COPY ... FROM."""
    depth = 0
    for word in statement.words if statement.verb == "COPY" else ():
        depth += {"(": 1, ")": -1}.get(word.text, 0) if word.kind == "op" else 0
        if depth == 0 and word.upper in ("FROM", "TO"):
            return word.upper == "FROM"
    return False
