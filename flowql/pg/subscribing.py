"""SUBSCRIBE: the rows of a table, view or stream, and from then on each change of them, as Materialize shows them.

A change has the tick at which it was committed and a difference: 1 for a row that is there from now on, -1 for one that is not. Several changes of
one key between two looks are one. The process reads the topic itself; the instance does nothing for a subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.topology import SourceDef, scan_of
from flowql.pg.errors import PgError
from flowql.pg.portals import PIECE_BYTES, Encode, Rows
from flowql.pg.statements import Statement, Word, name_after, syntax_error
from flowql.pg.types import BOOL, INT8, PgColumn, pg_type
from flowql.query.kept import Kept
from flowql.query.relations import TopicRelation, answered_schema, as_shown, decode, records
from flowql.query.room import Room
from flowql.runtime.errors import OffsetOutOfRange
from flowql.runtime.log.base import TopicPartition
from flowql.runtime.operators.decode import Decoder

TICK, PROGRESSED, DIFF = "flowql_tick", "flowql_progressed", "flowql_diff"
STEP_S = 0.05  # between two looks while nothing comes
_OPTIONS = {"SNAPSHOT": True, "PROGRESS": False}
_TRUE = ("TRUE", "ON", "1")


@dataclass(frozen=True, slots=True)
class Subscribe:
    """snapshot: begin with the rows that are there. progress: tell each tick, also one without changes."""

    name: str
    snapshot: bool
    progress: bool


def subscribe_of(statement: Statement) -> Subscribe:
    """`SUBSCRIBE [TO] name [WITH (SNAPSHOT [= true], PROGRESS [= false])]`. Raises PgError."""
    at = 2 if statement.words[1:2] and statement.words[1].upper == "TO" else 1
    if statement.words[at : at + 1] and statement.words[at].text == "(":
        raise PgError("0A000", "SUBSCRIBE takes the name of a table, view or stream", help="make a view of the query")
    name, rest = name_after(statement, at)
    options = _options(statement, [w for w in rest if w.text not in ("(", ")", "=", ",")])
    return Subscribe(name.removeprefix("public."), options["SNAPSHOT"], options["PROGRESS"])


def _options(statement: Statement, words: Sequence[Word]) -> dict[str, bool]:
    found = dict(_OPTIONS)
    if words and words[0].upper != "WITH":
        raise syntax_error(statement, statement.words.index(words[0]))
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word.upper not in found:
            raise syntax_error(statement, statement.words.index(word))
        given = rest.pop(0).upper if rest and rest[0].upper not in found else "TRUE"
        found[word.upper] = given in _TRUE
    return found


@dataclass(frozen=True, slots=True)
class Looked:
    """A relation at a tick."""

    tick: int
    relation: TopicRelation


Look = Callable[[], Looked]


class Changes:
    """What a subscription has to tell. One thread at a time."""

    def __init__(self, subscribe: Subscribe, source: SourceDef, look: Look, room: Room) -> None:
        """look: gives the relation as it is now."""
        self._subscribe, self._source, self._look, self._room = subscribe, source, look, room
        fields = list(look().relation.schema)
        progressed = [PgColumn(PROGRESSED, BOOL)] if subscribe.progress else []
        self.columns = [
            PgColumn(TICK, INT8),
            *progressed,
            PgColumn(DIFF, INT8),
            *(PgColumn(f.name, pg_type(f.type)) for f in fields),
        ]
        self._schema = answered_schema(look().relation.schema)
        self._reader: _Table | _Stream = _Table(source) if source.kind == "table" else _Stream(source)
        self._tick = -1
        if not subscribe.snapshot:
            self._reader.skip(look().relation, room)

    def poll(self) -> list[pa.RecordBatch]:
        """The changes since the last call; empty if there are none. Raises PgError 55000 where what it reads was rebuilt."""
        found = self._look()
        if found.relation.source.topic != self._source.topic:
            raise _rebuilt(self._subscribe.name)
        try:
            changes = self._reader.read(found.relation, self._room)
        except OffsetOutOfRange as error:
            raise _rebuilt(self._subscribe.name) from error
        made = [self._told(found.tick, rows, diffs) for rows, diffs in changes if rows.num_rows]
        if self._subscribe.progress and found.tick != self._tick:
            made.append(self._progress(found.tick))
        self._tick = found.tick
        return made

    def close(self) -> None:
        """Gives back its memory."""
        self._room.back()

    def _told(self, tick: int, rows: pa.RecordBatch, diffs: np.ndarray) -> pa.RecordBatch:
        n, shown = rows.num_rows, as_shown(rows.columns, self._schema)
        progressed = [pa.array(np.zeros(n, np.bool_))] if self._subscribe.progress else []
        return self._batch([pa.array(np.full(n, tick)), *progressed, pa.array(diffs), *shown.columns])

    def _progress(self, tick: int) -> pa.RecordBatch:
        nothing = [pa.nulls(1, f.type) for f in self._schema]
        return self._batch([pa.array([tick]), pa.array([True]), pa.nulls(1, pa.int64()), *nothing])

    def _batch(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(arrays), [f"c{n}" for n in range(len(arrays))])


def _rebuilt(name: str) -> PgError:
    return PgError(
        "55000",
        f"{name} was rebuilt or its records were deleted: changes until then are complete",
        help="SUBSCRIBE again",
    )


Found = Iterator[tuple[pa.RecordBatch, np.ndarray]]


class _Table(Kept):
    """A table: what became of the keys that have new records."""

    def __init__(self, source: SourceDef) -> None:
        super().__init__(source)
        self._touched: dict[bytes, tuple[int, int] | None] = {}  # by key: its row before

    def skip(self, relation: TopicRelation, room: Room) -> None:
        """Tells nothing of the rows that are there."""
        self.advance(relation, room)
        self._touched.clear()

    def read(self, relation: TopicRelation, room: Room) -> Found:
        if self.begins and self.begins != {tp: begin for tp, (begin, _) in relation.spans.items()}:
            raise _rebuilt(relation.name)
        batches, touched = self._batches, self._touched
        self.advance(relation, room)
        gone = [place for place in touched.values() if place is not None]
        come = [place for key in touched if (place := self._index.get(key)) is not None]
        yield from self._taken(batches, gone, -1)
        yield from self._taken(self._batches, come, 1)
        touched.clear()

    def _restart(self) -> None:
        for key, place in self._index.items():
            self.touch(key, place)
        super()._restart()

    def touch(self, key: bytes, before: tuple[int, int] | None) -> None:
        self._touched.setdefault(key, before)

    def _taken(self, batches: Sequence[pa.RecordBatch], places: Sequence[tuple[int, int]], diff: int) -> Found:
        of: dict[int, list[int]] = {}
        for number, row in places:
            of.setdefault(number, []).append(row)
        for number, rows in of.items():
            yield batches[number].take(pa.array(rows)), np.full(len(rows), diff)


@dataclass(slots=True)
class _Stream:
    """A stream: its records are added."""

    source: SourceDef
    _ends: dict[TopicPartition, int] = field(default_factory=dict)

    def skip(self, relation: TopicRelation, room: Room) -> None:
        del room
        self._ends = {tp: end for tp, (_, end) in relation.spans.items()}

    def read(self, relation: TopicRelation, room: Room) -> Found:
        del room
        decoder = Decoder(scan_of(self.source), self.source.schema)
        for tp, (begin, end) in sorted(relation.spans.items()):
            at = self._ends.get(tp, begin)
            if at < begin:
                raise _rebuilt(relation.name)
            for raw in records(relation.log, tp, at, end):
                if len(batch := decode(decoder, raw)):
                    yield relation.shown(batch), np.ones(len(batch), np.int64)
            self._ends[tp] = max(at, end)


class LiveRows(Rows):
    """Rows that come for as long as the client wants them. `piece` gives those that are there."""

    def __init__(self, changes: Changes, formats: Sequence[int]) -> None:
        super().__init__(changes.columns, iter(()), changes.close)
        self.formats = (
            [formats[0] if len(formats) == 1 else 0] * len(changes.columns) if len(formats) < 2 else list(formats)
        )
        self._changes, self._ready = changes, list[pa.RecordBatch]()

    @property
    def is_live(self) -> bool:
        return True

    def is_ready(self) -> bool:
        self._ready = self._ready or self._changes.poll()
        return bool(self._ready)

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
        return b"".join(parts), False

    def taken(self, count: int | None) -> Iterator[pa.RecordBatch]:
        while (count is None or count > 0) and (batch := self._next()) is not None:
            if count is not None and batch.num_rows > count:
                self._ready.insert(0, batch.slice(count))
                batch = batch.slice(0, count)
            count = None if count is None else count - batch.num_rows
            yield batch
