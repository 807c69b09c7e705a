"""The bid generator: same bids however they are cut, and records that a Kafka client would agree with."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from flowql.bench.nexmark import BID_SCHEMA, BLOCK, bids, json_values, records
from flowql.runtime.log.base import PRODUCE_SCHEMA
from flowql.runtime.log.murmur2 import partition_for


@cache
def table(events: int, chunk: int = BLOCK) -> pa.Table:
    return pa.Table.from_batches(bids(events, chunk=chunk), BID_SCHEMA).combine_chunks()


@pytest.mark.parametrize(("events", "chunk"), [(1, 1), (999, 100), (BLOCK, BLOCK), (BLOCK + 1, 30_000), (0, 10)])
def test_bids_do_not_depend_on_how_many_or_how_cut(events: int, chunk: int) -> None:
    cut = list(bids(events, chunk=chunk))
    assert [b.num_rows for b in cut[:-1]] == [chunk] * (len(cut) - 1)
    assert (
        pa.Table.from_batches(cut, BID_SCHEMA)
        .combine_chunks()
        .equals(table(BLOCK + 5_000).slice(0, events).combine_chunks())
    )


def test_another_seed_gives_other_bids() -> None:
    assert not next(bids(100, seed=1)).equals(next(bids(100, seed=2)))


def test_the_timeline_and_the_hot_keys() -> None:
    rows = table(50_000)
    times = np.asarray(rows["dateTime"])
    assert (np.diff(times) >= 0).all()
    # 50,000 bids are 46 of every 50 events, at 10,000 events per second.
    assert times[-1] - times[0] == pytest.approx(50_000 / 46 * 50 / 10, rel=0.01)
    auctions = np.asarray(rows["auction"])
    hot = np.mean((auctions - 1000) % 100 == 0)
    assert 0.45 < hot < 0.56
    assert np.asarray(rows["price"]).min() >= 100
    assert np.asarray(rows["price"]).max() <= 100_000_000


def test_values_are_json_of_the_row() -> None:
    batch = next(bids(500))
    values = json_values(batch).to_pylist()
    assert [json.loads(v) for v in values] == batch.to_pylist()
    assert 170 < sum(map(len, values)) / len(values) < 230


def test_records_are_partitioned_by_auction_in_digits_in_order() -> None:
    batch = next(bids(2_000))
    got: dict[int, list[dict[str, object]]] = {}
    for partition, made in records(bids(2_000, chunk=300), partitions=4):
        assert made.schema == PRODUCE_SCHEMA
        got.setdefault(partition, []).extend(made.to_pylist())
    want: dict[int, list[tuple[int, bytes, bytes]]] = {}
    for row, value in zip(batch.to_pylist(), json_values(batch).to_pylist(), strict=True):
        key = str(row["auction"]).encode()
        want.setdefault(partition_for(key, 4), []).append((row["dateTime"], key, value))
    assert {p: [(r["timestamp"], r["key"], r["value"]) for r in rows] for p, rows in got.items()} == want
    assert len(want) == 4
