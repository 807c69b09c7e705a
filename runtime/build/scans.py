"""Shared scans: a topic is decoded once per batch for all queries that read it in the same way.

Readers of one topic with the same formats and time column share a decoder over the union of the columns they need. The first that
asks for a batch decodes it, the others wait for that result and take their columns; it is dropped when all have had it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass, field

from compiler.plan.logical import Scan
from compiler.plan.schema import NO_COLUMNS, Schema
from compiler.plan.topology import Operator
from runtime.batch import Batch
from runtime.log.base import RawBatch
from runtime.metrics import Metrics
from runtime.operators.base import DeadLetter, RunContext
from runtime.operators.decode import Decoder, union_scan
from runtime.task.input_buffer import Staged

DECODED_MAX = 64  # batches kept for readers that lag behind within the same head

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
    readers: dict[str, Schema] = field(default_factory=dict)  # "query/operator" -> columns it reads
    union: Schema = NO_COLUMNS
    kept: OrderedDict[BatchKey, _Kept] = field(default_factory=OrderedDict)
    decoders: dict[Schema, Decoder] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def attach(self, reader: str, schema: Schema) -> None:
        with self.lock:
            self.readers[reader] = schema
            self._rebuild()

    def detach(self, reader: str) -> None:
        with self.lock:
            self.readers.pop(reader, None)
            self._rebuild()

    def _rebuild(self) -> None:
        if self.readers:
            self.union = union_scan([(self.scan, self.readers[name]) for name in sorted(self.readers)])[1]
        self.kept.clear()

    @property
    def single(self) -> bool:
        """One reader only: it may fuse decoding with the rest of its work."""
        return len(self.readers) == 1

    def decode(self, schema: Schema, raw: RawBatch, run: RunContext) -> Staged:
        """The batch in the columns of `schema`, decoded now or taken from who decoded it first."""
        mine, kept, union = self._claim(raw)
        if mine:
            try:
                kept.decoded.set_result(self._decode(union, raw, run))
            except BaseException as error:
                kept.decoded.set_exception(error)
                with self.lock:
                    self.kept.pop(_key(raw), None)
        decoded = kept.decoded.result()
        batch = decoded.batch if decoded.batch.schema == schema else decoded.batch.select(schema)
        return Staged(batch, decoded.batch.seq, raw.records.num_rows, decoded.dead_letters, raw)

    def _claim(self, raw: RawBatch) -> tuple[bool, _Kept, Schema]:
        key = _key(raw)
        with self.lock:
            kept = self.kept.get(key)
            mine = kept is None
            if kept is None:
                kept = self.kept[key] = _Kept(Future(), len(self.readers))
                while len(self.kept) > DECODED_MAX:
                    self.kept.popitem(last=False)
            kept.readers_left -= 1
            if kept.readers_left <= 0:
                self.kept.pop(key, None)
            return mine, kept, self.union

    def _decode(self, union: Schema, raw: RawBatch, run: RunContext) -> Decoded:
        self.metrics.add_decoded(raw.tp.topic, raw.records.num_rows)
        with self.lock:
            decoder = self.decoders.get(union)
            if decoder is None:
                decoder = self.decoders[union] = Decoder(self.scan, union)
        return Decoded(decoder.decode(raw, run), run.dead_letters)


def _key(raw: RawBatch) -> BatchKey:
    """Of two reads with the same ends and as many rows the rows are the same, also when compaction came in between."""
    return raw.tp.partition, raw.first_offset, raw.last_offset, raw.records.num_rows


class Scans:
    """The shared scans of an instance."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._scans: dict[ScanKey, SharedScan] = {}

    def attach(self, query: str, op: Operator) -> SharedScan:
        """The shared scan for a source operator of a query (once per operator, whatever the number of its tasks)."""
        assert isinstance(op.spec, Scan)
        key = scan_key(op.spec, op.schema)
        shared = self._scans.get(key)
        if shared is None:
            shared = self._scans[key] = SharedScan(op.spec, self._metrics)
        if f"{query}/{op.id}" not in shared.readers:
            shared.attach(f"{query}/{op.id}", op.schema)
        return shared

    def release(self, query: str) -> None:
        """A query is gone."""
        for key, shared in list(self._scans.items()):
            for reader in [r for r in shared.readers if r.startswith(f"{query}/")]:
                shared.detach(reader)
            if not shared.readers:
                del self._scans[key]


def scan_key(scan: Scan, schema: Schema) -> ScanKey:
    """What must agree for two readers to share a decode: all of the scan but the name of the source."""
    return Scan("", *(getattr(scan, f) for f in scan.__dataclass_fields__ if f != "source")), str(schema.window)
