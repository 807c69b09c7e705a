"""The answer to a point look-up over one commit: its rows from the state, or from what is kept of a table's topic.

Loops of servers call `looked_up_now`. It needs no thread, and takes the interpreter lock once for all requests of a turn of the loop. If it
declines, a thread calls `looked_up`, which binds new shapes, waits for commits and reads topics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from flowql.query.answer import Answer, Begun
from flowql.query.committed import SETTLE_S, SETTLE_STEP_S, Commit, Take
from flowql.query.errors import BUSY, QueryError, broken_off
from flowql.query.kept import ByKey, KeptRelation, kept_if_table
from flowql.query.moments import why_separate
from flowql.query.point_lookups import WAY, Known, PointLookup, Shape, lookup_of, table_of
from flowql.query.relations import Relation, StoreRelation, TopicRelation, are_readable, as_shown
from flowql.query.room import Room
from flowql.query.statement import EXPLAIN
from flowql.query.united import restored, said
from flowql.query.view_state import in_state
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.state.rows import Key

if TYPE_CHECKING:
    from flowql.query.database import QueryDatabase

Columns = Sequence[pa.Array]  # of the answer, for some rows
NOW_KEYS_MAX = 256  # more keys would hold up other clients of the loop


def looked_up(sql: str, language: str, take: Take, begun: Begun, database: QueryDatabase) -> Answer | None:
    """The answer to a point look-up. None if the query is none, or if rows of other instances are needed. begun, take: as of `session.answer`.
    Raises QueryError.
    """
    explain = EXPLAIN.match(sql)
    shape = Shape.of(sql[explain.end() :] if explain is not None else sql) if language != "duckdb" else None
    if shape is None:
        return None
    known = database.lookups.get(language, shape)
    table = known.table if known is not None else table_of(language, shape)
    if not table or (known is not None and known.lookup is None):
        if known is None:
            database.lookups.keep(language, shape, Known("", None, None))
        return None
    asked = _Asked(language, shape, table, database)
    database.running.add(asked)
    begun(asked.break_off)
    try:
        found = asked.answer(take)
    finally:
        database.running.discard(asked)
        asked.room.back()
    if found is None or explain is None:
        return found
    return Answer.of(pa.table({"explain_key": ["way"], "explain_value": [WAY]}))


def looked_up_now(
    sql: str, language: str, take: Callable[[str], Commit | None], database: QueryDatabase
) -> Answer | None:
    """The answer to a point look-up whose shape is known, without waiting for anything: for loops of servers, as a turn of threads takes longer
    than a look-up. None for all others, which are for `session.answer`. take: gives the newest commit for a relation; None where it
    would have to wait, or may not be read.
    """
    shape = Shape.of(sql) if language != "duckdb" else None
    known = database.lookups.get(language, shape) if shape is not None else None
    if shape is None or known is None or known.lookup is None:
        return None
    commit, lookup = take(known.table), known.lookup
    if commit is None:
        return None
    try:
        points = lookup.points(shape.constants) if known.plan is commit.plan else None
        if (
            points is None
            or len(points.keys) > NOW_KEYS_MAX
            or commit.apart
            or why_separate(commit, (lookup.relation,))
        ):
            return None
        stored = in_state(commit, lookup.relation, lookup.view)
        if stored is not None:
            return _answer(lookup, _of_store(stored, lookup, points.keys), commit, {})
        kept = _kept(commit, known.table, database)
        rows = kept.points_now(points.keys) if kept is not None and are_readable([kept], commit.at_rest) else None
        return _answer(lookup, map(lookup.of_rows, rows), commit, {}) if rows is not None else None
    finally:
        commit.snapshot.close()


@dataclass(slots=True, eq=False)
class _Asked:
    """A query of the shape of a look-up. table: that it reads, as it is written. Any thread may call `break_off`."""

    language: str
    shape: Shape
    table: str
    database: QueryDatabase
    room: Room = field(init=False)
    _is_broken_off: bool = False

    def __post_init__(self) -> None:
        self.room = Room(self.database.memory, self._check)

    def break_off(self) -> None:
        self._is_broken_off = True

    def _check(self) -> None:
        if self._is_broken_off:
            raise broken_off()

    def answer(self, take: Take) -> Answer | None:
        limit = time.monotonic() + SETTLE_S
        while True:
            self._check()
            commit = take([self.table])
            try:
                relation = _named(commit, self.table)
                lookup = self._lookup(commit, relation) if relation is not None and commit.others is None else None
                if lookup is None or relation is None:
                    return None
                points = lookup.points(self.shape.constants)
                if points is None:
                    return None
                found = self._rows(commit, relation, lookup, points.keys)
                if found is not None:
                    return _answer(lookup, found, commit, {relation.name: relation})
            except OffsetOutOfRange:  # a rebuild has replaced its records meanwhile
                pass
            finally:
                commit.snapshot.close()
            if time.monotonic() > limit:
                raise QueryError("commits come faster than a snapshot can be taken; repeat the query", code=BUSY)
            time.sleep(SETTLE_STEP_S)

    def _lookup(self, commit: Commit, relation: Relation) -> PointLookup | None:
        """The look-up that the query is in this commit; None if it is none."""
        lookups = self.database.lookups
        lookups.saw(commit.plan)
        known = lookups.get(self.language, self.shape)
        if known is None or known.plan is not commit.plan:
            connection = self.database.connection() if self.language == "ksql" else None
            try:
                found = lookup_of(self.language, self.shape, self.table, relation, commit.plan, connection)
            finally:
                if connection is not None:
                    connection.close()
            known = Known(self.table, commit.plan, found)
            lookups.keep(self.language, self.shape, known)
        return known.lookup

    def _rows(
        self, commit: Commit, relation: Relation, lookup: PointLookup, keys: Sequence[Key]
    ) -> Iterable[Columns] | None:
        """None if a topic has records after this commit."""
        if isinstance(relation, TopicRelation):
            stored = in_state(commit, lookup.relation, lookup.view)
            if stored is None:
                kept = kept_if_table(relation, self.database.kept)
                assert isinstance(kept, ByKey), "a table"
                rows = kept.points(keys, self.room) if are_readable([kept], commit.at_rest) else None
                return map(lookup.of_rows, rows) if rows is not None else None
            relation = stored
        assert isinstance(relation, StoreRelation)
        return _of_store(relation, lookup, keys)


def _of_store(relation: StoreRelation, lookup: PointLookup, keys: Sequence[Key]) -> list[Columns]:
    shown = relation.points(keys)
    return [] if shown is None else [lookup.of_store(relation.view, shown)]


def _kept(commit: Commit, table: str, database: QueryDatabase) -> KeptRelation | None:
    """A table of the embedded log whose rows are kept; a broker would have to be waited for."""
    relation = _named(commit, table) if commit.log.drops_with_commits else None
    kept = kept_if_table(relation, database.kept) if isinstance(relation, TopicRelation) else None
    return kept if isinstance(kept, KeptRelation) else None


def _answer(lookup: PointLookup, rows: Iterable[Columns], commit: Commit, relations: Mapping[str, Relation]) -> Answer:
    """relations: of which rows may be missing."""
    metadata = {
        **(lookup.schema.metadata or {}),
        **commit.metadata,
        **(said(restored(commit, relations), commit, relations) if relations else {}),
    }
    told = lookup.schema.with_metadata(metadata)
    shown = [as_shown(columns, told) for columns in rows]
    return Answer(told, (b for b in shown))


def _named(commit: Commit, table: str) -> Relation | None:
    """The relation of this name, whatever its case if there is no other."""
    known = commit.relations()
    name = table if table in known else next((n for n in known if n.casefold() == table.casefold()), None)
    return known[name]() if name is not None else None
