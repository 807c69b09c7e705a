"""Relations as interactive queries read them, whole."""

from __future__ import annotations

import pyarrow as pa

from flowql.query.relations import Relation, Replaced, arrow_schema
from flowql.query.room import QueryMemory, Room
from flowql.runtime.errors import OffsetOutOfRange


def table_of(relation: Relation) -> pa.Table:
    """All rows; once more where a commit has replaced the records meanwhile, as an interactive query does."""
    try:
        batches = list(relation.batches((), None, Room(QueryMemory(1 << 62))))
    except OffsetOutOfRange:
        assert isinstance(relation, Replaced)
        return table_of(relation.again())
    return pa.Table.from_batches(batches, arrow_schema(relation.schema))
