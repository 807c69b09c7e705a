"""Groups that a watermark closes: which are open, and what becomes of those that are closed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from flowql.compiler.plan.logical import Aggregate
from flowql.compiler.plan.schema import Schema
from flowql.compiler.plan.topology import Operator
from flowql.runtime.batch import INSERT, Batch, Ints, from_rows
from flowql.runtime.operators.base import NO_TIME, MicroBatchContext
from flowql.runtime.operators.changes.closing import closing_time
from flowql.runtime.operators.fold import Fold
from flowql.runtime.operators.fold_groups import result_rows
from flowql.runtime.operators.open_keys import OpenKeys
from flowql.runtime.operators.partials import VECTOR_ROWS, Partials
from flowql.runtime.state.columns.packed import PackedKeys, pack
from flowql.runtime.state.columns.values import RowValues
from flowql.runtime.state.layout import store_key_codec
from flowql.runtime.state.rows import Key, Value
from flowql.runtime.state.store import Store

_NEVER = np.iinfo(np.int64).max


class ClosingGroups:
    """The open groups of one aggregation, in order of the watermark that closes them.

    A closed group is deleted from the store. If the plan says `emit_final`, its result is given then. The watermark up to which groups were closed
    is the stream time of the operator. A group of which no column closes it stays for good.
    """

    def __init__(self, plan: Operator, source: Schema, fold: Fold, partials: Partials | None) -> None:
        assert isinstance(plan.spec, Aggregate)
        names = [f.name for f in source.key]
        self._plan, self._fold, self._partials = plan, fold, partials
        self._at = [(names.index(c.column), c.after) for c in plan.spec.closing]
        self._due_of = closing_time(Schema(source.key), plan.spec.closing)
        self._codec = store_key_codec(plan.stores[0])
        self._open = OpenKeys()
        self.is_final = plan.spec.emit_final

    def begin(self, store: Store, run: MicroBatchContext) -> None:
        """Before the rows of a run are folded."""
        self._open.begin(self._closed_up_to(run), lambda: self._timed([k for k, _ in store.scan()]))

    def note(self, keys: PackedKeys, columns: Sequence[pa.Array], run: MicroBatchContext) -> None:
        """Groups that are new. columns: the parts of their keys."""
        times = np.full(len(keys), _NEVER)
        for i, after in self._at:
            known = columns[i].is_valid().to_numpy(zero_copy_only=False)
            values = pc.fill_null(columns[i], 0).to_numpy().astype(np.int64, copy=False)
            times = np.minimum(times, np.where(known, values + after, _NEVER))
        waits = np.flatnonzero(times != _NEVER)
        self._add(times[waits], keys.take(waits), run)

    def note_keys(self, keys: Sequence[Key], run: MicroBatchContext) -> None:
        """Groups that are new, by their keys."""
        self._add(*self._timed(keys), run)

    def end(self, store: Store, run: MicroBatchContext) -> Batch | None:
        """After the rows of a run were folded: closes groups. Their results, if the plan says so."""
        out = None
        if run.watermark is not None:
            _, keys = self._open.due(run.watermark)
            out = self._close(keys, store, run) if len(keys) else None
            run.stream_times[self._plan.id] = run.watermark
        self._open.end(self._closed_up_to(run))
        return out

    def _closed_up_to(self, run: MicroBatchContext) -> int:
        return run.stream_times.get(self._plan.id, NO_TIME)

    def _timed(self, keys: Sequence[Key]) -> tuple[Ints, PackedKeys]:
        """Those of the keys that a watermark closes, and when."""
        due = [(ms, k) for k in keys if (ms := self._due_of(k)) is not None]
        return np.array([ms for ms, _ in due], np.int64), pack(self._codec.encode_many([k for _, k in due]))

    def _add(self, times: Ints, keys: PackedKeys, run: MicroBatchContext) -> None:
        self._open.add(times, keys)
        if self.is_final:
            run.hold(self._plan.id, len(keys))

    def _close(self, keys: PackedKeys, store: Store, run: MicroBatchContext) -> Batch | None:
        partials = self._partials
        if partials is None or not (len(keys) >= VECTOR_ROWS if run.vector is None else run.vector):
            decoded = self._codec.decode_many(keys.to_bytes())
            found = store.get_many(decoded) if self.is_final else []
            store.put_many(decoded, [None] * len(decoded))
            return self._result_rows(decoded, found, run)
        columns = store.columns(partials.layout)
        held = columns.find(keys)
        columns.stage(held, held.values.without(np.ones(len(keys), bool)))
        if not self.is_final:
            return None
        at = np.flatnonzero(held.values.known)
        return self._results(partials, keys.take(at), held.values.take(at), run)

    def _results(self, partials: Partials, keys: PackedKeys, values: RowValues, run: MicroBatchContext) -> Batch | None:
        made = partials.closed(self._plan, keys, values, np.full(len(keys), run.last_seq), run)
        if made is None:
            return self._result_rows(self._codec.decode_many(keys.to_bytes()), values.to_list(), run)
        run.hold(self._plan.id, -len(keys))
        return made

    def _result_rows(self, keys: Sequence[Key], values: Sequence[Value | None], run: MicroBatchContext) -> Batch | None:
        """values: none where the plan wants no results."""
        held = [(k, v) for k, v in zip(keys, values, strict=False) if v is not None]
        if not held:
            return None
        run.hold(self._plan.id, -len(held))
        wanted = [(key, (), value[: len(self._fold.bound)], run.last_seq) for key, value in held]
        made, n = result_rows(self._fold, wanted, run), len(held)
        ops = np.full(n, INSERT, np.int8)
        return from_rows(self._plan.schema, made, [v[-1] for _, v in held], ops, np.full(n, run.last_seq))
