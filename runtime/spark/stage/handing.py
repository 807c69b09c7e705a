"""The state that a task of a bounded run ends with, as rows that an instance of the runtime loads. Imports no pyspark."""

from __future__ import annotations

from collections.abc import Iterator

from flowql.runtime.spark.stage.envelope import DONE, Row
from flowql.runtime.spark.stage.program import TOTALS, StageProgram
from flowql.runtime.spark.stage.state import GroupState, entries_of
from flowql.runtime.state.computed_history import ROWS, ROWS_PER_PAGE, TASK, changelog_rows, encode_page
from flowql.runtime.state.values import decode_metadata, encode_metadata


def kept_rows(program: StageProgram, state: GroupState) -> Iterator[Row]:
    """Everything a task keeps, published before, as rows of kinds `rows` and `task`. Ends the use of the state here."""
    _, metadata = state.cut()
    sub, partition = program.id.subtopology, program.id.partition
    pages: dict[str, tuple[list[bytes], list[bytes]]] = {}
    seq = 0
    for store, key, value in changelog_rows(entries_of(program.stores, partition), state.rows.rows()):
        keys, values = pages.setdefault(store, ([], []))
        keys.append(key)
        values.append(value)
        if len(keys) == ROWS_PER_PAGE:
            yield Row(DONE, ROWS, store, partition, sub, seq, encode_page(keys, values))
            del pages[store]
            seq += 1
    for store, (keys, values) in pages.items():
        yield Row(DONE, ROWS, store, partition, sub, seq, encode_page(keys, values))
        seq += 1
    kept = {k: v for k, v in decode_metadata(metadata).items() if k != TOTALS}
    yield Row(DONE, TASK, program.id.query, partition, sub, seq, encode_metadata(kept))
