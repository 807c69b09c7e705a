"""Output on its way out: by partition, and without records that later ones of the epoch overwrite."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowql.runtime.log.base import TopicPartition
from flowql.runtime.log.murmur2 import partition_for
from flowql.runtime.output.collector import RecordCollector, suppress
from flowql.runtime.output.partitioner import split

KEYS = st.lists(st.sampled_from([b"", b"a", b"b", b"cc", b"d"]), max_size=12)


def made(keys: list[bytes | None], first: int = 0) -> pa.RecordBatch:
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "n": pa.array(range(first, first + len(keys)), pa.int64())}
    )


@given(st.lists(KEYS, min_size=1, max_size=4))
def test_of_records_with_one_key_the_last_leaves_in_its_place(parts: list[list[bytes]]) -> None:
    batches = [made(list(keys), 100 * n) for n, keys in enumerate(parts)]
    every = [row for batch in batches for row in batch.to_pylist()]
    last = {row["key"]: row["n"] for row in every}
    assert suppress(batches).to_pylist() == [row for row in every if last[row["key"]] == row["n"]]


@pytest.mark.parametrize("hot", [1, 2, 4])
def test_however_many_partitions_are_hot_there_is_room_for_another(hot: int) -> None:
    records, rng = made([b"a"] * 10), Random(hot)
    collector = RecordCollector(bytes_max := 300 * records.nbytes)
    writers = list(range(hot))
    while writers:
        writer = rng.choice(writers)
        collector.add(TopicPartition("t", writer), records, "q", writer)
        if collector.holds_up(writer):
            writers.remove(writer)
    assert 2 * bytes_max / 3 <= collector.size_bytes < bytes_max, "one that is alone gets two thirds"
    assert not collector.full
    collector.add(TopicPartition("t", hot), records, "q", hot)
    assert not collector.holds_up(hot)
    assert collector.crowded
    collector.cut()
    assert not collector.crowded


def test_records_of_which_one_has_no_key_all_leave() -> None:
    assert suppress([made([b"a", None]), made([b"a"], 2)]).num_rows == 3


@given(st.lists(st.one_of(st.none(), st.binary(max_size=3)), max_size=20), st.integers(1, 40), st.integers(0, 3))
def test_records_go_to_the_partition_of_their_key_in_their_order(
    keys: list[bytes | None], partitions: int, own: int
) -> None:
    parts = split(made(keys), partitions, own)
    assert [p for p, _ in parts] == sorted({p for p, _ in parts})
    for p, records in parts:
        of_p = [
            n
            for n, key in enumerate(keys)
            if (own % partitions if key is None else partition_for(key, partitions)) == p
        ]
        assert records["n"].to_pylist() == of_p
    assert sum(records.num_rows for _, records in parts) == len(keys)
