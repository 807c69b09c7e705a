"""A query's history as another engine has computed it: results, state and positions, in files that an instance loads.

A folder holds *parts* (Arrow IPC streams of rows of HISTORY_SCHEMA, one part per task of the other engine) and a manifest, which is written last
and names every part with its size and checksum, so that an incomplete folder is never taken for a complete one. All names are those of generation 1; the
generation that loads it has numbers of its own. Kinds of rows:

- `sink`: `ipc` is an Arrow stream of PRODUCE_SCHEMA records for (topic, partition), in the order of (source, seq)
- `dead`: the same for the dead-letter topic
- `rows`: `topic` is a store, `partition` the task's, `source` its sub-topology; `ipc` is msgpack of changelog keys and values
- `task`: `ipc` is the metadata of the task (sub-topology `source`, `partition`): stream times, positions, what was late
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa

from flowql.compiler.plan.codec import to_data
from flowql.compiler.plan.generations import at_generation
from flowql.compiler.plan.logical import Sink
from flowql.compiler.plan.topology import Operator, QueryPlan
from flowql.runtime.errors import HandoverUnfit
from flowql.runtime.log.files import DiskFiles
from flowql.runtime.state.frozen import BOUND_RECORD
from flowql.runtime.state.layout import StoreEntry

FORMAT = 1
MANIFEST = "manifest.json"
SINK, DEAD, ROWS, TASK = "sink", "dead", "rows", "task"
ROWS_PER_PAGE = 4_096  # of changelog rows in one row of HISTORY_SCHEMA

HISTORY_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("source", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("ipc", pa.binary()),
    ]
)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[list[bytes], list[bytes]]).decode


class HistoryRow(NamedTuple):
    """One row of a part."""

    kind: str
    topic: str
    partition: int
    source: int
    seq: int
    data: pa.Buffer


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """A file of the folder. rows: of HISTORY_SCHEMA."""

    name: str
    bytes: int
    checksum: str
    rows: int


@dataclass(frozen=True, slots=True)
class HistoryManifest:
    """The content of a folder, and its query.

    definition and shape: of the query; they must be those of the query that loads it. partitions: of every topic that decides how
    many tasks there are. starts, ends: topic -> partition -> offset: the history is [start, end). records, letters, state_rows: how many there are in
    all parts. tasks: how many have metadata.
    """

    query: str
    definition: str
    shape: str
    partitions: Mapping[str, int]
    starts: Mapping[str, Mapping[str, int]]
    ends: Mapping[str, Mapping[str, int]]
    records: int
    letters: int
    state_rows: int
    tasks: int
    parts: tuple[HistoryPart, ...]
    format: int = FORMAT


def shape_of(query: QueryPlan) -> str:
    """A checksum of the query's operators and stores, whatever its generation and wherever it writes: state fits only where they are the same."""
    subs = [
        (sub.number, [_without_target(op) for op in sub.operators]) for sub in at_generation(query, 1).subtopologies
    ]
    return hashlib.blake2b(json.dumps(to_data(subs), sort_keys=True).encode(), digest_size=16).hexdigest()


def _without_target(op: Operator) -> Operator:
    return replace(op, spec=replace(op.spec, topic="")) if isinstance(op.spec, Sink) else op


def encode_page(keys: list[bytes], values: list[bytes]) -> bytes:
    """Changelog rows as the payload of one row of kind `rows`."""
    return _encode((keys, values))


def decode_page(data: pa.Buffer) -> tuple[list[bytes], list[bytes]]:
    """The inverse of `encode_page`."""
    return _decode(memoryview(data))


def changelog_rows(
    entries: Iterable[StoreEntry], rows: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[str, bytes, bytes]]:
    """Physical rows of one task as (store, changelog key, value); see `flowql.runtime.state.layout` for both forms."""
    by_prefix = {e.prefix(p): e for e in entries for p in e.partitions}
    by_bound = {e.bound_key(p): e for e in by_prefix.values() for p in e.partitions}
    length = len(next(iter(by_prefix), b""))
    for key, value in rows:
        entry = by_prefix.get(key[:length])
        if entry is None:
            yield by_bound[key].spec.name, BOUND_RECORD, value
        else:
            segment = 0 if entry.segment_ms is None else 4
            yield entry.spec.name, key[length + segment :], value


