"""How the writes of a commit are split into batches of the physical store."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from flowql.runtime.state import physical
from flowql.runtime.state.memory import MemoryPhysical
from flowql.runtime.state.physical import ByteRange, WriteGuard


class Noted(MemoryPhysical):
    """Notes each batch: its rows and its ranges."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[list[tuple[bytes, bytes | None]], list[ByteRange]]] = []

    def write_batch(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], ranges: Sequence[ByteRange] = ()
    ) -> None:
        self.batches.append((list(zip(keys, values, strict=True)), list(ranges)))
        super().write_batch(keys, values, ranges)


def test_a_batch_is_as_large_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(physical, "BATCH_BYTES_MAX", 100)
    store = Noted()
    guard = WriteGuard(store)
    with guard.permit("apply"):
        guard.write([b"%d" % n for n in range(6)], [bytes(50)] * 6)
    assert [len(batch) for batch, _ in store.batches] == [2, 2, 2]


@pytest.mark.parametrize("seed", range(30))
def test_batches_are_bounded_in_rows_and_in_bytes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """RocksDB's client holds the interpreter lock during a write: batches of a repartition, of 200 KB each, held it for 12 ms."""
    monkeypatch.setattr(physical, "BATCH_ROWS_MAX", 7)
    monkeypatch.setattr(physical, "BATCH_BYTES_MAX", 100)
    chance, store = random.Random(seed), Noted()
    sizes = [chance.choice((None, 0, 1, 30, 99, 100, 101, 400)) for _ in range(chance.randint(0, 40))]
    rows = [(b"k%03d" % n, None if size is None else bytes(size)) for n, size in enumerate(sizes)]
    guard, last, ranges = WriteGuard(store), ([b"z"], [b"marker"]), [(b"a", b"b")]
    with guard.permit("apply"):
        guard.write([k for k, _ in rows], [v for _, v in rows], ranges, last)
    assert [row for batch, _ in store.batches for row in batch] == [*rows, (b"z", b"marker")]
    assert [r for _, r in store.batches] == [ranges, *[[]] * (len(store.batches) - 1)]
    for number, (batch, _) in enumerate(store.batches):
        own = batch[:-1] if number == len(store.batches) - 1 else batch
        assert own or len(store.batches) == 1
        assert len(batch) <= 7
        assert len(own) <= 1 or sum(len(v or b"") for _, v in own) <= 100
