"""A run as one object of a remote store: its blocks, then a tail by which single blocks are found and checked.

    blocks  tail  crc32 of the tail(4)

A run whose blocks are not here has a row that names its object, `RunPlace`. Its head, fences and filter are rows as those of any other run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np

from flowql.runtime.batch import Ints
from flowql.runtime.errors import StateError
from flowql.runtime.remote.objects import ObjectDamaged, RemoteError, objects_at

_AHEAD = 64  # blocks that a scan reads at once
_GAP = 8  # blocks that are read for nothing rather than asking twice
_RANGE = 128  # blocks of one request at most: about 1 MB
_KEPT_MAX = 1_024  # blocks of a run that were read and are not written here yet: 8 MB


class Tail(NamedTuple):
    """head, fences, filter: as the rows of the run have them. sizes, checksums: of each block, four bytes each."""

    head: bytes
    fences: bytes
    filter: bytes
    sizes: bytes
    checksums: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode_tail = msgspec.msgpack.Decoder(Tail).decode


class BlocksAway(StateError, code="FQ4091", retriable=True):
    """Blocks of a run are in a remote store that does not answer, or they cannot be read there any more. The same call succeeds later: the second case
    ends with rows that come from the changelog (`BlockCopier`).
    """


class RunPlace(NamedTuple):
    """Where the blocks of a run are that are not here. sizes, checksums: as of `Tail`."""

    url: str
    name: str
    sizes: bytes
    checksums: bytes

    def record(self) -> bytes:
        return _encode(self)


place_from_record = msgspec.msgpack.Decoder(RunPlace).decode


class ObjectTail:
    """Made along with the blocks of an object."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._checksums: list[int] = []

    def add(self, blocks: Sequence[bytes]) -> None:
        self._sizes += map(len, blocks)
        self._checksums += map(crc32, blocks)

    def encode(self, head: bytes, fences: bytes, filter_: bytes) -> bytes:
        """The bytes that follow the blocks."""
        tables = [np.array(of, "<u4").tobytes() for of in (self._sizes, self._checksums)]
        tail = _encode(Tail(head, fences, filter_, *tables))
        return tail + crc32(tail).to_bytes(4, "little")


def read_tail(url: str, name: str, size: int, tail_bytes: int) -> Tail:
    """The tail of an object. size, tail_bytes: of the object and its tail, by the manifest. RemoteError."""
    data = objects_at(url).get_range(name, size - tail_bytes, tail_bytes)
    if len(data) != tail_bytes or crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ObjectDamaged(url, name, "its tail")
    return _decode_tail(data[:-4])


class RemoteBlocks:
    """The blocks of one run, read when they are asked for. Any thread."""

    def __init__(self, place: RunPlace) -> None:
        self.place = place
        self._ends: Ints = np.concatenate([[0], np.frombuffer(place.sizes, "<u4").astype(np.int64).cumsum()])
        self._checksums = np.frombuffer(place.checksums, "<u4")
        self.read: dict[int, bytes] = {}  # the last ones; whoever copies blocks takes them from here

    def __len__(self) -> int:
        return len(self._checksums)

    def size(self, number: int) -> int:
        """Bytes of a block."""
        return int(self._ends[number + 1] - self._ends[number])

    def submit(self, numbers: Sequence[int]) -> Future[dict[int, bytes]]:
        """Blocks that lie side by side, without waiting. RemoteError, of which ObjectMissing and ObjectDamaged do not pass."""
        return objects_at(self.place.url).submit(self._range, numbers[0], numbers[-1] + 1)

    def fetch(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Some blocks, which rise, and what is read along with them. BlocksAway."""
        found = {n: block for n in numbers if (block := self.read.get(n)) is not None}
        wanted = [n for n in numbers if n not in found]
        if wanted:
            try:
                objects = objects_at(self.place.url)
                asked = [objects.submit(self._range, begin, end) for begin, end in self._ranges(wanted)]
                for answer in asked:
                    found |= answer.result()
            except RemoteError as error:
                raise BlocksAway(str(error)) from error
            self._keep(found)
        return found

    def _keep(self, blocks: dict[int, bytes]) -> None:
        self.read |= blocks
        for n in list(self.read)[: max(0, len(self.read) - _KEPT_MAX)]:
            self.read.pop(n, None)

    def _ranges(self, wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
        if len(wanted) > 1 and wanted[-1] - wanted[0] == len(wanted) - 1:  # a scan, which will go on
            yield wanted[0], min(len(self), max(wanted[-1] + 1, wanted[0] + _AHEAD))
            return
        begin = end = wanted[0]
        for n in wanted:
            if n - end > _GAP or n - begin >= _RANGE:
                yield begin, end
                begin = n
            end = n + 1
        yield begin, end

    def _range(self, begin: int, end: int) -> dict[int, bytes]:
        """Blocks from one to before another. RemoteError."""
        low, high = int(self._ends[begin]), int(self._ends[end])
        data = objects_at(self.place.url).get_range(self.place.name, low, high - low)
        found: dict[int, bytes] = {}
        for n in range(begin, end):
            block = data[int(self._ends[n]) - low : int(self._ends[n + 1]) - low]
            if crc32(block) != self._checksums[n]:
                raise ObjectDamaged(self.place.url, self.place.name, f"block {n}")
            found[n] = block
        return found
