"""Shared scans: a topic is decoded once per batch for all queries that read it in the same way and are near each other.

Readers of one topic with the same formats and time column share a decoder over the union of the columns they need. The first that
asks for a batch decodes it, the others wait for that result and take their columns; it is dropped when all have had it.

A record is bad for a reader only by its structure and by the columns that this reader has. So records that the union cannot read
are decoded again, by each reader for itself: few, as long as few are bad.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from flowql.compiler.plan.logical import Scan
from flowql.compiler.plan.schema import NO_COLUMNS, Schema
from flowql.compiler.plan.topology import Operator
from flowql.compiler.schemas.ref import read_alike
from flowql.runtime.batch import Batch, concat
from flowql.runtime.log.base import RawBatch
from flowql.runtime.metrics import Metrics
from flowql.runtime.operators.base import NO_STATE, DeadLetter, MicroBatchContext
from flowql.runtime.operators.decode import Decoder, WallTime, union_scan
from flowql.runtime.task.input_buffer import DecodedRows
from flowql.runtime.task.key_places import KeyPlaces

# Batches kept for readers that lag behind within the same head: DECODED_MAX, or more of them while all have at most DECODED_ROWS rows.
# Readers that are further apart than these rows (a query beside its rebuild) share nothing, and each decodes for itself.
DECODED_MAX, DECODED_SMALL_MAX, DECODED_ROWS = 64, 1_024, 65_536
NOWHERE = -(1 << 62)  # far from each offset

ScanKey = tuple[Scan, str]
BatchKey = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch in the columns of the union, with what could not be read."""

    batch: Batch
    dead_letters: list[DeadLetter]


@dataclass(slots=True)
class _Kept:
    decoded: Future[Decoded]
    readers_left: int


@dataclass(slots=True)
class SharedScan:
    """All readers of a topic in one way. `lock` guards every field; decoding runs outside of it."""

    scan: Scan
    metrics: Metrics
    wall_ms: WallTime | None
    readers: dict[str, Schema] = field(default_factory=dict)  # "query/operator" -> columns it reads
    union: Schema = NO_COLUMNS
    kept: OrderedDict[BatchKey, _Kept] = field(default_factory=OrderedDict)
    kept_rows: int = 0
    places: dict[str, dict[int, int]] = field(
        default_factory=dict
    )  # reader -> partition -> offset of what it read last
    decoders: dict[tuple[Schema, bool], Decoder] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    # By reader: a new generation of a query may read another topic of that name, or one with another number of partitions.
    key_places: dict[str, KeyPlaces] = field(default_factory=dict)

    def attach(self, reader: str, schema: Schema) -> None:
        with self.lock:
            self.readers[reader], self.places[reader] = schema, {}
            self._rebuild()

    def places_of(self, reader: str) -> KeyPlaces:
        """The places of keys that this reader has seen."""
        with self.lock:
            return self.key_places.setdefault(reader, KeyPlaces())

    def detach(self, reader: str) -> None:
        with self.lock:
            self.readers.pop(reader, None)
            self.places.pop(reader, None)
            self.key_places.pop(reader, None)
            self._rebuild()

    def fits(self, schema: Schema) -> bool:
        """Whether its columns are those of the same names here: a source may be declared again, with other types."""
        with self.lock:
            return all(self.union.get(f.name) in (None, f) for f in schema)

    def _rebuild(self) -> None:
        if self.readers:
            self.union = union_scan([(self.scan, self.readers[name]) for name in sorted(self.readers)])[1]
        self.kept.clear()
        self.kept_rows = 0

    @property
    def single(self) -> bool:
        """One reader only: it may fuse decoding with the rest of its work."""
        return len(self.readers) == 1

    def meets(self, reader: str, raw: RawBatch, *, at_head: bool) -> bool:
        """Notes that `reader` is at this batch. Returns whether another one is so near that they share what is decoded.

        at_head: the batch came to all readers. One that catches up has batches of its own. One that has not read the partition yet counts as near.
        """
        with self.lock:
            self.places.setdefault(reader, {})[raw.tp.partition] = raw.first_offset if at_head else NOWHERE
            return at_head and self._near(raw) > 1

    def _near(self, raw: RawBatch) -> int:
        """Readers that are at about this offset, with the one that reads it."""
        partition, offset = raw.tp.partition, raw.first_offset
        return sum(abs(at.get(partition, offset) - offset) <= DECODED_ROWS for at in self.places.values())

    def decode(self, schema: Schema, raw: RawBatch, run: MicroBatchContext) -> DecodedRows:
        """The batch in the columns of `schema`, decoded now or taken from who decoded it first."""
        mine, kept, union = self._claim(raw)
        if mine:
            try:
                kept.decoded.set_result(self._decode(union, raw, run))
            except BaseException as error:
                kept.decoded.set_exception(error)
                with self.lock:
                    self._drop(_key(raw))
        decoded = kept.decoded.result()
        if decoded.batch.schema != schema or (decoded.dead_letters and self._fails):
            decoded = self._read_by(schema, decoded, raw, run)
        return DecodedRows(decoded.batch, decoded.batch.seq, raw.records.num_rows, decoded.dead_letters, raw)

    def decodes_jointly(self, schema: Schema) -> bool:
        """Whether batches of several partitions may be decoded at once: there is one reader, and it is the same to it of which partition a record is."""
        return self.single and not self._fails and not any(f.role == "pseudo" for f in schema)

    def decode_jointly(self, schema: Schema, vector: bool | None, raws: Sequence[RawBatch]) -> list[DecodedRows]:
        """Batches of several partitions in the columns of `schema`."""
        records = pa.concat_batches([raw.records for raw in raws])
        run, union = MicroBatchContext(NO_STATE, vector=vector), self.union
        joined = RawBatch(raws[0].tp, records, raws[-1].next_offset, sum(raw.size_bytes for raw in raws))
        decoded = self._decode(union, joined, run)
        batch = decoded.batch if decoded.batch.schema == schema else decoded.batch.select(schema)
        starts, out = np.cumsum([0, *(raw.records.num_rows for raw in raws)]), list[DecodedRows]()
        rows = np.searchsorted(batch.seq, starts).tolist()
        dead = [list[DeadLetter]() for _ in raws]
        for letter in decoded.dead_letters:
            n = int(np.searchsorted(starts, letter.seq, side="right")) - 1
            dead[n].append(replace(letter, seq=letter.seq - int(starts[n])))
        for n, raw in enumerate(raws):
            start, part = int(starts[n]), batch.slice(rows[n], rows[n + 1])
            origin = part.seq - start
            out.append(DecodedRows(part.numbered(origin), origin, raw.records.num_rows, dead[n], raw))
        return out

    def _read_by(self, schema: Schema, decoded: Decoded, raw: RawBatch, run: MicroBatchContext) -> Decoded:
        """The columns of `schema`, also of records that are bad by other columns of the union alone."""
        batch = decoded.batch.select(schema)
        if not decoded.dead_letters:
            return Decoded(batch, [])
        bad = np.unique(np.array([d.seq for d in decoded.dead_letters], np.int64))
        part = RawBatch(raw.tp, raw.records.take(pa.array(bad)), raw.next_offset, raw.size_bytes)
        own = MicroBatchContext(run.state, vector=run.vector)
        again = self._decoder(schema).decode(part, own, bad)
        if len(again):
            batch = concat(schema, [batch, again])
            batch = batch.take(np.argsort(batch.seq, kind="stable"))
        return Decoded(batch, own.dead_letters)

    def _claim(self, raw: RawBatch) -> tuple[bool, _Kept, Schema]:
        key = _key(raw)
        with self.lock:
            kept = self.kept.get(key)
            mine = kept is None
            if kept is None:
                kept = self.kept[key] = _Kept(Future(), self._near(raw))
                self.kept_rows += raw.records.num_rows
                while self._keeps_too_much():
                    self._drop(next(iter(self.kept)))
            kept.readers_left -= 1
            if kept.readers_left <= 0:
                self._drop(key)
            return mine, kept, self.union

    def _drop(self, key: BatchKey) -> None:
        if self.kept.pop(key, None) is not None:
            self.kept_rows -= key[-1]

    def _keeps_too_much(self) -> bool:
        n = len(self.kept)
        return n > DECODED_SMALL_MAX or (n > DECODED_MAX and self.kept_rows > DECODED_ROWS)

    def _decode(self, union: Schema, raw: RawBatch, run: MicroBatchContext) -> Decoded:
        self.metrics.add_decoded(raw.tp.topic, raw.records.num_rows)
        return Decoded(self._decoder(union, shared=True).decode(raw, run), run.dead_letters)

    @property
    def _fails(self) -> bool:
        """Whether a record may stop the readers of a column: those alone, so for all together it is a dead letter."""
        return any(o.action == "fail" for o in self.scan.on_error)

    def _decoder(self, schema: Schema, *, shared: bool = False) -> Decoder:
        shared = shared and self._fails
        with self.lock:
            decoder = self.decoders.get((schema, shared))
            if decoder is None:
                lenient = tuple(o for o in self.scan.on_error if o.action != "fail")
                scan = replace(self.scan, on_error=lenient) if shared else self.scan
                decoder = self.decoders[schema, shared] = Decoder(scan, schema, self.wall_ms)
            return decoder


