"""Streams and tables that a deployment adds, removes or changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from flowql.compiler.plan.topology import Plan, SourceDef


@dataclass(frozen=True, slots=True)
class RelationChange:
    """A changed stream or table. query: id of the query that writes it, None for a declared one. columns: the differences, as `+ W INT`,
    `- X STRING` and `V INT, was BIGINT`.
    """

    name: str
    kind: Literal["stream", "table"]
    change: Literal["added", "removed", "changed"]
    query: str | None = None
    columns: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        named = {"name": self.name, "kind": self.kind, "query": self.query}
        return {**named, "change": self.change, "columns": list(self.columns)}


def relations_changed(before: Plan, after: Plan) -> tuple[RelationChange, ...]:
    """Declared streams and tables that differ, and results of queries whose columns differ. A query that is added or removed tells of its result."""
    was, now = ({s.name: s for s in plan.listed} for plan in (before, after))
    return tuple(_changes(was, now))


def _changes(was: dict[str, SourceDef], now: dict[str, SourceDef]) -> Iterator[RelationChange]:
    for name, new in now.items():
        old = was.get(name)
        if old is None:
            if new.query is None:
                yield RelationChange(name, new.kind, "added")
            continue
        columns = tuple(_columns(old, new))
        if columns or (old.query is None and new.query is None and _is_declared_otherwise(old, new)):
            yield RelationChange(name, new.kind, "changed", new.query, columns)
    for name, old in was.items():
        if name not in now and old.query is None:
            yield RelationChange(name, old.kind, "removed")


def _is_declared_otherwise(old: SourceDef, new: SourceDef) -> bool:
    """Whether the declarations differ in more than spelling. The number of partitions may be unknown until the topic exists."""
    known = old.partitions is not None and new.partitions is not None
    return replace(old, statement="", partitions=old.partitions if known else None) != replace(
        new, statement="", partitions=new.partitions if known else None
    )


def _columns(old: SourceDef, new: SourceDef) -> Iterator[str]:
    was, now = ({f.name: str(f.type) for f in s.shown} for s in (old, new))
    for name, kind in now.items():
        if name not in was:
            yield f"+ {name} {kind}"
        elif was[name] != kind:
            yield f"{name} {kind}, was {was[name]}"
    yield from (f"- {name} {kind}" for name, kind in was.items() if name not in now)
