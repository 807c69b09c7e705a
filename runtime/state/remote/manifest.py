"""The manifest of a checkpoint: what a task had at one commit, and the objects that hold it. Lists, checks and deletes objects by it.

<application>/tasks/<task>/manifests/<term>-<number>
<application>/tasks/<task>/runs/<store>-<partition>-<run>-<checksum>-<term>     see `flowql.runtime.state.runs.objects`
<application>/tasks/<task>/rows/<store>-<partition>-<term>-<number>             rows that are in no run, if there are many
<application>/tasks/<task>/leases/<reader>-<number>                             names of objects that a reader still needs
<application>/tasks/<task>/terms/<term>                                         who has taken a term; empty

term, number: 16 hexadecimal digits each, so names rise with time. Each owner of a task has a term of its own, and takes another one after any request
whose answer it does not know. So nobody else, and no earlier attempt, has written under its names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

import msgspec

from flowql.runtime.errors import RuntimeFailure, StateError
from flowql.runtime.remote.objects import ObjectDamaged, ObjectInfo, ObjectMissing, Objects
from flowql.runtime.state.runs.objects import RemoteBlocks, RunPlace, read_tail

FORMAT = 1
_MAGIC = b"FQCP"
INLINE_BYTES = 64 << 10  # rows of a store in the manifest itself; more of them are an object of their own

Rows = tuple[list[bytes], list[bytes]]
"""Keys without prefix, and values; `TOMBSTONE` hides what runs have."""

_encode = msgspec.msgpack.Encoder().encode
_decode_rows = msgspec.msgpack.Decoder(Rows).decode


class RunObject(NamedTuple):
    """A run that is uploaded. run: its name; size, tail_bytes: of the object; rows, checksum: as of its head."""

    run: bytes
    name: str
    size: int
    tail_bytes: int
    rows: int
    checksum: int


class StoreSection(NamedTuple):
    """One partition of a store. runs: newest first. position: its row in the physical store, None if it had none.

    rows: those in no run, or the name of the object that holds them. entry: its row in the catalog, with the id that it had there.
    """

    store: str
    partition: int
    entry: bytes
    bound: bytes | None
    floor: bytes
    position: bytes | None
    runs: list[RunObject]
    rows: Rows | str
    rows_bytes: int


class Manifest(NamedTuple):
    """writer, commit: the transactional id of the commit and its number. as_of_ms: wall clock of the instance. record: of the task."""

    task: str
    term: int
    number: int
    writer: str
    commit: int
    as_of_ms: int
    record: bytes
    stores: list[StoreSection]

    def objects(self) -> Iterator[str]:
        """The names of all objects that it needs."""
        for section in self.stores:
            yield from (run.name for run in section.runs)
            if isinstance(section.rows, str):
                yield section.rows

    def stored_bytes(self) -> int:
        """Bytes that the rows take in the store."""
        return sum(sum(run.size for run in section.runs) + section.rows_bytes for section in self.stores)


_decode_manifest = msgspec.msgpack.Decoder(Manifest).decode


class ManifestUnreadable(StateError):
    """A manifest of another version of FlowQL."""


def encode_manifest(manifest: Manifest) -> bytes:
    body = _encode(manifest)
    return _MAGIC + bytes([FORMAT]) + crc32(body).to_bytes(4, "little") + body


def read_manifest(objects: Objects, name: str) -> Manifest:
    """RemoteError, ObjectDamaged, ManifestUnreadable."""
    data = objects.get(name)
    if data[:4] != _MAGIC or len(data) < 9:
        raise ObjectDamaged(objects.url, name, "its first bytes")
    if data[4] != FORMAT:
        raise ManifestUnreadable(
            f"{name} has format {data[4]}, as another version of FlowQL writes it; this one reads {FORMAT}"
        )
    if crc32(data[9:]) != int.from_bytes(data[5:9], "little"):
        raise ObjectDamaged(objects.url, name, "its body")
    return _decode_manifest(data[9:])


def encode_rows(rows: Rows) -> bytes:
    body = _encode(rows)
    return crc32(body).to_bytes(4, "little") + body


def rows_of(objects: Objects, section: StoreSection) -> Rows:
    """The rows that are in no run. RemoteError, ObjectDamaged."""
    if not isinstance(section.rows, str):
        return section.rows
    data = objects.get(section.rows)
    if crc32(data[4:]) != int.from_bytes(data[:4], "little"):
        raise ObjectDamaged(objects.url, section.rows, "its body")
    return _decode_rows(data[4:])


def application_folder(application_id: str) -> str:
    return f"{quote(application_id, safe='')}/tasks"


def task_folder(application_id: str, task: str) -> str:
    """Where everything of a task is.

    >>> task_folder("shop", "CTAS_A/0_3")
    'shop/tasks/CTAS_A/0_3'
    """
    return f"{application_folder(application_id)}/{quote(task)}"


def task_of(folder: str) -> str:
    """The inverse of `task_folder`, as it is quoted there."""
    return folder.partition("/tasks/")[2]


def kind_of(name: str) -> str:
    """The kind of an object: manifests, runs, rows, leases or terms."""
    return name.rpartition("/")[0].rpartition("/")[2]


def manifest_name(folder: str, term: int, number: int) -> str:
    return f"{folder}/manifests/{term:016x}-{number:016x}"


def place_of(name: str) -> tuple[int, int]:
    """Term and number in the name of a manifest."""
    term, _, number = name.rpartition("/")[2].partition("-")
    return int(term, 16), int(number, 16)


def run_object_name(folder: str, store: str, partition: int, run: bytes, checksum: int, term: int) -> str:
    return f"{folder}/runs/{quote(store, safe='')}-{partition}-{run.hex()}-{checksum:08x}-{term:016x}"


def rows_object_name(folder: str, store: str, partition: int, term: int, number: int) -> str:
    return f"{folder}/rows/{quote(store, safe='')}-{partition}-{term:016x}-{number:016x}"


def lease_name(folder: str, reader: str, number: int) -> str:
    return f"{folder}/leases/{quote(reader, safe='')}-{number:016x}"


def term_name(folder: str, term: int) -> str:
    return f"{folder}/terms/{term:016x}"


def take_term(objects: Objects, folder: str, above: int) -> int:
    """A term that nobody has had, above the newest manifest's. RemoteError."""
    known = [int(found.name.rpartition("/")[2], 16) for found in objects.list(f"{folder}/terms")]
    term = max([above, *known]) + 1
    while not objects.put_new(term_name(folder, term), b""):
        term += 1
    return term


