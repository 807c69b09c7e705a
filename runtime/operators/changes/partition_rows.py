"""The rows of a partition in state, in order, to be read forwards and backwards from any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from flowql.compiler.plan.changes import SortKey
from flowql.compiler.plan.schema import Schema
from flowql.runtime.batch import Row
from flowql.runtime.operators.changes.buckets import Bucket
from flowql.runtime.operators.changes.frames import NOWHERE, Line, Position, position_of
from flowql.runtime.operators.changes.order import SortPart, order_text
from flowql.runtime.operators.keys import picker
from flowql.runtime.state.rows import Value
from flowql.runtime.state.store import Store


@dataclass(slots=True, eq=False)
class Item:
    """The rows under one entry: one, or two while a change of an identity is on its way, or none where one comes or goes."""

    entry: str
    lines: list[Line]

    @property
    def tie(self) -> str:
        return self.lines[0].tie

    @property
    def at(self) -> Position:
        return self.lines[0].at


class RowForm:
    """How rows are kept: (row..., row time, a state per running call) for each row of an entry. Holds no data.

    ties, positions: whether peers and distances in the order are asked for.
    """

    def __init__(self, schema: Schema, order: Sequence[SortKey], states: int, *, ties: bool, positions: bool) -> None:
        names, types = schema.names, [f.type for f in schema]
        by = [names.index(k.column) for k in order]
        parts = [SortPart(types[i], k.descending, k.nulls_first) for i, k in zip(by, order, strict=True)]
        identity = [(names.index(f.name), SortPart(f.type)) for f in schema.key]
        every = [*parts, *(p for _, p in identity)]
        self._sort, self._tie = picker(by), order_text(parts) if ties else None
        self._entry_of = picker([*by, *(i for i, _ in identity)])
        self._text, self._back = order_text(every), order_text([p.reversed() for p in every])
        self._first = by[0] if positions else 0
        self._position: Callable[[Any], Position] | None = None
        if positions:
            (key,) = order
            self._position = position_of(types[by[0]], descending=key.descending, nulls_first=key.nulls_first)
        self._columns = len(names)
        self._states = states
        self._width = self._columns + 1 + states

    def entry(self, row: Row) -> str:
        return self._text(self._entry_of(row))

    def back(self, row: Row) -> str:
        """The entry in the opposite order."""
        return self._back(self._entry_of(row))

    def line(self, row: Row, time: int, states: tuple[Any, ...] = ()) -> Line:
        tie = "" if self._tie is None else self._tie(self._sort(row))
        at = NOWHERE if self._position is None else self._position(row[self._first])
        return Line(row, time, tie, at, states)

    def read(self, entry: str, payload: Value | None) -> Item:
        n, width = self._columns, self._width
        starts = range(0, len(payload), width) if payload is not None else ()
        return Item(
            entry,
            [self.line(payload[i : i + n], payload[i + n], payload[i + n + 1 : i + width]) for i in starts]
            if payload is not None
            else [],
        )

    def write(self, item: Item) -> Value | None:
        states = self._states
        return tuple([v for line in item.lines for v in (*line.row, line.time, *line.states[:states])]) or None


class PartitionRows:
    """The rows of one partition during one run: reading comes first, then writing.

    A large partition has beside its bucket a row per entry in the store `backwards`, in the opposite order: its entry.
    """

    def __init__(self, form: RowForm, bucket: Bucket, backwards: Store | None) -> None:
        self._form, self._bucket, self._backwards = form, bucket, backwards
        self._was_large = bucket.items is None
        self._come: dict[str, Row] = {}
        self._gone: dict[str, Row] = {}

    @property
    def empty(self) -> bool:
        return not self._bucket.size

    def get(self, entry: str) -> Item:
        return self._form.read(entry, self._bucket.get(entry))

    def after(self, entry: str | None) -> Iterator[Item]:
        """In order; of None, from the first one."""
        for found, payload in self._bucket.entries(after=entry):
            self._bucket.know(found, payload)
            yield self._form.read(found, payload)

    def before(self, origin: Item, wanted: int) -> Iterator[Item]:
        """Those before it, the nearest first. wanted: how many will be consumed if there are as many: these are read at once."""
        if self._bucket.items is not None:
            for entry in sorted((e for e in self._bucket.items if e < origin.entry), reverse=True):
                yield self.get(entry)
            return
        assert self._backwards is not None
        prefix = self._bucket.prefix
        place = (*prefix, self._form.back(origin.lines[0].row))
        entries = (entry for _, (entry,) in self._backwards.scan_prefix(prefix, after=place))
        known = list(islice(entries, wanted))
        self._bucket.expect(known)
        for entry in chain(known, entries):
            yield self.get(entry)

    def put(self, old: Item, new: Item) -> None:
        """Replace the rows of an entry; `old` and `new` are its item before and after."""
        self._bucket.put(new.entry, self._form.write(new))
        if not old.lines:
            self._come[new.entry] = new.lines[0].row
        elif not new.lines:
            self._gone[new.entry] = old.lines[0].row

    def flush(self) -> None:
        """Bring the opposite order up to date, after the heads are written."""
        if self._backwards is None:
            return
        large = self._bucket.items is None
        come, gone = self._come, self._gone
        if large and not self._was_large:
            come, gone = {i.entry: i.lines[0].row for i in self.after(None)}, {}
        elif not large and self._was_large:
            assert self._bucket.items is not None
            kept = {e: self.get(e).lines[0].row for e in self._bucket.items if e not in come}
            come, gone = {}, {**gone, **kept}
        elif not large:
            return
        prefix, back = self._bucket.prefix, self._form.back
        keys = [(*prefix, back(row)) for row in (*gone.values(), *come.values())]
        values: list[Value | None] = [None] * len(gone)
        self._backwards.put_many(keys, [*values, *((entry,) for entry in come)])
