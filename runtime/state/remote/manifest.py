"""The manifest of a checkpoint: what a task had at one commit, and the objects that hold it.

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
from typing import NamedTuple
from urllib.parse import quote
from zlib import crc32

import msgspec

from flowql.runtime.errors import StateError
from flowql.runtime.remote.objects import ObjectDamaged, Objects

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
