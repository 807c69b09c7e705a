"""Rows of an interactive query from all instances that share an application: each partition once, from its newest commit.

Rows are united, not results: DuckDB then computes over all of them, so that AVG, DISTINCT, ORDER BY and LIMIT mean what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from flowql.compiler.plan.generations import plain, runtime_name, under_own_name
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Plan, QueryPlan
from flowql.query.committed import Commit, Part, Wanted
from flowql.query.errors import COVERAGE, MISSING, MOMENTS, STANDBY
from flowql.query.moments import why_separate
from flowql.query.relations import STORES, Relation, StoreRelation, StoresRelation, arrow_schema
from flowql.query.room import Room
from flowql.query.statement import Condition, Statement
from flowql.runtime.state.combined import CombinedSnapshot
from flowql.runtime.state.snapshot import StateSnapshot
from flowql.runtime.task.id import TaskId
from flowql.runtime.topology.log_facts import LogFacts

NAMED_MAX = 10  # partitions that are named where they are missing


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many of the partitions that an interactive query reads are in its answer. why: sentences about those that are not. copies: phrases about
    those of standby copies, by task and relation.
    """

    have: int
    of: int
    why: tuple[str, ...] = ()
    copies: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        return self.have == self.of

    def __str__(self) -> str:
        return f"{self.have} of {self.of} partitions"


@dataclass(frozen=True, slots=True)
class Gathered:
    """A relation whose rows are here already."""

    name: str
    schema: Schema
    table: pa.Table

    def batches(
        self, conditions: Sequence[Condition], columns: frozenset[str] | None, room: Room
    ) -> Iterator[pa.RecordBatch]:
        del conditions, columns, room
        yield from self.table.to_batches()


def unite(
    commit: Commit,
    relations: Mapping[str, Relation],
    statement: Statement,
    room: Room,
    *,
    hurried: bool = False,
    copies: bool = False,
) -> tuple[dict[str, Relation], Coverage]:
    """The relations with the rows of all instances, this one's from `commit`. Those of topics are as they are.

    The rows are in memory, taken from `room`: no more of each partition than the statement needs, where that is known. hurried: see `Others`.
    copies: rows of standby copies are taken of partitions whose owner does not answer.
    """
    assert commit.others is not None, "a single instance has no other members"
    owners = _owners(commit.plan)
    stores = {n: r for n, r in relations.items() if isinstance(r, StoreRelation | StoresRelation)}
    if not stores:
        return dict(relations), Coverage(0, 0)
    wanted = [
        Wanted(
            n,
            _definition(owners, n),
            tuple(statement.conditions.get(n.casefold(), ())),
            statement.columns,
            statement.enough,
            commit.tick,
            copies,
        )
        for n in stores
    ]
    parts = list(parts_of(commit, wanted, room))
    others, why = commit.others(wanted, room, hurried)
    parts += others
    newest: dict[tuple[str, str], Part] = {}
    for part in parts:
        place = part.relation, part.task
        if place not in newest or _rank(newest[place]) < _rank(part):
            newest[place] = part
    found = dict(relations)
    for name, relation in stores.items():
        mine = [p.rows for p in newest.values() if p.relation == name]
        found[name] = Gathered(name, relation.schema, _together(name, arrow_schema(relation.schema), mine))
    return found, _coverage(commit, [n for n in stores if n != STORES], owners, newest, why)


def _tasks_of(query: QueryPlan, sub: int, commit: Commit) -> list[TaskId]:
    """The tasks of one sub-topology, on all instances."""
    named = under_own_name(query)
    facts = LogFacts(commit.log.admin(), commit.application_id, [named])
    return [t for t in facts.tasks(named) if t.subtopology == sub]


def said(coverage: Coverage, commit: Commit, relations: Mapping[str, Relation]) -> dict[bytes, bytes]:
    """The facts about an answer in its metadata."""
    separate = why_separate(commit, relations)
    moments = {MOMENTS: separate.encode()} if separate else {}
    if not coverage.of:
        return moments
    said = {**moments, COVERAGE: str(coverage).encode()}
    if coverage.copies:
        of = Coverage(len({task for task, _ in coverage.copies}), coverage.of)
        said[STANDBY] = f"{of}: {'; '.join(coverage.copies[place] for place in sorted(coverage.copies))}".encode()
    return said if coverage.whole else {**said, MISSING: "; ".join(coverage.why).encode()}


def restored(commit: Commit, relations: Mapping[str, Relation]) -> Coverage:
    """Coverage of a single instance: partitions whose rows are being restored from changelogs are incomplete."""
    if not commit.restoring:
        return Coverage(0, 0)
    owners, tasks, why = _owners(commit.plan), dict[str, bool](), list[str]()
    for name in (n for n, r in relations.items() if isinstance(r, StoreRelation)):
        query, sub = owners[name]
        of = _tasks_of(query, sub, commit)
        tasks |= {str(t): str(t) not in commit.restoring for t in of}
        if missing := [str(t.partition) for t in of if str(t) in commit.restoring]:
            why.append(f"rows of {name} are being restored (partition {', '.join(missing[:NAMED_MAX])})")
    have = sum(tasks.values())
    return Coverage(have, len(tasks), tuple(why)) if have < len(tasks) else Coverage(0, 0)


