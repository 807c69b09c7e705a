"""SUBSCRIBE: the rows of a table, view or stream, and from then on each change of them, as Materialize shows them.

A change has the tick at which it was seen: the number of the instance's last commit. Several changes of one key between two looks are one. The
process reads the topic itself; the instance tells it how far results are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.topology import Plan, SourceDef, scan_of
from flowql.pg.envelopes import Changed, Form
from flowql.pg.errors import PgError
from flowql.pg.messages import spread
from flowql.pg.pins import Files, Place
from flowql.pg.portals import PIECE_BYTES, Encode, Rows
from flowql.pg.resumed import about_of, is_whole, lost, place_in, rebuilt, resumable
from flowql.pg.subscribe_statement import Subscribe, check_bounds
from flowql.query.committed import SETTLE_S
from flowql.query.errors import BUSY, QueryError
from flowql.query.kept import Kept
from flowql.query.relations import TopicRelation, arrow_schema, decode, records
from flowql.query.room import Room
from flowql.query.whole import awaited
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.operators.decode import Decoder

STEP_S = 0.05  # between two looks while nothing comes
KEYS_AT_ONCE = 8_192  # whose rows are gathered together


@dataclass(frozen=True, slots=True)
class Looked:
    """A relation between two commits of the instance. tick: the number of the last one. files: of its topic, from before its ends were read."""

    tick: int
    relation: TopicRelation
    plan: Plan
    files: Mapping[TopicPartition, Files]


Look = Callable[[], Looked | None]  # None: not at the moment


class Changes:
    """The changes that a subscription sends. `begin` it, then `poll`. One thread at a time. is_over: it has reached its end."""

    def __init__(self, subscribe: Subscribe, relation: TopicRelation, plan: Plan, look: Look, room: Room) -> None:
        """look: gives the relation as it is now. Raises PgError for a form that it cannot have."""
        self._subscribe, self._source, self._look, self._room = subscribe, relation.source, look, room
        self._form = Form.of(subscribe, relation.source, relation.schema, plan)
        self.columns = self._form.columns
        self._plan, self._about = plan, about_of(relation.source, plan)
        self._reader: _Table | _Stream = _Table(relation.source) if relation.source.kind == "table" else _Stream(relation.source)  # fmt: skip
        self._first = 0  # tick from which changes are told
        self._is_loose = False  # not all rows before the next changes are known
        self._told: tuple[int, Mapping[TopicPartition, int]] | None = None  # tick and offsets that the client knows
        self._token: str | None = None
        self._is_begun = self.is_over = False

    def begin(self) -> None:
        """Finds where it begins: now, unless it is told otherwise. Raises PgError, QueryError."""
        found, subscribe = awaited(self._look, SETTLE_S), self._subscribe
        if found is None:
            raise QueryError("commits come faster than a snapshot can be taken; repeat the query", code=BUSY)
        self._first = found.tick if subscribe.as_of is None else subscribe.as_of
        if self._first < found.tick and not subscribe.at_least:
            title = f"tick {self._first} is over, and rows of earlier ticks are not kept: the tick is {found.tick} now"
            raise PgError("55000", title, help="AS OF AT LEAST, or RESUME with the token of an earlier subscription")
        self._first = max(self._first, found.tick)
        if subscribe.up_to is not None:
            check_bounds(self._first, subscribe.up_to)
            self.is_over = subscribe.up_to == self._first
        if subscribe.resume is not None:
            self._resume(found, subscribe.resume)
        elif found.tick >= self._first:
            self._start(found)

    def poll(self) -> list[pa.RecordBatch]:
        """The changes since the last call; empty if there are none. Raises PgError 55000 where what it reads was rebuilt."""
        found = None if self.is_over else self._look()
        if found is None or found.tick < self._first:
            return []
        self._check(found)
        if self._subscribe.up_to is not None and found.tick >= self._subscribe.up_to:
            self.is_over = True
            return []
        made = list[pa.RecordBatch]()
        if not self._is_begun:
            self._start(found)
        if self._told is None and self._subscribe.progress:
            made.append(self._form.progress(found.tick, None))
        elif self._token is not None:  # the first row tells where it begins
            made.append(self._form.progress(self._told[0] if self._told else found.tick, self._token))
        self._token = None
        try:
            for changed in self._reader.read(found.relation, self._room):
                made += self._form.rows(found.tick, changed, loose=self._is_loose)
        except OffsetOutOfRange as error:
            raise lost(self._source.name) from error
        self._is_loose = False
        reached = found.tick, dict(self._reader.ends)
        if self._subscribe.progress and reached != self._told:
            made.append(self._form.progress(found.tick, self._token_at(found)))
        self._told = reached
        return made

    def close(self) -> None:
        """Gives back its memory."""
        self._room.back()

    def _check(self, found: Looked) -> None:
        if found.plan is self._plan:
            return
        if about_of(found.relation.source, found.plan) != self._about:
            raise rebuilt(self._source.name)
        self._plan = found.plan

    def _start(self, found: Looked) -> None:
        self._is_begun = True
        if not self._subscribe.snapshot:
            self._reader.skip(found.relation, self._room)
            self._told = found.tick, dict(self._reader.ends)
            self._token = self._token_at(found) if self._subscribe.progress else None

    def _resume(self, found: Looked, token: str) -> None:
        relation, envelope = found.relation, self._subscribe.envelope
        place, commit = resumable(token, relation, self._about, envelope)
        offsets = place.offsets or {}
        spans = {tp: (begin, offsets[tp]) for tp, (begin, _) in relation.spans.items()}
        before = TopicRelation(relation.name, relation.source, relation.log, spans)
        self._reader.skip(before, self._room)
        self._is_loose = isinstance(self._reader, _Table) and not is_whole(place, commit, before, envelope)
        self._is_begun, self._told = True, (commit.tick, offsets)
        self._token = token if self._subscribe.progress else None

    def _token_at(self, found: Looked) -> str:
        return place_in(self._about, found.tick, found.relation.spans, self._reader.ends, found.files).token()


class _Table(Kept):
    """A table: what became of the keys that have new records."""

    def __init__(self, source: SourceDef) -> None:
        super().__init__(source)
        self._touched: dict[bytes, Place | None] = {}  # by key: its row before
        self._is_again = False  # all records were read again, so rows of touched keys may be as before

    def skip(self, relation: TopicRelation, room: Room) -> None:
        """Tells nothing of the existing rows."""
        self.advance(relation, room)
        self._touched.clear()

    def read(self, relation: TopicRelation, room: Room) -> Iterator[Changed]:
        if self.begins and self.begins != {tp: begin for tp, (begin, _) in relation.spans.items()}:
            raise lost(relation.name)
        batches, touched = self._batches, self._touched
        self._is_again = False
        self.advance(relation, room)
        keys = list(touched)
        for at in range(0, len(keys), KEYS_AT_ONCE):
            some = keys[at : at + KEYS_AT_ONCE]
            before = _gathered(batches, [touched[k] for k in some], relation)
            after = _gathered(self._batches, [self._index.get(k) for k in some], relation)
            changed = Changed(*before, *after, some)
            yield changed.differing() if self._is_again else changed
        touched.clear()

    def _restart(self) -> None:
        self._is_again = True
        for key, place in self._index.items():
            self.touch(key, place)
        super()._restart()

    def touch(self, key: bytes, before: Place | None) -> None:
        self._touched.setdefault(key, before)


def _gathered(
    batches: Sequence[pa.RecordBatch], places: Sequence[Place | None], relation: TopicRelation
) -> tuple[pa.RecordBatch, np.ndarray]:
    """The rows in the order of their places, NULL where there is none, and where there is one."""
    has = np.array([p is not None for p in places], np.bool_)
    numbers = np.array([p[0] for p in places if p is not None], np.int64)
    rows = np.array([p[1] for p in places if p is not None], np.int64)
    pieces, order, size = list[pa.RecordBatch](), np.full(len(places), -1, np.int64), 0
    for number in np.unique(numbers):
        of = np.flatnonzero(numbers == number)
        pieces.append(batches[number].take(pa.array(rows[of])))
        order[np.flatnonzero(has)[of]] = np.arange(size, size + len(of))
        size += len(of)
    schema = arrow_schema(relation.schema)
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, t) for t in schema.types], schema=schema)
    found = pa.Table.from_batches(pieces or [empty], schema).combine_chunks()
    whole = found.to_batches()[0] if size else empty
    return whole.take(pa.array(order, mask=~has)), has


@dataclass(slots=True)
class _Stream:
    """A stream: its records are added."""

    source: SourceDef
    ends: dict[TopicPartition, int] = field(default_factory=dict)

    def skip(self, relation: TopicRelation, room: Room) -> None:
        del room
        self.ends = {tp: end for tp, (_, end) in relation.spans.items()}

    def read(self, relation: TopicRelation, room: Room) -> Iterator[Changed]:
        del room
        decoder = Decoder(scan_of(self.source), self.source.schema)
        for tp, (begin, end) in sorted(relation.spans.items()):
            at = self.ends.get(tp, begin)
            if at < begin:
                raise lost(relation.name)
            for raw in records(relation.log, tp, at, end):
                if len(batch := decode(decoder, raw)):
                    yield Changed.added(relation.shown(batch))
            self.ends[tp] = max(at, end)


class LiveRows(Rows):
    """Rows that come for as long as the client wants them, or until the end that it has named. `piece` gives those that have come."""

    def __init__(self, changes: Changes, formats: Sequence[int]) -> None:
        super().__init__(changes.columns, iter(()), changes.close, spread(formats, len(changes.columns)))
        self._changes, self._ready = changes, list[pa.RecordBatch]()

    @property
    def is_live(self) -> bool:
        return True

    def read_ahead(self) -> None:
        """Nothing: rows come later."""

    def is_ready(self) -> bool:
        self._ready = self._ready or self._changes.poll()
        return bool(self._ready) or self._changes.is_over

    def _next(self) -> pa.RecordBatch | None:
        if not self._ready:
            self._ready = self._changes.poll()
        return self._ready.pop(0) if self._ready else None

    def piece(self, limit: int = 0, encode: Encode | None = None) -> tuple[bytes, bool]:
        parts, size = list[bytes](), 0
        while size < PIECE_BYTES and not (limit and self.rows >= limit) and (batch := self._next()) is not None:
            if limit and self.rows + batch.num_rows > limit:
                taken = limit - self.rows
                batch, rest = batch.slice(0, taken), batch.slice(taken)
                self._ready.insert(0, rest)
            self.rows += batch.num_rows
            parts.append(self.encoded(batch, encode))
            size += len(parts[-1])
        return b"".join(parts), self._changes.is_over and not self._ready

    def taken(self, count: int | None) -> Iterator[pa.RecordBatch]:
        """The rows that have come by one look: with a look for each piece, commits that go on would hold a FETCH ALL for ever."""
        self._ready = self._ready or self._changes.poll()
        while self._ready and (count is None or count > 0):
            batch = self._ready.pop(0)
            if count is not None and batch.num_rows > count:
                self._ready.insert(0, batch.slice(count))
                batch = batch.slice(0, count)
            count = None if count is None else count - batch.num_rows
            yield batch
