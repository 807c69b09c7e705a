"""The rows of a subscription in the forms that Materialize has: differences, ENVELOPE UPSERT and ENVELOPE DEBEZIUM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.schema import Field, Schema
from flowql.compiler.plan.topology import Plan, SourceDef
from flowql.pg.errors import PgError, unsupported
from flowql.pg.subscribe_statement import Subscribe
from flowql.pg.types import BOOL, INT8, TEXT, PgColumn, pg_type
from flowql.query.relations import answered_schema, as_shown
from flowql.query.view_rows import keyed_rows
from flowql.runtime.batch import to_arrow
from flowql.runtime.state.values import decode_value

TICK, PROGRESSED, TOKEN, DIFF, STATE = "flowql_tick", "flowql_progressed", "flowql_token", "flowql_diff", "flowql_state"


@dataclass(frozen=True, slots=True)
class Changed:
    """Changes of one tick: before and after have a row for each key, NULL in all columns where there is none. had, has: where there is one. keys: the
    encoded keys; empty for a stream.
    """

    before: pa.RecordBatch
    had: np.ndarray
    after: pa.RecordBatch
    has: np.ndarray
    keys: Sequence[bytes] = ()

    @classmethod
    def added(cls, rows: pa.RecordBatch) -> Changed:
        """Rows of a stream."""
        n = rows.num_rows
        return cls(rows.slice(0, 0), np.zeros(n, np.bool_), rows, np.ones(n, np.bool_))

    def differing(self) -> Changed:
        """Without keys whose row is as it was."""
        same = (self.had & self.has).nonzero()[0].tolist()
        keep = self.had | self.has
        keep[[n for n in same if self.before.slice(n, 1).equals(self.after.slice(n, 1))]] = False
        mask, keys = pa.array(keep), [k for k, kept in zip(self.keys, keep, strict=True) if kept]
        return Changed(self.before.filter(mask), self.had[keep], self.after.filter(mask), self.has[keep], keys)


@dataclass(frozen=True, slots=True)
class Form:
    """How changes become rows. shown: the columns of the relation. key: those of the envelope with the part of the table's key that each is."""

    subscribe: Subscribe
    shown: Schema
    key: Mapping[str, Field]
    key_fields: Sequence[Field]

    @classmethod
    def of(cls, subscribe: Subscribe, source: SourceDef, shown: Schema, plan: Plan) -> Form:
        """Raises PgError for an envelope that the relation cannot have."""
        if not subscribe.envelope:
            return cls(subscribe, shown, {}, ())
        what = f"ENVELOPE {subscribe.envelope}"
        if source.kind != "table":
            raise unsupported(f"{what} is not supported: {source.name} is a stream, and its rows have no key")
        keyed = keyed_rows(plan, source)
        parts = {f.name: keyed.parts[f.name.casefold()] for f in shown if f.name.casefold() in keyed.parts}
        fields = [f for f in keyed.key if f is not None]
        if {f.name for f in parts.values()} != {f.name for f in fields}:
            raise unsupported(f"{what} is not supported: no columns of {source.name} are its key")
        return cls(subscribe, shown, _named(subscribe, source.name, parts, shown), fields)

    @property
    def columns(self) -> list[PgColumn]:
        progress = [PgColumn(PROGRESSED, BOOL), PgColumn(TOKEN, TEXT)] if self.subscribe.progress else []
        head = [PgColumn(TICK, INT8), *progress]
        relation = {f.name: PgColumn(f.name, pg_type(f.type)) for f in self.shown}
        if not self.subscribe.envelope:
            return [*head, PgColumn(DIFF, INT8), *relation.values()]
        keys, values = [relation[n] for n in self.key], [c for n, c in relation.items() if n not in self.key]
        head = [*head, PgColumn(STATE, TEXT), *keys]
        if self.subscribe.envelope == "UPSERT":
            return head + values
        return head + [PgColumn(f"{when}_{c.name}", c.type) for when in ("before", "after") for c in values]

    def rows(self, tick: int, changed: Changed, *, loose: bool) -> Iterator[pa.RecordBatch]:
        """The rows of changes. loose: a key without a row before may have had one, which is no longer known."""
        match self.subscribe.envelope:
            case "":
                for part, which, diff in ((changed.before, changed.had, -1), (changed.after, changed.has, 1)):
                    if which.any():
                        rows = _as_answered(part if which.all() else part.filter(pa.array(which)), self.shown)
                        yield self._batch(tick, [pa.array(np.full(rows.num_rows, diff)), *rows.columns])
                return
            case "UPSERT":
                wanted = changed.has | changed.had | loose
                states = np.where(changed.has, "upsert", "delete")
            case _:
                wanted = changed.has | changed.had
                states = np.where(changed.has, np.where(changed.had, "upsert", "insert"), "delete")
        if not wanted.any():
            return
        before, after = _as_answered(changed.before, self.shown), _as_answered(changed.after, self.shown)
        of_values = [n for n, f in enumerate(self.shown) if f.name not in self.key]
        parts = (after,) if self.subscribe.envelope == "UPSERT" else (before, after)
        columns = [
            pa.array(states),
            *self._keys(changed, before, after),
            *(p.column(n) for p in parts for n in of_values),
        ]
        mask = None if wanted.all() else pa.array(wanted)
        yield self._batch(tick, columns if mask is None else [c.filter(mask) for c in columns])

    def progress(self, tick: int, token: str | None) -> pa.RecordBatch:
        """Tells that no row with a smaller tick follows. token: where another subscription continues; None before anything was sent."""
        answered = dict(zip(self.shown.names, answered_schema(self.shown).types, strict=True))
        values = [t for n, t in answered.items() if n not in self.key]
        twice = 2 if self.subscribe.envelope == "DEBEZIUM" else 1
        types = [
            pa.string() if self.subscribe.envelope else pa.int64(),
            *(answered[n] for n in self.key),
            *values * twice,
        ]
        head = [pa.array([tick]), pa.array([True]), pa.array([token], pa.string())]
        return _named_batch([*head, *(pa.nulls(1, t) for t in types)])

    def _keys(self, changed: Changed, before: pa.RecordBatch, after: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the key, which a row before or after has, and of a key whose rows are not known the key itself."""
        if (changed.has | changed.had).all():
            n = len(changed.has)
            places = pa.array(np.where(changed.has, np.arange(n), np.arange(n, 2 * n)))
            names = self.shown.names
            return [
                pa.concat_arrays([after.column(i), before.column(i)]).take(places) for i in map(names.index, self.key)
            ]
        values = dict(
            zip((f.name for f in self.key_fields), zip(*map(_decoded, changed.keys), strict=True), strict=True)
        )
        schema = Schema(tuple(Field(n, f.type) for n, f in self.key.items()))
        arrays = [to_arrow(values[f.name], f.type) for f in self.key.values()]
        return as_shown(arrays, answered_schema(schema)).columns

    def _batch(self, tick: int, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        n = len(columns[0])
        progress = [pa.array(np.zeros(n, np.bool_)), pa.nulls(n, pa.string())] if self.subscribe.progress else []
        return _named_batch([pa.array(np.full(n, tick)), *progress, *columns])


def _named(subscribe: Subscribe, name: str, parts: Mapping[str, Field], shown: Schema) -> dict[str, Field]:
    """The columns of the key, in the order in which they are shown."""
    folded = {n.casefold(): n for n in shown.names}
    chosen = list[str]()
    for key in subscribe.keys:
        if key.casefold() not in folded:
            raise PgError("42703", f'column "{key}" does not exist')
        chosen.append(folded[key.casefold()])
    own = {f.name: n for n, f in reversed(list(parts.items()))}  # the first column of each part
    if not chosen:
        return {n: parts[n] for n in parts if n in own.values()}
    if not all(n in parts for n in chosen) or sorted(parts[n].name for n in chosen) != sorted(own):
        wanted = ", ".join(n for n in parts if n in own.values())
        raise unsupported(
            f"ENVELOPE {subscribe.envelope} takes the whole key of {name} and nothing else: KEY ({wanted})"
        )
    return {n: parts[n] for n in chosen}


def _decoded(key: bytes) -> Sequence[Any]:
    found = decode_value(key)
    assert isinstance(found, Sequence), "keys are encoded as sequences"
    return found


def _as_answered(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    return as_shown(rows.columns, answered_schema(schema))


def _named_batch(arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), [f"c{n}" for n in range(len(arrays))])