def newest_manifests(objects: Objects, folder: str) -> Sequence[str]:
    """The names of the manifests of a task, newest first. RemoteError."""
    return sorted((found.name for found in objects.list(f"{folder}/manifests")), reverse=True)


READ_BLOCKS = 1_024  # about 8 MB


@dataclass(frozen=True, slots=True)
class StoredTask:
    """task: its name. folder: where its objects are. modified_ms: of the newest one, by the store's clock.

    newest: None if no manifest can be read; problem: why.
    """

    task: str
    folder: str
    objects: int
    size: int
    modified_ms: int
    newest: Manifest | None
    problem: str = ""


def stored_tasks(objects: Objects, application_id: str) -> list[StoredTask]:
    """By name. RemoteError."""
    found: dict[str, list[ObjectInfo]] = {}
    for each in objects.list(application_folder(application_id)):
        if kind_of(each.name) == "terms":  # the first thing of a task, before there is anything to tell
            continue
        found.setdefault(each.name.rpartition("/")[0].rpartition("/")[0], []).append(each)
    return [_stored(objects, folder, of) for folder, of in sorted(found.items())]


def _stored(objects: Objects, folder: str, of: Sequence[ObjectInfo]) -> StoredTask:
    newest, problem = None, "no manifest"
    for name in newest_manifests(objects, folder)[:1]:
        try:
            newest, problem = read_manifest(objects, name), ""
        except RuntimeFailure as error:
            problem = str(error)
    size, modified_ms = sum(o.size for o in of), max(o.modified_ms for o in of)
    return StoredTask(unquote(task_of(folder)), folder, len(of), size, modified_ms, newest, problem)


def problems(objects: Objects, manifest: Manifest) -> Iterator[str]:
    """A sentence for each object of a checkpoint that is not as it was written. Reads every byte."""
    for section in manifest.stores:
        try:
            rows_of(objects, section)
        except RuntimeFailure as error:
            yield str(error)
        yield from _of_runs(objects, section)


