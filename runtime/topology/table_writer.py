"""Statements that change a table of one's own, each as one transaction: the rows are read at the committed end, changed, and written.

One writer per table: its producer has a transactional id of its own. A second writer shuts the first one out when it begins, so what
the first one has computed from older rows can no longer be committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import pyarrow as pa

from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.tables import ROW_NUMBER, TableChange
from flowql.compiler.plan.topology import SourceDef
from flowql.runtime.batch import DELETE, INSERT, Row, from_rows
from flowql.runtime.errors import BadRecord, EndMoved, Fenced, StatementFailed, TableBusy, TopicMissing
from flowql.runtime.log.base import Log, Producer, TopicPartition
from flowql.runtime.operators.encode import Encoder
from flowql.runtime.output.partitioner import split
from flowql.runtime.topology.table_changes import Changed, delete, given_rows, insert, update
from flowql.runtime.topology.table_rows import present_rows

Mark = Callable[[int], tuple[TopicPartition, pa.RecordBatch]]  # given the sum of the topic's ends after the statement
POLICY = {"cleanup.policy": "compact"}


def writer_id(application_id: str, table: str) -> str:
    """The transactional id of a table's writer."""
    return f"{application_id}-table-{table}"


def change_table(
    log: Log,
    source: SourceDef,
    change: TableChange,
    application_id: str,
    now_ms: int,
    selected: Sequence[Row] | None = None,
    seen: Mapping[TopicPartition, int] | None = None,
    mark: Mark | None = None,
    before: Callable[[Changed], None] | None = None,
) -> Changed:
    """Carry out a statement; what it inserted, updated or deleted. now_ms: the time of the records.

    selected: the rows of the statement's query, values of its columns. seen: the ends of the table's topic before that query was asked, if
    the table must not have changed since. mark: gives a record that is written in the same
    transaction, also where no row changes. before: called before anything is written. Raises StatementFailed, TableBusy or LogError; then
    nothing was changed.
    """
    try:
        with closing(log.producer(writer_id(application_id, source.name))) as producer:
            ends = table_ends(log, source)
            if seen is not None and seen != ends:
                raise EndMoved("rows were written after the query of the statement was asked")
            changed = _changed(log, source, change, selected, ends)
            if before is not None:
                before(changed)
            records = _encoded(source, changed, now_ms)
            if records.num_rows or mark is not None:
                marked = mark(sum(ends.values()) + records.num_rows) if mark is not None else None
                _write(log, producer, source, records, ends, marked)
            return changed
    except (Fenced, EndMoved) as error:
        title = f"another statement changed {source.name} meanwhile; nothing of this one was written: repeat it"
        raise TableBusy(title) from error


def table_ends(log: Log, source: SourceDef) -> dict[TopicPartition, int]:
    """The committed ends of a table's topic. TopicMissing if there is none."""
    info = log.admin().topics().get(source.topic)
    if info is None:
        raise TopicMissing(f"there is no topic {source.topic} of the table {source.name}: deploy the project")
    return dict(log.admin().end_offsets([TopicPartition(source.topic, p) for p in range(info.partitions)]))


def _changed(
    log: Log,
    source: SourceDef,
    change: TableChange,
    selected: Sequence[Row] | None,
    ends: Mapping[TopicPartition, int],
) -> Changed:
    if change.kind == "insert":
        by_number = source.schema.get(ROW_NUMBER) is not None
        versioned = source.rules is not None and bool(source.rules.versions)
        needs_rows = change.on_duplicate in ("update", "fill") or (change.on_duplicate == "replace" and versioned)
        present = {} if by_number else present_rows(log, source, ends, keys_alone=not needs_rows)
        given = given_rows(change) if selected is None else selected
        return insert(source, change, given, present, sum(ends.values()))  # ends rise by at least one for each row
    present = present_rows(log, source, ends)
    return (update if change.kind == "update" else delete)(source, change, present, selected)


def _write(
    log: Log,
    producer: Producer,
    source: SourceDef,
    records: pa.RecordBatch,
    ends: Mapping[TopicPartition, int],
    marked: tuple[TopicPartition, pa.RecordBatch] | None,
) -> None:
    """One transaction."""
    producer.begin()
    try:
        producer.expect_partitions(source.topic, len(ends))
        if log.drops_with_commits:  # the log compares; on Kafka the producer's id is what keeps others out
            for tp, end in ends.items():
                producer.expect_end(tp, end)
        for partition, part in split(records, len(ends), 0):
            producer.send(TopicPartition(source.topic, partition), part)
        if marked is not None:
            producer.send(*marked)
    except Exception:
        producer.abort()
        raise
    producer.commit()


def _encoded(source: SourceDef, changed: Changed, now_ms: int) -> pa.RecordBatch:
    """A tombstone for each key that is gone, a record for each row that is new or has changed."""
    rows = [*changed.gone.values(), *changed.rows.values()]
    ops = [DELETE] * len(changed.gone) + [INSERT] * len(changed.rows)
    sink = Sink(source.name, source.topic, "table", source.key_format, source.value_format)
    batch = from_rows(source.schema, rows, [now_ms] * len(rows), ops, range(len(rows)))
    try:
        return Encoder(sink, source.schema).encode(batch)
    except BadRecord as error:
        raise StatementFailed(f"a row of {source.name} cannot be written: {error}") from error
