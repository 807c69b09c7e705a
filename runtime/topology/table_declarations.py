"""Changes that a deployment may make to a table with rows: its records are read as the table is declared now."""

from __future__ import annotations

from collections.abc import Mapping

from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.runtime.errors import TableUnsupported
from flowql.runtime.log.base import Admin, TopicInfo, TopicPartition


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
