"""Interactive queries about rows that are given, instead of those of a project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan
from flowql.compiler.plan.types import BIGINT, INT, STRING, TIMESTAMP, SqlType, array
from flowql.query.committed import Commit
from flowql.query.relations import Relation, arrow_schema
from flowql.query.room import Room
from flowql.query.statement import Condition
from flowql.runtime.log.memory import MemoryLog
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.snapshot import SharedSnapshot, StateSnapshot

_TYPES: Mapping[pa.DataType, SqlType] = {
    pa.int32(): INT,
    pa.int64(): BIGINT,
    pa.string(): STRING,
    pa.timestamp("ms"): TIMESTAMP,
    pa.list_(pa.string()): array(STRING),
}


@dataclass(frozen=True, slots=True)
class GivenCommit(Commit):
    """A commit of which the relations in `known`, and nothing else, can be read."""

    known: Mapping[str, Callable[[], Relation]] = field(default_factory=dict)

    def at_rest(self) -> bool:
        """True: the given rows belong to one commit."""
        return True

    def relations(self) -> dict[str, Callable[[], Relation]]:
        return dict(self.known)


def commit_of(known: Mapping[str, Callable[[], Relation]], sequence: int = 0) -> GivenCommit:
    """A commit without state."""
    snapshot = StateSnapshot(SharedSnapshot(MemoryPhysical().snapshot(), {}, sequence), None)
    return GivenCommit(Plan(), snapshot, MemoryLog(), "", known=known)


@dataclass(frozen=True, slots=True)
class TableRelation:
    """Rows of a table of Arrow, with columns of numbers, times, strings and lists of strings."""

    name: str
    rows: pa.Table

    @property
    def schema(self) -> Schema:
        return Schema(tuple(Field(c.name, _TYPES[c.type]) for c in self.rows.schema))

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        """All rows."""
        del conditions, columns, room
        yield from self.rows.cast(arrow_schema(self.schema)).to_batches()