def write_part(folder: Path, batches: Iterable[pa.RecordBatch], maker: str) -> HistoryPart:
    """Writes batches of HISTORY_SCHEMA as one part, durable when this returns. maker: is in its name, which no other part has."""
    folder.mkdir(parents=True, exist_ok=True)
    path, opened = _new_file(folder, maker)
    rows = 0
    with opened as file:
        with pa.ipc.new_stream(file, HISTORY_SCHEMA) as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=HISTORY_SCHEMA))
        file.flush()
        os.fsync(file.fileno())
    return HistoryPart(path.name, path.stat().st_size, _checksum(path), rows)


def _new_file(folder: Path, maker: str) -> tuple[Path, BinaryIO]:
    """A file that no other process, living or dead, has made."""
    for n in count():
        path = folder / f"part-{maker}-{n}.arrow"
        with suppress(FileExistsError):
            return path, path.open("xb")
    raise AssertionError("unreachable")


def write_manifest(folder: Path, manifest: HistoryManifest) -> None:
    """Last of all: from then on the folder is complete."""
    new = folder / f"{MANIFEST}.new"
    with new.open("w") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(folder / MANIFEST)
    DiskFiles().fsync_dir(str(folder))


class ComputedHistory:
    """A complete folder whose parts are as its manifest says. Raises HandoverUnfit."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.manifest = folder, _read_manifest(folder)
        for part in self.manifest.parts:
            path = folder / part.name
            if not path.is_file() or path.stat().st_size != part.bytes or _checksum(path) != part.checksum:
                raise HandoverUnfit(f"{path} is missing or differs from what was written")

    def rows(self, *kinds: str) -> Iterator[HistoryRow]:
        """All rows of these kinds; payloads are views of mapped files."""
        for part in self.manifest.parts:
            with pa.memory_map(str(self.folder / part.name)) as file, pa.ipc.open_stream(file) as reader:
                for batch in reader:
                    yield from _rows(batch, kinds)

    def metadata(self) -> dict[tuple[int, int], bytes]:
        """(sub-topology, partition) -> metadata of the task, of those that had records."""
        found = {(r.source, r.partition): r.data.to_pybytes() for r in self.rows(TASK)}
        if len(found) != self.manifest.tasks:
            raise HandoverUnfit(f"{self.folder} has {len(found)} tasks, its manifest says {self.manifest.tasks}")
        return found

    def records(self, kind: str) -> dict[int, list[pa.RecordBatch]]:
        """Records of results (SINK) or dead letters (DEAD) by partition, in order (PRODUCE_SCHEMA)."""
        rows = sorted(self.rows(kind), key=lambda r: (r.partition, r.source, r.seq))
        found: dict[int, list[pa.RecordBatch]] = {}
        for row in rows:
            with pa.ipc.open_stream(row.data) as reader:
                found.setdefault(row.partition, []).extend(b for b in reader if b.num_rows)
        rows_found = sum(b.num_rows for batches in found.values() for b in batches)
        expected = self.manifest.records if kind == SINK else self.manifest.letters
        if rows_found != expected:
            raise HandoverUnfit(f"{self.folder} has {rows_found} rows of kind {kind}, its manifest says {expected}")
        return found


def _rows(batch: pa.RecordBatch, kinds: tuple[str, ...]) -> Iterator[HistoryRow]:
    plain = [batch.column(i).to_pylist() for i in range(5)]
    payload = batch.column(5)
    for i, (kind, topic, partition, source, seq) in enumerate(zip(*plain, strict=True)):
        if kind in kinds:
            yield HistoryRow(kind, topic, partition, source, seq, payload[i].as_buffer())


def _read_manifest(folder: Path) -> HistoryManifest:
    try:
        data: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise HandoverUnfit(f"{folder} holds no complete history: {error}") from error
    if data.get("format") != FORMAT:
        raise HandoverUnfit(f"{folder} has format {data.get('format')}; this FlowQL reads {FORMAT}")
    return HistoryManifest(**{**data, "parts": tuple(HistoryPart(**p) for p in data["parts"])})


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