def _of_runs(objects: Objects, section: StoreSection) -> Iterator[str]:
    for run in section.runs:
        try:
            tail = read_tail(objects.url, run.name, run.size, run.tail_bytes)
            blocks = RemoteBlocks(RunPlace(objects.url, run.name, tail.sizes, tail.checksums))
            for begin in range(0, len(blocks), READ_BLOCKS):
                blocks.submit(range(begin, min(len(blocks), begin + READ_BLOCKS))).result()
        except RuntimeFailure as error:
            yield str(error)


KEPT_MS = 3_600_000  # how long after it was replaced a manifest and its objects stay
LEASE_MS = 3_600_000  # a reader renews its lease far more often


@dataclass(frozen=True, slots=True)
class Garbage:
    """names: what can be deleted; size: its bytes. kept: objects that are needed; newest: term of the newest manifest, 0 if there is none."""

    names: Sequence[str]
    size: int
    kept: int
    newest: int


def write_lease(objects: Objects, folder: str, reader: str, number: int, names: Sequence[str]) -> None:
    """Says that these objects are still read by somebody who may own no task. number: rises, so that no moment is without a lease. RemoteError."""
    name = lease_name(folder, reader, number)
    objects.put_new(name, msgspec.msgpack.encode(list(names)))
    former = lease_name(folder, reader, 0).rpartition("-")[0]
    mine = (found.name for found in objects.list(f"{folder}/leases") if found.name.rpartition("-")[0] == former)
    objects.delete([old for old in mine if old < name])


def garbage_of(objects: Objects, folder: str, kept_ms: int = KEPT_MS) -> Garbage:
    """Finds what can be deleted of a task. A manifest that was replaced stays for `kept_ms`, and objects that no manifest names stay as long after their upload.

    The store's own clock counts: times of objects are compared with that of the newest one. RemoteError.
    """
    found = list(objects.list(folder))
    now_ms = max((o.modified_ms for o in found), default=0)
    by_kind: dict[str, list[ObjectInfo]] = {}
    for o in found:
        by_kind.setdefault(kind_of(o.name), []).append(o)
    manifests = sorted(by_kind.get("manifests", ()), key=lambda o: o.name)
    old = [a for a, b in pairwise(manifests) if now_ms - b.modified_ms >= kept_ms]
    leases = by_kind.get("leases", ())
    over = [lease for lease in leases if now_ms - lease.modified_ms >= LEASE_MS]
    needed: set[str] = set()
    for manifest in manifests[len(old) :]:
        needed |= _needed(objects, manifest.name)
    for lease in leases:
        if lease not in over:
            needed |= set(_lease(objects, lease.name))
    data = [o for kind in ("runs", "rows") for o in by_kind.get(kind, ())]
    unused = [o for o in data if o.name not in needed and now_ms - o.modified_ms >= kept_ms]
    newest = place_of(manifests[-1].name)[0] if manifests else 0
    terms = [o for o in by_kind.get("terms", ()) if o.name < term_name(folder, newest)]
    gone = [*old, *over, *unused, *terms]
    return Garbage([o.name for o in gone], sum(o.size for o in gone), len(found) - len(gone), newest)


def dropped(objects: Objects, folder: str, now_ms: int, kept_ms: int = KEPT_MS) -> Garbage:
    """All objects of a task that is no longer deployed, `kept_ms` after its last object was written.

    now_ms: by the store's own clock, that of the newest object of the application. RemoteError.
    """
    found = list(objects.list(folder))
    if any(now_ms - o.modified_ms < kept_ms for o in found):
        return Garbage((), 0, len(found), 0)
    return Garbage([o.name for o in found], sum(o.size for o in found), 0, 0)


def _needed(objects: Objects, name: str) -> set[str]:
    """The objects that a manifest names; none if it has been deleted meanwhile. RemoteError, ManifestUnreadable."""
    try:
        return set(read_manifest(objects, name).objects())
    except (ObjectMissing, ObjectDamaged):
        return set()


def _lease(objects: Objects, name: str) -> list[str]:
    try:
        return msgspec.msgpack.decode(objects.get(name), type=list[str])
    except (ObjectMissing, msgspec.DecodeError):  # it was renewed or is over; another error ends the collection
        return []
