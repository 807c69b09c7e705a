"""Statements of a project's files that change rows: each is carried out once, however often the project is deployed.

A statement and the mark that it was carried out are committed in one transaction. Marks are kept in a compacted topic of the
application by a hash of the statement, which does not change with its layout and comments. A mark says how far the table's topic
reached: with a topic that was deleted and made anew, its marks have no meaning.

`check_tables` finds changes that a deployment may not make to a table with rows: its records are read as the table is declared now.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing

import orjson
import pyarrow as pa

from flowql.compiler.plan.tables import TableChange
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.errors import TableUnsupported
from flowql.runtime.log.base import EARLIEST, PRODUCE_SCHEMA, Admin, Log, TopicInfo, TopicPartition
from flowql.runtime.topology.table_writer import TableWriters

COMPACTED = {"cleanup.policy": "compact"}


def topic_name(application_id: str) -> str:
    return f"{application_id}-statements"


def carry_out(log: Log, plan: Plan, application_id: str, now_ms: int) -> dict[str, int]:
    """Carry out the statements that were not yet, in order: rows changed, by table. Record times are those of now_ms and after: each
    statement has a later one than those before it, for what a temporal join meets is told by them.

    Raises as `TableWriters.change`; what precedes the statement that failed stays done, and a repetition goes on there.
    """
    changed: Counter[str] = Counter()
    if not plan.changes:
        return changed
    admin = log.admin()
    admin.create_topic(topic_name(application_id), 1, COMPACTED)
    done = _marks(log, application_id)
    time_ms = now_ms
    with closing(TableWriters(log, application_id, "deployment")) as tables:
        for key, change in _keyed(plan):
            source = plan.source(change.target)
            assert source is not None, "the compiler knows the table"
            if key in done and _reach(admin, source.topic) >= done[key]:
                continue
            mark = lambda reach, key=key, change=change: _mark(application_id, key, change, reach, now_ms)  # noqa: E731
            changed[change.target] += tables.change(source, change, time_ms, mark=mark).count
            time_ms += 1
    return changed


def _keyed(plan: Plan) -> Iterator[tuple[bytes, TableChange]]:
    """Each statement with its key; of equal ones each has its own."""
    count: Counter[tuple[str, str]] = Counter()
    for change in plan.changes:
        count[change.target, change.statement] += 1
        text = f"{change.target}\0{change.statement}\0{count[change.target, change.statement]}"
        yield hashlib.sha256(text.encode()).hexdigest().encode(), change


def _marks(log: Log, application_id: str) -> Mapping[bytes, int]:
    """How far the topic of each statement's table reached when it was carried out, by its key."""
    reader = log.reader(TopicPartition(topic_name(application_id), 0), EARLIEST)
    found: dict[bytes, int] = {}
    while (batch := reader.read(10_000, 1 << 24)) is not None:
        for key, value in zip(
            batch.records.column("key").to_pylist(), batch.records.column("value").to_pylist(), strict=True
        ):
            found[key] = orjson.loads(value)["reach"]
    reader.close()
    return found


def _reach(admin: Admin, topic: str) -> int:
    """The sum of its ends: it rises with each record."""
    info = admin.topics().get(topic)
    tps = [TopicPartition(topic, p) for p in range(info.partitions)] if info is not None else []
    return sum(admin.end_offsets(tps).values())


def _mark(
    application_id: str, key: bytes, change: TableChange, reach: int, now_ms: int
) -> tuple[TopicPartition, pa.RecordBatch]:
    value = orjson.dumps({"table": change.target, "statement": change.statement[:1_000], "reach": reach})
    columns = [[now_ms], [key], [value], [None]]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, PRODUCE_SCHEMA, strict=True)]
    return TopicPartition(topic_name(application_id), 0), pa.RecordBatch.from_arrays(arrays, schema=PRODUCE_SCHEMA)


def check_tables(before: Plan, wanted: Plan, admin: Admin) -> None:
    """TableUnsupported for a new table over rows of an older one, and for a table with rows whose declaration they do not fit."""
    own = [s for s in wanted.sources if s.is_own_table]
    changed = [s for s in own if s != before.source(s.name)]
    topics = admin.topics() if changed else {}
    for source in changed:
        if _has_records(source.topic, topics, admin):
            old = before.source(source.name)
            kept = old is not None and old.topic == source.topic
            why = _why_not(old, source, topics[source.topic].partitions) if old is not None and kept else _left(source)
            if why:
                raise TableUnsupported(why)


def _has_records(topic: str, topics: Mapping[str, TopicInfo], admin: Admin) -> bool:
    info = topics.get(topic)
    tps = [TopicPartition(topic, p) for p in range(info.partitions)] if info is not None else []
    return sum(admin.end_offsets(tps).values()) > 0


def _left(source: SourceDef) -> str:
    return (
        f"the table {source.name} is new, and the topic {source.topic} has records of another one: give the table another name, or "
        f"delete them:  flowql topic delete {source.topic}"
    )


def _why_not(old: SourceDef, new: SourceDef, partitions: int) -> str:
    """Why rows that are there cannot be read, or would break a rule; nothing if they fit."""
    if old.rules is None or new.rules is None:
        return _left(new)
    if [(f.name, f.type) for f in old.schema.key] != [(f.name, f.type) for f in new.schema.key]:
        return f"the table {new.name} has rows, and its key would change: make a new table, and copy them:  INSERT INTO ... SELECT"
    if new.partitions not in (None, partitions):
        return f"the table {new.name} has rows in {partitions} partitions: make a new table, and copy them:  INSERT INTO ... SELECT"
    types = {f.name: f.type for f in new.schema.value}
    for field in old.schema.value:
        if types.get(field.name) != field.type:
            now = f"become {types[field.name]}" if field.name in types else "be gone"
            return f"the table {new.name} has rows, and its column {field.name}, {field.type}, would {now}: columns can only be added"
    filled = {*new.rules.not_null} - {*old.rules.not_null}
    if filled:
        return f"the table {new.name} has rows, and {', '.join(sorted(filled))} would become NOT NULL: some rows may have NULL there"
    checks = [c.name for c in new.rules.checks if c not in old.rules.checks]
    if checks:
        return f"the table {new.name} has rows, of which some may break {checks[0]}: make a new table, and copy them:  INSERT INTO ... SELECT"
    added = {*new.visible} - {*old.visible}
    if new.rules.identity_column not in (None, old.rules.identity_column):
        return f"the table {new.name} has rows, in which {new.rules.identity_column} was not their number: make a new table, and copy them:  INSERT INTO ... SELECT"
    computed = [g.name for g in new.rules.generated if g not in old.rules.generated]
    if computed:
        return (
            f"the table {new.name} has rows, in which {computed[0]} was not computed as it would be now: make a new table, and copy them:  "
            "INSERT INTO ... SELECT"
        )
    defaults = sorted(added & {d.name for d in new.rules.defaults})
    if defaults:
        return f"the table {new.name} has rows, in which the new column {defaults[0]} is NULL: add it without DEFAULT, and UPDATE it"
    return ""