def _key(raw: RawBatch) -> BatchKey:
    """Two reads with the same ends and as many rows have the same rows, also with a compaction in between."""
    return raw.tp.partition, raw.first_offset, raw.last_offset, raw.records.num_rows


class Scans:
    """The shared scans of an instance."""

    def __init__(self, metrics: Metrics, wall_ms: WallTime | None = None) -> None:
        self._metrics, self.wall_ms = metrics, wall_ms
        self._scans: dict[ScanKey, list[SharedScan]] = {}

    def attach(self, query: str, op: Operator) -> SharedScan:
        """The shared scan for a source operator of a query (once per operator, whatever the number of its tasks)."""
        assert isinstance(op.spec, Scan)
        reader = reader_of(query, op.id)
        alike = self._scans.setdefault(scan_key(op.spec, op.schema), [])
        known = next((s for s in alike if reader in s.readers), None)
        if known is not None:
            return known
        shared = next((s for s in alike if s.fits(op.schema)), None)
        if shared is None:
            shared = SharedScan(op.spec, self._metrics, self.wall_ms)
            alike.append(shared)
        shared.attach(reader, op.schema)
        return shared

    def release(self, query: str) -> None:
        """A query is gone."""
        for key, alike in list(self._scans.items()):
            for shared in list(alike):
                for reader in [r for r in shared.readers if r.startswith(reader_of(query, ""))]:
                    shared.detach(reader)
                if not shared.readers:
                    alike.remove(shared)
            if not alike:
                del self._scans[key]


def reader_of(query: str, operator: str) -> str:
    """The name of a source operator of a query."""
    return f"{query}/{operator}"


def scan_key(scan: Scan, schema: Schema) -> ScanKey:
    """Two readers with the same value share a decode: all that decides how a column is read, and the windows of the key.

    Not the name of the source, nor what it declares beside the columns that are read: an unchanged query keeps the scan it was
    planned with when its source gets another column.
    """
    return replace(read_alike(scan), source=""), str(schema.window)