def parts_of(commit: Commit, wanted: Iterable[Wanted], room: Room) -> Iterator[Part]:
    """The wanted rows of this instance: a part per task that it owns, also if it has no rows. Standby copies come after them, where they are wanted.
    room: for all of them.
    """
    owners, relations = _owners(commit.plan), commit.relations()
    known = [(w, relations[w.relation]()) for w in wanted if _definition(owners, w.relation) == w.definition]
    for w, relation in known:
        if isinstance(relation, StoresRelation):
            measured = relation.batches(w.conditions, w.columns, room)
            yield Part(w.relation, commit.writer, 0, pa.Table.from_batches(measured))
            continue
        assert isinstance(relation, StoreRelation)
        store, prefix = relation.view.spec.name, _prefix(*owners[w.relation])
        snapshot = commit.snapshot.of(store) if isinstance(commit.snapshot, CombinedSnapshot) else commit.snapshot
        assert isinstance(snapshot, StateSnapshot)
        assert snapshot.owned is not None, "an instance that is alone owns everything"
        tasks = snapshot.tasks()
        for task in sorted(t for t in snapshot.owned if t.startswith(prefix)):
            yield Part(w.relation, task, _version(tasks.get(task)), _rows_of(snapshot, task, relation, w, room))
    if commit.copies is None or not any(w.copies for w, _ in known):
        return
    snapshot, positions = commit.copies()
    with snapshot:
        present = {spec.name for spec in snapshot.stores()}
        for w, relation in known:
            if isinstance(relation, StoreRelation):
                prefix = _prefix(*owners[w.relation])
                for (task, store), position in sorted(positions.items()):
                    if task.startswith(prefix) and store == relation.view.spec.name:
                        rows = _rows_of(snapshot, task, replace(relation, present=store in present), w, room)
                        yield Part(w.relation, task, 0, rows, position)


def _rows_of(snapshot: StateSnapshot, task: str, relation: StoreRelation, w: Wanted, room: Room) -> pa.Table:
    with snapshot.of_task(task) as only:
        found = replace(relation, snapshot=only).batches(w.conditions, w.columns, room)
        rows = room.keep(_enough(found, w.enough))
    return pa.Table.from_batches(rows, arrow_schema(relation.schema))


def _rank(part: Part) -> tuple[bool, int]:
    """The rank of a part. If two parts have rows of one task, the higher rank is used: the owner, then the copy that lags by fewer records."""
    return part.copy is None, part.version if part.copy is None else -part.copy.behind


def _enough(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    """The first so many rows; None: all."""
    for batch in batches:
        if rows is not None and batch.num_rows >= rows:
            yield batch.slice(0, rows)
            return
        yield batch
        rows = None if rows is None else rows - batch.num_rows


def _coverage(
    commit: Commit,
    names: Sequence[str],
    owners: Mapping[str, tuple[QueryPlan, int]],
    found: Mapping[tuple[str, str], Part],
    why: Sequence[str],
) -> Coverage:
    """Counts the tasks behind the relations; one that several relations share counts once."""
    tasks: dict[str, bool] = {}
    reasons, copies = list(why), dict[tuple[str, str], str]()
    for name in names:
        query, sub = owners[name]
        known = _tasks_of(query, sub, commit)
        missing = [str(t.partition) for t in known if (name, str(t)) not in found]
        if missing:
            shown = ", ".join(missing[:NAMED_MAX]) + (", ..." if len(missing) > NAMED_MAX else "")
            reasons.append(
                f"no instance answers for {name} of {'partition' if len(missing) == 1 else 'partitions'} {shown}"
            )
        tasks |= {str(t): (name, str(t)) in found and tasks.get(str(t), True) for t in known}
        parts = {t: part for t in known if (part := found.get((name, str(t)))) is not None}
        copies |= {
            (str(t), name): f"{name} of partition {t.partition} {p.copy}"
            for t, p in parts.items()
            if p.copy is not None
        }
    return Coverage(sum(tasks.values()), len(tasks), tuple(reasons), copies)


def _owners(plan: Plan) -> dict[str, tuple[QueryPlan, int]]:
    """Name of a store's relation -> its query and sub-topology."""
    return {
        plain(store.name, query.generation): (query, sub.number)
        for query in plan.queries
        for sub in query.subtopologies
        for op in sub.operators
        for store in op.stores
    }


def _definition(owners: Mapping[str, tuple[QueryPlan, int]], relation: str) -> str:
    """Two instances with the same value have rows of one relation."""
    if relation == STORES:
        return STORES
    if relation not in owners:
        return ""
    query = owners[relation][0]
    return f"{runtime_name(query)} {query.definition}"


def _prefix(query: QueryPlan, sub: int) -> str:
    return f"{runtime_name(query)}/{sub}_"


def _version(metadata: Mapping[str, Any] | None) -> int:
    """A number that grows with the positions of a task: of two states the one with the larger number is newer."""
    return -1 if metadata is None else sum(metadata.get("positions", {}).values())


def _together(name: str, schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables([schema.empty_table(), *tables])
    if name != STORES:
        return table
    keys = schema.names[:3]
    summed = table.group_by(keys, use_threads=False).aggregate([(n, "sum") for n in schema.names[3:]])
    return pa.table([summed.column(n if n in keys else f"{n}_sum") for n in schema.names], schema=schema)
